"""A derivation at other sizes than its own: where the step runs other operators, it is traced, so closed forms are used only where they
hold."""

from __future__ import annotations

import functools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import calc
from calc import check
from calc.derive import sensitivity
from calc.derive.result import Derivation
from calc.dimensions import Dim
from calc.errors import DimensionError
from calc.graph import serialize
from calc.pipeline.verdict import EXACT
from calc.spec import Spec


class Layers(nn.Module):
    """``L`` linear layers of width ``d``, with what ``extra`` makes of the result."""

    def __init__(self, n: Any, extra: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(n.d, n.d) for _ in range(n.L))
        self.extra = extra

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.extra(x)


def spec(extra: Callable[[Tensor], Tensor], check_at: dict[str, int] | None = None, **defaults: int | Dim) -> Spec:
    return Spec(
        name="layers",
        dims={"B": 3, "d": 7, "L": 4, **defaults},
        build=lambda n: Layers(n, extra),
        inputs=lambda n: (torch.randn(n.B, n.d),),
        loss=lambda module, x: module(x).sum(),
        trip_counts=("L",),
        check_at=check_at or {},
    )


def alone(x: Tensor) -> Tensor:
    """A batch of one goes through a softmax."""
    return x.softmax(-1) if x.shape[0] == 1 else x


def narrow(x: Tensor) -> Tensor:
    return x.softmax(-1) if x.shape[1] == 5 else x


def square(x: Tensor) -> Tensor:
    return x.softmax(-1) if x.shape[0] == x.shape[1] else x


derive = functools.partial(calc.derive, optimizer="sgd")  # half the operators of the usual one


@functools.cache
def general(extra: Callable[[Tensor], Tensor]) -> Derivation:
    """The derivation at the default sizes, made once for all tests."""
    return derive(spec(extra))


def values(derivation: Derivation) -> dict[str, int | None]:
    return {name: quantity.value for name, quantity in derivation.quantities.items()}


@pytest.mark.parametrize(
    ("extra", "sizes"),
    [
        (alone, {"B": 1}),
        pytest.param(alone, {"B": 1, "L": 1}, marks=pytest.mark.slow),
        pytest.param(alone, {"B": 1, "d": 1}, marks=pytest.mark.slow),
        pytest.param(narrow, {"d": 5}, marks=pytest.mark.slow),
        pytest.param(narrow, {"d": 5, "L": 2}, marks=pytest.mark.slow),
        pytest.param(square, {"B": 7}, marks=pytest.mark.slow),
        pytest.param(square, {"B": 1, "d": 1, "L": 1}, marks=pytest.mark.slow),
    ],
)
def test_at_sizes_where_the_step_runs_otherwise_it_is_traced_there(extra: Callable[[Tensor], Tensor], sizes: dict[str, int]) -> None:
    """Every quantity, the operators and the sizes are those of a derivation made there."""
    usual, there = general(extra), derive(spec(extra), sizes)

    assert not usual.holds_at(sizes)
    assert values(there) == values(usual.at_sizes(sizes))
    assert values(there) == {name: q.at(**sizes) if q.text else None for name, q in usual.quantities.items()}
    assert "aten._softmax.default" in [row.operator for row in usual.at_sizes(sizes).coverage]
    assert "aten._softmax.default" not in [row.operator for row in usual.coverage]
    assert there.sizes == usual.at_sizes(sizes).sizes


@pytest.mark.slow
def test_the_way_back_from_a_special_case_is_traced_too() -> None:
    """A default of a batch of one is a special case itself; every other batch is not."""
    usual = derive(spec(alone))
    ones = derive(spec(alone, B=1))

    assert values(usual) == values(ones.at_sizes({"B": 3}))
    assert usual["memory.peak"].at(B=5) == ones["memory.peak"].at(B=5)
    assert values(ones) == values(usual.at_sizes({"B": 1}))


def test_a_case_is_traced_once() -> None:
    said: list[str] = []
    derivation = derive(spec(alone), progress=said.append)
    derivation["memory.peak"].at(B=1)
    traced = len(said)
    for width in (7, 11, 13):
        derivation["flops.step.total"].at(B=1, d=width)
        derivation.at_sizes({"B": 1, "d": width})

    assert traced == len(said)


