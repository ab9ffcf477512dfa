"""Data-dependent sizes: masks, indices of nonzero elements, experts that are looped over in Python."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.zoo.exhibit import ACTIVE, FIRST_PEAK, network, operators


class Looped(nn.Module):
    """Every expert is a module of its own and takes the tokens that chose it."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.e = n.e
        self.router = nn.Linear(n.d, n.E, bias=False)
        self.experts = nn.ModuleList([nn.Sequential(nn.Linear(n.d, n.f), nn.GELU(), nn.Linear(n.f, n.d)) for _ in range(n.E)])

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = torch.topk(self.router(x).softmax(-1), self.e, dim=-1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            token, place = torch.where(chosen == i)
            out.index_add_(0, token, expert(x[token]) * weights[token, place, None])
        return out


class Chosen(nn.Module):
    """All experts in two tensors; the loop is over those that any token chose."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.experts, self.e = n.E, n.e
        self.router = nn.Linear(n.d, n.E)
        self.up, self.down = (nn.Parameter(0.3 * torch.randn(n.E, *shape)) for shape in ((n.f, n.d), (n.d, n.f)))

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = torch.topk(self.router(x).softmax(-1), self.e, dim=-1)
        out = torch.zeros_like(x)
        with torch.no_grad():
            mask = F.one_hot(chosen, num_classes=self.experts).permute(2, 1, 0)
            hit = torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero()
        for i in hit:
            expert = i[0]
            if expert == self.experts:
                continue
            place, token = torch.where(mask[expert])
            inner = F.silu(F.linear(x[token], self.up[expert]))
            out.index_add_(0, token, F.linear(inner, self.down[expert]) * weights[token, place, None])
        return out


class Again(nn.Module):
    """What chooses elements is recomputed in the backward pass."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.layer, self.inner = nn.Linear(n.d, n.f), nn.Linear(n.f, n.d)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = checkpoint(self._positive, self.layer(x), use_reentrant=False)
        return y

    def _positive(self, x: Tensor) -> Tensor:
        return torch.tanh(self.inner(x[x[:, 0] > 0]))


class Gated(nn.Module):
    """Each layer for rows drawn at random, and the others as they were: a step that branches on whether there are any."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.first = nn.Linear(n.d, n.d)
        self.layers = nn.ModuleList([nn.Linear(n.d, n.d) for _ in range(n.L)])

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for layer in self.layers:
            rows = (torch.rand(x.shape[0]) < 0.4).nonzero()[:, 0]
            if len(rows) == 0:
                continue
            x = x.index_add(0, rows, layer(x[rows]))
        return x


def _put(w: Tensor, x: Tensor) -> list[Tensor]:
    """Values put where a mask chooses: one for each, one for all, a number, and added to what is there."""
    mask = x[:, 0] > 0
    each, all_, number, more = w.clone(), w.clone(), w.clone(), w.clone()
    each[mask] = x[mask] * 2
    all_[mask] = w[0] * 3
    number[mask] = 1.0
    more[mask] += w[mask] * x[mask]
    return [each, all_, number, more]


def _masked(w: Tensor, x: Tensor) -> list[Tensor]:
    """A mask of rows, of elements, of rows beside a position, of rows spread over columns, and bytes for a mask."""
    rows, elements = x[:, 0] > 0, x > 0
    bare = w[rows].exp()
    with_position = w[rows, 2]
    spread = torch.stack([w, w * 2])[:, elements]
    return [bare, w[elements] * x[elements], with_position, spread, w.masked_select(elements), w.masked_select(rows[:, None])]


def _filled(w: Tensor, x: Tensor) -> list[Tensor]:
    """The gradient of a scatter by a mask takes by that mask."""
    mask = x > 0
    return [torch.zeros_like(w).masked_scatter(mask, w[mask] * 3), torch.index_put(w, (mask,), w[mask] * 2, accumulate=True)]


def _places(w: Tensor, x: Tensor) -> list[Tensor]:
    """Places instead of masks, and how many there are as a size."""
    rows, columns = (x > 0).nonzero(as_tuple=True)
    distinct = torch.argwhere(x[:, 1] > 0)[:, 0]
    return [w[rows, columns], w[distinct] * torch.ones(len(distinct), w.shape[1]), w.index_select(0, distinct)]


def _different(w: Tensor, x: Tensor) -> list[Tensor]:
    """The different columns in which rows are largest, sorted and in the order in which they come, and how many rows have each."""
    best = x.argmax(1)
    distinct, which, often = torch.unique(best, return_inverse=True, return_counts=True)
    means = w.new_zeros((distinct.shape[0], w.shape[1])).index_add(0, which, w) / often[:, None]
    columns, repeated = torch.unique_consecutive(best, return_counts=True)
    return [means, w[:, columns] * repeated, w * torch.bincount(best, minlength=w.shape[1])]


def _rows(s: Any) -> tuple[Tensor]:
    return (torch.randn(s.m, s.n),)


def _dropped(module: nn.Sequential, x: Tensor) -> Tensor:
    """A part of the rows, drawn at random, goes through the second layer (masked modelling)."""
    y = module[0](x)
    kept = torch.rand(x.shape[0]) < 0.4
    loss: Tensor = module[1](y[kept]).pow(2).mean()
    return loss


SIZES, OTHER = {"m": 11, "n": 7}, {"m": 23, "n": 13}
TOKENS, MORE_TOKENS = {"T": 16, "d": 5, "f": 7, "E": 4, "e": 2}, {"T": 41, "d": 11, "f": 3, "E": 5, "e": 3}

operators("chosen by masks", _masked, inputs=_rows, dims=SIZES, other=OTHER)
operators("values put by a mask", _put, inputs=_rows, dims=SIZES, other=OTHER)
operators("a scatter by a mask", _filled, inputs=_rows, dims=SIZES, other=OTHER)
operators("indices of true elements", _places, inputs=_rows, dims=SIZES, other=OTHER)
operators("different elements", _different, inputs=_rows, dims=SIZES, other=OTHER)
network(
    "rows drawn at random",
    {"B": 20, "d": 5, "f": 7},
    lambda n: nn.Sequential(nn.Linear(n.d, n.f), nn.Linear(n.f, n.d)),
    lambda n: (torch.randn(n.B, n.d),),
    {"B": 43, "d": 3, "f": 11},
    loss=_dropped,
)
network("elements chosen twice", {"B": 19, "d": 5, "f": 7}, Again, lambda n: (torch.randn(n.B, n.d),), {"B": 31, "d": 3, "f": 11})
network(
    "layers for some rows",
    {"B": 19, "d": 5, "L": 4},
    Gated,
    lambda n: (torch.randn(n.B, n.d),),
    {"B": 31, "d": 3, "L": 6},
    unmeasured=FIRST_PEAK,
    slow=True,
)
ROUTED = FIRST_PEAK | ACTIVE
network("experts in a loop", TOKENS, Looped, lambda n: (torch.randn(n.T, n.d),), MORE_TOKENS, unmeasured=ROUTED, slow=True)
network("experts that were chosen", TOKENS, Chosen, lambda n: (torch.randn(n.T, n.d),), MORE_TOKENS, unmeasured=ROUTED, slow=True)


class Mixtral(nn.Module):
    """The experts of transformers as its plainest implementation runs them, one after the other."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        from transformers import MixtralConfig
        from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock

        config = MixtralConfig()
        sizes = {"hidden_size": n.d, "intermediate_size": n.f, "num_local_experts": n.E, "num_experts_per_tok": n.e}
        vars(config).update(sizes, _experts_implementation_internal="eager")
        self.first, self.block = nn.Linear(n.d, n.d), MixtralSparseMoeBlock(config)
        for parameter in self.block.parameters():
            nn.init.normal_(parameter, std=0.2)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.block(self.first(x))
        return y


network(
    "experts of transformers, one after the other",
    {"B": 3, "T": 8, "d": 16, "f": 11, "E": 4, "e": 2},
    Mixtral,
    lambda n: (torch.randn(n.B, n.T, n.d),),
    {"B": 2, "T": 29, "d": 7, "f": 13, "E": 5, "e": 3},
    unmeasured=ROUTED,
    slow=True,
)
