"""Which dimensions are fixed where sizes happen to be equal, and which sizes are tried."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from calc.dimensions import Dim
from calc.graph.basis import basis_of
from calc.graph.specialization import _equal_sizes, partly_answering, special_case_candidates, without_ones
from calc.graph.step import Guard, TracedDim


def _graph(dims: dict[str, Dim]) -> Any:
    traces = [TracedDim(name, "", int(dim.default), multiple_of=dim.multiple_of) for name, dim in dims.items()]
    return SimpleNamespace(dims=traces, basis=dict(basis_of(dims).define), loops=())


def _fixed(**dims: Dim) -> dict[str, str]:
    values = {name: int(dim.default) for name, dim in dims.items()}
    return _equal_sizes(_graph(dims), values, list(values))


def test_a_later_dimension_equals_an_earlier_one() -> None:
    assert _fixed(B=Dim(2), d=Dim(7), e=Dim(2), one=Dim(1)) == {"e": "B", "one": "1"}


def test_a_multiple_that_is_taken_once_equals_its_part() -> None:
    """Heads that are as many as key heads: the other way round the basis would go in circles."""
    dims = {"h": Dim(4, multiple_of="g"), "g": Dim(4), "k": Dim(4)}

    assert _fixed(**dims) == {"h": "g", "k": "g"}
    assert basis_of(dims, _fixed(**dims)).define == {"h": "g", "g": "g", "k": "g"}


def test_a_chain_of_multiples_ends_at_the_last_part() -> None:
    dims = {"a": Dim(6, multiple_of="b"), "b": Dim(6, multiple_of="c"), "c": Dim(6)}

    assert basis_of(dims, _fixed(**dims)).define == {"a": "c", "b": "c", "c": "c"}


def test_what_is_no_multiple_equals_what_is_a_multiple_of_a_third() -> None:
    """A feed-forward as wide as the model: the model's width stays a multiple of the heads."""
    dims = {"f": Dim(6), "d": Dim(6, multiple_of="h"), "h": Dim(3)}

    assert _fixed(**dims) == {"f": "d"}
    assert basis_of(dims, _fixed(**dims)).define == {"f": "(h)*(d_per_h)", "d": "(h)*(d_per_h)", "h": "h"}


def test_a_multiple_of_what_equals_a_third_is_tied_to_that() -> None:
    """All alike, the part before the multiple: nothing goes in circles."""
    dims = {"f": Dim(4), "h": Dim(4), "d": Dim(4, multiple_of="h")}

    assert _fixed(**dims) == {"h": "f", "d": "f"}
    assert basis_of(dims, _fixed(**dims)).define == {"f": "f", "h": "f", "d": "f"}


def test_the_quotient_of_equal_dimensions_is_one() -> None:
    """As many heads as the model is wide: a head has one feature."""
    dims = {"d": Dim(11, multiple_of="h"), "h": Dim(11), "k": Dim("d/h", tied=True)}

    assert basis_of(dims, {"d": "h"}).define == {"d": "h", "h": "h", "k": "1"}


def test_a_quotient_that_is_its_least_multiple_is_a_case_of_its_dividend() -> None:
    """Twice as many heads as key heads, where they must be a multiple of twice as many: the quotient itself is no dimension to fix."""
    dims = {"g": Dim(3), "h": Dim(6, multiple_of="g"), "h_per_g": Dim("h/g", tied=True, multiple_of=2), "d": Dim(7)}
    defaults = {name: dim.default if isinstance(dim.default, str) else None for name, dim in dims.items()}
    traces = [TracedDim(name, "", 2, defaults[name], dim.tied, dim.multiple_of) for name, dim in dims.items()]
    graph: Any = SimpleNamespace(dims=traces, basis=dict(basis_of(dims).define), loops=(), as_basis=lambda: basis_of(dims))

    def cases(**sizes: int) -> list[dict[str, str]]:
        return special_case_candidates(graph, sizes, [Guard("h_per_g_per_2 == 1", False, "a line")])

    assert cases(g=3, h=6, h_per_g=2, d=7) == [{"h": "2*g"}]
    assert cases(g=3, h=12, h_per_g=4, d=7) == [{}]
    assert basis_of(dims, {"h": "2*g"}).define == {"g": "g", "h": "2 * g", "h_per_g": "2", "d": "d"}


