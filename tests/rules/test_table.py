"""The table of rules and the tests they stand is up to date: what ``napkin list rules`` shows is so."""

from __future__ import annotations

import pytest
import torch

from calc.rules.registry import REGISTRY
from tests.quick import few
from tests.rules.cases import CASES
from tests.rules.mutate import with_rule
from tests.rules.table import OPERATORS, bites, read, runs
from tests.test_planted_errors import ELSEWHERE, UNTRACED, addends, calls, compared, failed, measured, shown_alone, traced

TABLE = read()
MADE_WITH = "2.13"  # of torch, pinned in constraints.txt: another one may decompose an operator before it is traced
HOW_TO_UPDATE = "run python -m tests.rules.table"
HERE = [op for op in OPERATORS if op in TABLE and op not in ELSEWHERE and op not in UNTRACED]
RULES = [op for op in HERE if op in REGISTRY.rules]


def test_the_table_has_every_operator_and_no_other() -> None:
    """Counted and free."""
    assert sorted(TABLE) == OPERATORS, f"the table of rules is not up to date: {HOW_TO_UPDATE}"


def test_the_table_counts_the_calls_of_the_cases() -> None:
    """Each operator's own."""
    assert {op: len(CASES[op]) for op in TABLE if op in CASES} == {op: entry["calls"] for op, entry in TABLE.items()}, HOW_TO_UPDATE


def test_what_is_counted_as_another_operator_rests_on_the_tests_of_that_one() -> None:
    """Kernels of other devices; what is never traced says why."""
    assert {op: TABLE[twin]["model"] for op, twin in ELSEWHERE.items()} == {op: TABLE[op]["model"] for op in ELSEWHERE}
    assert all(REGISTRY.rules[op].function is REGISTRY.rules[twin].function for op, twin in ELSEWHERE.items())
    assert UNTRACED == {op: entry["because"] for op, entry in TABLE.items() if entry["model"] is None}


@pytest.mark.parametrize("op", few(HERE, 22))
def test_the_model_named_for_a_rule_notices_an_error_in_it(op: str) -> None:
    """It executes the operator, and its check fails when the rule is wrong: one error for each rule, drawn by its name."""
    if not runs(op, TABLE[op]["model"]) and not torch.__version__.startswith(MADE_WITH):
        pytest.skip(f"torch {torch.__version__} runs other operators in that model")
    assert runs(op, TABLE[op]["model"]), HOW_TO_UPDATE
    assert bites(op, TABLE[op]["model"]), HOW_TO_UPDATE


@pytest.mark.parametrize("op", few(RULES, 120))
def test_the_model_named_for_a_rule_makes_every_addend_count(op: str) -> None:
    """Those that the calls of the operator by itself show. Some take several models, which `make test-all` goes through."""
    missing = shown_alone(op) - addends(op, calls(op, [TABLE[op]["model"]]))
    if missing:
        pytest.skip(f"another model runs {', '.join(sorted(missing))}")


@pytest.mark.parametrize("op", RULES[::60])
def test_a_rule_in_its_own_place_is_no_error(op: str) -> None:
    """The checks that notice an error pass where there is none, though the registry is a copy all the same."""
    model, same = TABLE[op]["model"], with_rule(REGISTRY, op, REGISTRY.rules[op].function)

    assert [] == failed(compared(traced(model), same, measured(model)))
