"""Tiny models whose numbers are counted by hand. Sizes are distinct primes where the model allows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from calc.spec import Spec


def linear(**changes: Any) -> Spec:
    """One linear layer with bias, 5 -> 7, batch 3, mean squared error. 5*7 + 7 = 42 parameters in 2 tensors."""
    parts: dict[str, Any] = {
        "name": "linear",
        "dims": {"B": 3, "n": 5, "m": 7},
        "build": lambda s: nn.Linear(s.n, s.m),
        "inputs": lambda s: (torch.randn(s.B, s.n), torch.randn(s.B, s.m)),
        "loss": lambda module, x, y: F.mse_loss(module(x), y),
    }
    return Spec(**{**parts, **changes})


def summed(**changes: Any) -> Spec:
    """The same layer with the sum of its outputs as loss: nothing is saved but the input."""
    changes = {"inputs": lambda s: (torch.randn(s.B, s.n),), "loss": lambda module, x: module(x).sum(), **changes}
    return linear(name="summed", **changes)


def function(of: Callable[..., Tensor], *shapes: tuple[int, ...], weight: tuple[int, ...] = (5,)) -> Spec:
    """``of(w, *inputs)`` as the loss of a module that holds the one weight ``w``."""
    return Spec(
        name="function",
        dims={"n": 5},
        build=lambda s: Weight(weight),
        inputs=lambda s: tuple(torch.randn(shape) for shape in shapes),
        loss=lambda module, *inputs: of(module.w, *inputs),
    )


class Weight(nn.Module):
    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(shape))


class Attention(nn.Module):
    """Embedding, one attention with its projections, and a head tied to the embedding."""

    def __init__(self, d: int, h: int, V: int) -> None:
        super().__init__()
        self.h = h
        self.embed = nn.Embedding(V, d)
        self.qkv = nn.Linear(d, 3 * d)
        self.out = nn.Linear(d, d)
        self.head = nn.Linear(d, V, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        q, k, v = (t.unflatten(-1, (self.h, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        logits: Tensor = self.head(self.out(y))
        return logits


def attention() -> Spec:
    """Batch 2, 7 tokens, width 12 in 3 heads, vocabulary 17."""
    return Spec(
        name="attention",
        dims={"B": 2, "T": 7, "d": 12, "h": 3, "V": 17},
        build=lambda s: Attention(s.d, s.h, s.V),
        inputs=lambda s: (torch.randint(s.V, (s.B, s.T)),),
        loss=lambda module, ids: F.cross_entropy(module(ids).flatten(0, 1), ids.flatten()),
    )
