"""The refinements of a ``TracePlan``, in the order in which they are tried: each handles one kind of refusal. Torch-free at load."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from calc.dimensions import ordered_names, quotient
from calc.errors import (
    CertificateError,
    DataDependentError,
    NapkinError,
    OtherIterationsError,
    OtherPathError,
    ReadByTorchError,
    SizesError,
    SpecializationError,
    TraceError,
    ZeroQuotientError,
)
from calc.graph import unbacked_sizes
from calc.graph.basis import basis_of
from calc.graph.guards import Guard
from calc.graph.plan import DivisorSearch, Inferred, Near, Refusal, Shallow, TracePlan, TripCount, Unlike
from calc.pipeline import divisibility, patterns
from calc.pipeline.depth import is_of_peaks, larger_than_traced, of_others_than_peaks, own_error, reads_of_trip_counts, tells_no_peak
from calc.spec import Spec
from calc.symbolic.parser import parse
from calc.symbolic.writer import as_text


def trip_count(plan: TracePlan, refusal: Refusal) -> TracePlan | None:
    """Treat a size that is read as a number as a trip count."""
    read = refusal.evidence
    if not isinstance(read, TripCount):
        return None
    return replace(plan, trip_counts={**plan.trip_counts, read.symbol: read.where}, reason=read.reason)


def whole_chunks(plan: TracePlan, refusal: Refusal) -> TracePlan | None:
    """Declare a size a multiple of what it is divided by and rounded to count iterations, where the closed forms in that size hold at few
    iterations only: the quotient is then the trip count."""
    if not refusal.of_case or type(refusal.error) not in (TraceError, OtherIterationsError):
        return None
    rounded = next((read for read in reads_of_trip_counts(plan) if read.divided), None)
    more = None if rounded is None else divisibility.divided(plan.spec, _requested(plan, plan.spec), rounded)
    return plan.of(more.spec, more.reason) if more else None


def more_iterations(plan: TracePlan, refusal: Refusal) -> TracePlan | None:
    """Trace more iterations after a closed form fails a certificate."""
    shallow = refusal.evidence
    if not isinstance(shallow, Shallow):
        return None
    reason = "the iterations traced do not determine the closed forms: tracing more"
    return replace(plan, attempt=shallow.attempt, failed=(*plan.failed, shallow.quantity), reason=reason)


def depth_in_patterns(plan: TracePlan, refusal: Refusal) -> TracePlan | None:
    """Make a depth a number of patterns, where a forward shows layers that repeat one."""
    seen = refusal.evidence
    spec = patterns.repeated(plan.spec, _requested(plan, plan.spec), seen.periods) if isinstance(seen, Unlike | Shallow) else None
    if spec is None or any(tried.spec == spec for tried in plan.history):
        return None
    return plan.of(spec, "layers repeat a pattern: its number determines the closed forms")


def certified_deeper(plan: TracePlan, refusal: Refusal) -> TracePlan | None:
    """Certify at a number of iterations where a forward is not what fewer iterations say."""
    unlike = refusal.evidence
    if not isinstance(unlike, Unlike):
        return None
    return replace(plan, deeper={**plan.deeper, **unlike.at}, reason=str(refusal.error))


def inferred_dimension(plan: TracePlan, refusal: Refusal) -> TracePlan | None:
    """Make a data-dependent size a dimension, bound a dimension by a trip count, or group layers in patterns."""
    more = refusal.evidence
    if not isinstance(more, Inferred):
        return None
    return replace(plan.further(more.spec, more.reason), attempt=more.attempt, failed=more.failed)


def products_in_order(plan: TracePlan, refusal: Refusal) -> TracePlan | None:
    """Trace at sizes that keep the order of all dimensions, if a quotient of sizes is zero at those of the trace."""
    if plan.orders_products or not isinstance(refusal.error, ZeroQuotientError):
        return None
    return replace(plan, orders_products=True, reason="a quotient of sizes is zero at those of the trace: tracing at others")


def divided_size(plan: TracePlan, refusal: Refusal) -> TracePlan | None:
    """Declare a size a multiple of what the line that failed divides it by, before sizes are specialized."""
    error, searching = refusal.error, plan.search is not None and plan.search != DivisorSearch()  # an empty one: no other size helped
    if refusal.of_case or searching or not plan.spec.may_specialize or not isinstance(error, SizesError | SpecializationError):
        return None
    if isinstance(error, SpecializationError) and error.dimension not in plan.spec.may_unroll:
        return None  # an exact quotient that is read as a number would be no trip count
    more = divisibility.divided(plan.spec, _requested(plan, plan.spec), error)
    return plan.of(more.spec, more.reason) if more else None


def size_of_a_number(plan: TracePlan, refusal: Refusal) -> TracePlan | None:
    """Specialize the dimensions that the failing line compares with a number, where they are that number at the requested sizes: heads that
    a table of 8 rows is added to."""
    error, dims = refusal.error, plan.spec.dimensions
    if refusal.of_case or not isinstance(error, SizesError) or not error.equation:
        return None
    names = sorted({_dividend(plan.spec, name) for name in error.causes & dims.keys()} - plan.specialized.keys())
    values = basis_of(dims).values(_requested(plan, plan.spec))
    if not names or any(dims[name].unbacked_at for name in names) or Guard(error.equation, False, "").holds_at(values):
        return None
    more = dict.fromkeys(with_quotients(plan.spec, names), _SYMBOLIC.format(error.failure.why))
    reason = f"the step needs {as_text(parse(error.equation))}: specializing {', '.join(names)}"
    return plan.specializing({**plan.specialized, **more}, reason)


def near_sizes(plan: TracePlan, refusal: Refusal) -> TracePlan | None:
    """Trace near the requested sizes, before a multiple is assumed or a size becomes a number: the step may only need more, as a kernel
    more samples than it is wide. Where it fails at the same line there, it is traced at the usual, smaller sizes again."""
    error = refusal.error
    if refusal.of_case or plan.search is not None or type(error) is not SizesError or error.equation or error.failure.details:
        return None
    if plan.near is None:
        larger = frozenset() if any(tried.near for tried in plan.history) else larger_than_traced(plan)
        symbols = error.causes & larger or larger
        return replace(plan, near=Near(symbols), reason=_LARGER) if symbols else None
    first = plan.refusal.error if plan.refusal and plan.before and plan.before.near is None else None
    return replace(plan, near=None, reason=_NO_LARGER) if isinstance(first, SizesError) and first.line == error.line else None


_LARGER = "the step may need larger sizes: tracing near the requested ones"
_NO_LARGER = "larger sizes do not help: tracing at the usual ones"


def specialized_size(plan: TracePlan, refusal: Refusal) -> TracePlan | None:
    """Specialize a dimension without a closed form, if the spec allows it."""
    error = refusal.error
    if refusal.of_case or not isinstance(error, TraceError) or isinstance(error, DataDependentError):
        return None
    if _is_of_a_count_in_the_data(plan.spec, error):  # no size is at fault: such peaks become unknown
        return None
    more = _to_specialize(plan.spec, plan.specialized, error)
    if not more:
        return None
    specializing = plan.specializing({**plan.specialized, **more}, f"no closed form in {as_numbers(more)}")
    anew = replace(specializing, spec=unbacked_sizes.without_named(plan.spec, str(error)))
    return specializing if any((tried.spec, tried.specialized) == (anew.spec, anew.specialized) for tried in plan.history) else anew


def divisor(plan: TracePlan, refusal: Refusal) -> TracePlan | Refusal | None:
    """Declare a size a multiple of another or of a number, if the requested sizes are; if no divisor helps, specialize sizes.

    Returns the step's own error as a refusal if it fails at exactly the requested sizes.
    """
    given, error = plan.given or plan.spec, refusal.error
    search = plan.search or _search_for_divisor(plan, refusal)
    if not isinstance(search, DivisorSearch):
        return search
    settled = divisibility.is_settled(search)
    if settled and isinstance(error, TraceError) and error.failures:
        return None  # closed forms fail for another reason, which no further divisor changes
    if plan.search and not search.levels:
        return _counts_as_numbers(plan) if isinstance(error, TraceError) else None
    ends = settled and isinstance(error, OtherPathError) and not error.divides  # values decide
    following = None if ends else divisibility.with_next_divisor(plan, search, _requested(plan, given), error)
    first = search.levels[0].failure if search.levels else error
    return following or (_sizes_as_numbers(plan, first) if isinstance(first, TraceError) else None)


def _sizes_as_numbers(plan: TracePlan, first: TraceError) -> TracePlan:
    """The plan in which sizes may be specialized, as no divisor helps against the ``first`` error."""
    allowed = divisibility.as_numbers(plan.given or plan.spec, first, _counts(plan))
    return replace(plan.of(allowed, "no divisor helps: sizes may be specialized"), search=DivisorSearch())


def _search_for_divisor(plan: TracePlan, refusal: Refusal) -> DivisorSearch | Refusal | None:
    """The search with which ``divisor`` begins; the step's own error as a refusal; None where no divisor is missing."""
    given, error = plan.given or plan.spec, refusal.error
    if not isinstance(error, ReadByTorchError | SizesError | SpecializationError):
        return None
    own = own_error(given, plan.sizes, plan.options)
    if _is_own_fault(own, error):
        return Refusal(own or error)
    if own is not None or given.may_specialize:
        return None
    if isinstance(error, SizesError) and _may_lack_a_divisor(error, refusal.of_case):
        return divisibility.first_search(given, _requested(plan, given), error)
    return DivisorSearch()


