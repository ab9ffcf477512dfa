"""The analysis of a graph: every quantity as a closed form in the basis symbols, before steps or text are made of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from calc.derive import certify, coverage, loops, peak
from calc.derive.accumulate import SIZES, Accumulator, CountedAddend
from calc.derive.coverage import CoverageContext
from calc.derive.loops import Group, Interpolation, LoopIndices
from calc.derive.peak import PeakCandidate
from calc.derive.quantities import QUANTITIES
from calc.errors import CertificateError, NapkinError
from calc.graph.basis import Folding
from calc.graph.step import Graph, StepTrace, Tensor
from calc.graph.trip_counts import fewest
from calc.rules.registry import Registry
from calc.symbolic.algebra import Algebra, Poly

PEAKS = {d.name: d.step for d in QUANTITIES.values() if d.step is not None}


@dataclass(frozen=True)
class Analysis:
    """Groups of equal addends and peak candidates of a graph. ``algebra`` works in basis symbols, ``fold`` substitutes the model's
    dimensions. ``of_parts`` are the same groups, apart by part of the model.

    ``uncredited`` and ``unrouted`` say why causal FLOPs and active parameters are unknown; empty if they are not.

    ``special`` is the analysis of the graph's special case, where it exists already.
    """

    graph: Graph
    registry: Registry
    algebra: Algebra
    fold: Folding
    module_paths: LoopIndices
    interpolate: Interpolation
    groups: Mapping[str, list[Group]]
    of_parts: Mapping[str, list[Group]]
    peaks: Mapping[str, tuple[PeakCandidate, ...]]
    uncredited: frozenset[str]
    unrouted: frozenset[str]
    special: Analysis | None = None

    @property
    def frame(self) -> CoverageContext:
        """What the closed forms are computed with."""
        return CoverageContext(self.graph, self.registry, self.algebra, self.fold, self.module_paths, self.interpolate)

    @cached_property
    def totals(self) -> dict[str, Poly]:
        """Closed form of each counted quantity in the basis symbols."""
        return {name: loops.total(members, self.algebra.constant(0)) for name, members in self.groups.items()}

    def at(self, sizes: Mapping[str, int]) -> Callable[[Poly], int]:
        """A function that evaluates polynomials in the basis symbols at these sizes of the dimensions; that of the last sizes is cached."""
        key = tuple(sizes.items())
        if key not in self._at:
            self._at.clear()
            self._at[key] = self.algebra.at(self.graph.as_basis().values(sizes))
        return self._at[key]

    @cached_property
    def _at(self) -> dict[tuple[tuple[str, int], ...], Callable[[Poly], int]]:
        return {}

    def certify(self, trace: StepTrace) -> int:
        """The number of closed forms that agree with a concrete trace; raises for the first that does not."""
        totals = {name: total for name, total in self.totals.items() if name not in self.graph.unknown}
        candidates = {name: (step, self.peaks[name]) for name, step in PEAKS.items() if name not in self.graph.unknown}
        trip_counts = {name: fewest([r.sizes for r in self.graph.traces], name) for name in self.graph.loops}
        unknown = {*self.graph.unknown, *(("parameters.active",) if self.unrouted else ())}
        forms = certify.CertifiedForms(totals, candidates, self.algebra, self.module_paths, trip_counts, unknown)
        return certify.certify(forms, trace, Accumulator(int, self.registry))


def analyse(graph: Graph, registry: Registry) -> Analysis:
    """Accumulate every trace and interpolate over the trip counts."""
    algebra = Algebra(graph.symbols, sizes_read(graph.traces))
    module_paths = LoopIndices(graph.traces)
    interpolate = Interpolation(graph.traces, graph.loops, algebra)
    frame = CoverageContext(graph, registry, algebra, Folding(graph.as_basis(), algebra), module_paths, interpolate)
    folder = Accumulator(algebra.parse, registry)
    grouped = loops.staged(loops.group(_entries(folder, frame), module_paths, interpolate, algebra.constant(1)))
    bounds = [(graph.basis[d.name], graph.basis[d.at_most]) for d in graph.dims if d.at_most and d.at_most in graph.basis]
    peaks = _peaks(graph, lambda step: peak.peak_candidates(graph.traces, step, algebra, module_paths, interpolate, bounds))
    return Analysis(
        graph=graph,
        registry=registry,
        algebra=algebra,
        fold=frame.fold,
        module_paths=module_paths,
        interpolate=interpolate,
        groups=loops.by(lambda g: g.quantity, loops.without_parts(grouped)),
        of_parts=loops.by(lambda g: g.quantity, grouped),
        peaks=peaks,
        uncredited=frozenset(folder.uncredited),
        unrouted=frozenset(folder.unrouted),
    )


def _peaks(graph: Graph, candidates: Callable[[int], tuple[PeakCandidate, ...]]) -> dict[str, tuple[PeakCandidate, ...]]:
    """The ``candidates`` for each peak, by its step; none where it is unknown. Peaks without a closed form are refused together."""
    peaks: dict[str, tuple[PeakCandidate, ...]] = {}
    failures: dict[str, str] = {}
    for name, step in PEAKS.items():
        try:
            peaks[name] = () if name in graph.unknown else candidates(step)
        except CertificateError as error:
            failures[name] = str(error)
    if failures:
        first, why = next(iter(failures.items()))
        raise CertificateError(first, why, further=failures)
    return peaks


def _entries(folder: Accumulator, frame: CoverageContext) -> list[list[CountedAddend]]:
    """The addends of every trace. Where operators cannot be counted, the refusal names all of them."""
    try:
        return [folder.entries(r) for r in frame.graph.traces]
    except NapkinError as error:
        raise coverage.refused(frame) or error from None


def sizes_read(traces: Sequence[StepTrace]) -> Iterator[str]:
    """Every size that accumulation may read."""
    for trace in traces:
        for storage in trace.storages:
            yield from _written(storage.nbytes)
        for _, tensor in trace.parameters:
            yield from _sizes(tensor)
        for saved in trace.saved:
            yield from _sizes(saved.tensor)
        for call in trace.calls:
            yield from _written(call.query, call.key)
        for op in trace.ops:
            for tensor in op.outputs:
                yield from _sizes(tensor)
            for name, value in op.args:
                if name in SIZES:
                    yield from _written(*(value if isinstance(value, tuple) else (value,)))
                for item in value if isinstance(value, tuple) else (value,):
                    if isinstance(item, Tensor):
                        yield from _sizes(item)


def _sizes(tensor: Tensor) -> Iterator[str]:
    yield from _written(tensor.distinct, *tensor.shape)


def _written(*sizes: int | str) -> Iterator[str]:
    yield from (s for s in sizes if isinstance(s, str))
