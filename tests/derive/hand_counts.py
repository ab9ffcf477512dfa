"""FLOPs of the products in a forward of well-known models, counted by hand from their sizes."""

from __future__ import annotations

from typing import Any


def head_width(n: Any) -> int:
    """d/h where a model has no head width of its own."""
    return int(getattr(n, "k", n.d // n.h))


def decoder(n: Any, kv: int, feed_forward: int, head: int) -> int:
    """Projections of queries and output (d to h k), of keys and values (d to g k), attention, what follows, a head."""
    q, tokens = n.h * head_width(n), n.B * n.T
    return n.L * (2 * tokens * n.d * (2 * q + 2 * kv) + 4 * n.B * n.T**2 * q + feed_forward) + head


def gpt2(n: Any) -> int:
    tokens = n.B * n.T
    return decoder(n, n.h * head_width(n), 4 * tokens * n.d * n.f, 2 * tokens * n.d * n.V)


def llama(n: Any) -> int:
    tokens = n.B * n.T
    return decoder(n, n.g * head_width(n), 6 * tokens * n.d * n.f, 2 * tokens * n.d * n.V)


def mixtral(n: Any) -> int:
    """Every token meets e experts and the router."""
    tokens = n.B * n.T
    return decoder(n, n.g * head_width(n), 6 * tokens * n.e * n.d * n.f + 2 * tokens * n.d * n.E, 2 * tokens * n.d * n.V)


def bert(n: Any) -> int:
    """A head with a layer of its own."""
    tokens = n.B * n.T
    return decoder(n, n.h * head_width(n), 4 * tokens * n.d * n.f, 2 * tokens * n.d * (n.d + n.V))


def t5(n: Any) -> int:
    """An encoder over T, a decoder over S that looks at both; as a denoiser of text, it gives back as many tokens as it reads."""
    S = getattr(n, "S", n.T)
    inner, source, target = n.h * head_width(n), n.B * n.T, n.B * S
    encoder = 8 * source * n.d * inner + 4 * n.B * n.T**2 * inner + 4 * source * n.d * n.f
    itself = 8 * target * n.d * inner + 4 * n.B * S**2 * inner
    across = 4 * target * n.d * inner + 4 * source * n.d * inner + 4 * n.B * S * n.T * inner
    return n.L * (encoder + itself + across + 4 * target * n.d * n.f) + 2 * target * n.d * n.V


def vit(n: Any) -> int:
    n.T = (n.S // n.P) ** 2 + 1
    return decoder(n, n.h * head_width(n), 4 * n.B * n.T * n.d * n.f, 2 * n.B * n.d * n.K) + patches(n)


def patches(n: Any) -> int:
    return 2 * n.B * 3 * n.S**2 * n.d


def mamba(n: Any) -> int:
    """Twice as wide inside; a depthwise convolution of 4, whose padding makes 3 positions more; a rank of d / 16; a state of s."""
    inner, rank, tokens = 2 * n.d, -(-n.d // 16), n.B * n.T
    projections = 2 * tokens * (n.d * 2 * inner + inner * (rank + 2 * n.state_size) + rank * inner + inner * n.d)
    return n.L * (projections + 2 * n.B * (n.T + 3) * 4 * inner + 2 * tokens * inner * n.state_size) + 2 * tokens * n.d * n.V


def resnet18(n: Any) -> int:
    """Kernel area × channels in × channels out × positions, of every convolution; a head."""
    s, w = n.S // 4, n.w
    macs = 9 * w * w * s**2 * 4
    for _ in range(3):
        s, w = s // 2, 2 * w
        macs += (9 * w * (w // 2) + 9 * w * w * 3 + w * (w // 2)) * s**2
    return 2 * n.B * (macs + w * n.K) + stem(n)


def stem(n: Any) -> int:
    return 2 * n.B * 49 * 3 * n.w * (n.S // 2) ** 2


def resnet50(n: Any) -> int:
    """Bottlenecks of 1 x 1, 3 x 3 with the stride, 1 x 1."""
    s, w, inner, macs = n.S // 4, n.w, n.w, 0
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            halved = s // 2 if stage and block == 0 else s
            macs += inner * w * s**2 + (9 * w * w + 4 * w * w + (4 * inner * w if block == 0 else 0)) * halved**2
            s, inner = halved, 4 * w
        w *= 2
    return 2 * n.B * (macs + inner * n.K) + stem(n)


def encoder(n: Any) -> int:
    tokens = n.B * n.T
    return 2 * (8 * tokens * n.d**2 + 4 * n.B * n.T**2 * n.d + 4 * tokens * n.d * n.f)
