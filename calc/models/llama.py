"""Llama as a short ordinary module: rotary positions, grouped-query attention, gated feed-forward, root-mean-square norms.

Module names are those of the published checkpoints. Sizes by letter: B batch, T tokens, d width, h heads, g key/value
heads, k head width, f feed-forward width, L blocks, V vocabulary. No bias anywhere, and a head of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from calc.dimensions import Dim
from calc.spec import Spec

EPSILON = 1e-5
Rotation = tuple[Tensor, Tensor]


def rotations(x: Tensor, k: Any, base: float) -> Rotation:
    """Cosines and sines, each (T, k/2), of the angles by which position t rotates the pair of features (i, i + k/2). Angles are computed in
    fp32; the tables have the dtype of ``x`` (B, T, d)."""
    frequencies = base ** (-torch.arange(0, k, 2, device=x.device) / k)  # (k/2,)
    angles = torch.arange(x.shape[1], device=x.device)[:, None] * frequencies  # (T, k/2)
    return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """``x`` (B, heads, T, k) with its pairs of features rotated by the angles of their positions."""
    cos, sin = rotation  # each (T, k/2)
    a, b = x.chunk(2, dim=-1)  # each (B, heads, T, k/2)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)  # (B, heads, T, k)


class Attention(nn.Module):
    """Causal self-attention in which h/g query heads share each key and value head."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.k = n.k
        self.q_proj = nn.Linear(n.d, n.h * n.k, bias=False)
        self.k_proj = nn.Linear(n.d, n.g * n.k, bias=False)
        self.v_proj = nn.Linear(n.d, n.g * n.k, bias=False)
        self.o_proj = nn.Linear(n.h * n.k, n.d, bias=False)

    def forward(self, x: Tensor, rotation: Rotation) -> Tensor:
        q = self.q_proj(x).unflatten(-1, (-1, self.k)).transpose(1, 2)  # (B, h, T, k)
        k = self.k_proj(x).unflatten(-1, (-1, self.k)).transpose(1, 2)  # (B, g, T, k)
        v = self.v_proj(x).unflatten(-1, (-1, self.k)).transpose(1, 2)  # (B, g, T, k)
        q, k = rotate(q, rotation), rotate(k, rotation)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)  # (B, h, T, k)
        projected: Tensor = self.o_proj(y.transpose(1, 2).flatten(2))  # (B, T, d)
        return projected


class FeedForward(nn.Module):
    """SwiGLU: one projection gates another."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(n.d, n.f, bias=False)
        self.up_proj = nn.Linear(n.d, n.f, bias=False)
        self.down_proj = nn.Linear(n.f, n.d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gated = F.silu(self.gate_proj(x)) * self.up_proj(x)  # (B, T, f)
        projected: Tensor = self.down_proj(gated)  # (B, T, d)
        return projected


class Block(nn.Module):
    """Attention and feed-forward, each on a normalized copy and added to the residual stream."""

    def __init__(self, n: Any, feed_forward: Callable[[Any], nn.Module]) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm((n.d,), eps=EPSILON)
        self.self_attn = Attention(n)
        self.post_attention_layernorm = nn.RMSNorm((n.d,), eps=EPSILON)
        self.mlp = feed_forward(n)

    def forward(self, x: Tensor, rotation: Rotation) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), rotation)
        y: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return y


class Trunk(nn.Module):
    """Token ids (B, T) to normalized hidden states (B, T, d)."""

    def __init__(self, n: Any, base: float, feed_forward: Callable[[Any], nn.Module]) -> None:
        super().__init__()
        self.k, self.base = n.k, base
        self.embed_tokens = nn.Embedding(n.V, n.d)
        self.layers = nn.ModuleList([Block(n, feed_forward) for _ in range(n.L)])
        self.norm = nn.RMSNorm((n.d,), eps=EPSILON)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed_tokens(ids)  # (B, T, d)
        rotation = rotations(x, self.k, self.base)  # one pair of tables for all layers
        for layer in self.layers:
            x = layer(x, rotation)
        normalized: Tensor = self.norm(x)
        return normalized


class Llama(nn.Module):
    """Token ids (B, T) to logits (B, T, V). ``feed_forward`` makes the module after the attention of each block."""

    def __init__(self, n: Any, base: float, feed_forward: Callable[[Any], nn.Module] = FeedForward) -> None:
        super().__init__()
        self.model = Trunk(n, base, feed_forward)
        self.lm_head = nn.Linear(n.d, n.V, bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:  # the norms keep their ones
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        logits: Tensor = self.lm_head(self.model(ids))
        return logits


def tokens(n: Any) -> tuple[Tensor, ...]:
    """Random ids and targets, each (B, T)."""
    return torch.randint(n.V, (n.B, n.T)), torch.randint(n.V, (n.B, n.T))


def next_token_loss(model: nn.Module, ids: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy over all positions."""
    return F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())


def _spec(name: str, d: int, h: int, f: int, L: int) -> Spec:
    return Spec(
        name=name,
        dims={
            "B": 1,
            "T": 8192,
            "d": d,
            "h": Dim(h, multiple_of="g", because="each key/value head serves an equal part of the heads"),
            "g": 8,
            "k": Dim("d/h", multiple_of=2, because="rotary positions rotate pairs"),
            "f": f,
            "L": L,
            "V": 128256,
        },
        build=lambda n: Llama(n, base=500_000.0),
        inputs=tokens,
        loss=next_token_loss,
        predict=lambda model, ids: model(ids),
        check_at={"B": 2, "T": 16, "d": 48, "h": 6, "g": 3, "f": 211, "L": 3, "V": 503},
        source="built-in",
        trip_counts=("L",),
    )


LLAMA3_8B = _spec("llama3-8b", d=4096, h=32, f=14336, L=32)
LLAMA3_70B = _spec("llama3-70b", d=8192, h=64, f=28672, L=80)
