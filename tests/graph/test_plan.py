"""Plans of a trace: the loop that refines them, simpler ones after success, and what a further plan keeps of one before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from calc.dimensions import Dim
from calc.errors import BadInputError, CertificateError, NapkinError, SizesError, SpecializationError, TraceError
from calc.graph.plan import Refusal, TracePlan, refined, simplified
from calc.options import Options
from calc.spec import Spec

SPEC = Spec("plan", {"B": 2, "d": 12, "E": 8}, lambda n: None, lambda n: (), lambda module: None)
PLAN = TracePlan(SPEC, {}, Options())


def named(reason: str) -> Callable[[TracePlan, Refusal], TracePlan | None]:
    """A refinement that applies where the error says ``reason``."""
    return lambda plan, refusal: replace(plan, reason=reason, attempt=plan.attempt + 1) if str(refusal.error) == reason else None


def refusing(*errors: str) -> Callable[[TracePlan], str]:
    """An attempt that is refused with these errors, one after the other, and then succeeds."""
    left = [*errors]

    def attempt(plan: TracePlan) -> str:
        if left:
            raise TraceError(left.pop(0))
        return f"attempt {plan.attempt}"

    return attempt


def test_the_first_refinement_that_applies_is_taken_until_the_step_is_traced() -> None:
    said: list[str] = []
    outcome, plan = refined(PLAN, refusing("b", "a", "b"), [named("a"), named("b")], said.append)

    assert (outcome, [p.reason for p in plan.history], said) == ("attempt 3", ["", "b", "a", "b"], ["b", "a", "b"])


def test_what_no_refinement_answers_is_the_outcome() -> None:
    outcome, plan = refined(PLAN, refusing("a", "c"), [named("a"), named("b")], lambda _: None)

    assert isinstance(outcome, Refusal)
    assert (str(outcome.error), len(plan.history)) == ("c", 2)


def test_a_refinement_may_refuse_with_a_better_reason() -> None:
    outcome, _ = refined(PLAN, refusing("a"), [lambda plan, refusal: Refusal(BadInputError("better"))], lambda _: None)

    assert isinstance(outcome, Refusal)
    assert str(outcome.error) == "better"


def test_an_error_that_is_none_of_ours_is_not_a_refusal() -> None:
    def broken(plan: TracePlan) -> str:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        refined(PLAN, broken, [named("")], lambda _: None)


def test_a_simpler_plan_is_taken_where_it_is_traced_and_costs_no_more() -> None:
    """8 costs more, 4 is refused, 2 does."""

    def attempt(plan: TracePlan) -> int | Refusal:
        return Refusal(TraceError("no")) if plan.attempt == 4 else {8: 3, 2: 1, 16: 1}[plan.attempt]

    def simpler(plan: TracePlan) -> list[TracePlan]:
        return [replace(plan, attempt=number) for number in (8, 4, 2, 1)]

    traced, plan = simplified(1, replace(PLAN, attempt=16), [simpler], attempt, lambda costs: costs, lambda _: None)

    assert (traced, plan.attempt) == (1, 2)


# -- what a further plan keeps -----------------------------------------------------------------------------------------------------


def specialized_after(error: NapkinError, of_certificate: bool) -> TracePlan:
    """The plan with E as a number because of ``error``, and n1 as a number of iterations."""
    plan = replace(PLAN.specializing({"E": "why"}, ""), before=PLAN, refusal=Refusal(error, of_certificate=of_certificate))
    return replace(plan, trip_counts={"n1": "m.py:3"}, before=plan, refusal=Refusal(TraceError("n1 is read")))


READ = SpecializationError("E", "m.py:3", "read as a number")
WITH_ONE_MORE = replace(SPEC, dims={**SPEC.dims, "n2": Dim(3, unbacked_at="m.py:9")})


@pytest.mark.parametrize("following", [WITH_ONE_MORE, replace(SPEC, unknown={"memory.peak": "why"})], ids=["a dimension", "a quantity"])
def test_what_traces_have_shown_is_kept_where_more_is_inferred(following: Spec) -> None:
    """Up to the line with the new size the trace is the same: E is a number there again, and n1 counts iterations."""
    further = specialized_after(READ, of_certificate=False).further(following, "more")

    assert ({"E": "why"}, {"n1": "m.py:3"}) == (further.specialized, further.trip_counts)
    assert (following, "more", 0) == (further.spec, further.reason, further.attempt)


@pytest.mark.parametrize("error", [CertificateError("memory.peak", "wrong"), SizesError("plan raised ValueError: no")])
def test_what_has_become_a_number_though_it_may_not_be_at_fault_is_a_symbol_again(error: TraceError) -> None:
    """What is inferred now may have been why a certificate failed; and an error that names no size is tried with each of them once more."""
    further = specialized_after(error, isinstance(error, CertificateError)).further(WITH_ONE_MORE, "more")

    assert ({}, {}) == (further.specialized, further.trip_counts)


def test_numbers_of_a_spec_in_which_another_dimension_differs_are_symbols_again() -> None:
    """A width that is a multiple now may be read no more."""
    multiple = replace(SPEC, dims={**SPEC.dims, "d": Dim(12, multiple_of=4)})

    assert {} == specialized_after(READ, of_certificate=False).further(multiple, "more").specialized