def _counts(plan: TracePlan) -> list[str]:
    """The dimensions that were read as numbers of iterations so far."""
    symbols = ((tried.spec, symbol) for tried in plan.history for symbol in tried.trip_counts)
    return sorted({basis_of(spec.dimensions).dimension(symbol) for spec, symbol in symbols})


def _counts_as_numbers(plan: TracePlan) -> TracePlan | None:
    """The plan in which such dimensions may be specialized as well, where all others have not sufficed."""
    more = [name for name in _counts(plan) if _may_be_specialized(plan.spec, name)]
    if not more:
        return None
    allowed = replace(plan.spec, may_specialize=(*plan.spec.may_specialize, *((name,) for name in more)))
    return replace(plan.of(allowed, f"no other size helps: {', '.join(more)} may be specialized"), search=DivisorSearch())


def unknown_quantities(plan: TracePlan, refusal: Refusal) -> TracePlan | None:
    """Mark quantities without a closed form as unknown and derive the others without them; not where iterations differ, whose number
    becomes one instead."""
    error, given = refusal.error, plan.given or plan.spec
    if plan.deeper and isinstance(error, SpecializationError) and _may_be_specialized(given, error.dimension):
        return None
    failures = error.failures if isinstance(error, TraceError) else {}
    if not failures.keys() - given.unknown.keys() or _NEVER_UNKNOWN in failures:
        return None
    unknown = {**given.unknown, **failures}
    reason, without = f"no closed form of {', '.join(failures)}: {_WITHOUT}", replace(given, unknown=unknown)
    if plan.search is not None:
        return _restarted(plan, without, reason)
    return replace(plan.further(replace(plan.spec, unknown=unknown), reason), given=without)


