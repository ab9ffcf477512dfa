"""Networks as people build them, as small as they can be made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from calc.dims import Dim
from tests.zoo.exhibit import network

# -- multilayer perceptrons ---------------------------------------------------------------------------------------------------

SMOOTH = (
    nn.GELU(),
    nn.GELU(approximate="tanh"),
    nn.SiLU(),
    nn.Tanh(),
    nn.Sigmoid(),
    nn.Softplus(),
    nn.Mish(),
    nn.LogSigmoid(),
    nn.Softsign(),
)
KINKED = (
    nn.ReLU(),
    nn.LeakyReLU(),
    nn.ELU(),
    nn.CELU(),
    nn.SELU(),
    nn.ReLU6(),
    nn.Hardswish(),
    nn.Hardsigmoid(),
    nn.Hardtanh(),
    nn.Tanhshrink(),
)
TABLE = {"B": 3, "n": 5, "m": 7}


def perceptron(n: Any, activations: Sequence[nn.Module]) -> nn.Module:
    """A linear layer before each activation, and one at the end."""
    layers = [layer for activation in activations for layer in (nn.Linear(n.n, n.n), activation)]
    return nn.Sequential(*layers, nn.Linear(n.n, n.m))


def rows(n: Any) -> tuple[Tensor, ...]:
    return (torch.rand(n.B, n.n),)


network("smooth activations", TABLE, lambda n: perceptron(n, SMOOTH), rows, {"B": 11, "n": 13, "m": 2})
network("kinked activations", TABLE, lambda n: perceptron(n, KINKED), rows, {"B": 11, "n": 13, "m": 2})
network("gated", TABLE, lambda n: nn.Sequential(nn.Linear(n.n, 2 * n.m), nn.GLU()), rows, {"B": 11, "n": 13, "m": 2})
network(
    "dropped",
    TABLE,
    lambda n: nn.Sequential(nn.Linear(n.n, n.m), nn.Dropout(0.25), nn.AlphaDropout(0.25)),
    rows,
    {"B": 11, "n": 13, "m": 2},
)

# -- normalisation ------------------------------------------------------------------------------------------------------------


def normalised(*norms: Any) -> Any:
    """A linear layer before each normalisation, so that each has an input gradient."""
    return lambda n: nn.Sequential(*(layer for norm in norms for layer in (nn.Linear(n.n, n.n), norm(n))))


class Settled(nn.BatchNorm2d):
    """Uses its running statistics in training too, as a network does that is trained further with few examples."""

    def train(self, mode: bool = True) -> nn.Module:
        return super().train(False)


ROWS = {"B": 3, "n": 5}
network(
    "layer norms",
    ROWS,
    normalised(lambda n: nn.LayerNorm(n.n), lambda n: nn.LayerNorm(n.n, bias=False), lambda n: nn.LayerNorm(n.n, elementwise_affine=False)),
    rows,
    {"B": 11, "n": 13},
)
network(
    "rms norms", ROWS, normalised(lambda n: nn.RMSNorm(n.n), lambda n: nn.RMSNorm(n.n, elementwise_affine=False)), rows, {"B": 11, "n": 13}
)
network(
    "batch norm",
    ROWS,
    normalised(lambda n: nn.BatchNorm1d(n.n)),
    rows,
    {"B": 11, "n": 13},
)

# -- images, signals and volumes ------------------------------------------------------------------------------------------------

IMAGE = {"B": 3, "H": 13, "W": 17}


def image(channels: int) -> Any:
    return lambda n: (torch.rand(n.B, channels, n.H, n.W),)


network(
    "grouped convolution",
    {**IMAGE, "c": 5},
    lambda n: nn.Sequential(
        nn.Conv2d(4, 2 * n.c, (3, 5), padding=(1, 2), groups=2), nn.BatchNorm2d(2 * n.c), nn.ReLU(), nn.Conv2d(2 * n.c, 7, 2, stride=2)
    ),
    image(4),
    {"B": 2, "H": 11, "W": 19, "c": 3},
)
network(
    "batch norms of images",
    {**IMAGE, "c": 5},
    lambda n: nn.Sequential(
        nn.Conv2d(2, n.c, 1),
        nn.BatchNorm2d(n.c),
        nn.BatchNorm2d(n.c, affine=False),
        nn.BatchNorm2d(n.c, track_running_stats=False),
        Settled(n.c),
    ),
    image(2),
    {"B": 2, "H": 11, "W": 19, "c": 3},
)
network(
    "pooling",
    {**IMAGE, "c": 5},
    lambda n: nn.Sequential(nn.Conv2d(2, n.c, 1), nn.MaxPool2d((2, 3)), nn.AvgPool2d(2, ceil_mode=False), nn.AdaptiveAvgPool2d(1)),
    image(2),
    {"B": 2, "H": 11, "W": 19, "c": 3},
)
network(
    "depthwise signal",
    {"B": 3, "c": 5, "T": 11},
    lambda n: nn.Sequential(
        nn.Conv1d(2, 2 * n.c, 3, padding=2), nn.Conv1d(2 * n.c, 2 * n.c, 3, groups=2 * n.c), nn.GroupNorm(2, 2 * n.c), nn.AvgPool1d(3)
    ),
    lambda n: (torch.rand(n.B, 2, n.T),),
    {"B": 2, "c": 7, "T": 19},
)
network(
    "transposed convolution",
    {**IMAGE, "c": 5},
    lambda n: nn.Sequential(
        nn.ConvTranspose2d(2, n.c, 3, stride=2), nn.GroupNorm(1, n.c, affine=False), nn.InstanceNorm2d(n.c, affine=True)
    ),
    image(2),
    {"B": 2, "H": 11, "W": 19, "c": 3},
)
network(
    "volume",
    {"B": 3, "c": 5, "D": 7, "H": 11, "W": 13},
    lambda n: nn.Sequential(nn.Conv3d(2, n.c, (2, 3, 5)), nn.ReLU(), nn.Conv3d(n.c, 3, 2)),
    lambda n: (torch.rand(n.B, 2, n.D, n.H, n.W),),
    {"B": 2, "c": 3, "D": 5, "H": 13, "W": 17},
)

# -- attention ------------------------------------------------------------------------------------------------------------------

HEADS = {"B": 3, "T": 7, "d": Dim(10, multiple_of="h"), "h": 2, "k": Dim("d/h", tied=True)}
GROUPED = {"B": 3, "T": 7, "d": Dim(30, multiple_of="h"), "h": Dim(6, multiple_of="g"), "g": 2, "k": Dim("d/h", tied=True)}
OTHER_GROUPED = {"B": 2, "T": 5, "d": 63, "h": 9, "g": 3}
OTHER_HEADS = {"B": 2, "T": 11, "d": 21, "h": 3}


class Attention(nn.Module):
    """Self-attention, with fewer heads for keys than for queries if ``g`` is given, and a mask of some kind."""

    def __init__(self, n: Any, *, g: Any = None, causal: bool = False, mask: str = "", dropout: float = 0.0) -> None:
        super().__init__()
        self.k, self.causal, self.mask, self.dropout, self.shares = n.k, causal, mask, dropout, g is not None
        keys = n.d if g is None else g * n.k
        self.q, self.kv, self.out = nn.Linear(n.d, n.d, bias=False), nn.Linear(n.d, 2 * keys), nn.Linear(n.d, n.d)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        q, k, v = (t.unflatten(-1, (-1, self.k)).transpose(1, 2) for t in (self.q(x), *self.kv(x).chunk(2, -1)))
        mask = None
        if self.mask:
            mask = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
            if self.mask == "float":
                mask = torch.zeros(length, length, device=x.device).masked_fill(~mask, float("-inf"))
        options = {"attn_mask": mask, "is_causal": self.causal, "dropout_p": self.dropout, "enable_gqa": self.shares}
        y = F.scaled_dot_product_attention(q, k, v, **options)
        return self.out(y.transpose(1, 2).flatten(2))


def tokens(n: Any) -> tuple[Tensor, ...]:
    return (torch.rand(n.B, n.T, n.d),)


for backend in ("fused", "math"):
    network(f"attention, {backend}", HEADS, lambda n: Attention(n), tokens, OTHER_HEADS, attention=backend)
    network(f"causal attention, {backend}", HEADS, lambda n: Attention(n, causal=True), tokens, OTHER_HEADS, attention=backend)
    for kind in ("bool", "float"):
        network(
            f"attention with a {kind} mask, {backend}",
            HEADS,
            lambda n, m=kind: Attention(n, mask=m),
            tokens,
            OTHER_HEADS,
            attention=backend,
        )
    network(
        f"grouped-query attention, {backend}", GROUPED, lambda n: Attention(n, g=n.g, causal=True), tokens, OTHER_GROUPED, attention=backend
    )
network("grouped-query attention, no mask", GROUPED, lambda n: Attention(n, g=n.g), tokens, OTHER_GROUPED)
network("attention with dropout", HEADS, lambda n: Attention(n, dropout=0.25), tokens, OTHER_HEADS)


class Crossed(nn.Module):
    """Attention of T queries to S keys."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.q, self.kv = nn.Linear(n.d, n.d), nn.Linear(n.d, 2 * n.d)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        k, v = self.kv(y).chunk(2, -1)
        return F.scaled_dot_product_attention(self.q(x), k, v)


