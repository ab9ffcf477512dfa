"""The table of rules and the tests they stand is up to date: what ``napkin list rules`` shows is so."""

from __future__ import annotations

import random

import pytest

from tests.rules.cases import CASES
from tests.rules.table import OPERATORS, bites, read, runs
from tests.test_planted_errors import ELSEWHERE, UNRECORDED

TABLE = read()
AGAIN = "run python -m tests.rules.table"
HERE = [op for op in OPERATORS if op in TABLE and op not in ELSEWHERE and op not in UNRECORDED]
FEW = random.Random(2).sample(HERE, min(4, len(HERE)))


def test_the_table_has_every_operator_and_no_other() -> None:
    """Counted and free."""
    assert sorted(TABLE) == OPERATORS, f"the table of rules is not up to date: {AGAIN}"


def test_the_table_counts_the_calls_of_the_cases() -> None:
    """Each operator's own."""
    assert {op: len(CASES[op]) for op in TABLE if op in CASES} == {op: entry["calls"] for op, entry in TABLE.items()}, AGAIN


def test_what_is_counted_as_another_operator_stands_on_the_tests_of_that_one() -> None:
    """Kernels of other devices; what is never recorded says why."""
    assert {op: TABLE[twin]["model"] for op, twin in ELSEWHERE.items()} == {op: TABLE[op]["model"] for op in ELSEWHERE}
    assert UNRECORDED == {op: entry["because"] for op, entry in TABLE.items() if entry["model"] is None}


@pytest.mark.parametrize("op", [pytest.param(op, marks=[] if op in FEW else [pytest.mark.slow]) for op in HERE])
def test_the_model_named_for_a_rule_notices_an_error_in_it(op: str) -> None:
    """It executes the operator, and its check fails when the rule is wrong."""
    assert runs(op, TABLE[op]["model"]), AGAIN
    assert bites(op, TABLE[op]["model"]), AGAIN