def specializable_size(plan: TracePlan, refusal: Refusal) -> TracePlan | None:
    """Allow specializing a dimension in which the whole step has no closed form, even if the spec does not."""
    error, given = refusal.error, plan.given or plan.spec
    if not isinstance(error, SpecializationError) or not _may_be_specialized(given, error.dimension):
        return None
    name = error.dimension
    allowed = replace(given, may_specialize=(*given.may_specialize, (name,)), unknown={})
    return _restarted(plan, allowed, f"no closed form in {as_numbers([name])}")


def size_of_iterations(plan: TracePlan, refusal: Refusal) -> TracePlan | None:
    """Allow specializing a dimension that was taken for a number of iterations, where the step takes another path at the requested one."""
    error, given = refusal.error, plan.given or plan.spec
    if not isinstance(error, OtherIterationsError) or not _may_be_specialized(given, error.dimension):
        return None
    allowed = replace(given, may_specialize=(*given.may_specialize, (error.dimension,)))
    return _restarted(plan, allowed, f"the step takes another path at this {error.dimension}: it may be a number")


ITERATIONS = (trip_count, more_iterations)
AT_ONE_SPEC = (*ITERATIONS, inferred_dimension, products_in_order, size_of_a_number, divided_size, near_sizes, specialized_size)
_OF_ITERATIONS = (certified_deeper, whole_chunks, size_of_iterations)
REFINEMENTS = (depth_in_patterns, *AT_ONE_SPEC, *_OF_ITERATIONS, divisor, unknown_quantities, specializable_size)

