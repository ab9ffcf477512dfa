"""One step at any sizes: by the closed forms of a trace where that trace holds, by a further trace elsewhere.

A step may run other operators for a batch of one, few layers or equal sizes. Every evaluation of a derivation at other sizes goes through
here, so that closed forms are only evaluated where they hold, and further traces are made as needed.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from calc import dimensions as dims
from calc.derive.analysis import Analysis
from calc.derive.result import Derivation, Evaluator
from calc.dimensions import ordered_names
from calc.errors import DimensionError, NapkinError, UnknownQuantityError
from calc.graph.guards import dimensions, follows, not_traced, unchecked
from calc.graph.specialization import certificates_may_answer
from calc.graph.step import Graph, Guard, StepTrace
from calc.graph.trip_counts import fewest
from calc.spec import Spec

if TYPE_CHECKING:
    import sympy as sp


@dataclass(frozen=True)
class TracedGraph:
    """A graph with its closed forms and its spec. ``certified`` returns the graph with certificates at degenerate sizes too; ``trace_at``
    traces the step at given sizes; ``alike`` says whether as many iterations as at these sizes are like those of the graph."""

    graph: Graph
    analysis: Analysis
    spec: Spec | None = None
    certified: Callable[[], Graph] | None = None
    trace_at: Callable[[Mapping[str, int]], StepTrace] | None = None
    alike: Callable[[Mapping[str, int]], bool] = lambda _: True


Trace = Callable[[Mapping[str, int]], TracedGraph]
Derive = Callable[[TracedGraph, Mapping[str, int]], Derivation]


class Traces:
    """The traces of one model with one set of options, each made once. ``trace`` makes missing ones of ``spec``; a graph that was loaded
    without its spec has neither."""

    def __init__(self, derive: Derive, first: TracedGraph, trace: Trace | None = None, spec: Spec | None = None) -> None:
        self._derive, self._traced, self._trace, self.spec = derive, [first], trace, spec
        self._derived: list[tuple[TracedGraph, Derivation]] = []  # whose evaluators use their own closed forms only

    def derivation(self, sizes: Mapping[str, int]) -> Derivation:
        """The derivation at all ``sizes``. Raises where they are invalid for the model, or no trace can be made."""
        traced = self._holding(sizes)
        free = {name: size for name, size in sizes.items() if name not in _tied(traced.graph)}
        nearest = _with_traced_values(self._derive(traced, dims.resolve(dimensions(traced.graph), free)), traced)
        self._derived.append((traced, nearest))
        around = OtherSizes(self, traced, nearest)
        quantities = {
            name: q if q._evaluator is None else replace(q, _evaluator=_AtAnySizes(q._evaluator, name, around))
            for name, q in nearest.quantities.items()
        }
        return replace(nearest, quantities=quantities, other_sizes=around)

    def value(self, name: str, sizes: Mapping[str, int]) -> int:
        """One quantity at all ``sizes``."""
        evaluators = ((cached[name]._evaluator, traced) for traced, cached in self._derived)
        near = next((e for e, traced in evaluators if e is not None and e.holds(sizes) and _are_alike(traced, sizes)), None)
        if near is not None:
            return near.value(sizes)
        value = self.derivation(sizes)[name].value
        if value is None:
            raise DimensionError(f"{name} is unknown at these sizes")
        return value

    def _holding(self, sizes: Mapping[str, int]) -> TracedGraph:
        """The trace that holds at ``sizes``, made now if there is none yet."""
        for traced in self._traced:
            if holds(traced.graph, sizes) and _are_alike(traced, sizes):
                return traced
        if self._trace is None:
            raise not_traced(self._traced[0].graph, sizes)
        traced = self._trace(self._given(sizes))
        self._traced.append(traced)
        return traced

    def _given(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """The sizes to pass to a trace: without those that it infers itself, unless they are set to other values."""
        traced_dims = {dim.name: dim for dim in self._traced[0].graph.dims}
        own = {} if self.spec is None else self.spec.dimensions
        return {
            name: size
            for name, size in sizes.items()
            if (not own[name].tied if name in own else name in traced_dims and not follows(replace(traced_dims[name], value=size), sizes))
        }


@dataclass(frozen=True, repr=False)
class OtherSizes:
    """Evaluates a derivation at other sizes than its own."""

    traces: Traces
    traced: TracedGraph
    derivation: Derivation
    _answers: dict[tuple[bool, tuple[tuple[str, int], ...]], bool] = field(default_factory=dict, repr=False, compare=False)
    _alike: dict[tuple[tuple[str, int], ...], bool] = field(default_factory=dict, repr=False, compare=False)

    def sizes(self, values: Mapping[str, int]) -> dict[str, int]:
        """All sizes: those not given are the derivation's, and defaults follow. Raises ``DimensionError`` for invalid sizes."""
        try:
            return unchecked(self.derivation, values)
        except DimensionError:
            spec = self.traces.spec
            if spec is None or not values.keys() <= spec.dims.keys():
                raise
            return spec.sizes_from(self.derivation.sizes, values)  # a trace may need multiples that the model does not

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether the closed forms of the derivation are known to hold at all ``sizes``. Traces nothing."""
        return self._holds(self.traced.graph, sizes)

    def certified(self, sizes: Mapping[str, int]) -> bool:
        """Like ``holds``, after a forward with more iterations than before, and after certificates at degenerate sizes where those can
        decide: they take less time than a trace with new closed forms."""
        if self.holds(sizes):
            return self._are_alike(sizes)
        if self.traced.certified is None:
            return False
        resolved = _resolved(self.traced.graph, sizes)
        return resolved is not None and certificates_may_answer(self.traced.graph, resolved) and self._holds(self.traced.certified(), sizes)

    def _are_alike(self, sizes: Mapping[str, int]) -> bool:
        key = tuple(sizes.items())
        if key not in self._alike:
            self._alike[key] = _are_alike(self.traced, sizes)
        return self._alike[key]

    def _holds(self, graph: Graph, sizes: Mapping[str, int]) -> bool:
        """Whether ``graph`` holds at ``sizes``, cached: a search evaluates it for each quantity."""
        key = graph is self.traced.graph, tuple(sizes.items())
        if key not in self._answers:
            in_force = self.traced.graph.special_case_at(self.derivation.sizes)
            self._answers[key] = holds(alone(graph, in_force is not None), sizes)
        return self._answers[key]

    def at(self, sizes: Mapping[str, int]) -> Derivation:
        """The derivation at all ``sizes``."""
        return self.traces.derivation(sizes)

    def usual(self, sizes: Mapping[str, int], free: Collection[str]) -> dict[str, int]:
        """Of ``free``, the dimensions that are too small at all ``sizes`` for the step to run as in the derivation, each with the smallest
        sufficient value: trip counts, and sizes that the step compares with a number. Multiples of these are raised with them."""
        special = self.traced.graph.special_case_at(self.derivation.sizes)
        graph = self.traced.graph if special is None else special.graph
        basis, counts = graph.as_basis(), [trace.sizes for trace in graph.traces]
        small, own = basis.values(sizes), basis.values(self.derivation.sizes)
        enough = {n: fewest(counts, n) for n in graph.loops if basis.dimension(n) in free and small[n] < fewest(counts, n)}
        made_of = {n: {dim.name for dim in graph.dims if not dim.tied and n in ordered_names(graph.basis[dim.name])} for n in own}
        may = {n: size for n, size in own.items() if basis.dimension(n) in free and made_of[n] <= {*free}}
        changed = enough | _above_limits(graph, small | enough, may)
        raised = basis.sizes(small | changed)
        moved = {basis.dimension(n) for n in changed}.union(*(made_of[n] for n in changed if n not in graph.loops))
        return {name: size for name, size in raised.items() if name in moved}


# A longer sequence than this takes more than seconds to run.
_MOST_RAISED = 1024


def _above_limits(graph: Graph, small: Mapping[str, int], own: Mapping[str, int]) -> dict[str, int]:
    """The smallest values between ``small`` and ``own`` of the basis symbols at which ``graph`` holds, one symbol after the other; empty
    where these do not suffice."""
    basis, raised = graph.as_basis(), dict(small)

    def failed() -> list[Guard]:
        return graph.failed_guards(basis.sizes(raised))

    failing = failed()
    for name in dict.fromkeys(name for guard in failing for name in ordered_names(guard.expr) if name in own and name not in graph.loops):
        for value in range(small[name] + 1, min(own[name], _MOST_RAISED) + 1):
            raised[name] = value
            if len(failed()) < len(failing):
                break
        else:
            raised[name] = small[name]
        failing = failed()
    return {name: value for name, value in raised.items() if value != small[name]} if not failing else {}


@dataclass(frozen=True, slots=True)
class _AtAnySizes:
    """Evaluates a quantity at any sizes: by its own closed form where that holds, else by another trace."""

    inner: Evaluator
    name: str
    around: OtherSizes

    @property
    def own(self) -> Evaluator:
        return self.inner

    def sizes(self, values: Mapping[str, int]) -> dict[str, int]:
        return self.around.sizes(values)

    def holds(self, sizes: Mapping[str, int]) -> bool:
        return self.around.holds(sizes)

    def value(self, sizes: Mapping[str, int]) -> int:
        around = self.around
        return self.inner.value(sizes) if around.certified(sizes) else around.traces.value(self.name, sizes)

    def expr(self) -> sp.Expr:
        return self.inner.expr()


@dataclass(frozen=True, slots=True)
class _CountedByTrace:
    """Evaluates a quantity without a closed form: counts it in a trace at these sizes."""

    name: str
    graph: Graph
    count: Callable[[tuple[tuple[str, int], ...]], Mapping[str, int]]

    @property
    def own(self) -> _CountedByTrace:
        return self

    def sizes(self, values: Mapping[str, int]) -> dict[str, int]:
        return unchecked(self.graph, values)

    def holds(self, sizes: Mapping[str, int]) -> bool:
        return holds(self.graph, sizes)

    def value(self, sizes: Mapping[str, int]) -> int:
        return self.count(tuple(sizes.items()))[self.name]

    def expr(self) -> sp.Expr:
        raise UnknownQuantityError(f"{self.name} has no closed form")


def _with_traced_values(derivation: Derivation, traced: TracedGraph) -> Derivation:
    """``derivation`` with values of the quantities without a closed form, counted in a trace of the spec at the same sizes."""
    reasons = {reason for graph in (traced.graph, *(s.graph for s in traced.graph.special_cases)) for reason in graph.unknown.values()}
    mine = [q for q in derivation.quantities.values() if q.text is None and q.unknown in reasons]
    trace, recount = traced.trace_at, derivation.count_trace
    if not mine or trace is None or recount is None:
        return derivation
    count = functools.cache(lambda sizes: recount(trace(dict(sizes))).quantities)
    graph = replace(traced.graph, dims=derivation.dims)
    traced_quantities = {q.name: replace(q, _evaluator=_CountedByTrace(q.name, graph, count)) for q in mine}
    with contextlib.suppress(ModuleNotFoundError, NapkinError):  # no values without torch, or where the step fails
        traced_quantities = {name: replace(q, value=q.at()) for name, q in traced_quantities.items()}
    return replace(derivation, quantities={**derivation.quantities, **traced_quantities})


def alone(graph: Graph, with_special: bool) -> Graph:
    """``graph``, without its special cases where the closed forms in use are the general ones."""
    return graph if with_special else replace(graph, special_cases=())


def holds(graph: Graph, sizes: Mapping[str, int]) -> bool:
    """Whether the step runs at all ``sizes`` as traced in ``graph``."""
    resolved = _resolved(graph, sizes)
    return resolved is not None and not graph.failed_guards(resolved)


def _are_alike(traced: TracedGraph, sizes: Mapping[str, int]) -> bool:
    """Whether as many iterations as at all ``sizes``, where the graph holds, are like those of the graph."""
    resolved = _resolved(traced.graph, sizes)
    return resolved is not None and traced.alike(resolved)


def _resolved(graph: Graph, sizes: Mapping[str, int]) -> dict[str, int] | None:
    """All dimensions of ``graph`` at all ``sizes``; None where these are invalid."""
    names = {dim.name for dim in graph.dims}
    try:
        resolved = dims.resolve(dimensions(graph), {name: size for name, size in sizes.items() if name in names - _tied(graph)})
    except DimensionError:
        return None
    return resolved if all(resolved.get(name, size) == size for name, size in sizes.items()) else None


def _tied(graph: Graph) -> set[str]:
    return {dim.name for dim in graph.dims if dim.tied}
