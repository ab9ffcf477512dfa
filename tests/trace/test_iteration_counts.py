"""What a step compares a declared number of iterations with, beyond the few that are traced."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import calc
from calc.derive.result import Derivation
from calc.spec import Spec
from calc.trace.tracer import Tracer
from calc.trace.values.iteration_counts import Comparisons, CountComparison, counted, guards_of
from tests.checks import failures
from tests.trace import modules

DIMS = {"B": 3, "d": 7, "L": 5}

# How many cells a model with ``n`` layers runs at layer i.
Cells = Callable[[int, Any], int]


class Deep(nn.Module):
    """Layers, each run as often as ``cells`` says."""

    def __init__(self, n: Any, cells: Cells) -> None:
        super().__init__()
        self.depth, self.cells = n.L, cells
        self.layers = nn.ModuleList(nn.Linear(n.d, n.d, bias=False) for _ in range(n.L))

    def forward(self, x: Tensor) -> Tensor:
        for i, layer in enumerate(self.layers):
            for _ in range(self.cells(i, self.depth)):
                x = torch.tanh(layer(x))
        return x


def deep(cells: Cells) -> Spec:
    return modules.spec(lambda n: Deep(n, cells), dims=DIMS, trip_counts=("L",))


def derived(cells: Cells, depth: int) -> Derivation:
    return calc.derive(deep(cells), {"L": depth}, cache=False, optimizer="sgd")


def cells_run(result: Derivation, depth: int) -> int:
    """By the products of the forward: 2 B d² each."""
    return result["flops.forward.matmul"].at(L=depth) // (2 * DIMS["B"] * DIMS["d"] ** 2)


def one_more_above_eight(_: int, depth: Any) -> int:
    return 2 if depth > 8 else 1


def one_more_from_a_half(_: int, depth: Any) -> int:
    return 1 if 20 - 2 * depth >= 3 else 2


def one_more_at_nine(_: int, depth: Any) -> int:
    return 2 if depth in (9, 13) else 1


def two_in_the_last_two(i: int, depth: Any) -> int:
    return 2 if i >= depth - 2 else 1


def two_in_the_first_but_not_the_last(i: int, depth: Any) -> int:
    return 2 if i == 0 and i != depth - 1 else 1


@pytest.mark.parametrize("cells", [one_more_above_eight, one_more_from_a_half, one_more_at_nine])
def test_a_comparison_with_a_depth_beyond_the_traced_ones_is_a_guard(cells: Cells) -> None:
    """The depth becomes a number where the comparison has another outcome, and remains a symbol where it has not."""
    shallow, at_nine = derived(cells, 7), derived(cells, 9)

    assert (dict(shallow.specialized), cells_run(shallow, 7)) == ({}, 7)
    assert (dict(at_nine.specialized), cells_run(at_nine, 9)) == ({"L": 9}, 18)
    assert [] == failures(calc.check(at_nine))


def test_without_these_guards_a_check_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted error: comparisons are forgotten. Certificates, whose models are shallow as well, do not show it."""
    monkeypatch.setattr(sys.modules[Tracer.__module__], "guards_of", lambda _: [])
    wrong = derived(one_more_above_eight, 9)

    assert cells_run(wrong, 9) == 9
    assert failures(calc.check(wrong))


def test_a_branch_on_the_depth_is_stated() -> None:
    stated = [assumption.expr for assumption in derived(one_more_above_eight, 7).assumptions]
    assert any("L > 8" in expr for expr in stated), stated


@pytest.mark.parametrize("cells", [two_in_the_last_two, two_in_the_first_but_not_the_last])
def test_a_comparison_with_the_number_of_an_iteration_is_none(cells: Cells) -> None:
    """In every trace the last layers are others: closed forms hold at any depth."""
    result = derived(cells, 40)

    assert dict(result.specialized) == {}
    assert [cells_run(result, depth) for depth in (8, 40)] == [sum(cells(i, depth) for i in range(depth)) for depth in (8, 40)]


