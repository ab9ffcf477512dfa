"""Follows one ``TracePlan``: the step of a spec, traced with symbols at each combination of trip counts, becomes a graph."""

from __future__ import annotations

import functools
import itertools
import platform
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from calc.dimensions import Dim, evaluate, meaning_of, ordered_names, quotient
from calc.errors import (
    DataDependentError,
    Failure,
    NapkinError,
    RoundedShareError,
    SizesError,
    SpecializationError,
    TraceError,
    UnbackedSizeError,
)
from calc.graph import trip_counts, unbacked_sizes
from calc.graph.basis import Basis, basis_of
from calc.graph.exchanges import EXCHANGES
from calc.graph.plan import Inferred, Refusal, TracePlan, TripCount, outcome_of
from calc.graph.step import Assumption, Graph, TracedDim
from calc.options import Options
from calc.platform.progress import Progress
from calc.platform.torch_private import torch_version
from calc.spec import Spec
from calc.symbolic.assignments import PLAIN, sizes_text
from calc.symbolic.writer import substituted
from calc.trace import guards
from calc.trace.hints import HintRules, hints
from calc.trace.kernels import on_cuda
from calc.trace.step import TracedRun, trace_step, unrolled_run
from calc.trace.tracing import StepSizes

TracedRuns = dict[tuple[tuple[str, int], ...], TracedRun]

# Each trip count doubles the number of traces.
_MOST_LOOPS = 3
# The error of a step where one size exceeds another, a trip count.
_MAY_EXCEED = (TraceError, SizesError)
# No loop is traced with fewer iterations.
_MOST_BOUNDED = 3
_LARGE = 1000  # at which a bound of a product is compared with its symbol
# torch's messages for two sizes that should be equal: neither is a number, so no trip count is exceeded.
_UNEQUAL = re.compile(
    r"size of tensor a \([^)]*[A-Za-z].*\) must match the size of tensor b \([^)]*[A-Za-z].*\) at"
    r"|must match except in dimension \d+\. Expected .*[A-Za-z].* in dimension \d+ but got .*[A-Za-z].* for tensor number"
    r"|same reduction dim, but got \[.*, [^,\]]*[A-Za-z][^,]*\] X \[[^,]*[A-Za-z]"
)
# Two trip counts: what one more iteration adds is then the same for each.
_OF_A_LINE = 2
# Trip counts of a run that distinguishes them from other numbers.
_OTHER_COUNTS = (5, 7, 11)


