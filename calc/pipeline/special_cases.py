"""Sizes at which the general graph may not hold: it is certified there, or they are traced separately as a special case.

A step may run other operators if some sizes are 1 or equal, if a size is near a number that it is compared with, or at few iterations.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from calc.dimensions import ordered_names
from calc.errors import CertificateError, Failure, OtherIterationsError, OtherPathError, SpecializationError, TraceError
from calc.graph import unbacked_sizes
from calc.graph.guards import SPECIAL_CASE, Assumption, Guard
from calc.graph.plan import Inferred, Near, Refusal, TracePlan, outcome_of, refined
from calc.graph.specialization import (
    dimensions_to_specialize,
    partly_answering,
    requested_values,
    special_case_candidates,
    trip_counts_to_specialize,
    with_requested_comparisons,
    without_ones,
)
from calc.graph.step import Graph, SpecialCase, StepTrace
from calc.pipeline import divisibility
from calc.pipeline.certificates import Certifier
from calc.pipeline.depth import Attempts, attempt_of, by_values, own_error
from calc.pipeline.refinements import ITERATIONS, as_numbers, near_sizes, with_quotients
from calc.spec import Spec
from calc.symbolic.assignments import PLAIN, sizes_text

if TYPE_CHECKING:
    from calc.derive.analysis import Analysis

_Case = tuple[dict[str, str], Near | None]


def completed(plan: TracePlan, graph: Graph, analysis: Analysis, certifier: Certifier) -> tuple[Graph, Analysis] | Refusal:
    """A graph that also holds at the sizes of ``plan``, where ``graph`` is not known to: certified there, or with a separately traced
    special case. Uses only the spec, sizes and options of the plan, and the traces of ``certifier``."""
    return _Completion(plan, graph, analysis, certifier.beside()).completed()


def foreseen(plan: TracePlan, graph: Graph, *, sizes: Mapping[str, int]) -> TracePlan | None:
    """The plan of the special case that ``completed`` traces first at the requested ``sizes``, if ``graph`` fails there; None if there is
    none. Certificates may show that the graph holds there all the same."""
    spec = unbacked_sizes.with_traced_dimensions(plan.spec, graph)
    values = outcome_of(lambda: spec.sizes(sizes))
    if isinstance(values, Refusal) or trip_counts_to_specialize(spec, graph, values):
        return None
    changed = graph.failed_guards(values)
    if not changed:
        return None
    attempts, repeated = special_case_candidates(graph, values, changed), _repeated(spec, graph, values, changed)
    near = _near_foreseen(spec, graph, values, repeated, attempts[-1])
    return _of_case(TracePlan(spec, values, plan.options), graph, attempts[0], near) if attempts[0] else None


def _of_case(plan: TracePlan, graph: Graph, equal: Mapping[str, str], near: Near | None) -> TracePlan:
    """The plan of a special case of ``graph``, with as many iterations of the same loops."""
    specialized = {name: why for name, (_, why) in graph.specialized.items() if name not in equal}
    dimension = graph.as_basis().dimension
    reads = {symbol: where for symbol, where in graph.trip_count_reads.items() if dimension(symbol) not in equal}
    return replace(plan, attempt=attempt_of(graph), trip_counts=reads, specialized=specialized, equal=equal, near=near)


def at_sizes(plan: TracePlan, general: Graph, certifier: Certifier) -> tuple[Graph, Analysis] | Refusal:
    """The graph traced once more, with other values of the specialized dimensions."""
    specialized = {name: why for name, (_, why) in general.specialized.items()}
    outcome = _traced(replace(plan, attempt=attempt_of(general), specialized=specialized), certifier.beside())
    if isinstance(outcome, Refusal) or not outcome[0].failed_guards(plan.sizes):
        return outcome
    return completed(plan, *outcome, certifier)


def multiples_needed(
    plan: TracePlan, graph: Graph, analysis: Analysis | None, *, sizes: Mapping[str, int], certifier: Certifier
) -> Refusal | None:
    """The refusal of a ``graph`` that does not hold at the requested ``sizes`` because these are multiples; it names them. Only where one
    more trace decides that: one in which no guard but those of divisibility fails, as far as guards can tell. It disagrees with the closed
    forms of ``analysis``, whose graph has its first certificate; without them, it runs other operators than the graph.

    ``completed`` would come to the same, after all other certificates and one trace for each other guard that fails at ``sizes``.
    """
    spec = unbacked_sizes.with_traced_dimensions(plan.spec, graph)
    values = outcome_of(lambda: spec.sizes(sizes))
    if isinstance(values, Refusal) or trip_counts_to_specialize(spec, graph, values):
        return None
    changed = graph.failed_guards(values)
    repeated = _repeated(spec, graph, values, changed) if any(divisibility.is_about(c) for c in changed) else []
    divisible = [c for c in repeated if c.divides]
    needed = _multiples(spec, graph, values, changed, divisible)
    at = None if needed is None else _where_multiples_decide(spec, needed.spec, graph, values, plan.attempt)
    if needed is None or at is None or not _disagrees(spec, graph, analysis, certifier, at):
        return None
    return Refusal(_another_path(spec, graph, divisible or changed), needed)


def _multiples(
    spec: Spec, graph: Graph, sizes: Mapping[str, int], changed: Sequence[Guard], divisible: Sequence[Guard]
) -> Inferred | None:
    """The multiples at which guards have another outcome, as at these sizes; None if there are none."""
    return divisibility.required(spec, graph, divisible, sizes) or divisibility.unrounded(spec, graph, changed, sizes)


def _where_multiples_decide(
    spec: Spec, with_multiples: Spec, graph: Graph, sizes: Mapping[str, int], attempt: int
) -> dict[str, int] | None:
    """The values of the first certificate, with the requested ones of what becomes a multiple; None if guards of other kinds fail there."""
    from calc.trace import certificate_sizes

    multiple = [name for name, dim in spec.dims.items() if with_multiples.dims[name] != dim]
    symbols = {symbol for name in multiple for symbol in ordered_names(graph.basis[name])}
    first = graph.certificates[0].sizes if graph.certificates else certificate_sizes(graph, spec.sizes(), attempt)[0][0]
    at = with_requested_comparisons(graph, sizes, symbols, first)
    return at if all(c.holds_at(at) or c.opaque or divisibility.is_about(c) for c in graph.guards) else None


def _disagrees(spec: Spec, graph: Graph, analysis: Analysis | None, certifier: Certifier, at: Mapping[str, int]) -> bool:
    """Whether a trace ``at`` these values, with as many iterations as the first, is not what the closed forms say; without these, whether
    it runs other operators that allocate or write."""
    if analysis is None:
        trace = outcome_of(lambda: certifier.trace(spec, graph, at))
        return not isinstance(trace, Refusal) and _operators(trace) != _operators(graph.traces[0])
    outcome = certifier.with_certificate(spec, graph, analysis, at)
    return isinstance(outcome, Refusal) and isinstance(outcome.error, CertificateError)


def _operators(trace: StepTrace) -> Counter[tuple[str, str, int]]:
    """The operators of each phase and step by name, without those that return views."""
    return Counter((op.name, op.phase, op.step) for op in trace.ops if not op.returns_views)


def _traced(plan: TracePlan, certifier: Certifier) -> tuple[Graph, Analysis] | Refusal:
    """The graph of one special case, with as many iterations as its closed forms need, near its sizes if it needs larger ones."""
    return refined(plan, Attempts(certifier), (*ITERATIONS, near_sizes), certifier.progress)[0]


class _Completion:
    """Completes one graph to one that holds at ``sizes``."""

    def __init__(self, plan: TracePlan, graph: Graph, analysis: Analysis, certifier: Certifier) -> None:
        self.plan, self.graph, self.analysis, self.certifier = plan, graph, analysis, certifier
        self.spec, self.sizes, self.progress = plan.spec, plan.sizes, certifier.progress

    def completed(self) -> tuple[Graph, Analysis] | Refusal:
        self._probe(requested_values(self.graph, self.sizes))
        changed, repeated = self._compared()
        if not repeated:  # else the closed forms fail where comparisons alone differ: they would fail where other guards do, too
            for probes in (without_ones, partly_answering):
                self._probe(probes(self.graph, self.sizes))
            changed, repeated = self._compared()
        if not changed:
            return self.graph, self.analysis
        return self._special(changed, repeated)

    def _compared(self) -> tuple[list[Guard], list[Guard]]:
        """The guards that fail at the sizes, and those of them that no case of 1 or equal sizes would change, both without those that a
        certificate answers at which only the latter fail."""
        changed = self.graph.failed_guards(self.sizes)
        repeated = _repeated(self.spec, self.graph, self.sizes, changed) if changed else []
        if repeated:
            certified, symbols = self.graph.certificates[0].sizes, _symbols_of(repeated, self.graph)
            self._probe([with_requested_comparisons(self.graph, self.sizes, symbols, certified)])
            changed = self.graph.failed_guards(self.sizes)
            repeated = _repeated(self.spec, self.graph, self.sizes, changed) if changed else []
        return changed, repeated

    def _probe(self, probes: Sequence[Mapping[str, int]]) -> None:
        self.graph = self.certifier.probed(self.spec, self.graph, self.analysis, probes)

    def _special(self, changed: Sequence[Guard], repeated: Sequence[Guard]) -> tuple[Graph, Analysis] | Refusal:
        """The graph with the first special case of these sizes that can be traced, or with specialized dimensions if none can."""
        attempts = special_case_candidates(self.graph, self.sizes, changed)
        divisible = [c for c in repeated if c.divides]
        multiples = _multiples(self.spec, self.graph, self.sizes, changed, divisible)
        if multiples is not None:
            return Refusal(_another_path(self.spec, self.graph, divisible or changed), multiples)
        specialized = dimensions_to_specialize(self.spec, self.graph, divisible, self.sizes) if divisible else {}
        if not specialized:
            near = _near_foreseen(self.spec, self.graph, self.sizes, repeated, attempts[-1])
            foreseen: list[_Case] = [(equal, near) for equal in attempts if near is not None]
            outcome = self._first([*foreseen, *((equal, None) for equal in attempts)], changed[0])
            if not isinstance(outcome, Refusal) or outcome.ends_search:
                return outcome
            specialized = dimensions_to_specialize(self.spec, self.graph, changed, self.sizes)
            compared = outcome.error.compared if isinstance(outcome.error, OtherPathError) else frozenset()
            nearer = self._nearer(compared, attempts[-1:] if specialized else attempts) if compared or not specialized else outcome
            if not isinstance(nearer, Refusal) or nearer.ends_search:
                return nearer
            if not specialized:
                return self._of_iterations(changed) or outcome
        self.progress(f"the step runs other operators depending on {as_numbers(self._with_quotients(specialized))}")
        return self._specializing(specialized)

    def _specializing(self, specialized: Mapping[str, str]) -> tuple[Graph, Analysis] | Refusal:
        """The graph with ``specialized`` dimensions, each with its reason; also with those that the step then reads as numbers."""
        specialized = self._with_quotients(specialized)
        at_these = {name: (self.sizes[name], why) for name, why in specialized.items()}
        outcome = at_sizes(self.plan, replace(self.graph, specialized=at_these), self.certifier)
        error = outcome.error if isinstance(outcome, Refusal) else None
        may = {name for names in self.spec.may_specialize for name in names} - specialized.keys()
        if not isinstance(error, SpecializationError) or error.dimension not in may:
            return outcome
        self.progress(f"no closed form in {as_numbers([error.dimension])}")
        return self._specializing({**specialized, error.dimension: error.failure.why})

    def _with_quotients(self, specialized: Mapping[str, str]) -> dict[str, str]:
        return {tied: why for name, why in specialized.items() for tied in with_quotients(self.spec, [name])} | {**specialized}

    def _of_iterations(self, changed: Sequence[Guard]) -> Refusal | None:
        """The refusal that names the largest size of the ``changed`` guards that was taken for a number of iterations; None if there is
        none."""
        about = {name: c for c in changed for name in ordered_names(c.expr) if name in self.graph.loops and name in self.sizes}
        if not about:
            return None
        name = max(about, key=lambda name: self.sizes[name])
        path = _another_path(self.spec, self.graph, [about[name]])
        return Refusal(OtherIterationsError(name, about[name].where, path.failure))

    def _first(self, cases: Iterable[_Case], changed: Guard) -> tuple[Graph, Analysis] | Refusal:
        """The graph with the first of ``cases`` that can be traced; if none can, why the last cannot."""
        for equal, near in cases:
            outcome = outcome_of(functools.partial(self._traced_separately, equal, changed, near))
            if not isinstance(outcome, Refusal) or outcome.ends_search:
                break
        return outcome

    def _nearer(self, more: Collection[str], attempts: Sequence[dict[str, str]]) -> tuple[Graph, Analysis] | Refusal:
        """The special case traced with symbols near the requested sizes, if the step compares them with a number between those and the
        usual symbols. Does not apply to divisibility guards. ``more`` are further symbols compared with numbers; ``attempts`` are the
        dimensions to fix, in the order of trying."""
        changed = self.graph.failed_guards(self.sizes)
        refusal = Refusal(_another_path(self.spec, self.graph, changed))
        if (not more and any(c.divides for c in changed)) or own_error(self.spec, self.sizes, self.plan.options):
            return refusal
        of_sizes = [c for c in changed if not _about_iterations(c, self.graph)]
        compared = frozenset(more) or frozenset(name for c in of_sizes for name in ordered_names(c.expr))
        return self._first([(equal, Near(compared, exactly)) for exactly in (False, True) for equal in attempts], changed[0])

    def _traced_separately(self, equal: Mapping[str, str], changed: Guard, near: Near | None) -> tuple[Graph, Analysis] | Refusal:
        """The graph with the separately traced case where ``equal`` dimensions are 1 or equal; if ``equal`` is empty, the case itself."""
        spec, graph, sizes = self.spec, self.graph, self.sizes
        if not equal and sizes == spec.sizes() and near is None:
            return Refusal(_another_path(spec, graph, graph.failed_guards(sizes)))  # the general graph was traced at these sizes
        at = sizes_text(equal, PLAIN, " and ")
        self.progress(f"the step runs other operators where {at}: tracing that special case" if at else "tracing the step at these sizes")
        outcome = _traced(_of_case(self.plan, graph, equal, near), self.certifier)
        if isinstance(outcome, Refusal):
            return outcome
        case, inner = outcome
        case = self.certifier.probed(spec, case, inner, requested_values(case, sizes))
        if not all(_about_iterations(condition, graph) for condition in case.failed_guards(sizes)):  # these may be certified below
            return Refusal(_another_path(spec, graph, case.failed_guards(sizes)))
        case = self.certifier.probed(spec, case, inner, partly_answering(case, sizes))
        if case.failed_guards(sizes):
            return Refusal(_another_path(spec, graph, case.failed_guards(sizes)))
        if not equal:
            return case, inner
        because = f"the step takes another branch there, at {changed.where}; that case was traced separately"
        noted = (*graph.assumptions, Assumption(f"the closed forms have a special case where {at}", because, SPECIAL_CASE))
        return replace(graph, special_cases=(SpecialCase(equal, case),), assumptions=noted), replace(self.analysis, special=inner)


def _repeated(spec: Spec, graph: Graph, sizes: Mapping[str, int], changed: Sequence[Guard]) -> list[Guard]:
    """The ``changed`` comparisons and divisibility guards that a case of 1 or equal sizes would not change: its symbols are as small as in
    general, and primes."""
    from calc.trace import flipped_guards

    equal = special_case_candidates(graph, sizes, changed)[-1]
    otherwise = flipped_guards(spec, graph, sizes, equal, None)
    same = [c for c in otherwise if c in changed and (c.compares or c.divides)]
    return [c for c in same if _symbols_of([c], graph)]


def _near_foreseen(
    spec: Spec, graph: Graph, sizes: Mapping[str, int], repeated: Sequence[Guard], equal: Mapping[str, str]
) -> Near | None:
    """Where to trace the case of ``equal`` dimensions: near the requested sizes, if comparisons with numbers then match them. None if a
    guard is about divisibility."""
    from calc.trace import flipped_guards

    if not repeated or any(c.divides for c in repeated):
        return None
    compared = frozenset(_symbols_of(repeated, graph))
    ways = (None, Near(compared), Near(compared, exactly=True))
    answered = (flipped_guards(spec, graph, sizes, equal, near) for near in ways)
    return min(zip(ways, answered, strict=True), key=lambda way: sum(c.compares for c in way[1]))[0]


def _symbols_of(conditions: Sequence[Guard], graph: Graph) -> set[str]:
    """The symbols in guards, without trip counts."""
    return {name for c in conditions for name in ordered_names(c.expr)} & {*graph.symbols} - {*graph.loops}


def _about_iterations(condition: Guard, graph: Graph) -> bool:
    return not {*ordered_names(condition.expr)}.isdisjoint(graph.loops)


def _another_path(spec: Spec, graph: Graph, unmet: Sequence[Guard]) -> TraceError:
    """The error for ``unmet`` guards; suggests other sizes if one of them is about more than iterations."""
    of_sizes = [condition for condition in unmet if not _about_iterations(condition, graph)]
    condition = (of_sizes or unmet)[0]
    statement = (
        f"at these sizes the step takes another path than its closed forms ({condition.expr} is no longer {condition.outcome}),"
        f" evaluated at {condition.where}: choose other sizes"
    )
    message = Failure(statement, f"{spec.name}: ", where=condition.where)
    compared = ordered_names(condition.expr) if condition.compares else ()
    return by_values(spec, [condition]) or (OtherPathError(message, condition.divides, compared) if of_sizes else TraceError(message))
