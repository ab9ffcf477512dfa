"""Every rule that a step names is stated in the report's list of rules, with its source and its test."""

from __future__ import annotations

from pathlib import Path

import pytest

import calc.rules.families  # noqa: F401  # importing it fills the registry
from calc.derive.rules_of_thumb import compare
from calc.rules.registry import REGISTRY
from reports.page import rules as rulebook
from tests.derive.conftest import Derived

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize("case", [("gpt2", "adamw", "fused"), ("gpt2", "sgd", "math"), ("cruncher", "spec", "fused")], ids="-".join)
def test_every_rule_that_a_step_names_is_stated(case: tuple[str, str, str], derived: Derived) -> None:
    """Those of the derivation and those that lead from rules of thumb to it."""
    result = derived(*case)
    named = {step.rule for step in (*result.steps, *(step for c in compare(result) for step in c.steps))}

    assert {"saved tensor", "checkpoint", "gradient", "parameter", "sum", "sum over layers", "maximum", "sizes substituted"} <= named
    assert [] == [name for name in named if rulebook.find(name) is None]


def test_every_rule_has_a_statement_and_a_source() -> None:
    """Of operators, counted and free, and of steps; the rule of an operator also says of which shapes."""
    for name in (*REGISTRY.rules, *REGISTRY.frees, *rulebook.STEP_RULES):
        entry = rulebook.find(name)
        assert entry is not None
        assert entry.statement
        assert entry.source
        assert entry.test
    assert REGISTRY.rules
    assert all(rulebook.find(name).shapes for name in REGISTRY.rules)


def test_the_test_of_a_rule_of_steps_is_a_file() -> None:
    """Tests of operators stand in a table of their own, which is compared with them."""
    assert all((ROOT / entry.test).is_file() for entry in rulebook.STEP_RULES.values())


def test_an_operator_names_its_calls_and_the_model_that_an_error_in_it_fails() -> None:
    """As the table of rules has them."""
    entry = rulebook.find("aten.mm.default")

    assert entry is not None
    assert entry.test.endswith(" in tests/zoo")
    assert "tests/rules/cases.py" in entry.test
    assert (ROOT / "tests/rules/cases.py").is_file()


def test_a_name_without_a_statement_is_noticed() -> None:
    """It is no rule."""
    assert rulebook.find("sum over clouds") is None