class Tracer:
    """Traces the step of ``plan.spec`` at each combination of trip counts.

    ``traces`` caches the traces of this spec and special case, so that a deeper plan reuses them. ``unrolls``: the second of two trip
    counts is unrolled from the first where possible, which certificates must verify.
    """

    def __init__(self, plan: TracePlan, traces: TracedRuns, progress: Progress, unrolls: bool = False) -> None:
        self.plan, self.spec, self.traces, self.progress, self._unrolls = plan, plan.spec, traces, progress, unrolls
        self.basis = basis_of(self.spec.dimensions, plan.fixed)
        self.trip_count_reads = dict(plan.trip_counts)
        stated = [symbol for name in self.spec.trip_counts for symbol in ordered_names(self.basis.define[name])]
        self._stated = stated
        self.loops = [*stated, *self.trip_count_reads]

    def graph(self) -> Graph | Refusal:
        """The graph of the step, or the reason why the plan does not suffice."""
        runs = []
        for counts in itertools.product(*self._traced_counts.values()):
            run = self._run(dict(zip(self.loops, counts, strict=True)))
            if isinstance(run, Refusal):
                return run
            runs.append(run)
        return self._of(runs)

    @property
    def _traced_counts(self) -> dict[str, trip_counts.Counts]:
        """The trip counts at which each loop is traced."""
        limits = trip_counts.limits(self.loops, self.spec.dimensions, self.basis.define)
        return trip_counts.traced_counts(self.plan.attempt, self.loops, limits)

    # -- runs ------------------------------------------------------------------------------------------------------------------

    def _run(self, fixed: Mapping[str, int]) -> TracedRun | Refusal:
        """The trace with those symbols fixed, cached."""
        key = tuple(fixed.items())
        if self._unrolls and key not in self.traces:
            unrolled = self._unrolled(fixed)
            self.traces |= {key: unrolled} if unrolled is not None else {}
        if key not in self.traces:
            at = sizes_text(self.basis.independent_sizes(fixed), PLAIN)
            self.progress(f"tracing the step with symbolic sizes{f' at {at}' if at else ''}")
            mutates_tracked = any(run.mutates_tracked for run in self.traces.values())
            like = next((run.repeats for run in self.traces.values()), None)
            run = outcome_of(lambda: trace_step(self.spec, self._sizes(fixed), self.plan.options, mutates_tracked, like))
            if isinstance(run, Refusal):
                return self._explained(run.error, fixed)
            self.traces[key] = run
        return self.traces[key]

    def _unrolled(self, fixed: Mapping[str, int]) -> TracedRun | None:
        """The run with those symbols fixed, unrolled from the run with one iteration less, if there is one and it determines this one."""
        for loop, counts in self._traced_counts.items():
            shorter = self.traces.get(tuple({**fixed, loop: fixed[loop] - 1}.items()))
            if loop in self._stated and len(counts) == _OF_A_LINE and fixed[loop] == counts[-1] and shorter is not None:
                outcome = outcome_of(functools.partial(unrolled_run, self.spec, shorter, self._sizes(fixed), self.plan.options))
                if outcome is not None and not isinstance(outcome, Refusal):
                    return outcome
        return None

    def _sizes(self, fixed: Mapping[str, int]) -> StepSizes:
        """Sizes of a run with these trip counts."""
        dims = self.spec.dimensions
        products = sides(dims, self.plan.options.optimizer)
        if products is None and self.plan.orders_products:
            products = ()
        rules = replace(hint_rules(dims, self.loops, self.basis, products), near=self.plan.near)
        return StepSizes(self.basis, hints(self.basis, self.plan.sizes, rules), fixed, tuple(self.trip_count_reads))

    def _failure(self, at: StepSizes) -> NapkinError | None:
        """The error of a trace at these sizes, if any."""
        run = outcome_of(lambda: trace_step(self.spec, at, self.plan.options))
        return run.error if isinstance(run, Refusal) else None

    # -- what a failure implies ------------------------------------------------------------------------------------------------

    def _explained(self, error: NapkinError, fixed: Mapping[str, int]) -> Refusal:
        """Why a run with these trip counts failed, with what the failure implies about the model's dimensions."""
        if isinstance(error, SpecializationError):
            return self._read_as_number(error)
        if isinstance(error, UnbackedSizeError):
            size = self._at_any_count(error, fixed)
            if not isinstance(size, UnbackedSizeError):
                return self._explained(size, fixed)
            return Refusal(size, unbacked_sizes.with_size(self.spec, size, self.basis))
        if isinstance(error, SizesError):
            error.of_causes(map(self.basis.dimension, error.causes))
        return Refusal(error, self._bound(error) if type(error) in _MAY_EXCEED else None)

    def _read_as_number(self, specialization: SpecializationError) -> Refusal:
        """A dimension that is read as a number is a trip count, unless the plan may specialize it, or it cannot be one."""
        spec, name = self.spec, self.basis.dimension(specialization.dimension)
        if any(name in names for names in spec.may_specialize) and not (specialization.counts and name in spec.may_unroll):
            return Refusal(SpecializationError(name, specialization.where, specialization.failure, divided=specialization.divided))
        if specialization.dimension in self.loops or len(self.loops) == _MOST_LOOPS:
            message = no_closed_form(spec, specialization, self.basis)
            return Refusal(
                SpecializationError(name, specialization.where, message)
                if specialization.divided is None
                else RoundedShareError(message, specialization.divided)
            )
        if self.plan.options.every > 1 and name not in (*spec.trip_counts, *spec.may_unroll):
            # It may count blocks of which only every n-th is recomputed: like any depth, it then counts such patterns.
            patterned = replace(spec, trip_counts=(*spec.trip_counts, name))
            return Refusal(
                specialization,
                Inferred(patterned, f"{name} is read as a number at {specialization.where}: treating it as a number of patterns"),
            )
        shown = self.basis.hidden.get(specialization.dimension, specialization.dimension)
        why = f"{shown} is read as a number at {specialization.where}: treating it as a trip count"
        return Refusal(specialization, TripCount(specialization.dimension, specialization.where, why))

    def _at_any_count(self, undecided: UnbackedSizeError, fixed: Mapping[str, int]) -> NapkinError:
        """``undecided`` with trip counts that are numbers in this run distinguished from other numbers, by a run at other trip counts; or
        the error of that run."""
        if not fixed:
            return undecided
        others = dict(zip(fixed, _OTHER_COUNTS, strict=False))
        failure = self._failure(replace(self._sizes(fixed), fixed=others))
        size = _with_counts(undecided, failure, fixed, others) if isinstance(failure, UnbackedSizeError) else None
        if failure is not None and not isinstance(failure, UnbackedSizeError):
            return failure
        message = f"{undecided}, and its upper bound is not a simple function of {', '.join(fixed)}"
        return size or SpecializationError([*fixed][-1], undecided.where, message)

    def _bound(self, error: NapkinError) -> Inferred | None:
        """The bound of a dimension where the step fails only because the dimension exceeds a trip count, which is small here, as where a
        router chooses more experts than there are."""
        if _UNEQUAL.search(str(error)):
            return None
        spec, sizes, dims = self.spec, self.plan.sizes, self.spec.dimensions
        fixed = {name: counts[0] for name, counts in self._traced_counts.items()}
        causes = (isinstance(error, SizesError) and error.causes) or self.basis.symbols
        free = [name for name in self.basis.symbols if name in causes and name not in self.loops and name in dims]
        may = [
            (loop, name)
            for loop, name in itertools.product(self.loops, free)
            if loop in dims and not dims[name].at_most and sizes[name] <= sizes[loop]
        ]
        if not may or self._failure(StepSizes(self.basis, hints(self.basis, sizes), fixed)) is None:
            return None  # the failure is at other trip counts
        for loop, name in may:
            bounded = StepSizes(self.basis, hints(self.basis, sizes, HintRules({name: _MOST_BOUNDED})), fixed)
            second = self._failure(bounded)
            further = isinstance(second, UnbackedSizeError | DataDependentError)
            if second is None or further or (type(second) in _MAY_EXCEED and _place(second) != _place(error)):
                return unbacked_sizes.with_bound(spec, name, loop)
        return None

    # -- the graph of the runs -------------------------------------------------------------------------------------------------

    def _of(self, runs: Sequence[TracedRun]) -> Graph:
        spec, plan, reads, basis = self.spec, self.plan, self.trip_count_reads, self.basis
        of_sizes = guards.graph_guards(runs, reads, spec.dimensions)
        of_zeros = guards.of_zeros(of_sizes, runs, basis.symbols)
        of_values = (*guards.of_values(runs, reads), *guards.of_numbers(of_sizes, runs, reads))
        branches = guards.branches(plan, of_sizes, of_zeros, runs, basis)
        of_depths = guards.of_depths(self._traced_counts)
        assumptions = (*unbacked_sizes.assumptions(spec), *_assumptions(runs, reads, basis), *branches)
        return Graph(
            model=spec.name,
            source=spec.source,
            dims=tuple(_dim_record(name, dim, plan.sizes[name]) for name, dim in spec.dimensions.items()),
            basis=dict(basis.define),
            symbols=basis.symbols,
            folds=basis.folds,
            loops=tuple(self.loops),
            options=plan.options.to_json(),
            assumptions=(*assumptions, *_specialized(plan)),
            guards=(*of_depths, *of_sizes, *of_zeros, *of_values),
            traces=tuple(r.trace for r in runs),
            certificates=(),
            provenance=_provenance(),
            notes=(*spec.notes, *_notes_on_options(spec, plan.options), *on_cuda.notes_on_attention(runs[0].trace, plan.options)),
            trip_count_reads=dict(reads),
            mutates_tracked=any(run.mutates_tracked for run in runs),
            reads_tensor_values=any(run.scalar_readers for run in runs),
            specialized={name: (plan.sizes[name], why) for name, why in plan.numbers.items()},
        )