@pytest.mark.slow
def test_the_closed_form_of_a_graph_is_not_evaluated_in_its_special_case() -> None:
    """A graph that holds a case for a batch of one, derived for three: at one it is that case which counts."""
    graph = serialize.loads(serialize.dumps(calc.trace(spec(alone), {"B": 1}, optimizer="sgd")), "it")

    assert derive(spec(alone), {"B": 1})["memory.peak"].value == calc.derive(graph, {"B": 3})["memory.peak"].at(B=1)


def test_a_graph_without_its_spec_says_what_it_lacks() -> None:
    graph = serialize.loads(serialize.dumps(calc.trace(spec(narrow), optimizer="sgd")), "it")

    with pytest.raises(DimensionError, match="a graph cannot be traced again: derive the model from its spec"):
        calc.derive(graph)["memory.peak"].at(d=5)


@pytest.mark.slow
def test_sizes_that_need_fewer_multiples_than_the_trace_took_are_traced() -> None:
    """A width of 12 that is split in two is taken for an even number; one of 7 is not split."""

    def split(x: Tensor) -> Tensor:
        return torch.cat(x.chunk(2, dim=1)[::-1], dim=1) if x.shape[1] % 2 == 0 else x

    derivation = derive(spec(split, d=12))

    assert values(derive(spec(split), {"d": 7})) == values(derivation.at_sizes({"d": 7}))


@pytest.mark.parametrize(
    ("extra", "sizes"),
    [
        (alone, {"B": 1}),
        pytest.param(narrow, {"d": 5}, marks=pytest.mark.slow),
        pytest.param(square, {"B": 2, "d": 2}, marks=pytest.mark.slow),
        pytest.param(alone, {"L": 1, "B": 2}, marks=pytest.mark.slow),
    ],
)
def test_a_check_at_a_special_case_compares_what_was_derived_there(extra: Callable[[Tensor], Tensor], sizes: dict[str, int]) -> None:
    """Whether a spec's own check sizes are there, or they are requested; operators are those of the case."""
    for report in (check(derive(spec(extra, sizes))), check(general(extra), **sizes)):
        assert sizes == {name: report.sizes[name] for name in sizes}
        assert {EXACT} == {v.verdict for v in report.verdicts if v.measured is not None}
        assert report.passed > 15


@pytest.mark.slow
def test_doubling_a_size_into_another_case_says_so_and_traces_nothing() -> None:
    """A table of many sizes is no place for a further trace of each; a batch of one, which every table doubles, has one."""
    said: list[str] = []
    derivation = derive(spec(square, d=6), progress=said.append)
    (batch,) = [doubling for doubling in sensitivity.doublings(derivation, "memory.peak") if doubling.dim == "B"]

    assert (None, "the step runs other operators at B = 6") == (batch.factor, batch.because)
    assert not [line for line in said if "runs other operators" in line]
    ones = derive(spec(alone, B=1))
    (batch,) = [doubling for doubling in sensitivity.doublings(ones, "memory.peak") if doubling.dim == "B"]
    assert batch.factor == Fraction(ones["memory.peak"].at(B=2), ones["memory.peak"].value)


class TwoWidths(nn.Module):
    """From one width to another, unless both are equal."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.to_other, self.same = nn.Linear(n.d, n.e), n.d == n.e

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.to_other(x)
        return x if self.same else y


def test_a_size_that_is_raised_takes_its_multiples_along() -> None:
    """At 2 heads of 8 each both widths are 16, another step: 3 heads of the second width, 24, are the fewest."""
    heads = {"h": 4, "m": 6, "k": Dim("d/h", tied=True), "p": Dim("e/m", tied=True)}
    dims = {"B": 3, **heads, "d": Dim(64, multiple_of="h"), "e": Dim(96, multiple_of="m")}
    two = Spec("two widths", dims, TwoWidths, lambda n: (torch.randn(n.B, n.d),), lambda module, x: module(x).sum())
    derivation, at = calc.derive(two, cache=False, optimizer="sgd"), two.sizes({"h": 2, "d": 16, "m": 2, "e": 16})

    assert {"h": 3, "d": 24} == derivation.usual(at, ["h", "d"])
    assert {} == derivation.usual(at, ["h"])
