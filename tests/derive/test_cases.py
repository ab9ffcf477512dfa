"""Sizes at which a step runs other operators have closed forms of their own, joined to the general ones by cases."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import sympy as sp
from torch import Tensor

import calc
from calc.derive.result import Derivation
from calc.graph import serialize
from calc.symbolic.algebra import symbol, to_sympy
from tests.derive.models import exactly
from tests.trace.modules import function

ELEMENTWISE = "flops.forward.elementwise"


def if_one(x: Tensor) -> Tensor:
    if x.shape[0] == 1:
        return -x
    return x


def if_equal(x: Tensor) -> Tensor:
    if x.shape[0] == x.shape[1]:
        return -x
    return x


# A model, sizes of its special case, and forward elementwise FLOPs: product, a negation in the special case, sum.
CASES: list[tuple[Callable[[Tensor], Tensor], dict[str, int], Callable[[int, int], int]]] = [
    (if_one, {"B": 1}, lambda B, d: 2 * B * d - 1 + (B * d if B == 1 else 0)),
    (if_equal, {"B": 5, "d": 5}, lambda B, d: 2 * B * d - 1 + (B * d if B == d else 0)),
]


@pytest.fixture(params=CASES, ids=lambda case: case[0].__name__, scope="module")
def case(request: pytest.FixtureRequest) -> tuple[Derivation, Callable[[int, int], int]]:
    of, sizes, count = request.param
    return calc.derive(function(of), sizes, optimizer="sgd", cache=False), count


def test_the_value_is_that_of_the_case_in_force(case: tuple[Derivation, Callable[[int, int], int]]) -> None:
    """At its sizes, one B d more."""
    result, count = case

    assert result[ELEMENTWISE].value == count(result.sizes["B"], result.sizes["d"])


def test_both_cases_evaluate(case: tuple[Derivation, Callable[[int, int], int]]) -> None:
    """At other sizes the general form holds, and at those of the case its own, by value and by expression."""
    result, count = case
    for B, d in ((3, 7), (7, 3), (result.sizes["B"], result.sizes["d"]), (11, 13)):
        at = {symbol("B"): sp.Integer(B), symbol("d"): sp.Integer(d)}

        assert result[ELEMENTWISE].at(B=B, d=d) == count(B, d)
        assert result[ELEMENTWISE].expr.subs(at) == count(B, d)


def test_the_case_is_stated_with_the_line_that_makes_it(case: tuple[Derivation, Callable[[int, int], int]]) -> None:
    """Among the assumptions: the line that branches."""
    result, _ = case
    (stated,) = (a for a in result.assumptions if "special case where" in a.expr)

    said = r"^the step takes another branch there, at (test_cases|modules)\.py:\d+: .*; that case was traced separately$"
    assert re.search(said, stated.because)


def test_terms_add_up_in_both_cases(case: tuple[Derivation, Callable[[int, int], int]]) -> None:
    """Values at the case in force, expressions everywhere."""
    result, count = case
    quantity = result[ELEMENTWISE]

    assert sum(t.value for t in quantity.terms) == quantity.value
    for B, d in ((3, 7), (result.sizes["B"], result.sizes["d"])):
        at = {symbol("B"): sp.Integer(B), symbol("d"): sp.Integer(d)}
        assert sum(to_sympy(t.expr).subs(at) for t in quantity.terms) == count(B, d)


def test_steps_are_those_of_the_case_in_force(case: tuple[Derivation, Callable[[int, int], int]]) -> None:
    """They hold at its sizes, and the last arrives at the value."""
    result, _ = case
    assert result.steps
    for step in result.steps:
        assert exactly(step.before, result.sizes) == exactly(step.after, result.sizes) == step.value
    last = [s for s in result.steps if s.quantity == ELEMENTWISE][-1]
    assert last.value == result[ELEMENTWISE].value


def test_an_expression_by_cases_is_the_one_that_its_text_says(case: tuple[Derivation, Callable[[int, int], int]]) -> None:
    """Both cases and the condition between them."""
    result, _ = case

    assert "Piecewise" in str(result[ELEMENTWISE].text)
    assert all(result[n].expr == to_sympy(str(result[n].text)) for n in result if result[n].text is not None)


def test_quantities_that_do_not_change_have_one_form(case: tuple[Derivation, Callable[[int, int], int]]) -> None:
    """There are d weights in either."""
    result, _ = case

    assert result["parameters"].text == "d"
    assert result["gradients.bytes"].text == "4*d"


def test_a_graph_with_a_case_saves_and_loads(case: tuple[Derivation, Callable[[int, int], int]]) -> None:
    """And derives the same."""
    result, _ = case
    graph = calc.trace(result.spec, result.sizes, optimizer="sgd", cache=False)
    loaded = serialize.loads(serialize.dumps(graph))

    assert loaded == graph
    assert graph.special_cases
    assert {n: calc.derive(loaded)[n].text for n in result} == {n: result[n].text for n in result}


def test_sizes_outside_of_the_case_have_no_case() -> None:
    """Deriving at ordinary sizes says nothing of it."""
    result = calc.derive(function(if_one), optimizer="sgd", cache=False)

    assert result[ELEMENTWISE].text == "2*B*d - 1"
    assert not any("special case where" in a.expr for a in result.assumptions)


def test_the_trace_that_the_general_forms_fail_certifies_the_case() -> None:
    """Two certificates of the general forms, one trace at B = 1 that they fail, and one more of the special case, whose first is that."""
    said = list[str]()
    result = calc.derive(function(if_one), {"B": 1}, optimizer="sgd", cache=False, progress=said.append)

    assert sum("tracing a certificate" in line for line in said) == 4
    assert [certificate.sizes["B"] == 1 for certificate in result.certificates] == [False, False, True, True]
    assert result.certificates[2].sizes == result.sizes
