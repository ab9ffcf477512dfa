"""A decoder with the choices in which the published ones differ, small enough to read beside their tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from calc.dimensions import Dim
from calc.spec import Spec


@dataclass(frozen=True, slots=True)
class Choices:
    """``positions``: learned, relative (a projection of its own in every block) or none (rotary ones have no parameters).
    ``norm``: layer, layer without bias, rms or none. ``checkpointed``: every block is recomputed in the backward pass, to its end."""

    positions: str = "none"
    norm: str = "rms"
    bias: bool = False
    gated: bool = False
    tied: bool = True
    checkpointed: bool = False


def norm(n: Any, choices: Choices) -> nn.Module:
    match choices.norm:
        case "layer":
            return nn.LayerNorm((n.d,))
        case "layer without bias":
            return nn.LayerNorm((n.d,), bias=False)
        case "rms":
            return nn.RMSNorm((n.d,), eps=1e-5)
    return nn.Identity()


class Attention(nn.Module):
    """Causal attention; h/g query heads share each key and value head."""

    def __init__(self, n: Any, choices: Choices) -> None:
        super().__init__()
        self.k = n.k
        self.query = nn.Linear(n.d, n.h * n.k, bias=choices.bias)
        self.key = nn.Linear(n.d, n.g * n.k, bias=choices.bias)
        self.value = nn.Linear(n.d, n.g * n.k, bias=choices.bias)
        self.place = nn.Linear(n.d, n.h * n.k, bias=False) if choices.positions == "relative" else None
        self.project = nn.Linear(n.h * n.k, n.d, bias=choices.bias)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (each(x).unflatten(-1, (-1, self.k)).transpose(1, 2) for each in (self.query, self.key, self.value))
        mask = None
        if self.place is not None:  # how much a query looks at each position; the shift of rows has no cost of its own
            places = self.place(torch.rand_like(x[0])).unflatten(-1, (-1, self.k)).transpose(0, 1)  # (h, T, k)
            mask = q @ places.mT  # (B, h, T, T)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=True)
        projected: Tensor = self.project(y.transpose(1, 2).flatten(2))
        return projected


class FeedForward(nn.Module):
    """Two projections, or three of which one gates another."""

    def __init__(self, n: Any, choices: Choices) -> None:
        super().__init__()
        self.gate = nn.Linear(n.d, n.f, bias=choices.bias) if choices.gated else None
        self.up = nn.Linear(n.d, n.f, bias=choices.bias)
        self.down = nn.Linear(n.f, n.d, bias=choices.bias)

    def forward(self, x: Tensor) -> Tensor:
        inner = F.gelu(self.up(x)) if self.gate is None else F.silu(self.gate(x)) * self.up(x)
        projected: Tensor = self.down(inner)
        return projected


class Block(nn.Module):
    def __init__(self, n: Any, choices: Choices) -> None:
        super().__init__()
        self.first, self.attention = norm(n, choices), Attention(n, choices)
        self.second, self.feed_forward = norm(n, choices), FeedForward(n, choices)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.first(x))
        y: Tensor = x + self.feed_forward(self.second(x))
        return y


class Decoder(nn.Module):
    """Token ids (B, T) to logits (B, T, V)."""

    def __init__(self, n: Any, choices: Choices) -> None:
        super().__init__()
        self.checkpointed = choices.checkpointed
        self.words = nn.Embedding(n.V, n.d)
        self.places = nn.Embedding(n.C, n.d) if choices.positions == "learned" else None
        self.blocks = nn.ModuleList([Block(n, choices) for _ in range(n.L)])
        self.last = norm(n, choices)
        self.head = nn.Linear(n.d, n.V, bias=False)
        if choices.tied:
            self.head.weight = self.words.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        if self.places is not None:
            x = x + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            with set_checkpoint_early_stop(False):  # torch would leave out the last product, which nothing saved depends on
                x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        logits: Tensor = self.head(self.last(x))
        return logits


def decoder(choices: Choices, **sizes: int) -> Spec:
    """The spec of a decoder; ``sizes`` are its defaults. ``g`` is ``h`` unless given."""
    dims: dict[str, Any] = {
        "B": 1,
        "T": Dim(sizes.get("T", 64), at_most="C" if choices.positions == "learned" else None),
        "d": 48,
        "h": Dim(6, multiple_of="g" if "g" in sizes else None),
        "g": Dim(sizes["g"]) if "g" in sizes else Dim("h", tied=True),
        "k": 8,
        "f": 96,
        "L": 4,
        "V": 211,
    }
    if choices.positions == "learned":
        dims["C"] = 128
    for name, size in sizes.items():
        if not isinstance(dims[name], Dim):
            dims[name] = size
    return Spec(
        name="decoder",
        dims=dims,
        build=lambda n: Decoder(n, choices),
        inputs=lambda n: (torch.randint(n.V, (n.B, n.T)), torch.randint(n.V, (n.B, n.T))),
        loss=lambda model, ids, targets: F.cross_entropy(model(ids).flatten(0, 1), targets.flatten()),
        trip_counts=("L",),
    )