def _notes_on_options(spec: Spec, options: Options) -> Iterator[str]:
    if spec.optimizer is not None and options.trains and options.optimizer != "spec":
        yield f"The spec brings its own optimizer, and this step takes {options.optimizer}: choose optimizer=spec for the spec's own."


def _dim_record(name: str, dim: Dim, size: int) -> TracedDim:
    default = dim.default if isinstance(dim.default, str) else None
    return TracedDim(name, meaning_of(name, dim), size, default, dim.tied, dim.multiple_of, dim.at_most, dim.plus, dim.unbacked_at)


def _specialized(plan: TracePlan) -> list[Assumption]:
    """The dimensions that remain numbers, grouped by reason."""
    together: dict[str, list[str]] = {}
    for name, why in plan.numbers.items():
        together.setdefault(why, []).append(f"{name} = {plan.sizes[name]}")
    return [Assumption(f"{', '.join(names)} throughout", f"specialized, not symbolic: {why}") for why, names in together.items()]


def no_closed_form(spec: Spec, error: SpecializationError, basis: Basis) -> Failure:
    """The failure where a size is read as a number and cannot be a trip count."""
    shown = basis.hidden.get(error.dimension, error.dimension)
    details = ("use the size without converting it, or fix it in the spec",)
    return Failure(f"{error}, so there is no closed form in {shown}", f"{spec.name}: ", details, where=error.where)