network(
    "cross attention",
    {"B": 3, "T": 7, "S": 11, "d": 5},
    Crossed,
    lambda n: (torch.rand(n.B, n.T, n.d), torch.rand(n.B, n.S, n.d)),
    {"B": 2, "T": 13, "S": 3, "d": 7},
)


class Written(nn.Module):
    """Attention written out, with a causal mask and a softmax of its own."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.qkv = nn.Linear(n.d, 3 * n.d)
        self.h = n.h

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (self.h, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        scores = q @ k.transpose(-1, -2) * k.shape[-1] ** -0.5
        keep = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).tril()
        return (scores.masked_fill(~keep, float("-inf")).softmax(-1) @ v).transpose(1, 2).flatten(2)


network("attention written out", HEADS, Written, tokens, OTHER_HEADS)

# -- recurrences and mixtures ---------------------------------------------------------------------------------------------------


class Mixture(nn.Module):
    """Every token goes through one expert, all experts computed, weighted by a router's softmax."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.router = nn.Linear(n.d, n.E)
        self.up = nn.Parameter(torch.rand(n.E, n.d, n.f))
        self.down = nn.Parameter(torch.rand(n.E, n.f, n.d))

    def forward(self, x: Tensor) -> Tensor:
        share = self.router(x).softmax(-1)
        y = torch.bmm(F.silu(torch.bmm(x.expand(share.shape[-1], *x.shape), self.up)), self.down)
        return (share.t()[..., None] * y).sum(0)


