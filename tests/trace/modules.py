"""Small modules to trace, each with one trait. Sizes are distinct primes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from calc.graph.step import Op, StepTrace
from calc.spec import Spec

DIMS: dict[str, Any] = {"B": 3, "d": 7}


def spec(build: Callable[[Any], Any], **changes: Any) -> Spec:
    """A module from ``B x d`` to anything, with the sum of its results as loss."""
    parts: dict[str, Any] = {
        "name": "small",
        "dims": DIMS,
        "build": build,
        "inputs": lambda n: (torch.randn(n.B, n.d),),
        "loss": lambda module, x: module(x).sum(),
    }
    return Spec(**{**parts, **changes})


def function(of: Callable[[Tensor], Any], **changes: Any) -> Spec:
    """``of(x * w)``, where ``w`` is the module's one weight."""
    return spec(lambda n: Weighted(n.d, of), **changes)


class Weighted(nn.Module):
    def __init__(self, d: Any, of: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.empty(d))
        self.of = of

    def forward(self, x: Tensor) -> Any:
        return self.of(x * self.w)


class Nested(nn.Module):
    """A part inside a part, and one that is used twice."""

    def __init__(self, d: Any) -> None:
        super().__init__()
        self.outer = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
        self.shared = nn.Linear(d, d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.shared(x) + 1
        y: Tensor = self.shared(self.outer(x))
        return y


class Layers(nn.Module):
    """Layers of which each has a part of its own and one that all share."""

    def __init__(self, d: Any) -> None:
        super().__init__()
        shared = nn.Linear(d, d, bias=False)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(d, d, bias=False), nn.Sequential(nn.ReLU(), shared)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Tied(nn.Module):
    """An embedding whose weight is also the head's."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.embed = nn.Embedding(n.V, n.d)
        self.head = nn.Linear(n.d, n.V, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        logits: Tensor = self.head(self.embed(ids))
        return logits


def tied() -> Spec:
    return Spec(
        name="tied",
        dims={"B": 3, "V": 11, "d": 7},
        build=Tied,
        inputs=lambda n: (torch.randint(n.V, (n.B,)),),
        loss=lambda module, ids: F.cross_entropy(module(ids), ids),
    )


class Stack(nn.Module):
    """L layers ``d -> d`` in a Python loop."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(n.d, n.d) for _ in range(n.L)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


def stack(**changes: Any) -> Spec:
    return spec(Stack, **{"dims": {"B": 3, "d": 7, "L": 5}, "name": "stack", **changes})


class Buffered(nn.Module):
    """Two buffers, of which one is in the state dict."""

    def __init__(self, d: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(d, d)
        self.register_buffer("kept", torch.ones(d))
        self.register_buffer("left", torch.ones(d, d), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear(x * self.kept) @ self.left
        return y


class Attention(nn.Module):
    """Causal attention with h heads and no projection but one."""

    def __init__(self, d: Any, h: Any) -> None:
        super().__init__()
        self.h = h
        self.qkv = nn.Linear(d, 3 * d)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (self.h, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


# -- reading traces ------------------------------------------------------------------------------------------------------


def ops(trace: StepTrace, phase: str, step: int = 2) -> list[Op]:
    return [op for op in trace.ops if op.phase == phase and op.step == step]


def module_paths(trace: StepTrace, phase: str, name: str, step: int = 2) -> list[str]:
    """Sites at which the operator ``aten.<name>`` runs."""
    return [op.module_path for op in ops(trace, phase, step) if op.name.startswith(f"aten.{name}.")]


# Checks of values. Pytest rewrites assertions in files of tests, so they are here.


def asserted(x: Tensor) -> Tensor:
    assert (x * x >= 0).all() and not x.isnan().any(), "no number"  # noqa: PT018  # of several parts
    assert x.max() < 1000
    return x


def guarded(x: Tensor) -> Tensor:
    if x.min() < -1000 or not x.isfinite().all():
        raise ValueError("out of range")
    return x


def guarded_where_asked(x: Tensor) -> Tensor:
    if x.dim() == 2 and x.max() >= 1000:
        raise ValueError("out of range")
    assert x.dim() > 2 or x.isfinite().all()
    return x


def compared(x: Tensor) -> Tensor:
    lengths = (x > 0).sum(dim=1)
    assert 0 <= lengths.max().item() <= x.shape[1]
    if x.min().item() < -1000 or lengths.min().item() == 1000:
        raise ValueError("out of range")
    return x


def never_true(x: Tensor) -> Tensor:
    assert (x > 0).sum().item() < 0
    return x


def compared_with_either(x: Tensor) -> Tensor:
    if 1 < (x > 0).sum().item() < 1000:
        raise ValueError("whichever of the two is false")
    return x


def compared_beside(x: Tensor) -> Tensor:
    longest = (x > 0).sum().item()
    assert longest < 1000
    return x[:, :longest]


def contained_in(x: Tensor) -> Tensor:
    assert (x > 0).sum().item() not in (1000, 2000)
    return x


def chosen(x: Tensor) -> Tensor:
    if x.min() < 0:
        return x * 2
    return x


def chosen_in_assert(x: Tensor) -> Tensor:
    assert x.min() < 0 or (x * 2).max() > 0
    return x


def by_largest(experts: Any, x: Tensor) -> Tensor:
    return experts[f"expert_{x.sum(0).argmax() % 3}"](x).sum()
