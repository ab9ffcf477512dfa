"""A step that runs other operators where one size is the product of two others, as a default says: that case is traced separately."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import calc
from calc.dimensions import Dim
from calc.graph.basis import basis_of
from calc.graph.step import Guard
from calc.spec import Spec
from tests.checks import failures

MUON = {"optimizer": "muon", "cache": False}


@pytest.fixture(scope="module")
def spec() -> Spec:
    """Muon multiplies a matrix of h·k rows and d columns from its shorter side, and from neither where it is square."""
    return Spec(
        name="heads",
        dims={"B": 3, "d": 14, "h": 2, "k": Dim("d/h")},
        build=lambda n: nn.Sequential(nn.Linear(n.d, n.h * n.k, bias=False), nn.Linear(n.h * n.k, 5)),
        inputs=lambda n: (torch.rand(n.B, n.d),),
        loss=lambda module, x: module(x).square().mean(),
    )


def test_a_tie_of_one_case_may_be_a_product() -> None:
    """d is h·k there, and no symbol of its own."""
    dims = {"d": Dim(14), "h": Dim(2), "k": Dim("d/h")}
    basis = basis_of(dims, {"d": "h*k"})

    assert ("h", "k") == basis.symbols
    assert {"d": 14, "h": 2, "k": 7} == basis.sizes({"h": 2, "k": 7})


def test_what_holds_where_two_sizes_are_equal_says_nothing_of_where_one_is_less() -> None:
    """h·k > d was traced; a trace at h·k = d has the other outcome, and formulas that are right there may be wrong below."""
    guard = Guard("h*k > d", True, "the optimizer's step")
    equal, less, more = ({"h": 2, "k": 3, "d": d} for d in (6, 7, 5))

    assert [False, False, True] == [guard.holds_at(at) for at in (equal, less, more)]
    assert not guard.answered_by(equal, less)
    assert guard.answered_by(less, equal)  # the line runs as it does below
    assert guard.answered_by(less, less)
    assert not guard.answered_by(more, less)


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param({"d": 14, "h": 2}, id="square", marks=pytest.mark.slow),
        pytest.param({"d": 15, "h": 3, "k": 7}, id="tall", marks=pytest.mark.slow),
        pytest.param({"d": 15, "h": 3, "k": 2}, id="wide"),
    ],
)
def test_either_side_is_that_of_a_real_run(spec: Spec, sizes: dict[str, int]) -> None:
    """To the last integer."""
    report = calc.check(calc.derive(spec, sizes, **MUON), **sizes)

    assert [] == failures(report)
