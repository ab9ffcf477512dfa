"""Random modules from all families of operators, at random sizes: what is derived is what is measured."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings

import calc
from calc.pipeline.verdict import EXACT, IN_PARTS, NOT_MEASURED
from tests.pipeline.random_modules import IMAGES, SEQUENCES, Plan, plans

# Each example traces a step and runs one, which takes about a second. Failing examples are shrunk only in the longer test.
QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]
ONE_PASS = (Phase.explicit, Phase.generate)


def differences(plan: Plan) -> list[str]:
    """Everything in which the derivation of a plan, made at other sizes, and a run at its own disagree."""
    derivation = calc.derive(plan.spec(), cache=False, optimizer=plan.optimizer)
    report = calc.check(derivation, **plan.sizes)
    assert derivation.at_sizes(plan.sizes).steps  # each is checked when it is made
    assert any(verdict.verdict == EXACT for verdict in report.verdicts)
    return [str(verdict) for verdict in report.verdicts if verdict.verdict not in (EXACT, IN_PARTS, NOT_MEASURED)]


@settings(max_examples=3, derandomize=True, database=None, suppress_health_check=QUIET, phases=ONE_PASS)
@given(plans())
def test_a_random_module_is_exact(plan: Plan) -> None:
    """Nothing that can be measured differs by one."""
    assert [] == differences(plan)


@pytest.mark.slow
@settings(max_examples=150, suppress_health_check=QUIET, print_blob=True)
@given(plans())
def test_any_random_module_is_exact(plan: Plan) -> None:
    """The same for many more, and others each time."""
    assert [] == differences(plan)


@pytest.mark.slow
@pytest.mark.parametrize("images", [False, True])
def test_each_layer_alone_is_exact(images: bool) -> None:
    """So that a chain that fails says something: every layer that chains are made of, by itself."""
    sizes = {"B": 2, "c": 7, "H": 11, "W": 13} if images else {"B": 2, "T": 7, "d": 13, "f": 5}

    failed = {}
    for name in IMAGES if images else SEQUENCES:
        differing = differences(Plan((name,), (False,), "squares", "sgd", sizes))
        if differing:
            failed[name] = differing

    assert {} == failed
