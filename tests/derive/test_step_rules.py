"""Every rule that a step names is stated in the report's list of rules, with its source and its test."""

from __future__ import annotations

from pathlib import Path

import pytest

import calc.rules  # noqa: F401  (fills the registry)
from calc.cost import REGISTRY
from calc.textbook import compare
from reports import rulebook
from tests.derive.conftest import Derived

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize("case", [("gpt2", "adamw", "fused"), ("gpt2", "sgd", "math"), ("cruncher", "spec", "fused")], ids="-".join)
def test_every_rule_that_a_step_names_is_stated(case: tuple[str, str, str], derived: Derived) -> None:
    """Those of the derivation and those that lead from rules of thumb to it."""
    result = derived(*case)
    named = {step.rule for step in (*result.steps, *(step for c in compare(result) for step in c.steps))}

    assert {"saved tensor", "checkpoint", "gradient", "parameter", "sum", "sum over layers", "maximum", "letters put in"} <= named
    assert [] == [name for name in named if rulebook.find(name) is None]


def test_every_rule_has_a_statement_a_source_and_a_test_that_exists() -> None:
    """Of operators, counted and free, and of steps; the rule of an operator also says of which shapes."""
    for name in (*REGISTRY.rules, *REGISTRY.frees, *rulebook.STEP_RULES):
        entry = rulebook.find(name)
        assert entry is not None
        assert entry.statement
        assert entry.source
        assert (ROOT / entry.test).is_file(), entry.test
    assert all(rulebook.find(name).shapes for name in REGISTRY.rules)  # type: ignore[union-attr]


def test_a_rule_of_an_operator_names_the_test_that_enumerates_the_registry() -> None:
    """An operator without a call in its cases fails it."""
    test = (ROOT / rulebook.OPERATORS).read_text(encoding="utf-8")

    assert "OPERATORS = sorted([*REGISTRY.rules, *REGISTRY.frees])" in test
    assert {rulebook.OPERATORS} == {rulebook.find(name).test for name in (*REGISTRY.rules, *REGISTRY.frees)}  # type: ignore[union-attr]


def test_a_name_that_nobody_stated_is_found_out() -> None:
    """It is no rule."""
    assert rulebook.find("sum over clouds") is None
