"""Networks that repeat and choose: recurrences, mixtures, stacks of layers, words; and losses on one linear layer."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from calc.dimensions import Dim
from tests.zoo.exhibit import network
from tests.zoo.networks import HEADS, OTHER_HEADS, TABLE, tokens

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
