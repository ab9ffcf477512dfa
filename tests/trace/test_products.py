"""Matrix multiplications on versions of torch that take them apart by plain numbers: in Python they come to the same operators."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import calc
from calc import Dim, Spec
from calc.graph.step import Graph, Tensor
from calc.trace.kernels import matmul


class Shared(nn.Module):
    """Products of two, three and four axes with a matrix, and of batches of matrices; the width is one of heads."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.h, self.flat, self.out = n.h, nn.Linear(n.d, n.d, bias=False), nn.Linear(n.d // n.h, n.d // n.h, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.flat(x) + self.flat(x[:, 0]).unsqueeze(1)
        heads = self.out(y.unflatten(-1, (self.h, -1)))
        return heads @ heads.transpose(-1, -2) @ heads


def _spec() -> Spec:
    dims = {"B": 2, "T": 5, "d": Dim(21, multiple_of="h"), "h": 3}
    return Spec("shared", dims, Shared, lambda n: (torch.randn(n.B, n.T, n.d),), lambda module, x: module(x).sum())


def _operators(graph: Graph) -> list[list[tuple[str, str, tuple[Tensor, ...]]]]:
    return [[(op.name.replace("_unsafe_view", "view"), op.phase, op.outputs) for op in trace.ops] for trace in graph.traces]


def test_matmuls_decomposed_in_python_are_the_same_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a version before 2.12: every operator of the step, forward and backward, but for the kind of a view; every closed form."""
    as_it_is = calc.trace(_spec(), cache=False)
    monkeypatch.setattr(matmul, "_KEEPS_SYMBOLS", (99, 0))
    apart = calc.trace(_spec(), cache=False)

    assert _operators(as_it_is) == _operators(apart)
    assert {name: q.text for name, q in calc.derive(as_it_is).quantities.items()} == {
        name: q.text for name, q in calc.derive(apart).quantities.items()
    }
