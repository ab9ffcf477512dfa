"""``TracePlan``: every decision about how a step is traced, as one value, and the loop that refines it until the step is traced.

Torch-free: ``calc.pipeline.refinements`` has the refinements, ``calc.trace`` follows a plan.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from calc.errors import NapkinError, SpecializationError, TraceError
from calc.options import Options
from calc.platform.progress import Progress
from calc.spec import Spec

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Near:
    """Symbols that are compared with numbers: their hints must be near the requested sizes. ``exactly``: equal to them, whether prime or
    not."""

    symbols: frozenset[str]
    exactly: bool = False


@dataclass(frozen=True, slots=True)
class TripCount:
    """The step reads the basis symbol ``symbol`` as a number at ``where``, so it may count the iterations of a loop."""

    symbol: str
    where: str
    reason: str


@dataclass(frozen=True, slots=True)
class Inferred:
    """``spec`` contains what was inferred about the model's dimensions; ``reason`` says what is new in it. Where fewer trip counts than
    those of ``attempt`` have not sufficed, ``failed`` has the quantities."""

    spec: Spec
    reason: str
    attempt: int = 0
    failed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Period:
    """Layers that repeat a pattern of ``every`` so many, all but ``irregular`` ones."""

    every: int
    irregular: int
    because: str


@dataclass(frozen=True, slots=True)
class Shallow:
    """The closed form of ``quantity`` fails a certificate; more trip counts, those of ``attempt``, may determine it. ``periods`` of
    layers, by dimension, if a forward shows any."""

    quantity: str
    attempt: int
    periods: Mapping[str, Period] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unlike:
    """``at`` these values of the basis symbols, with more iterations than were traced, the step runs other operators than its iterations
    so far say; ``periods`` of them, by dimension."""

    at: Mapping[str, int]
    periods: Mapping[str, Period]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a plan does not suffice: ``error`` is reported if no other plan does, ``evidence`` is what tracing inferred for another plan.

    ``of_case``: the step was traced in general, but the special case at the requested sizes fails. ``of_certificate``: the step was traced,
    but its closed forms do not hold elsewhere.
    """

    error: NapkinError
    evidence: TripCount | Shallow | Inferred | Unlike | None = None
    of_case: bool = False
    of_certificate: bool = False

    @property
    def ends_search(self) -> bool:
        """Whether no other special case can succeed: the model itself is refused, or more was inferred about its dimensions."""
        return not isinstance(self.error, TraceError) or isinstance(self.evidence, Inferred)


@dataclass(frozen=True, slots=True)
class Level:
    """A level of the depth-first search for divisors: ``left`` are further divisors of ``spec`` to try, since it failed with ``failure``;
    ``later`` are specs with one more divisor that failed in the same way at other sizes."""

    spec: Spec
    failure: TraceError
    left: tuple[Inferred, ...]
    later: tuple[tuple[Spec, TraceError], ...] = ()


@dataclass(frozen=True, slots=True)
class DivisorSearch:
    """The state of the search for divisors: ``trying`` is the spec of the current attempt, the ``tries``-th. Without levels there is no
    search."""

    levels: tuple[Level, ...] = ()
    trying: Spec | None = None
    tries: int = 0