network(
    "mixture of experts",
    {"B": 3, "d": 5, "f": 7, "E": 2},
    Mixture,
    lambda n: (torch.rand(n.B, n.d),),
    {"B": 11, "d": 3, "f": 13, "E": 5},
)


class Scan(nn.Module):
    """A gated running mean: h[t] = Σ gates up to t, as linear attention and state spaces have it."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.gate, self.value = nn.Linear(n.d, n.d), nn.Linear(n.d, n.d)

    def forward(self, x: Tensor) -> Tensor:
        decay = F.logsigmoid(self.gate(x)).cumsum(1)
        return decay.exp() * (self.value(x) * (-decay).exp()).cumsum(1)


network("scan", {"B": 3, "T": 7, "d": 5}, Scan, tokens, {"B": 2, "T": 13, "d": 11})


class Routed(nn.Module):
    """Every token goes to its ``e`` best experts; all experts are computed, the others weighted by zero."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.router = nn.Linear(n.d, n.E)
        self.experts = nn.Parameter(torch.rand(n.E, n.d, n.d))

    def forward(self, x: Tensor) -> Tensor:
        scores = self.router(x)
        best, which = scores.topk(2, -1)
        share = torch.zeros_like(scores).scatter(-1, which, best.softmax(-1))
        return torch.einsum("be,bd,edf->bf", share, x, self.experts)


