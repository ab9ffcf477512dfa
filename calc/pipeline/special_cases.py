"""Sizes at which the general graph may not hold: it is certified there, or they are traced separately as a special case.

A step may run other operators if some sizes are 1 or equal, if a size is near a number that it is compared with, or at few iterations.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from calc.dimensions import ordered_names
from calc.errors import OtherPathError, TraceError
from calc.graph.guards import SPECIAL_CASE, Assumption, Guard
from calc.graph.plan import Near, Refusal, TracePlan, outcome_of, refined
from calc.graph.specialization import (
    dimensions_to_specialize,
    partly_answering,
    requested_values,
    special_case_candidates,
    with_requested_comparisons,
    without_ones,
)
from calc.graph.step import Graph, SpecialCase
from calc.pipeline import divisibility
from calc.pipeline.certificates import Certifier
from calc.pipeline.depth import Attempts, attempt_of, by_values, own_error
from calc.pipeline.refinements import ITERATIONS, as_numbers, with_quotients
from calc.spec import Spec
from calc.symbolic.assignments import PLAIN, sizes_text

if TYPE_CHECKING:
    from calc.derive.analysis import Analysis

Progress = Callable[[str], None]
_Case = tuple[dict[str, str], Near | None]


def completed(plan: TracePlan, graph: Graph, analysis: Analysis, progress: Progress) -> tuple[Graph, Analysis] | Refusal:
    """A graph that also holds at the sizes of ``plan``, where ``graph`` is not known to: certified there, or with a separately traced
    special case. Uses only the spec, sizes and options of the plan."""
    return _Completion(plan, graph, analysis, progress).completed()


def at_sizes(plan: TracePlan, general: Graph, progress: Progress) -> tuple[Graph, Analysis] | Refusal:
    """The graph traced once more, with other values of the specialized dimensions."""
    specialized = {name: why for name, (_, why) in general.specialized.items()}
    outcome = _traced(replace(plan, attempt=attempt_of(general), specialized=specialized), Certifier(progress))
    if isinstance(outcome, Refusal) or not outcome[0].failed_guards(plan.sizes):
        return outcome
    return completed(plan, *outcome, progress)


def _traced(plan: TracePlan, certifier: Certifier) -> tuple[Graph, Analysis] | Refusal:
    """The graph of one special case, with as many iterations as its closed forms need."""
    return refined(plan, Attempts(certifier), ITERATIONS, certifier.progress)[0]


class _Completion:
    """Completes one graph to one that holds at ``sizes``."""

    def __init__(self, plan: TracePlan, graph: Graph, analysis: Analysis, progress: Progress) -> None:
        self.plan, self.graph, self.analysis, self.progress = plan, graph, analysis, progress
        self.certifier = Certifier(progress)
        self.spec, self.sizes = plan.spec, plan.sizes

    def completed(self) -> tuple[Graph, Analysis] | Refusal:
        for probes in (requested_values, without_ones, partly_answering):
            self._probe(probes(self.graph, self.sizes))
        changed = self.graph.failed_guards(self.sizes)
        repeated = self._repeated(changed) if changed else []
        if repeated:
            self._probe(with_requested_comparisons(self.graph, self.sizes, _symbols_of(repeated, self.graph)))
            changed = self.graph.failed_guards(self.sizes)
            repeated = self._repeated(changed) if changed else []
        if not changed:
            return self.graph, self.analysis
        return self._special(changed, repeated)

    def _probe(self, probes: Sequence[Mapping[str, int]]) -> None:
        self.graph = self.certifier.probed(self.spec, self.graph, self.analysis, probes)

    def _special(self, changed: Sequence[Guard], repeated: Sequence[Guard]) -> tuple[Graph, Analysis] | Refusal:
        """The graph with the first special case of these sizes that can be traced, or with specialized dimensions if none can."""
        attempts = special_case_candidates(self.graph, self.sizes, changed)
        divisible = [c for c in repeated if c.divides]
        multiples = divisibility.required(self.spec, self.graph, divisible, self.sizes)
        multiples = multiples or divisibility.unrounded(self.spec, self.graph, changed, self.sizes)
        if multiples is not None:
            return Refusal(_another_path(self.spec, self.graph, divisible or changed), multiples)
        specialized = dimensions_to_specialize(self.spec, self.graph, divisible, self.sizes) if divisible else {}
        if not specialized:
            near = self._near_foreseen(repeated, attempts[-1])
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
                return outcome
        specialized = {tied: why for name, why in specialized.items() for tied in with_quotients(self.spec, [name])} | specialized
        self.progress(f"the step runs other operators depending on {as_numbers(specialized)}")
        at_these = {name: (self.sizes[name], why) for name, why in specialized.items()}
        return at_sizes(self.plan, replace(self.graph, specialized=at_these), self.progress)

    def _first(self, cases: Iterable[_Case], changed: Guard) -> tuple[Graph, Analysis] | Refusal:
        """The graph with the first of ``cases`` that can be traced; if none can, why the last cannot."""
        for equal, near in cases:
            outcome = outcome_of(functools.partial(self._traced_separately, equal, changed, near))
            if not isinstance(outcome, Refusal) or outcome.ends_search:
                break
        return outcome

    def _repeated(self, changed: Sequence[Guard]) -> list[Guard]:
        """The ``changed`` comparisons and divisibility guards that a case of 1 or equal sizes would not change: its symbols are as small as
        in general, and primes."""
        from calc.trace import flipped_guards

        equal = special_case_candidates(self.graph, self.sizes, changed)[-1]
        otherwise = flipped_guards(self.spec, self.graph, self.sizes, equal, None)
        same = [c for c in otherwise if c in changed and (c.compares or c.divides)]
        return [c for c in same if _symbols_of([c], self.graph)]

    def _near_foreseen(self, repeated: Sequence[Guard], equal: Mapping[str, str]) -> Near | None:
        """Where to trace the case of ``equal`` dimensions: near the requested sizes, if comparisons with numbers then match them. None if a
        guard is about divisibility."""
        from calc.trace import flipped_guards

        if not repeated or any(c.divides for c in repeated):
            return None
        compared = frozenset(_symbols_of(repeated, self.graph))
        ways = (None, Near(compared), Near(compared, exactly=True))
        answered = (flipped_guards(self.spec, self.graph, self.sizes, equal, near) for near in ways)
        return min(zip(ways, answered, strict=True), key=lambda way: sum(c.compares for c in way[1]))[0]

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
        specialized = {name: why for name, (_, why) in graph.specialized.items() if name not in equal}
        plan = replace(self.plan, attempt=attempt_of(graph), specialized=specialized, equal=equal, near=near)
        outcome = _traced(plan, self.certifier)
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


def _symbols_of(conditions: Sequence[Guard], graph: Graph) -> set[str]:
    """The symbols in guards, without trip counts."""
    return {name for c in conditions for name in ordered_names(c.expr)} & {*graph.symbols} - {*graph.loops}


def _about_iterations(condition: Guard, graph: Graph) -> bool:
    return not {*ordered_names(condition.expr)}.isdisjoint(graph.loops)


def _another_path(spec: Spec, graph: Graph, unmet: Sequence[Guard]) -> TraceError:
    """The error for ``unmet`` guards; suggests other sizes if one of them is about more than iterations."""
    of_sizes = [condition for condition in unmet if not _about_iterations(condition, graph)]
    condition = (of_sizes or unmet)[0]
    message = (
        f"{spec.name}: at these sizes the step takes another path than its closed forms ({condition.expr} is no longer"
        f" {condition.outcome}), evaluated at {condition.where}: choose other sizes"
    )
    compared = ordered_names(condition.expr) if condition.compares else ()
    return by_values(spec, [condition]) or (OtherPathError(message, condition.divides, compared) if of_sizes else TraceError(message))
