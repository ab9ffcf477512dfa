"""How often to save a checkpoint: the published formulas, and that the interval is where the loss is least."""

from __future__ import annotations

import math

import pytest
import sympy as sp

from calc.errors import BadInputError
from calc.memory.formulas import SAVING_INTERVAL, TIME_LOST
from tests.memory.daly import EXPECTED_TIME, SAVING_INTERVAL_HIGHER


def test_every_formula_states_unit_error_and_source_and_uses_the_letters_it_names() -> None:
    for formula in (SAVING_INTERVAL, SAVING_INTERVAL_HIGHER, TIME_LOST, EXPECTED_TIME):
        assert formula.unit
        assert formula.error
        assert formula.source
        assert {str(s) for s in formula.expr.free_symbols} == set(formula.letters)


def test_the_interval_is_where_the_time_lost_is_least() -> None:
    """d/dτ (δ/τ + τ/(2M)) = 0 at τ = √(2δM), where both parts are equal."""
    tau = sp.Symbol("tau", positive=True)

    assert 0 == sp.simplify(sp.diff(TIME_LOST.expr, tau).subs(tau, SAVING_INTERVAL.expr))
    assert 0.02 == pytest.approx(TIME_LOST.at(tau=6000, delta=60, M=300000))


def test_a_minute_to_save_and_a_failure_a_day() -> None:
    """√(2 · 60 s · 86,400 s) = 3,220 s: every 54 minutes; the higher order is a little above less the minute itself."""
    first, higher = SAVING_INTERVAL.at(delta=60, M=86400), SAVING_INTERVAL_HIGHER.at(delta=60, M=86400)

    assert math.sqrt(2 * 60 * 86400) == pytest.approx(first)
    assert abs(higher - (first - 60)) < first / 100


def test_the_interval_of_higher_order_is_the_best_of_the_exact_expected_time() -> None:
    """Against the complete cost, an interval a tenth longer or shorter loses more."""
    given = {"Ts": 1e6, "R": 120.0, "delta": 300.0, "M": 40000.0}
    best = SAVING_INTERVAL_HIGHER.at(delta=300.0, M=40000.0)

    shorter, here, longer = (EXPECTED_TIME.at(tau=best * share, **given) for share in (0.9, 1.0, 1.1))

    assert here < shorter
    assert here < longer


def test_a_letter_that_is_missing_or_not_positive_is_refused() -> None:
    """In one line that names it."""
    with pytest.raises(BadInputError, match=r"^saving interval, first order needs delta, M: M is missing or unknown$"):
        SAVING_INTERVAL.at(delta=60)
    with pytest.raises(BadInputError, match=r"^saving interval, first order: M = 0 is not a positive number$"):
        SAVING_INTERVAL.at(delta=60, M=0)
