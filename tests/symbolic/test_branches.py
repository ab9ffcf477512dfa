"""Closed forms by cases: the case in force is the one whose condition the sizes meet."""

from __future__ import annotations

import pytest

from calc.errors import NapkinError
from calc.symbolic import branches
from calc.symbolic.exact import evaluate_text
from calc.symbolic.parser import parse

FORM = "Piecewise((8*T + 3, Eq(B, 1)), (8*B*T, True))"


def test_the_special_case_is_in_force_at_its_sizes():
    """At B = 1, T = 5: 8*5 + 3 = 43."""
    assert "8 * T + 3" == branches.at_hand(FORM, {"B": 1, "T": 5})
    assert 43 == evaluate_text(FORM, {"B": 1, "T": 5})
    assert {"B": "1"} == branches.case_at(FORM, {"B": 1, "T": 5})
    assert parse("8*B*T") == branches.general_case(FORM, {"B": 1, "T": 5})


def test_other_sizes_the_general_one_is():
    """At B = 2, T = 5: 8*2*5 = 80, and no condition has to be named."""
    assert 80 == evaluate_text(FORM, {"B": 2, "T": 5})
    assert {} == branches.case_at(FORM, {"B": 2, "T": 5})
    assert branches.general_case(FORM, {"B": 2, "T": 5}) is None


def test_choices_nest_and_stand_inside_sums():
    """The inner choice is made too; And and Ne are read."""
    nested = "T + Piecewise((Piecewise((1, And(Eq(T, 1), Ne(B, 2))), (2, True)), Eq(B, 1)), (3, True))"

    assert 1 + 1 == evaluate_text(nested, {"B": 1, "T": 1})
    assert 5 + 2 == evaluate_text(nested, {"B": 1, "T": 5})
    assert 5 + 3 == evaluate_text(nested, {"B": 2, "T": 5})


def test_a_form_without_cases_is_itself():
    """And has no other case."""
    assert "12*L*d**2" == branches.at_hand("12*L*d**2", {})
    assert branches.general_case("12*L*d**2", {}) is None


def test_a_condition_that_cannot_be_read_is_refused():
    """Never the wrong case in silence."""
    with pytest.raises(NapkinError, match=r"^cannot read the condition 'B > 1' of a closed form by cases$"):
        branches.at_hand("Piecewise((1, B > 1), (2, True))", {"B": 1})