class Folded(nn.Module):
    """A cell at every position, and one more for long inputs: their length is what was declared."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.cell = nn.Linear(n.d, n.d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        state = x[:, 0]
        for t in [0, *range(x.shape[1])] if x.shape[1] > 8 else range(x.shape[1]):
            state = torch.tanh(self.cell(x[:, t] + state))
        return state


def test_a_declared_number_that_is_a_size_of_the_inputs_is_compared_as_one() -> None:
    parts: dict[str, Any] = {"dims": {"B": 3, "d": 7, "L": 5}, "inputs": lambda n: (torch.randn(n.B, n.L, n.d),), "trip_counts": ("L",)}
    folded = modules.spec(Folded, **parts)
    results = {length: calc.derive(folded, {"L": length}, cache=False, optimizer="sgd") for length in (7, 11)}

    assert {7: 7, 11: 12} == {length: cells_run(result, length) for length, result in results.items()}
    assert [] == failures(calc.check(results[11]))


# -- the numbers themselves ----------------------------------------------------------------------------------------------------------


def three(noted: Comparisons | None = None) -> Any:
    return counted({"L": 3}, {} if noted is None else noted)["L"]


@pytest.mark.parametrize(
    ("compares", "expected"),
    [
        (lambda n: n > 8, "L > 8"),
        (lambda n: 8 > n, "L < 8"),
        (lambda n: 2 * n + 1 <= 4, "2*L <= 3"),
        (lambda n: 10 - n == 7, "L == 3"),
        (lambda n: n - 1 != 5, "L != 6"),
        (lambda n: -n < -8, "L > 8"),
        (lambda n: min(n, 8), "L > 8"),
        (lambda n: n in (4,), "L == 4"),
        (lambda n: {3: "a"}[n], "L == 3"),
        (lambda n: n + n * True >= 4, "2*L >= 4"),
    ],
)
def test_what_a_number_is_compared_with_is_noted(compares: Callable[[Any], Any], expected: str) -> None:
    noted: Comparisons = {}
    compares(three(noted))
    assert [expected] == [one.guard.expr for one in noted]


def test_two_numbers_are_compared_with_each_other() -> None:
    noted: Comparisons = {}
    counts = counted({"E": 6, "L": 3}, noted)
    outcomes = [counts["L"] > counts["E"] - 1, 3 * counts["E"] == counts["L"]]

    assert [False, False] == outcomes
    assert ["E < L + 1", "3*E == L"] == [one.guard.expr for one in noted]
    assert [False, False] == [one.guard.outcome for one in noted]


@pytest.mark.parametrize("of", [lambda n: n - n, lambda n: 0 * n, lambda n: n // 2, lambda n: n % 2, lambda n: n * n, int])
def test_what_is_no_sum_of_multiples_is_a_plain_number(of: Callable[[Any], Any]) -> None:
    assert type(of(three())) is int


def test_nothing_else_differs_from_an_integer() -> None:
    n = three()

    assert (n, hash(n), f"{n}", repr(n), 7.5 - n, n / 2, [1] * n, "a" * n) == (3, hash(3), "3", "3", 4.5, 1.5, [1, 1, 1], "aaa")
    assert torch.empty(n, 2).shape == (3, 2)
    assert n != "3"
    assert [copy.copy(n) is n, copy.deepcopy(n) is n, type(pickle.loads(pickle.dumps(n)))] == [True, True, int]


def _compared(bound: int, outcome: bool, relation: str = ">") -> CountComparison:
    return CountComparison((("L", 1),), relation, bound, outcome, "model.py:1")


@pytest.mark.parametrize("bound", [4, 8, 10**9])
def test_one_outcome_in_all_traces_and_another_with_more_iterations_is_a_guard(bound: int) -> None:
    runs = [([_compared(bound, False)], {"L": 3}), ([_compared(bound, False)], {"L": 4})]
    assert [(f"L > {bound}", False)] == [(guard.expr, guard.outcome) for guard in guards_of(runs)]


def test_no_guard_of_what_larger_numbers_do_not_change_or_traces_differ_in() -> None:
    always, differing = _compared(2, True), [_compared(3, False), _compared(3, True)]
    assert [] == guards_of([([always, differing[0]], {"L": 3}), ([always, differing[1]], {"L": 4})])


def test_no_guard_where_the_same_line_compares_with_one_more_in_a_trace_with_one_more() -> None:
    """The last layer but one, of three and of four; another line that compares with 5 alone is a guard."""
    last = [_compared(3, True, "<="), _compared(4, True, "<=")]
    elsewhere = replace(_compared(5, True, "<="), where="model.py:2")

    runs = [(last, {"L": 3}), ([last[1], _compared(5, True, "<="), elsewhere], {"L": 4})]
    assert ["model.py:2"] == [guard.where for guard in guards_of(runs)]