def test_a_size_that_is_the_sum_of_two_others_is_a_case_where_the_step_compares_them() -> None:
    """A head's values may be as wide as its keys, a part of which is rotated. Another guard about these sizes says nothing of the sum."""
    dims = {"B": Dim(2), "rotated": Dim(8, multiple_of=4), "plain": Dim(12), "v": Dim(20)}
    graph: Any = _graph(dims)
    graph.basis, graph.loops, graph.as_basis = dict(basis_of(dims).define), (), lambda: basis_of(dims)

    def first(compared: str, v: int, plain: int = 12) -> dict[str, str]:
        return special_case_candidates(graph, {"B": 2, "rotated": 8, "plain": plain, "v": v}, [Guard(compared, False, "a line")])[0]

    assert first("4*rotated_per_4 + plain == v", 20) == {"v": "rotated + plain"}
    assert first("4*rotated_per_4 + plain == v", 16, plain=8) == {"v": "rotated + plain"}
    assert first("4*rotated_per_4 + plain == v", 21) == {}
    assert first("plain == v", 20) == {}
    assert basis_of(dims, {"v": "rotated + plain"}).define["v"] == "4 * rotated_per_4 + plain"


def test_sizes_that_cover_some_failing_guards_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the requested sizes failed: sizes that satisfy the same guards would fail too."""
    some, all_, none = {"B": 1, "T": 89}, {"B": 1, "T": 3}, {"B": 17, "T": 89}
    monkeypatch.setattr("calc.graph.specialization.degenerate", lambda _: [some, all_, none])

    def tried(*unmet: Guard) -> list[dict[str, int]]:
        basis = SimpleNamespace(values=lambda sizes: sizes)
        graph: Any = SimpleNamespace(failed_guards=lambda _: list(unmet), as_basis=lambda: basis)
        return partly_answering(graph, {"B": 1, "T": 5})

    batch, length = Guard("B != 1", True, "a line"), Guard("T > 8", True, "a line")
    assert tried(batch, length) == [some]
    assert tried(batch) == []
    assert tried() == []


def test_few_iterations_of_two_loops_are_tried_together_at_last() -> None:
    """S = 3 is certified at many iterations of T, and maybe not at one: first T alone is fixed, then both."""
    dims = {"S": Dim(3), "T": Dim(1), "d": Dim(7)}
    basis = basis_of(dims)
    unmet = [Guard("T != 1", True, "the traced trip counts")]
    traces = [SimpleNamespace(sizes={"S": count, "T": count}) for count in (5, 6)]
    graph: Any = _graph(dims)
    graph.loops, graph.traces, graph.as_basis, graph.failed_guards = ("S", "T"), traces, lambda: basis, lambda _: unmet

    assert special_case_candidates(graph, {"S": 3, "T": 1, "d": 7}, unmet) == [{"T": "1"}, {"S": "3", "T": "1"}]


def test_sizes_that_are_tried_in_vain_for_a_batch_of_one_are_tried_for_a_batch_that_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """What else they have of their own then stands for each batch; the number is that of no other size. Layers stay as few as they are."""
    monkeypatch.setattr("calc.graph.specialization.requested_values", lambda _, values: [dict(values)])

    def tried(*unmet: Guard, **values: int) -> list[dict[str, int]]:
        graph: Any = SimpleNamespace(failed_guards=lambda _: list(unmet), loops=("L",))
        return without_ones(graph, values)

    batch = Guard("B != 1", True, "a line")
    assert tried(batch, B=1, T=2, L=1) == [{"B": 3, "T": 2, "L": 1}]
    assert tried(batch, B=4, T=2, L=1) == []
    assert tried(B=1, T=2, L=1) == []
