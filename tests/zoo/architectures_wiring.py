"""Modules wired in unusual ways: shared, reparametrised, used twice, called with other weights, partly frozen, adapted."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from tests.zoo.exhibit import INDEXED, network

ROWS = {"B": 3, "d": 5, "f": 7}
OTHER_ROWS = {"B": 11, "d": 13, "f": 2}


def rows(n: Any) -> tuple[Tensor, ...]:
    return (torch.rand(n.B, n.d),)


# -- graphs ---------------------------------------------------------------------------------------------------------------------


class GraphNetwork(nn.Module):
    """Messages along M edges are added up at N nodes, twice: as a sum, then as a mean over those that arrive."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.message, self.update = nn.Linear(2 * n.d, n.f), nn.Linear(n.d + n.f, n.d)
        self.relate = nn.Linear(n.d, n.d, bias=False)

    def forward(self, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
        message = F.relu(self.message(torch.cat([x[source], x[target]], -1)))  # (M, f)
        sums = message.new_zeros(len(x), message.shape[-1]).index_add(0, target, message)
        x = x + self.update(torch.cat([x, sums], -1))
        degree = torch.zeros_like(x[:, 0]).scatter_add(0, target, torch.ones_like(target, dtype=x.dtype)).clamp(min=1)
        means = torch.zeros_like(x).index_add(0, target, self.relate(x)[source]) / degree[:, None]
        return torch.tanh(x + means)


network(
    "graph network",
    {"N": 11, "M": 17, "d": 5, "f": 7},
    GraphNetwork,
    lambda n: (torch.rand(n.N, n.d), torch.randint(n.N, (n.M,)), torch.randint(n.N, (n.M,))),
    {"N": 7, "M": 23, "d": 3, "f": 13},
)

# -- weights that are shared, or made of others -----------------------------------------------------------------------------------


class Shared(nn.Module):
    """One layer under two names, a weight that is another's transpose, and one module used three times."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.first = nn.Linear(n.d, n.d)
        self.same = self.first
        self.up, self.again = nn.Linear(n.d, n.f), nn.Linear(n.d, n.f)
        self.again.weight = self.up.weight
        self.norm = nn.LayerNorm(n.d)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.first(x) + self.same(self.norm(x)))
        x = F.relu(self.up(x) + self.again(x)) @ self.up.weight
        return self.norm(x)


network("shared weights", ROWS, Shared, rows, OTHER_ROWS, optimizer="adamw")
network(
    "weight-normed network",
    ROWS,
    lambda n: nn.Sequential(
        parametrizations.weight_norm(nn.Linear(n.d, n.f)), nn.ReLU(), parametrizations.weight_norm(nn.Linear(n.f, n.d), dim=1)
    ),
    rows,
    OTHER_ROWS,
    optimizer="adamw",
)
network(
    "spectrally normed network",
    ROWS,
    lambda n: nn.Sequential(parametrizations.spectral_norm(nn.Linear(n.d, n.f)), nn.ReLU(), nn.Linear(n.f, n.d)),
    rows,
    OTHER_ROWS,
)


class Masked(nn.Module):
    """Keeps the mask of its first forward as a buffer, one of the state dict for every second layer, and a softmax written by hand."""

    def __init__(self, n: Any, keeps: bool) -> None:
        super().__init__()
        self.mix, self.keeps = nn.Linear(n.d, n.d), keeps

    def forward(self, x: Tensor) -> Tensor:
        if not hasattr(self, "mask"):
            length = x.shape[1]
            self.register_buffer("mask", torch.ones(length, length).tril().bool(), persistent=self.keeps)
        scores = (self.mix(x) @ x.transpose(1, 2)).masked_fill(~self.mask, -1e9)
        shares = (scores - scores.max(-1, keepdim=True).values).exp()
        y: Tensor = (shares / shares.sum(-1, keepdim=True)).masked_fill(~self.mask, 0) @ x
        return y


network(
    "buffers that the first forward registers",
    {"B": 2, "T": 7, "d": 5, "L": 4},
    lambda n: nn.Sequential(*[nn.Sequential(Masked(n, True), Masked(n, False)) for _ in range(n.L)]),
    lambda n: (torch.rand(n.B, n.T, n.d),),
    {"B": 3, "T": 11, "d": 13, "L": 6},
    optimizer="adamw",
)


class Quantized(nn.Module):
    """Replaces each row by the nearest of the rows of a table, with a straight-through gradient (van den Oord et al. 2017)."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.codes, self.out = nn.Embedding(n.V, n.d), nn.Linear(n.d, n.d)

    def forward(self, x: Tensor) -> Tensor:
        nearest = self.codes((x @ self.codes.weight.T).max(-1)[1])
        y: Tensor = self.out(x + (nearest - x).detach()) + (nearest - x.detach()).pow(2)
        return y


network(
    "rows quantized by a table",
    {"B": 3, "d": 5, "V": 11},
    Quantized,
    lambda n: (torch.rand(n.B, n.d),),
    {"B": 7, "d": 13, "V": 17},
    unmeasured=INDEXED,
)


class KeyedMemory(nn.Module):
    """Adds the values of the K best keys of a row, weighted by their scores (Lample et al. 2019)."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.keys, self.values = nn.Linear(n.d, n.V), nn.EmbeddingBag(n.V, n.d, mode="sum")
        self.most = n.K

    def forward(self, x: Tensor) -> Tensor:
        scores, best = self.keys(x).topk(self.most, dim=-1)
        y: Tensor = self.values(best, per_sample_weights=scores.softmax(-1))
        return x + y


network(
    "values of the best keys",
    {"B": 3, "d": 5, "V": 11, "K": 2},
    KeyedMemory,
    lambda n: (torch.rand(n.B, n.d),),
    {"B": 7, "d": 13, "V": 17, "K": 3},
    unmeasured=frozenset(("parameters.active", "parameters.non_embedding")),
)

# -- inputs, outputs, calls -------------------------------------------------------------------------------------------------------


class Many(nn.Module):
    """Three inputs, one of them whole numbers and one without use; a dictionary and a tuple come out."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.words, self.left, self.right = nn.Embedding(n.V, n.f), nn.Linear(n.d, n.f), nn.Linear(n.f, n.d)

    def forward(self, x: Tensor, ids: Tensor, *, unused: Tensor) -> dict[str, Any]:
        inner = torch.tanh(self.left(x)) * self.words(ids)
        return {"inner": inner, "both": (self.right(inner), x), "size": unused.shape[0]}


def of_many(module: nn.Module, x: Tensor, ids: Tensor, unused: Tensor) -> Tensor:
    out = module(x, ids, unused=unused)
    return out["inner"].square().mean() + F.mse_loss(*out["both"])


network(
    "several inputs and outputs",
    ROWS | {"V": 11},
    Many,
    lambda n: (torch.rand(n.B, n.d), torch.randint(n.V, (n.B,)), torch.rand(n.B)),
    OTHER_ROWS | {"B": 5, "V": 17},
    of_many,
)


class Scaled(nn.Module):
    """A network called with weights made from its own: smaller by a learned factor."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(n.d, n.f), nn.GELU(), nn.Linear(n.f, n.d))
        self.factor = nn.Parameter(torch.rand(()))

    def forward(self, x: Tensor) -> Tensor:
        weights = {name: self.factor * p for name, p in self.network.named_parameters()}
        return torch.func.functional_call(self.network, weights, (x,)) - self.network(x)


network("functional call", ROWS, Scaled, rows, OTHER_ROWS)

# -- what does not learn ----------------------------------------------------------------------------------------------------------


class Adapted(nn.Module):
    """A frozen layer, and a product of two thin matrices that is added to it: what is trained of a large model."""

    def __init__(self, inner: Any, outer: Any, rank: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(inner, outer).requires_grad_(False)
        self.narrow, self.widen = nn.Linear(inner, rank, bias=False), nn.Linear(rank, outer, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + 2.0 * self.widen(self.narrow(x))


network(
    "low-rank adapters",
    ROWS | {"r": 2},
    lambda n: nn.Sequential(Adapted(n.d, n.f, n.r), nn.GELU(), nn.Linear(n.f, n.f).requires_grad_(False), Adapted(n.f, n.d, n.r)),
    rows,
    OTHER_ROWS | {"f": 17, "r": 3},
    optimizer="adamw",
)


def frozen_middle(n: Any) -> nn.Module:
    """The gradient passes through a frozen layer to one that learns, and stops before a frozen first layer."""
    network = nn.Sequential(
        nn.Linear(n.d, n.f), nn.ReLU(), nn.Linear(n.f, n.d), nn.Tanh(), nn.Linear(n.d, n.f), nn.ReLU(), nn.Linear(n.f, 1)
    )
    network[0].requires_grad_(False)
    network[4].requires_grad_(False)
    network[6].bias.requires_grad_(False)
    return network


network("frozen layers", ROWS, frozen_middle, rows, OTHER_ROWS, optimizer="adam")


class Detached(nn.Module):
    """A branch whose gradient is stopped, and one without gradients at all."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.left, self.right, self.teacher = nn.Linear(n.d, n.f), nn.Linear(n.d, n.f), nn.Linear(n.d, n.f)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            target = self.teacher(x)
        return (self.left(x) - target).square() + (self.right(x) - self.left(x).detach()).square()


network("stopped gradients", ROWS, Detached, rows, OTHER_ROWS)