# If the number of parameters differs, the built model is not the traced one.
_NEVER_UNKNOWN = "parameters"
_WITHOUT = "tracing the step without"


def as_numbers(names: Collection[str]) -> str:
    """``names`` with the statement that they become numbers."""
    return f"{', '.join(names)}: specializing {'it' if len(names) == 1 else 'them'}"


def _restarted(plan: TracePlan, given: Spec, reason: str) -> TracePlan:
    """The plan for another ``given`` model, without inferred divisors."""
    return replace(plan.of(given, reason), given=given, search=None)


def _requested(plan: TracePlan, spec: Spec) -> dict[str, int]:
    return unbacked_sizes.declared_sizes(spec, plan.sizes)


def _may_be_specialized(spec: Spec, name: str) -> bool:
    """Whether a dimension may be specialized and is not listed for it yet."""
    return name in spec.dims and not spec.dimensions[name].tied and all(name not in names for names in spec.may_specialize)


# -- divisors --------------------------------------------------------------------------------------------------------------------


def _is_own_fault(own: NapkinError | None, failure: TraceError) -> bool:
    """Whether the step fails at exactly the requested sizes, with ``own``, so that no divisor helps. For an error at the same line, the
    message with symbols is clearer."""
    if isinstance(own, SizesError) and (isinstance(failure, OtherPathError) or own.line != failure.line):
        return True
    return isinstance(failure, ReadByTorchError) and own is not None


def _may_lack_a_divisor(failure: SizesError, of_case: bool) -> bool:
    """Whether a divisor may fix ``failure``. If the step was traced for general sizes, an error in a special case is not due to a missing
    one."""
    if isinstance(failure, OtherPathError):
        return failure.divides
    return type(failure) is not SizesError or not of_case


def _is_of_a_count_in_the_data(spec: Spec, error: TraceError) -> bool:
    """Whether peaks alone have no closed form in a number of iterations that depends on data."""
    name = error.dimension if isinstance(error, SpecializationError) else ""
    return name in spec.dims and bool(spec.dimensions[name].unbacked_at and error.failures) and not of_others_than_peaks(error)


# -- specialized sizes -----------------------------------------------------------------------------------------------------------


def _to_specialize(spec: Spec, specialized: Mapping[str, str], error: TraceError) -> dict[str, str]:
    """Further dimensions to specialize after ``error``, each with the reason: the one it names, else the next allowed set."""
    if isinstance(error, CertificateError) and is_of_peaks(error):
        counts = [name for name in spec.trip_counts if name not in specialized]
        if counts or tells_no_peak(error):  # without a declared depth, peaks alone have no closed form: nothing becomes a number for them
            return dict.fromkeys(with_quotients(spec, counts[-1:]), _NO_PEAK.format(spec.trip_counts))
    why = _SYMBOLIC.format(error.failure.why) if isinstance(error, SizesError) and error.said else error.failure.why
    may = {name for names in spec.may_specialize for name in names}
    causes = error.causes if isinstance(error, SizesError) else {error.dimension} if isinstance(error, SpecializationError) else set()
    said = divisibility.said_by(error)
    if unbacked_sizes.is_named(spec, said):  # data may be constants that count it, once the sizes that it is compared with are numbers
        causes = causes | {*divisibility.named_in(spec, said)}
    named = may & causes - specialized.keys()
    named = named - {"B"} or named  # the batch is on both sides of most comparisons
    if named:
        return dict.fromkeys(with_quotients(spec, sorted({_dividend(spec, name) for name in named})), why)
    for names in spec.may_specialize:
        more = [name for name in with_quotients(spec, names) if name not in specialized]
        if more:
            return dict.fromkeys(more, why)
    return {}


