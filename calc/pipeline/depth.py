"""One attempt at closed forms: a trace by a plan, with certificates; and whether more iterations can help if one fails."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from calc.dimensions import ordered_names
from calc.errors import (
    CertificateError,
    Failure,
    NapkinError,
    OtherPathError,
    SizesError,
    SpecializationError,
    TraceError,
    UnbackedSizeError,
)
from calc.graph import trip_counts, unbacked_sizes
from calc.graph.basis import basis_of
from calc.graph.plan import Inferred, Period, Refusal, Shallow, TracePlan, TripCount, outcome_of
from calc.graph.step import Graph, Guard
from calc.options import Options
from calc.pipeline import divisibility
from calc.pipeline.certificates import Certifier, analysed
from calc.pipeline.patterns import period_in
from calc.spec import Spec

if TYPE_CHECKING:
    from calc.derive.analysis import Analysis
    from calc.trace.tracer import TracedRuns

# Layers of a forward in which a pattern is looked for: whole patterns of two, three, four, six, eight and twelve layers.
_OF_PATTERNS = 24
# How many trip counts are tried for a loop whose size may also be specialized.
_TRIES_OF_UNROLLED = 2


Refuses = Callable[[TracePlan, Graph, "Analysis | None"], Refusal | None]
"""Why a graph is not to be certified, or with its first certificate and closed forms not to be certified further, if it is not."""
Foresees = Callable[[TracePlan, Graph], TracePlan | None]
"""The special case that the requested sizes of a traced graph probably need."""


class Attempts:
    """Attempts at closed forms, one plan after another. Plans that differ only in trip counts share traces."""

    def __init__(self, certifier: Certifier, refuses: Refuses = lambda *_: None, foresees: Foresees = lambda *_: None) -> None:
        self.certifier, self._refuses, self._foresees = certifier, refuses, foresees
        self._first: TracePlan | None = None
        self._traces: TracedRuns = {}
        self._unrolls = True

    def __call__(self, plan: TracePlan) -> tuple[Graph, Analysis] | Refusal:
        """The graph by ``plan`` with its certificates and closed forms, or the refusal."""
        from calc.trace import attempt

        ahead = self.certifier.ahead.graph(plan)
        if ahead is not None and not isinstance(made := self._certified(plan, ahead), Refusal):
            return made
        begin = time.perf_counter()
        graph = self._graph(plan)
        if isinstance(graph, Refusal):  # traces are of this plan with as many iterations or fewer
            return replace(graph, error=_of_iterations(plan, graph.error, lambda: bool(self._traces)))
        refusal = self._refuses(plan, graph, None) if not plan.failed else None
        if refusal is not None:
            return refusal
        case = outcome_of(functools.partial(self._foresees, plan, graph))
        if isinstance(case, TracePlan):
            self.certifier.ahead.begin(case, graph, time.perf_counter() - begin)
        outcome = self._certified(plan, graph)
        if self._may_be_unrolled_wrongly(outcome):
            traced = attempt(plan, self._without_unrolled(), self.certifier.progress)
            if isinstance(traced, Refusal) or not _alike(traced, graph):  # the iterations differ, as a certificate has shown
                self._unrolls = False
                return traced if isinstance(traced, Refusal) else self._certified(plan, traced)
        return outcome

    def _may_be_unrolled_wrongly(self, outcome: tuple[Graph, Analysis] | Refusal) -> bool:
        """Whether a repeated iteration may be why a certificate fails. Peaks alone fail first where too few iterations are traced."""
        if not isinstance(outcome, Refusal) or not outcome.of_certificate or not any(run.unrolled for run in self._traces.values()):
            return False
        return not (isinstance(outcome.evidence, Shallow | Inferred) and is_of_peaks(outcome.error))

    def traced(self, plan: TracePlan) -> Graph | Refusal:
        """The graph by ``plan`` without certificates, or the refusal. A refused plan leaves the traces of the plan before in place."""
        before = self._first, self._traces, self._unrolls
        graph = self._graph(plan)
        if isinstance(graph, Refusal):
            self._first, self._traces, self._unrolls = before
        return graph

    def _graph(self, plan: TracePlan) -> Graph | Refusal:
        from calc.trace import attempt

        spec = replace(plan.spec, unknown={})  # what has a closed form is asked of a graph, not of its traces
        first = replace(plan, spec=spec, given=None, attempt=0, trip_counts={}, failed=(), deeper={})
        if first != self._first:
            self._first, self._traces, self._unrolls = first, {}, True
        return attempt(plan, self._traces, self.certifier.progress, self._unrolls)

    def _without_unrolled(self) -> TracedRuns:
        """The traces without those in which an iteration is repeated, which are dropped."""
        self._traces = {key: run for key, run in self._traces.items() if not run.unrolled}
        return self._traces

    def _certified(self, plan: TracePlan, graph: Graph) -> tuple[Graph, Analysis] | Refusal:
        """``graph`` with its certificates and closed forms, or the refusal."""
        from calc.trace import certificate_sizes

        graph = replace(graph, unknown=plan.spec.unknown)
        analysis = outcome_of(lambda: analysed(graph))
        any_sizes = certificate_sizes(graph, plan.sizes, plan.attempt, nearest_first=plan.near is not None)
        if plan.deeper.keys() & {*graph.loops}:
            any_sizes.append([{name: plan.deeper.get(name, value) for name, value in any_sizes[0][0].items()}])
        if isinstance(analysis, Refusal):
            judged = replace(self._judged(plan, graph, None, analysis.error), of_certificate=True)
            return judged if plan.failed else self._with_more_inferred(plan, graph, judged, any_sizes[0][-1], None)
        certified = graph
        for number, any_of in enumerate(any_sizes):
            probed = [] if number else self.certifier.probed_like(plan.spec, graph, any_of[0])
            outcome = self.certifier.with_one_certificate(plan.spec, certified, analysis, [*probed, *any_of])
            if isinstance(outcome, Refusal):
                error = _of_iterations(plan, outcome.error, functools.partial(self._runs_with_fewer, plan.spec, graph, any_of[-1]))
                judged = replace(self._judged(plan, certified, analysis, error), of_certificate=True)
                return judged if number else self._with_more_inferred(plan, graph, judged, any_of[-1], analysis)
            certified = outcome
            refusal = None if number else self._refuses(plan, certified, analysis)
            if refusal is not None:
                return _at_attempt(refusal, plan.attempt, plan.failed)
        return certified, analysis

    def _runs_with_fewer(self, spec: Spec, graph: Graph, at: Mapping[str, int]) -> bool:
        """Whether the step runs ``at`` these sizes with the fewest traced iterations."""
        few = {name: trip_counts.fewest([trace.sizes for trace in graph.traces], name) for name in graph.loops}
        return not isinstance(outcome_of(lambda: self.certifier.trace(spec, graph, {**at, **few})), Refusal)

    def _with_more_inferred(
        self, plan: TracePlan, graph: Graph, judged: Refusal, at: Mapping[str, int], analysis: Analysis | None
    ) -> Refusal:
        """``judged``, of the closed forms or of the first certificate, whose sizes are ``at``. Where peaks alone fail, with what may be
        inferred about dimensions: the next plan has that and more iterations."""
        from calc.derive.analysis import PEAKS

        error, shallow = judged.error, judged.evidence
        if not isinstance(error, CertificateError) or not isinstance(shallow, Shallow) or not is_of_peaks(error):
            return judged
        if not any(map(divisibility.is_about, graph.guards)):
            return judged
        without_peaks = replace(graph, unknown={**graph.unknown, **dict.fromkeys(PEAKS, str(error)), **error.failures})
        trace = outcome_of(lambda: self.certifier.trace(plan.spec, graph, at))
        others = outcome_of(lambda: analysis or analysed(without_peaks))
        if isinstance(trace, Refusal) or isinstance(others, Refusal):
            return judged
        certified = replace(without_peaks, certificates=(trace,))
        refusal = self._refuses(plan, certified, replace(others, graph=certified))
        return judged if refusal is None else _at_attempt(refusal, shallow.attempt, (*plan.failed, shallow.quantity))

    def _judged(self, plan: TracePlan, graph: Graph, analysis: Analysis | None, raised: NapkinError) -> Refusal:
        """The refusal for closed forms that fail; it may name trip counts to try next."""
        from calc.derive.analysis import PEAKS
        from calc.trace import rounded_share_error

        if not isinstance(raised, CertificateError):
            return Refusal(raised)
        # A value from a trace at arbitrary sizes would depend on a number that the trace invented.
        error, spec = raised.without_values() if graph.reads_tensor_values else raised, plan.spec
        other_path = _other_path(spec, graph, error.sizes) if error.sizes and not graph.loops else None
        if other_path is not None:
            return Refusal(other_path, divisibility.unrounded(spec, graph, graph.failed_guards(plan.sizes), plan.sizes))
        divided, last_of_unrolled = rounded_share_error(spec, graph, self._traces), len(plan.failed) + 1 == _TRIES_OF_UNROLLED
        if divided is not None and last_of_unrolled:
            return Refusal(divided)
        repeated = plan.failed[-1:] == (error.quantity,)
        hopeless = not graph.loops or (repeated and not graph.trip_count_reads)
        if hopeless or _fails_at_every_depth(spec, graph, analysis, error, self.certifier):
            read = [c for c in graph.guards if not c.compares]  # a closed form specialized to particular numbers may be wrong
            return Refusal(divided or by_values(spec, read) or (_no_polynomial(spec, graph, error) if graph.loops else error))
        degree = error.quantity not in PEAKS or _is_of_nested_loops(analysis)
        attempt = trip_counts.next_attempt(plan.attempt, graph.loops, degree)
        if attempt is None or (last_of_unrolled and spec.may_unroll and graph.trip_count_reads):
            return Refusal(_no_polynomial(spec, graph, error))
        return Refusal(error, Shallow(error.quantity, attempt, {} if plan.failed else _periods(plan, graph)))


def _periods(plan: TracePlan, graph: Graph) -> dict[str, Period]:
    """How layers repeat a pattern that is not declared, by dimension, as a forward with several patterns shows; where the model takes no
    such number of layers, one with as many as it has."""
    from calc.trace import certificate_sizes, first_forward

    basis, dims, periods = graph.as_basis(), plan.spec.dimensions, dict[str, Period]()
    certified, requested = certificate_sizes(graph, plan.sizes, plan.attempt)[0][0], basis.values(plan.sizes)
    for loop, name in ((loop, basis.dimension(loop)) for loop in graph.loops):
        may_repeat = name in dims and dims[name].multiple_of is None
        for layers in (_OF_PATTERNS, min(requested[loop], 2 * _OF_PATTERNS)) if may_repeat else ():
            at = {**certified, loop: layers}
            forward = outcome_of(functools.partial(first_forward, plan.spec, graph, at))
            if not isinstance(forward, Refusal):
                period = period_in(forward.ops, basis.sizes(at)[name])
                periods |= {name: period} if period is not None and period.every > 1 else {}
                break
    return periods


def _is_of_nested_loops(analysis: Analysis | None) -> bool:
    """Whether a peak may be in a loop inside another one: what is alive there grows with the product of their iterations."""
    return analysis is not None and any(peak.distinction.outer_loop for peaks in analysis.peaks.values() for peak in peaks)


def _of_iterations(plan: TracePlan, error: NapkinError, runs_with_fewer: Callable[[], bool]) -> NapkinError:
    """``error`` of a trace; where the step runs at the same sizes with fewer iterations, that of their number: halved once more,
    a picture has no pixel left. A length may have to be a multiple instead."""
    counts = [name for name in plan.trip_counts if name in plan.spec.dims and name not in plan.spec.may_unroll]
    if not counts or type(error) is not SizesError or not runs_with_fewer():
        return error
    where = plan.trip_counts[counts[-1]]
    statement = f"{counts[-1]} is read as a number at {where}, and with more iterations the step fails at sizes where it runs with fewer"
    return SpecializationError(counts[-1], where, _failure(plan.spec, statement, where))


def _at_attempt(refusal: Refusal, attempt: int, failed: tuple[str, ...]) -> Refusal:
    """``refusal``, whose next plan need not try fewer iterations than this one."""
    more = refusal.evidence
    return replace(refusal, evidence=replace(more, attempt=attempt, failed=failed)) if isinstance(more, Inferred) and failed else refusal


def is_of_peaks(error: NapkinError) -> bool:
    """Whether only peaks disagree with a trace, or have no closed form: in which iteration one is reached depends on their number first."""
    from calc.derive.analysis import PEAKS

    return isinstance(error, CertificateError) and error.quantity in PEAKS and not of_others_than_peaks(error)


def of_others_than_peaks(error: TraceError) -> frozenset[str]:
    """The quantities whose closed forms fail with an error, without peaks."""
    from calc.derive.analysis import PEAKS

    return frozenset(error.failures) - {*PEAKS}


def _alike(graph: Graph, unrolled: Graph) -> bool:
    """Whether each trace of two graphs has the same operators, allocations and frees."""
    return all((a.ops, a.events) == (b.ops, b.events) for a, b in zip(graph.traces, unrolled.traces, strict=True))


def attempt_of(graph: Graph) -> int:
    """The attempt whose trip counts sufficed: a special case of the same step probably needs as many."""
    limits = trip_counts.limits(graph.loops, {dim.name: dim for dim in graph.dims}, graph.basis)
    return trip_counts.attempt_of(graph.loops, [trace.sizes for trace in graph.traces], limits)


_BY_VALUES = (
    "what the step does depends on a value that it reads out of a tensor, or computes from sizes as a number, at {}: at other sizes"
    " this value may differ, or have too many elements to be computed; make the branch depend on sizes, or choose other sizes"
)


def by_values(spec: Spec, conditions: Sequence[Guard]) -> SizesError | None:
    """The error for a step whose path depends on tensor values, which differ at other sizes. No divisor fixes that. None if no guard is
    opaque."""
    return next((OtherPathError(_failure(spec, _BY_VALUES.format(c.where), c.where), divides=False) for c in conditions if c.opaque), None)


def _other_path(spec: Spec, graph: Graph, at: Mapping[str, int]) -> SizesError | None:
    """The error if the step takes another path ``at`` these values of the basis symbols, the best choice for a certificate: closed forms
    that hold at no other sizes cannot be certified, and the sizes that select the path must be numbers."""
    c = next((c for c in graph.guards if not c.opaque and not c.holds_at(at)), None)
    if c is None:
        return None
    statement = f"no other sizes take the traced path, where {c.expr} is {c.outcome}, evaluated at {c.where}"
    return OtherPathError(_failure(spec, statement, c.where), divides=False)


def _failure(spec: Spec, statement: str, where: str) -> Failure:
    return Failure(statement, f"{spec.name}: ", where=where)


def _fails_at_every_depth(spec: Spec, graph: Graph, analysis: Analysis | None, error: CertificateError, certifier: Certifier) -> bool:
    """Whether a closed form that failed a certificate also fails at a traced depth: then deeper traces cannot help."""
    from calc.derive.analysis import PEAKS

    if analysis is None or not error.sizes or error.quantity in PEAKS:
        return False
    at = {**error.sizes, **{name: graph.traces[0].sizes[name] for name in graph.loops}}
    outcome = certifier.with_certificate(spec, graph, analysis, at)
    failure = outcome.error if isinstance(outcome, Refusal) else None
    if failure is not None and not isinstance(failure, CertificateError):
        raise failure
    return failure is not None and failure.quantity == error.quantity


def _no_polynomial(spec: Spec, graph: Graph, failure: CertificateError) -> TraceError:
    """The error for a step that is not a polynomial in its trip counts; names the last one read, else the last one declared. A size that
    is read as a number and counts no iterations may be specialized, but a peak without a closed form is due to a loop, if there is one."""
    widths = {name for c in graph.guards if c.opaque for name in ordered_names(c.expr)}
    of_loop, basis = tells_no_peak(failure) and not widths >= {*graph.loops}, graph.as_basis()
    for symbol, where in reversed([*graph.trip_count_reads.items()]):
        if of_loop and symbol in widths:
            continue
        name = basis.dimension(symbol)
        statement = f"{name} is read as a number at {where}, and the step is not a polynomial in it: {failure}"
        details = ("use the size without converting it, or fix it in the spec",)
        message = Failure(statement, f"{spec.name}: ", details, where=where)
        if symbol in widths and name not in spec.may_unroll:
            return _of(failure, OtherPathError(message, divides=False))
        if tells_no_peak(failure) and name in spec.dims and name not in spec.may_unroll:
            return failure
        return _of(failure, SpecializationError(name, where, message))
    declared = next((name for name in reversed(spec.trip_counts) if name in graph.loops), None)
    if declared is None or is_of_peaks(failure):
        return failure
    statement = f"the step is not a polynomial in {declared}, a number of iterations: {failure}"
    return _of(failure, SpecializationError(declared, "", Failure(statement, f"{spec.name}: ")))


def _of(failure: CertificateError, error: TraceError) -> TraceError:
    """``error`` with the failed quantities of ``failure``."""
    error.failures = failure.failures
    return error


def tells_no_peak(error: CertificateError) -> bool:
    """Whether the error says that a peak has no closed form. An error about a wrong closed form has sizes."""
    from calc.derive.analysis import PEAKS

    return error.quantity in PEAKS and not error.sizes


def own_error(spec: Spec, sizes: Mapping[str, int], options: Options) -> NapkinError | None:
    """The error that the step raises at exactly the requested sizes, or None. A data-dependent size does not count: another trace can
    handle it."""
    from calc.trace import trace_at

    outcome = outcome_of(lambda: trace_at(spec, {}, unbacked_sizes.declared_sizes(spec, sizes), {}, options))
    return outcome.error if isinstance(outcome, Refusal) and not isinstance(outcome.error, UnbackedSizeError) else None


def larger_than_traced(plan: TracePlan) -> frozenset[str]:
    """The symbols that are larger at the requested sizes than the step is traced at."""
    from calc.trace.hints import hints

    dims = plan.spec.dimensions
    untied = {name: value for name, value in plan.sizes.items() if name not in dims or not dims[name].tied}
    basis, requested = basis_of(dims), unbacked_sizes.declared_sizes(plan.spec, untied)
    values = basis.values(requested)
    return frozenset(name for name, hint in hints(basis, requested).items() if values[name] > hint)


def reads_of_trip_counts(plan: TracePlan) -> list[SpecializationError]:
    """The reads of sizes as numbers that make these sizes trip counts. They are traced once more: a graph may be from the cache."""
    from calc.trace import attempt

    tried = TracePlan(plan.spec, plan.spec.sizes(), plan.options, specialized=plan.specialized)
    reads: list[SpecializationError] = []
    while isinstance(outcome := outcome_of(functools.partial(attempt, tried)), Refusal) and isinstance(outcome.evidence, TripCount):
        reads += [outcome.error] if isinstance(outcome.error, SpecializationError) else []
        tried = replace(tried, trip_counts={**tried.trip_counts, outcome.evidence.symbol: outcome.evidence.where})
    return reads
