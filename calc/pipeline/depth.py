"""Traces as deep as the closed forms need: at more trip counts where those that were traced do not tell enough."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from calc.dimensions import names_in
from calc.errors import CertificateError, NoPeakError, OtherPathError, PinnedSizeError, SizesError, TraceError
from calc.graph import trip_counts
from calc.graph.plan import TracePlan
from calc.graph.step import Graph, Guard
from calc.pipeline.certificates import with_certificate, with_one_certificate
from calc.rules.registry import REGISTRY
from calc.spec import Spec

if TYPE_CHECKING:
    from calc.derive.analysis import Analysis

Progress = Callable[[str], None]

# How often counts are tried of a loop that may stay a number just as well.
_TRIES_OF_WALKED = 2


def deep_enough(spec: Spec, plan: TracePlan, progress: Progress) -> tuple[Graph, Analysis]:
    """The graph traced at as many trip counts as its closed forms need, from those of ``plan`` on, with its closed forms."""
    from calc.derive.analysis import PEAKS, analyse
    from calc.rules import families  # noqa: F401  # registers the rules
    from calc.trace import certificate_sizes, divided_in, record
    from calc.trace.tracer import Recordings

    traces: Recordings = {}
    failure: CertificateError | None = None
    pins: Mapping[str, str] = {}
    attempt: int | None = plan.attempt
    tries = 0
    while attempt is not None:
        plan = replace(plan, attempt=attempt)
        analysis: Analysis | None = None
        graph = replace(record(spec, plan, traces, progress), unknown=spec.unknown)
        try:
            analysis = analyse(graph, REGISTRY)
            for any_of in certificate_sizes(graph, plan.sizes, attempt):
                graph = with_one_certificate(spec, graph, analysis, any_of, progress)
        except CertificateError as raised:
            # A value from a trace at any sizes would be that of a number which the trace made up.
            error = raised.without_values() if graph.reads_tensor_values else raised
            if error.sizes and not graph.loops:
                _require_its_path(spec, graph, error.sizes)
            again = failure is not None and failure.quantity == error.quantity
            divided = divided_in(spec, graph, traces)
            if divided is not None and tries + 1 == _TRIES_OF_WALKED:
                raise divided from None
            if not graph.loops or (again and not graph.pins) or _whatever_the_depth(spec, graph, analysis, error, progress):
                read = [c for c in graph.guards if " < " not in c.expr]  # a closed form that rests on numbers of its own may be wrong
                raise divided or by_values(spec, read) or error from None  # depth is not what it depends on
            failure, pins, tries = error, graph.pins, tries + 1
            attempt = trip_counts.next_attempt(attempt, graph.loops, degree=error.quantity not in PEAKS)
            if tries == _TRIES_OF_WALKED and spec.walked and pins:
                break
            progress("the depths recorded do not tell enough: recording deeper")
            continue
        return graph, analysis
    assert failure is not None  # the loop ends without a return only after a failure
    widths = {name for c in graph.guards if c.opaque for name in names_in(c.expr)}
    raise _no_polynomial(spec, pins, failure, widths)


def attempt_of(graph: Graph) -> int:
    """The attempt whose trip counts told enough: a case of the same step is likely to need no fewer."""
    return trip_counts.attempt_of(graph.loops, [record.sizes for record in graph.traces])


_BY_VALUES = (
    "{}: what the step does hangs on a value that it reads out of a tensor, or makes of sizes as a number, at {}, and on how that follows"
    " from sizes: at others it may be another one, or is of too many elements to be evaluated; make the branch depend on sizes, or choose"
    " other sizes"
)


def by_values(spec: Spec, conditions: Sequence[Guard]) -> SizesError | None:
    """What to say of a step that is another one at other sizes, where values that it reads decide so. No multiple mends that."""
    return next((OtherPathError(_BY_VALUES.format(spec.name, c.where), divides=False) for c in conditions if c.opaque), None)


def _require_its_path(spec: Spec, graph: Graph, at: Mapping[str, int]) -> None:
    """Raise where the step takes another path ``at`` these values of the basis symbols, which were the best there are for a certificate:
    closed forms that hold at no other sizes cannot be certified, and the sizes that choose the path are numbers."""
    elsewhere = [c for c in graph.guards if not c.opaque and not c.holds_at(at)]
    if elsewhere:
        c = elsewhere[0]
        said = f"{spec.name}: no two sizes take the path that was recorded, where {c.expr} is {c.outcome}, asked at {c.where}"
        raise OtherPathError(said, divides=False)


def _whatever_the_depth(spec: Spec, graph: Graph, analysis: Analysis | None, error: CertificateError, progress: Progress) -> bool:
    """Whether a closed form that failed a certificate fails at a depth it was recorded at too: then deeper recordings are in vain."""
    from calc.derive.analysis import PEAKS

    if analysis is None or not error.sizes or error.quantity in PEAKS:
        return False
    at = {**error.sizes, **{name: graph.traces[0].sizes[name] for name in graph.loops}}
    try:
        with_certificate(spec, graph, analysis, at, progress)
    except CertificateError as again:
        return again.quantity == error.quantity
    return False


def _no_polynomial(spec: Spec, pins: Mapping[str, str], failure: CertificateError, widths: Collection[str]) -> TraceError:
    """What to say of a step that is no polynomial in its loop counts: the one found last was the last straw. One of ``widths`` counts no
    turns, and may stay a number."""
    for name, where in reversed([*pins.items()]):
        said = (
            f"{spec.name}: {name} is read as a number at {where}, and the step is no polynomial in it: {failure}; "
            "use the size as it is, or give the model as one with that size fixed"
        )
        if name in widths and name not in spec.walked:
            return _of(failure, OtherPathError(said, divides=False))
        no_peak = tells_no_peak(failure) and name in spec.dims and name not in spec.walked
        return _of(failure, (NoPeakError if no_peak else PinnedSizeError)(name, where, said))
    return failure


def _of(failure: CertificateError, error: TraceError) -> TraceError:
    """``error``, which tells of the quantities of ``failure`` as well."""
    error.failures = failure.failures
    return error


def tells_no_peak(error: CertificateError) -> bool:
    """Whether it says that a peak has no closed form. Of a wrong closed form the sizes are known."""
    from calc.derive.analysis import PEAKS

    return error.quantity in PEAKS and not error.sizes