def _place(error: NapkinError) -> str:
    """The line that an error names: the rest of the message depends on the hints. For an error without a line, its message."""
    return (error.line if isinstance(error, TraceError) else "") or str(error)


def _with_counts(
    undecided: UnbackedSizeError, second: UnbackedSizeError, fixed: Mapping[str, int], others: Mapping[str, int]
) -> UnbackedSizeError | None:
    """The unbacked size that two runs at different trip counts met at one place, with these trip counts as names; None where they differ
    otherwise."""
    if second.place != undecided.place or len(second.shape) != len(undecided.shape) or len(second.ways) != len(undecided.ways):
        return None
    shape = tuple(_named(a, b, fixed, others) for a, b in zip(undecided.shape, second.shape, strict=True))
    ways = tuple(_named(a, b, fixed, others) for a, b in zip(undecided.ways, second.ways, strict=True))
    if None in shape or None in ways:
        return None
    return UnbackedSizeError(undecided.place, undecided.where, shape, ways, undecided.share, undecided.adds_up)  # type: ignore[arg-type]  # none is None


def _named(size: int | str, second: int | str, fixed: Mapping[str, int], others: Mapping[str, int]) -> int | str | None:
    """A size that two runs at different trip counts have: the same number, or the name of a trip count; None where it is neither."""
    if size == second:
        return size
    return next((name for name in fixed if size == fixed[name] and second == others[name]), None)


def hint_rules(
    dims: Mapping[str, Dim | TracedDim], loops: Sequence[str], basis: Basis, products: Sequence[str] | None
) -> HintRules:
    """The rules for hints that keep the bounds of dimensions."""
    return HintRules(_bounded_by(dims, loops, basis), products, least=_lower_bounds(dims, basis), shares=_shares(dims, basis))


def _bounded_by(dims: Mapping[str, Any], loops: Sequence[str], basis: Basis) -> dict[str, int]:
    """Dimensions that are at most a trip count, or at most one that is a number here, each with its bound."""
    limits = {}
    for name, dim in dims.items():
        limit = basis.define.get(dim.at_most or "", "")
        if dim.at_most in loops or limit.isdigit():
            limits[name] = int(limit) if limit.isdigit() else _MOST_BOUNDED
    return limits