def _dividend(spec: Spec, name: str) -> str:
    """The dimension that ``name`` is a quotient of by its default, or itself: where ``k``, which is ``d/h``, is a number, so is ``d``."""
    dim = spec.dimensions[name]
    divided = quotient(dim.default)
    return divided[0] if dim.tied and divided and divided[0] in spec.dimensions else name


_NO_PEAK = (
    "read as a number at trip_counts={} of the spec, and the peak of live bytes has no closed form in it: which iteration needs most"
    " depends on other sizes"
)
_SYMBOLIC = "under symbolic tracing it {}"


def with_quotients(spec: Spec, names: Sequence[str]) -> list[str]:
    """``names`` with the dimensions that must be numbers where these are: their bounds and divisors (a number divided by a symbol is not a
    size); and the dimensions that then follow from numbers alone."""
    dims, more = spec.dimensions, list(names)
    for name in more:
        more += [n for n, d in dims.items() if d.at_most == name and n not in more and n not in ("T", "S")]
        part = dims[name].multiple_of
        more += [part] if isinstance(part, str) and part not in more else []
        more += [n for n, d in dims.items() if d.tied and isinstance(d.default, str) and n not in more and _follows(d.default, more)]
    return more


def _follows(default: str, names: Collection[str]) -> bool:
    return {*ordered_names(default)} <= {*names}


def specialized_too_soon(plan: TracePlan) -> list[list[str]]:
    """Dimensions that may become symbols, because another dimension was the cause: the same line failed without them, or they are trip
    counts and others were specialized later, or they were specialized last, together with others, after an error that names none."""
    steps = [(after, after.before, after.refusal) for after in plan.history if after.spec == plan.spec]
    taken = [
        ([name for name in after.specialized if name not in before.specialized], refusal.error)
        for after, before, refusal in steps
        if before and refusal and after.specialized.keys() > before.specialized.keys()
    ]
    lines = [error.line if isinstance(error, TraceError) else "" for _, error in taken]
    ineffective = [names for (names, _), line, following in zip(taken, lines, lines[1:], strict=False) if line and line == following]
    counts = [names for names, error in taken if isinstance(error, CertificateError)]
    beside = [[name] for names, error in taken[-1:] if not _names_its_cause(error) for name in _one_by_one(plan.spec, names)]
    return [*ineffective, *counts[:-1], *beside]


def _names_its_cause(error: NapkinError) -> bool:
    """Whether the dimensions that were specialized after ``error`` are those that it is about."""
    return isinstance(error, SpecializationError | CertificateError)


def _one_by_one(spec: Spec, names: Sequence[str]) -> list[str]:
    """Of several dimensions those that nothing follows from: a dimension before those that divide or bound it, which may be symbols only
    where it is one."""
    if len(names) == 1:
        return []
    dims = {name: spec.dimensions[name] for name in names}
    followed = {name for dim in dims.values() if isinstance(dim.default, str) for name in ordered_names(dim.default)}
    left = [name for name, dim in dims.items() if not dim.tied and name not in followed]
    ordered: list[str] = []
    while left:
        parts = {part for name in left for part in parts_of(spec, name)}
        free = [name for name in left if name not in parts] or left  # two that bound each other
        ordered += free
        left = [name for name in left if name not in free]
    return ordered


def parts_of(spec: Spec, name: str) -> list[str]:
    """The dimensions that divide or bound a dimension."""
    dim = spec.dimensions[name]
    return [part for part in (dim.multiple_of, dim.at_most) if isinstance(part, str)]