network(
    "routed experts",
    {"B": 3, "d": 5, "E": 7},
    Routed,
    lambda n: (torch.rand(n.B, n.d),),
    {"B": 11, "d": 3, "E": 5},
)


class Recurrent(nn.Module):
    """A plain recurrence, step by step: T is a loop of Python."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.now, self.before = nn.Linear(n.d, n.f), nn.Linear(n.f, n.f)

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(x.shape[0], self.before.in_features)
        for t in range(x.shape[1]):
            state = torch.tanh(self.now(x[:, t]) + self.before(state))
        return state


network("recurrence", {"B": 3, "T": 7, "d": 5, "f": 11}, Recurrent, tokens, {"B": 2, "T": 4, "d": 13, "f": 3}, slow=True)

# -- stacks of layers ---------------------------------------------------------------------------------------------------------


class Residual(nn.Module):
    """One layer of a stack."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(n.d), nn.Linear(n.d, n.f), nn.Linear(n.f, n.d)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


STACK = {"B": 3, "d": 5, "f": 7, "L": 4}
OTHER_STACK = {"B": 11, "d": 13, "f": 3, "L": 6}


def vectors(n: Any) -> tuple[Tensor, ...]:
    return (torch.rand(n.B, n.d),)


def stack(n: Any) -> nn.Module:
    return nn.Sequential(*(Residual(n) for _ in range(n.L)), nn.Linear(n.d, n.f))


def half_frozen(n: Any) -> nn.Module:
    module = stack(n)
    module[0].requires_grad_(False)
    return module


class Unused(nn.Module):
    """A weight that the loss does not depend on, and a buffer that is changed."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(n.d, n.f), nn.Linear(n.f, n.d)
        self.register_buffer("mean", torch.zeros(n.d))
        self.register_buffer("passing", torch.zeros(n.f), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return self.used(x - self.mean) + self.passing


class Patches(nn.Module):
    """An image as a sequence of patches of 4 x 4, which look at each other."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.cut, self.qkv = nn.Conv2d(3, n.d, 4, stride=4), nn.Linear(n.d, 3 * n.d)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.cut(x).flatten(2).transpose(1, 2)).chunk(3, -1)
        return F.scaled_dot_product_attention(q, k, v)


def pictures(n: Any) -> tuple[Tensor, ...]:
    return (torch.rand(n.B, 3, n.H, n.W),)


PLAIN_STACK = {"B": 3, "d": 5, "f": 7}
network("stack", STACK, stack, vectors, OTHER_STACK)
network("stack, first layer frozen", STACK, half_frozen, vectors, OTHER_STACK)
network("unused weight", PLAIN_STACK, Unused, vectors, {"B": 11, "d": 13, "f": 3}, optimizer="adamw")
network(
    "encoder layer",
    HEADS | {"f": 13},
    lambda n: nn.TransformerEncoderLayer(n.d, n.h, n.f, batch_first=True),
    tokens,
    OTHER_HEADS | {"f": 17},
)
network(
    "patches",
    {"B": 3, "H": Dim(20, multiple_of=4), "W": Dim(28, multiple_of=4), "d": 5},
    Patches,
    pictures,
    {"B": 2, "H": 12, "W": 44, "d": 7},
)

# -- words ------------------------------------------------------------------------------------------------------------------------


class Words(nn.Module):
    """An embedding, positions, a layer, a tied head."""

    def __init__(self, n: Any, **options: Any) -> None:
        super().__init__()
        self.words = nn.Embedding(n.V, n.d, **options)
        self.positions = nn.Embedding(n.C, n.d)
        self.layer = nn.Linear(n.d, n.d)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        return F.relu(self.layer(x)) @ self.words.weight.t()


