"""Sizes at which the general graph is not known to hold: certified there, or traced apart as a special case.

A step may run otherwise where some sizes are 1 or equal, where a size is near a number that it is compared with, or at few iterations.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from calc.dimensions import names_in
from calc.errors import NapkinError, OtherPathError, TraceError, UndecidedSizeError
from calc.graph import unbacked_sizes
from calc.graph.plan import Near, TracePlan
from calc.graph.specialization import as_asked, coincidences, compared_as_asked, held_instead, telling, without_ones
from calc.graph.step import Assumption, Graph, Guard, SpecialCase
from calc.options import Options
from calc.pipeline.certificates import probed
from calc.pipeline.depth import attempt_of, by_values, deep_enough
from calc.spec import Spec

if TYPE_CHECKING:
    from calc.derive.analysis import Analysis

Progress = Callable[[str], None]


def completed(spec: Spec, graph: Graph, analysis: Analysis, plan: TracePlan, progress: Progress) -> tuple[Graph, Analysis]:
    """A graph that holds at the sizes of ``plan`` too, where the general ``graph`` is not known to: certified there, or with that case
    traced apart. Of the plan, only sizes and options count."""
    return _Completion(spec, graph, analysis, plan, progress).completed()


def at_sizes(spec: Spec, general: Graph, plan: TracePlan, progress: Progress) -> tuple[Graph, Analysis]:
    """The graph traced anew where a specialized dimension has another value."""
    specialized = {name: why for name, (_, why) in general.specialized.items()}
    anew = TracePlan(plan.sizes, plan.options, attempt_of(general), specialized=specialized)
    graph, analysis = deep_enough(spec, anew, progress)
    return completed(spec, graph, analysis, plan, progress) if graph.failed_guards(plan.sizes) else (graph, analysis)


def own_error(spec: Spec, sizes: Mapping[str, int], options: Options) -> NapkinError | None:
    """What the step raises at the very sizes asked for, or nothing. A data-dependent size is not in the way of another trace."""
    from calc.trace import trace_at

    try:
        trace_at(spec, {}, spec.sizes(unbacked_sizes.given_now(spec, sizes)), {}, options)
    except UndecidedSizeError:
        return None
    except NapkinError as error:
        return error
    return None


def as_numbers(names: Collection[str]) -> str:
    """``names`` with what is done: they become numbers."""
    return f"{', '.join(names)}: taking {'it as a number' if len(names) == 1 else 'them as numbers'}"


class _Completion:
    """One graph, on its way to one that holds at ``sizes``."""

    def __init__(self, spec: Spec, graph: Graph, analysis: Analysis, plan: TracePlan, progress: Progress) -> None:
        self.spec, self.graph, self.analysis, self.progress = spec, graph, analysis, progress
        self.sizes, self.options = plan.sizes, plan.options

    def completed(self) -> tuple[Graph, Analysis]:
        for probes in (as_asked, without_ones, telling):
            self._probe(probes(self.graph, self.sizes))
        changed = self.graph.failed_guards(self.sizes)
        repeated = self._repeated(changed) if changed else []
        if repeated:
            self._probe(compared_as_asked(self.graph, self.sizes, _symbols_of(repeated, self.graph)))
            changed = self.graph.failed_guards(self.sizes)
            repeated = self._repeated(changed) if changed else []
        if not changed:
            return self.graph, self.analysis
        return self._special(changed, repeated)

    def _probe(self, probes: Sequence[Mapping[str, int]]) -> None:
        self.graph = probed(self.spec, self.graph, self.analysis, probes, self.progress)

    def _special(self, changed: Sequence[Guard], repeated: Sequence[Guard]) -> tuple[Graph, Analysis]:
        """The graph with the first special case of these sizes that traces, or of specialized dimensions where none does."""
        attempts = coincidences(self.graph, self.sizes, changed)
        specialized = held_instead(self.spec, self.graph, changed, self.sizes) if any(c.divides for c in repeated) else {}
        near = None if specialized else self._near_foreseen(repeated, attempts[-1])
        for equal in attempts if near is not None else ():
            with contextlib.suppress(TraceError):
                return self._apart(equal, changed[0], near)
        for equal in attempts[:-1] if not specialized else ():
            with contextlib.suppress(TraceError):
                return self._apart(equal, changed[0])
        if not specialized:
            try:
                return self._apart(attempts[-1], changed[0])
            except TraceError as error:
                specialized = held_instead(self.spec, self.graph, changed, self.sizes)
                compared = error.compared if isinstance(error, OtherPathError) else frozenset()
                if compared or not specialized:
                    nearer = self._nearer(compared, attempts[-1:] if specialized else attempts)
                    if nearer is not None:
                        return nearer
                if not specialized:
                    raise
        self.progress(f"the step runs otherwise by {as_numbers(specialized)}")
        held = {name: (self.sizes[name], why) for name, why in specialized.items()}
        return at_sizes(self.spec, replace(self.graph, specialized=held), TracePlan(self.sizes, self.options), self.progress)

    def _repeated(self, changed: Sequence[Guard]) -> list[Guard]:
        """``changed`` guards on what is larger and what divides that a case of 1 or equal sizes would answer as in general again: symbols
        of that case are as small as ever, and primes."""
        from calc.trace import answered_otherwise

        equal = coincidences(self.graph, self.sizes, changed)[-1]
        otherwise = answered_otherwise(self.spec, self.graph, self.sizes, equal, None)
        again = [c for c in otherwise if c in changed and (c.compares or c.divides)]
        return [c for c in again if _symbols_of([c], self.graph)]

    def _near_foreseen(self, repeated: Sequence[Guard], equal: Mapping[str, str]) -> Near | None:
        """Where to trace the case of ``equal`` dimensions: near the sizes asked for, where comparisons with numbers come out as asked.
        What must divide is no such case."""
        from calc.trace import answered_otherwise

        if not repeated or any(c.divides for c in repeated):
            return None
        compared = frozenset(_symbols_of(repeated, self.graph))
        ways = (None, Near(compared), Near(compared, exactly=True))
        answered = (answered_otherwise(self.spec, self.graph, self.sizes, equal, near) for near in ways)
        return min(zip(ways, answered, strict=True), key=lambda way: sum(c.compares for c in way[1]))[0]

    def _nearer(self, more: Collection[str], attempts: Sequence[Mapping[str, str]]) -> tuple[Graph, Analysis] | None:
        """The graph with the case traced apart with symbols near the sizes asked for, where what the step compares them with is a number
        between those and the usual ones; nothing where that is no help. What must divide is no such case: it is a multiple. ``more`` are
        further symbols that are compared with numbers, ``attempts`` the dimensions to fix, in turn."""
        changed = self.graph.failed_guards(self.sizes)
        if (not more and any(c.divides for c in changed)) or own_error(self.spec, self.sizes, self.options):
            return None
        of_sizes = [c for c in changed if not _about_iterations(c, self.graph)]
        compared = frozenset(more) or frozenset(name for c in of_sizes for name in names_in(c.expr))
        for exactly, equal in itertools.product((False, True), attempts):
            with contextlib.suppress(TraceError):
                return self._apart(equal, changed[0], Near(compared, exactly))
        return None

    def _apart(self, equal: Mapping[str, str], changed: Guard, near: Near | None = None) -> tuple[Graph, Analysis]:
        """The graph with the case where ``equal`` dimensions are 1 or equal, traced apart; nothing equal: the case itself."""
        spec, graph, sizes = self.spec, self.graph, self.sizes
        if not equal and sizes == spec.sizes() and near is None:
            raise _another_path(spec, graph, graph.failed_guards(sizes))  # these are the sizes that it was traced for
        at = " and ".join(f"{name} = {to}" for name, to in equal.items())
        self.progress(f"the step runs otherwise where {at}: recording that case apart" if at else "recording at these sizes")
        specialized = {name: why for name, (_, why) in graph.specialized.items() if name not in equal}
        case, inner = deep_enough(spec, TracePlan(sizes, self.options, attempt_of(graph), equal, specialized, near), self.progress)
        case = probed(spec, case, inner, as_asked(case, sizes), self.progress)
        if not all(_about_iterations(condition, graph) for condition in case.failed_guards(sizes)):  # these may be met below
            raise _another_path(spec, graph, case.failed_guards(sizes))
        case = probed(spec, case, inner, telling(case, sizes), self.progress)
        if case.failed_guards(sizes):
            raise _another_path(spec, graph, case.failed_guards(sizes))
        if not equal:
            return case, inner
        because = f"there {changed.expr} is {not changed.outcome}, asked at {changed.where}; that case was recorded apart"
        noted = (*graph.assumptions, Assumption(f"the closed forms have a case of their own where {at}", because))
        return replace(graph, special_cases=(SpecialCase(equal, case),), assumptions=noted), replace(self.analysis, special=inner)


def _symbols_of(conditions: Sequence[Guard], graph: Graph) -> set[str]:
    """The symbols that guards are about, other than trip counts."""
    return {name for c in conditions for name in names_in(c.expr)} & {*graph.symbols} - {*graph.loops}


def _about_iterations(condition: Guard, graph: Graph) -> bool:
    return not {*names_in(condition.expr)}.isdisjoint(graph.loops)


def _another_path(spec: Spec, graph: Graph, unmet: Sequence[Guard]) -> TraceError:
    """What to say of ``unmet`` guards: other sizes may help where one is about more than iterations."""
    of_sizes = [condition for condition in unmet if not _about_iterations(condition, graph)]
    condition = (of_sizes or unmet)[0]
    said = (
        f"{spec.name}: at these sizes the step takes another path than its closed forms ({condition.expr} is no longer"
        f" {condition.outcome}), asked at {condition.where}: choose other sizes"
    )
    compared = names_in(condition.expr) if condition.compares else ()
    return by_values(spec, [condition]) or (OtherPathError(said, condition.divides, compared) if of_sizes else TraceError(said))