def _lower_bounds(dims: Mapping[str, Any], basis: Basis) -> dict[str, list[str]]:
    """Symbols that bound dimensions which are numbers or products here, each with the expressions that it is no smaller than.

    ``T <= C - 2`` at 512 gives ``512 + 2``; ``T <= C`` in a special case of ``T = d`` gives ``h*k``.
    """
    bounds: dict[str, list[str]] = {}
    for name, dim in dims.items():
        bounding = ordered_names(dim.at_most) if dim.at_most else ()
        text = basis.define.get(name, name)
        if text not in basis.symbols and len(bounding) == 1 and bounding[0] in basis.symbols:
            number = int(text) if text.isdigit() else _LARGE
            short = number - int(evaluate(dim.at_most, {bounding[0]: number}))
            bounds.setdefault(bounding[0], []).append(f"({text}) + ({short})")
    return bounds


def _shares(dims: Mapping[str, Any], basis: Basis) -> dict[str, str]:
    """Symbols of unbacked sizes that are at most a quotient, each with it."""
    bounds = {name: dim.at_most for name, dim in dims.items() if dim.unbacked_at and name in basis.symbols and dim.at_most}
    return {name: substituted(bound, basis.define) for name, bound in bounds.items() if "/" in bound}


# Muon multiplies a matrix from its shorter side, so which of two widths is larger must be as at the requested sizes.
_BY_SIDES = ("muon",)


def sides(dims: Mapping[str, Dim | TracedDim], optimizer: str) -> tuple[str, ...] | None:
    """Widths that are products of dimensions: where k defaults to d/h, ``h*k``, and ``g*k`` where h is a multiple of g."""
    if optimizer not in _BY_SIDES:
        return None
    products = []
    for name, dim in dims.items():
        divided = quotient(dim.expr if isinstance(dim, TracedDim) else dim.default)
        part = divided[1] if divided else ""
        while part in dims:
            products.append(f"{part}*{name}")
            part = str(dims[part].multiple_of)
    return tuple(products)


def _provenance() -> dict[str, str]:
    """Versions of what the trace depends on: that of transformers only where the model uses it."""
    versions = {**torch_version(), "python": platform.python_version()}
    if "transformers" in sys.modules:
        versions["transformers"] = sys.modules["transformers"].__version__
    return versions


def _assumptions(runs: Sequence[TracedRun], reads: Mapping[str, str], basis: Basis) -> list[Assumption]:
    by_line: dict[str, Assumption] = {}
    for name, where in reads.items():
        values = ", ".join(str(n) for n in sorted({run.trace.sizes[name] for run in runs}))
        because = f"read as a number at {where}; traced at {values}, interpolated, and certified at other values"
        by_line[name] = Assumption(f"the step is a polynomial in {basis.hidden.get(name, name)}", because)
    for run in runs:
        for line, (answer, because) in run.constant_reads.items():
            by_line[line] = Assumption(f"the value read at {line} is {answer}", because)
        for line, names in run.value_reads.items():
            because = f"it depends only on {_listed(names, basis)} and constants; computed on real tensors"
            by_line[line] = Assumption(f"the value read at {line} is the one at these sizes", because)
        for line, names in run.number_reads.items():
            because = f"a table or a Python function may use {_listed(names, basis)} as a number; traced at these sizes too"
            by_line[line] = Assumption(f"what is looked up or computed at {line} is the one at these sizes", because)
        for who in run.scalar_readers:
            because = "no branch and no size depends on them: traced with one number, certified with another"
            by_line[who] = Assumption(f"{who} uses numbers read out of tensors only in arithmetic", because)
    exchanged = {key for run in runs for key in run.exchanged}
    return [*(exchange.assumption for exchange in EXCHANGES.values() if exchange.key in exchanged), *by_line.values()]


def _listed(names: Collection[str], basis: Basis) -> str:
    return ", ".join(sorted(basis.hidden.get(n, n) for n in names))