VOCABULARY = {"B": 3, "T": Dim(7, at_most="C"), "C": 11, "d": 5, "V": 13}
OTHER_VOCABULARY = {"B": 2, "T": 5, "C": 17, "d": 7, "V": 19}


def ids(n: Any) -> tuple[Tensor, ...]:
    return (torch.randint(n.V, (n.B, n.T)),)


def next_word(module: nn.Module, ids: Tensor, **options: Any) -> Tensor:
    return F.cross_entropy(module(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), **options)


network("words", VOCABULARY, Words, ids, OTHER_VOCABULARY, next_word)
network("words by frequency", VOCABULARY, lambda n: Words(n, scale_grad_by_freq=True, padding_idx=0), ids, OTHER_VOCABULARY, next_word)
network(
    "smoothed labels",
    VOCABULARY,
    Words,
    ids,
    OTHER_VOCABULARY,
    lambda m, i: next_word(m, i, label_smoothing=0.1, ignore_index=3, reduction="sum"),
)

# -- losses -----------------------------------------------------------------------------------------------------------------------

PLAIN = (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss, F.binary_cross_entropy_with_logits)


def linear(n: Any) -> nn.Module:
    return nn.Linear(n.n, n.m)


def pair(n: Any) -> tuple[Tensor, ...]:
    return torch.rand(n.B, n.n), torch.rand(n.B, n.m)


def losses(*functions: Any) -> Any:
    """The sum of several losses of the same prediction."""
    return lambda module, x, y: torch.stack([f(module(x), y) for f in functions]).sum()


for reduction in ("mean", "sum"):
    network(
        f"losses, {reduction}",
        TABLE,
        linear,
        pair,
        {"B": 11, "n": 2, "m": 13},
        losses(*(lambda p, y, f=f, r=reduction: f(p, y, reduction=r) for f in PLAIN)),
    )
network(
    "losses, none",
    TABLE,
    linear,
    pair,
    {"B": 11, "n": 2, "m": 13},
    losses(*(lambda p, y, f=f: f(p, y, reduction="none").sum() for f in PLAIN)),
)
network("divergence", TABLE, linear, pair, {"B": 11, "n": 2, "m": 13}, losses(lambda p, y: F.kl_div(p, y, reduction="batchmean")))
for reduction in ("mean", "sum", "none"):
    network(
        f"binary losses, {reduction}",
        TABLE,
        linear,
        pair,
        {"B": 11, "n": 2, "m": 13},
        losses(
            lambda p, y, r=reduction: F.binary_cross_entropy(p.sigmoid(), y, reduction=r).sum(),
            lambda p, y, r=reduction: F.binary_cross_entropy(p.sigmoid(), y, weight=y, reduction=r).sum(),
            lambda p, y, r=reduction: F.binary_cross_entropy_with_logits(p, y, weight=y, pos_weight=y[0], reduction=r).sum(),
        ),
    )
    network(
        f"class losses, {reduction}",
        {"B": 3, "n": 5, "K": 7},
        lambda n: nn.Linear(n.n, n.K),
        lambda n: (torch.rand(n.B, n.n), torch.randint(n.K, (n.B,)), torch.rand(n.K)),
        {"B": 11, "n": 2, "K": 13},
        lambda module, x, y, w, r=reduction: (
            F.cross_entropy(module(x), y, reduction=r).sum() + F.cross_entropy(module(x), y, w, reduction=r).sum()
        ),
    )
    network(
        f"pixel losses, {reduction}",
        {"B": 3, "K": 5, "H": 7, "W": 11},
        lambda n: nn.Conv2d(2, n.K, 1),
        lambda n: (torch.rand(n.B, 2, n.H, n.W), torch.randint(n.K, (n.B, n.H, n.W)), torch.rand(n.K)),
        {"B": 2, "K": 3, "H": 13, "W": 5},
        lambda module, x, y, w, r=reduction: (
            F.cross_entropy(module(x), y, reduction=r).sum() + F.cross_entropy(module(x), y, w, reduction=r).sum()
        ),
    )
