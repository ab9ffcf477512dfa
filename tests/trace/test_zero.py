"""Sizes that other sizes make 0: a trace says where closed forms of elements stand for none."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import calc
from tests.checks import failures
from tests.trace.modules import function, spec


@pytest.mark.parametrize(
    ("columns", "condition"),
    [
        (lambda d: d // 4, "floor((d)/(4)) != 0"),
        (lambda d: d - 5, "(-5 + d) != 0"),
        (lambda d: d // 2, ""),
        (lambda d: d - d // 3, ""),
        (lambda d: d - 1, ""),
    ],
    ids=["d // 4", "d - 5", "d // 2", "d - d // 3", "d - 1"],
)
def test_a_size_that_may_be_0_is_a_condition(columns: object, condition: str) -> None:
    """Where no other guard implies it: what is 0 for d = 1 alone, or for no size, needs none."""
    assert callable(columns)
    graph = calc.trace(function(lambda y: y[:, : columns(y.shape[1])].sum()), {"d": 16}, optimizer="sgd", cache=False)

    of_sizes = [c for c in graph.guards if " != 0" in c.expr and "aten." in c.where]
    assert ([condition] if condition else []) == [c.expr for c in of_sizes]
    assert all(c.outcome for c in of_sizes)


class Targets(nn.Module):
    """A loss against numbers that went through a list of Python: fp32, whatever the model is in."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.layer = nn.Linear(d, d)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.mse_loss(self.layer(x), torch.tensor(x.tolist()))


def test_numbers_of_a_list_are_no_reason_for_other_bytes() -> None:
    """``torch.tensor(x.tolist())`` in bf16: the gradient of the loss has the dtype of its input, so no operator converts it."""
    derivation = calc.derive(spec(lambda n: Targets(n.d)), optimizer="sgd", precision="bf16", cache=False)

    assert [] == failures(calc.check(derivation))
    assert [("B", "d")] * 2 == [s.shape for s in derivation.saved if not s.same_as][:2]
    assert derivation["activations.bytes"].value == sum(s.value for s in derivation.saved)


class Growing(nn.Module):
    """Each iteration keeps one column more than the one before; a wide head is the peak."""

    def __init__(self, d: int, L: int) -> None:
        super().__init__()
        self.layers, self.head = L, nn.Linear(d, 100_000)

    def forward(self, x: Tensor) -> Tensor:
        total = self.head(x).sum()
        y = x * self.head.weight[0]
        for _ in range(self.layers):
            y = torch.cat([y, y[:, :1]], -1)
            total = total + y.exp().sum()
        return total


@pytest.mark.slow
def test_saved_tensors_that_grow_from_iteration_to_iteration_are_one_row() -> None:
    """Σ 4·B·(d + i) for i = 1 … 12 bytes; a row for each size would have fewer than none of some."""
    growing = spec(lambda n: Growing(n.d, n.L), dims={"B": 3, "d": 5, "L": 12}, loss=lambda module, x: module(x))
    derivation = calc.derive(growing, optimizer="sgd", cache=False)

    (row,) = [s for s in derivation.saved if s.tensor.part == "" and s.tensor.operator.startswith("exp")]
    assert (("B", "*"), "L", 12, sum(4 * 3 * (5 + i) for i in range(1, 13))) == (row.shape, row.times, row.number, row.value)
    assert derivation["activations.bytes"].value == sum(s.value for s in derivation.saved)