@dataclass(frozen=True, slots=True)
class TracePlan:
    """How a step is traced.

    ``spec`` is the model with its data-dependent sizes, bounds and divisors, as far as they are inferred; ``given`` is the model without
    them. Quantities without closed form are unknown in both. ``sizes`` are the values of dimensions: they determine the order of the hints.

    A dimension that is read as a number is a trip count: ``trip_counts`` has its symbol with the line. The higher ``attempt`` is, the more
    iterations are traced; ``failed`` are quantities whose closed forms failed a certificate at fewer. ``deeper`` are values of the basis
    symbols for one more certificate, with many iterations. ``specialized`` names dimensions that stay numbers, at their sizes, each with
    the reason.

    ``equal`` fixes dimensions to 1 or to another one, for a special case. ``near`` are symbols to trace near the sizes. With
    ``orders_products``, hints also keep the order of dimensions that are products, such as ``h = g·n``.

    ``reason`` says what is new in comparison to ``before``, the plan that was refused with ``refusal``.
    """

    spec: Spec
    sizes: Mapping[str, int]
    options: Options
    attempt: int = 0
    trip_counts: Mapping[str, str] = field(default_factory=dict)
    failed: tuple[str, ...] = ()
    deeper: Mapping[str, int] = field(default_factory=dict)
    specialized: Mapping[str, str] = field(default_factory=dict)
    equal: Mapping[str, str] = field(default_factory=dict)
    near: Near | None = None
    orders_products: bool = False
    given: Spec | None = None
    search: DivisorSearch | None = None
    reason: str = field(default="", compare=False)
    before: TracePlan | None = field(default=None, compare=False, repr=False)
    refusal: Refusal | None = field(default=None, compare=False, repr=False)

    @property
    def numbers(self) -> dict[str, str]:
        """The specialized dimensions that ``equal`` does not fix, each with the reason."""
        return {name: why for name, why in self.specialized.items() if name not in self.equal}

    @property
    def fixed(self) -> dict[str, str]:
        """The replacement of each dimension that has no symbol of its own: a number, or another dimension."""
        return {**{name: str(self.sizes[name]) for name in self.numbers}, **self.equal}

    @property
    def history(self) -> list[TracePlan]:
        """All plans from the first to this one."""
        return [*(self.before.history if self.before else ()), self]

    def specializing(self, specialized: Mapping[str, str], reason: str) -> TracePlan:
        """The plan with these dimensions specialized, starting from the fewest iterations."""
        return replace(self, attempt=0, trip_counts={}, failed=(), specialized=specialized, reason=reason)

    def of(self, spec: Spec, reason: str) -> TracePlan:
        """The initial plan for ``spec``: only what the first plan specialized is specialized."""
        return replace(self.specializing(self.history[0].specialized, reason), spec=spec)

    def further(self, spec: Spec, reason: str) -> TracePlan:
        """The plan for ``spec``, which says more than this one's. If that is about no dimension of this one's, its trace is the same up to
        what is new: which sizes are numbers, or count iterations, is not traced again where traces have shown just that."""
        plan, dims = self.of(spec, reason), spec.dimensions
        if any(dims.get(name) != dim for name, dim in self.spec.dimensions.items()) or any(map(_is_doubtful, self.history)):
            return plan
        return replace(plan, specialized=self.specialized, trip_counts=self.trip_counts)


def _is_doubtful(plan: TracePlan) -> bool:
    """Whether other dimensions or numbers than those of the plan before may not have been needed: a certificate was why, or an error that
    does not say which size is a number."""
    before, refusal = plan.before, plan.refusal
    if before is None or refusal is None:
        return False
    more = plan.specialized.keys() > before.specialized.keys()
    if refusal.of_certificate:
        return more or plan.spec.dimensions != before.spec.dimensions
    return more and not isinstance(refusal.error, SpecializationError)


Refinement = Callable[[TracePlan, Refusal], "TracePlan | Refusal | None"]


def outcome_of(attempt: Callable[[], T | Refusal]) -> T | Refusal:
    """The result of ``attempt``; a ``NapkinError`` that it raises becomes a refusal. Only this function converts exceptions to outcomes."""
    try:
        return attempt()
    except NapkinError as error:
        return Refusal(error)


def refined(
    plan: TracePlan, attempt: Callable[[TracePlan], T | Refusal], refinements: Sequence[Refinement], progress: Progress
) -> tuple[T | Refusal, TracePlan]:
    """The result of ``attempt`` for ``plan``, or for the first refined plan that suffices, with that plan, which has the history.

    A refused plan is refined by the first of ``refinements`` that applies. Where none does, or one refuses, the refusal is the outcome.
    """
    while isinstance(outcome := outcome_of(functools.partial(attempt, plan)), Refusal):
        better = next((better for refine in refinements if (better := refine(plan, outcome)) is not None), outcome)
        if isinstance(better, Refusal):
            return better, plan
        outcome.error.with_traceback(None).__context__ = None  # its frames reference traces
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
    """``traced`` with ``plan``, or the result of a simpler plan that costs no more: each of ``ways`` yields plans to try, and the first
    that suffices replaces ``plan``. A way that leads to another spec is taken again, from there."""
    left = deque(ways)
    while left:
        way = left.popleft()
        for simpler in way(plan):
            progress(simpler.reason)
            outcome = outcome_of(functools.partial(attempt, replace(simpler, before=plan)))
            if not isinstance(outcome, Refusal) and costs(outcome) <= costs(traced):
                left.extendleft([way] if simpler.spec != plan.spec else [])
                traced, plan = outcome, replace(simpler, before=plan)
                break
    return traced, plan
