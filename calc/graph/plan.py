"""``TracePlan``: every decision about how a step is traced, as one value, and the loop that refines it until the step is traced.

Torch-free: ``calc.pipeline.refinements`` has the refinements, ``calc.trace`` follows a plan.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from calc.errors import NapkinError, TraceError
from calc.options import Options
from calc.spec import Spec

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Near:
    """Symbols that are compared with numbers: their hints must lie near the sizes asked for. ``exactly``: at them, primes or not."""

    symbols: frozenset[str]
    exactly: bool = False


@dataclass(frozen=True, slots=True)
class TripCount:
    """The step reads the basis symbol ``symbol`` as a number at ``where``, so it may count the iterations of a loop."""

    symbol: str
    where: str
    reason: str


@dataclass(frozen=True, slots=True)
class Shallow:
    """The closed form of ``quantity`` fails a certificate; the trip counts of ``attempt`` may tell more."""

    quantity: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Inferred:
    """``spec`` has what was inferred of the model's dimensions; ``reason`` says what is new in it."""

    spec: Spec
    reason: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a plan does not suffice: ``error`` is for the user if no other does, ``evidence`` is what tracing learned for another plan.

    ``of_case``: the step was traced for sizes in general, and it is a special case of the sizes asked for that fails.
    """

    error: NapkinError
    evidence: TripCount | Shallow | Inferred | None = None
    of_case: bool = False

    @property
    def ends_search(self) -> bool:
        """Whether no other special case can do better: the model itself is refused, or more is known of its dimensions."""
        return not isinstance(self.error, TraceError) or isinstance(self.evidence, Inferred)


@dataclass(frozen=True, slots=True)
class Level:
    """A level of the depth-first search for divisors: ``left`` are further divisors of ``spec`` to try, since it failed with ``failure``;
    ``later`` are specs with one that failed alike at other sizes."""

    spec: Spec
    failure: NapkinError
    left: tuple[Inferred, ...]
    later: tuple[tuple[Spec, NapkinError], ...] = ()


@dataclass(frozen=True, slots=True)
class DivisorSearch:
    """Where the search for divisors is: ``trying`` is the spec with those that are tried, the ``tries``-th; no levels, no search."""

    levels: tuple[Level, ...] = ()
    trying: Spec | None = None
    tries: int = 0


@dataclass(frozen=True, slots=True)
class TracePlan:
    """How a step is traced.

    ``spec`` is the model with its data-dependent sizes, bounds and divisors, as far as they are inferred; ``given`` is the model without
    them. Quantities without closed form are unknown in both. ``sizes`` are the values of dimensions: they choose the order of the hints.

    A dimension that is read as a number is a trip count: ``trip_counts`` has its symbol with the line. The higher ``attempt`` is, the more
    iterations are traced; ``failed`` are quantities whose closed forms failed a certificate at fewer. ``specialized`` names dimensions
    that stay numbers, at their sizes, each with the reason.

    ``equal`` fixes dimensions to 1 or to another one, for a special case. ``near`` are symbols to trace near the sizes.

    ``reason`` says what is new in comparison to ``before``, the plan that was refused with ``refusal``.
    """

    spec: Spec
    sizes: Mapping[str, int]
    options: Options
    attempt: int = 0
    trip_counts: Mapping[str, str] = field(default_factory=dict)
    failed: tuple[str, ...] = ()
    specialized: Mapping[str, str] = field(default_factory=dict)
    equal: Mapping[str, str] = field(default_factory=dict)
    near: Near | None = None
    given: Spec | None = None
    search: DivisorSearch | None = None
    reason: str = field(default="", compare=False)
    before: TracePlan | None = field(default=None, compare=False, repr=False)
    refusal: Refusal | None = field(default=None, compare=False, repr=False)

    @property
    def numbers(self) -> dict[str, str]:
        """The specialized dimensions that ``equal`` does not fix anyway, each with the reason."""
        return {name: why for name, why in self.specialized.items() if name not in self.equal}

    @property
    def fixed(self) -> dict[str, str]:
        """What stands for each dimension that has no symbol of its own: a number, or another dimension."""
        return {**{name: str(self.sizes[name]) for name in self.numbers}, **self.equal}

    @property
    def history(self) -> list[TracePlan]:
        """All plans from the first to this one."""
        return [*(self.before.history if self.before else ()), self]

    def specializing(self, specialized: Mapping[str, str], reason: str) -> TracePlan:
        """The plan with these dimensions as numbers, traced from the fewest iterations on."""
        return replace(self, attempt=0, trip_counts={}, failed=(), specialized=specialized, reason=reason)

    def of(self, spec: Spec, reason: str) -> TracePlan:
        """The plan for ``spec``, of which nothing is specialized."""
        return replace(self.specializing({}, reason), spec=spec)


Refinement = Callable[[TracePlan, Refusal], "TracePlan | Refusal | None"]
Progress = Callable[[str], None]


def outcome_of(attempt: Callable[[], T | Refusal]) -> T | Refusal:
    """What ``attempt`` returns; an error for the user that it raises is a refusal. The one place that turns exceptions into outcomes."""
    try:
        return attempt()
    except NapkinError as error:
        return Refusal(error)


def refined(
    plan: TracePlan, attempt: Callable[[TracePlan], T | Refusal], refinements: Sequence[Refinement], progress: Progress
) -> tuple[T | Refusal, TracePlan]:
    """What ``attempt`` makes of ``plan``, or of the first plan refined from it that suffices; with that plan, which has the history.

    A plan that is refused is refined by the first of ``refinements`` that applies. Where none does, or one refuses, that is the outcome.
    """
    while isinstance(outcome := outcome_of(functools.partial(attempt, plan)), Refusal):
        better = next((better for refine in refinements if (better := refine(plan, outcome)) is not None), outcome)
        if isinstance(better, Refusal):
            return better, plan
        outcome.error.with_traceback(None).__context__ = None  # its frames hold what was traced
        plan = replace(better, before=plan, refusal=outcome)
        progress(plan.reason)
    return outcome, plan


def simplified(
    traced: T,
    plan: TracePlan,
    ways: Iterable[Callable[[TracePlan], Iterable[TracePlan]]],
    attempt: Callable[[TracePlan], T | Refusal],
    costs: Callable[[T], int],
    progress: Progress,
) -> tuple[T, TracePlan]:
    """``traced`` by ``plan``, or what simpler plans make that cost no more: each of ``ways`` gives those to try, of which the first is
    taken that suffices."""
    for way in ways:
        for simpler in way(plan):
            progress(simpler.reason)
            outcome = outcome_of(functools.partial(attempt, replace(simpler, before=plan)))
            if not isinstance(outcome, Refusal) and costs(outcome) <= costs(traced):
                traced, plan = outcome, replace(simpler, before=plan)
                break
    return traced, plan
