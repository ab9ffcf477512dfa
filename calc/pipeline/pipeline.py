"""``trace`` and ``derive`` as users call them: recordings made as deep as the certificates demand, and kept in a cache."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from calc.derive.result import Derivation
from calc.dimensions import names_in
from calc.errors import (
    BadInputError,
    CertificateError,
    DataDependentError,
    DimensionError,
    NoPeakError,
    OtherPathError,
    PinnedSizeError,
    ReadByTorchError,
    RefusedOperatorError,
    SizesError,
    TraceError,
    UnknownOperatorError,
    line_in,
)
from calc.graph import trip_counts, unbacked_sizes
from calc.graph.plan import TracePlan
from calc.graph.specialization import walked_otherwise
from calc.graph.step import Graph, StepTrace
from calc.options import Options
from calc.pipeline import divisibility
from calc.pipeline.block_patterns import in_patterns
from calc.pipeline.cache import Cache
from calc.pipeline.certificates import analysed, where_degenerate
from calc.pipeline.depth import deep_enough, tells_no_peak
from calc.pipeline.special_cases import as_numbers, at_sizes, completed, own_error
from calc.rules.registry import REGISTRY, Registry
from calc.spec import Spec

if TYPE_CHECKING:
    from calc.derive.analysis import Analysis
    from calc.derive.elsewhere import TracedGraph
    from calc.derive.live_bytes import Timeline

Progress = Callable[[str], None]
_Made = tuple[Graph, "Analysis | None"]


def _silent(_: str) -> None:
    pass


@dataclass(frozen=True)
class _Run:
    """How a spec is traced. ``made`` keeps in memory what was traced, by dimensions and case: other sizes need the general graph again."""

    options: Options
    cache: bool
    progress: Progress
    made: dict[tuple[str, str], _Made] = field(default_factory=dict)
    read: list[Cache] = field(default_factory=list)  # entries of the cache that graphs were taken from

    def kept(self, spec: Spec, apart: str, make: Callable[[], _Made], usable: Callable[[Graph], bool] = lambda _: True) -> _Made:
        """What ``make`` traces, from memory or the cache where it is there already. ``apart`` names the case that it is of."""
        key = repr(spec.dimensions), apart
        if key in self.made and usable(self.made[key][0]):
            return self.made[key]
        store = Cache(spec, self.options, self.cache, apart)
        known = store.read(self.progress)
        if known is not None and usable(known):
            self.progress("recording found in the cache")
            self.made[key] = known, None
            self.read.append(store)
        else:
            self.made[key] = make()
            store.write(self.made[key][0])
        return self.made[key]

    def discards(self) -> bool:
        """Whether graphs were taken from the cache, which are forgotten, there and here, so that they are traced anew."""
        if not self.read:
            return False
        for store in self.read:
            store.discard(self.progress)
        self.read.clear()
        self.made.clear()
        return True

    def has_general(self, spec: Spec) -> bool:
        """Whether the general graph of ``spec`` as it is was traced."""
        return (repr(spec.dimensions), "") in self.made

    def analysed(self, spec: Spec, apart: str, graph: Graph) -> Analysis:
        """The closed forms of what was kept, worked out once."""
        kept, analysis = self.made[repr(spec.dimensions), apart]
        analysis = analysis or analysed(graph)
        self.made[repr(spec.dimensions), apart] = kept, analysis
        return analysis


def trace(
    spec: Spec,
    sizes: Mapping[str, int] | None = None,
    *,
    options: Options | None = None,
    cache: bool = True,
    progress: Progress = _silent,
) -> Graph:
    """The graph of one training step of ``spec``, with certificates that its closed forms meet, for a batch of 1 and few turns too.

    ``sizes`` sets dimensions (integers ≥ 1); the others keep the spec's defaults. Needs torch, unless the cache has it.
    """
    run = _Run(options or Options(), cache, progress)
    return _where_degenerate(run, *_traced(spec, sizes, run))


def graph_at(spec: Spec, sizes: Mapping[str, int] | None, options: Options, *, cache: bool = True, progress: Progress = _silent) -> Graph:
    """The graph that holds at ``sizes``, without the certificates at further ones that ``trace`` makes."""
    return graphs(spec, options, cache=cache, progress=progress)(sizes or {})


def graphs(spec: Spec, options: Options, *, cache: bool = True, progress: Progress = _silent) -> Callable[[Mapping[str, int]], Graph]:
    """What gives ``graph_at`` of any sizes, and traces what several of them need once."""
    run = _Run(options, cache, progress)
    return lambda sizes: _traced(spec, sizes, run)[0]


def derive(
    source: Graph | Spec,
    sizes: Mapping[str, int] | None = None,
    *,
    options: Options | None = None,
    registry: Registry = REGISTRY,
    cache: bool = True,
    progress: Progress = _silent,
) -> Derivation:
    """Every quantity of the step with its steps, from a graph (torch-free) or from a spec (traced first).

    A derivation from a spec can be asked for any other sizes: the step is traced there where it runs otherwise (``at_sizes``).
    """
    from calc.derive.closed_forms import derive as derive_graph
    from calc.derive.closed_forms import derived_anywhere

    if isinstance(source, Spec):
        run = _Run(options or Options(), cache, progress)
        return derived_anywhere(source, sizes or {}, lambda asked: _believed(source, asked, run, registry))
    if not isinstance(source, Graph):
        raise BadInputError(f"derive needs a graph or a spec, not {type(source).__name__}")
    try:
        return derive_graph(source, sizes, registry)
    except _UNFIT as error:  # of a graph that was traced here, a fault of ours: it is the cause that a traceback shows
        said = f"{type(error).__name__}: {str(error)[:60]}"
        raise BadInputError(f"the graph of {source.model[:60]} does not fit together ({said}): trace the model again") from error


# What a graph raises that has the form of one and that no step gives: an operator with a shape too few, say.
_UNFIT = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def _believed(spec: Spec, sizes: Mapping[str, int], run: _Run, registry: Registry) -> TracedGraph:
    """``_with_closed_forms``. Where graphs of the cache do not fit together, or their closed forms fail a certificate, they are not what
    was written there: the step is traced anew."""
    try:
        return _with_closed_forms(spec, sizes, run, registry)
    except (CertificateError, *_UNFIT):
        if registry is not REGISTRY or not run.discards():
            raise
    return _with_closed_forms(spec, sizes, run, registry)


def _with_closed_forms(spec: Spec, sizes: Mapping[str, int], run: _Run, registry: Registry) -> TracedGraph:
    """The graph that holds at ``sizes``, with its closed forms by the rules of ``registry``."""
    from calc.derive.closed_forms import certified
    from calc.derive.elsewhere import TracedGraph

    try:
        graph, analysis, spec = _traced(spec, sizes, run)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise TraceError(f"{spec.name}: at these sizes the step has to be traced, which takes torch: install it") from None
    by_registry = analysis if analysis is not None and registry is REGISTRY else certified(graph, registry)
    everywhere = functools.cache(lambda: _where_degenerate(run, graph, by_registry if registry is REGISTRY else analysis, spec))
    record = functools.partial(_recorded_at, spec, run.options)
    return TracedGraph(graph, by_registry, unbacked_sizes.as_recorded(spec, graph), everywhere, record)


def _recorded_at(spec: Spec, options: Options, sizes: Mapping[str, int]) -> StepTrace:
    """A trace of the step at these very sizes, all of them numbers."""
    from calc.trace import trace_at

    return trace_at(spec, {}, sizes, {}, options)


def _where_degenerate(run: _Run, graph: Graph, analysis: Analysis | None, spec: Spec) -> Graph:
    """The graph certified at degenerate sizes too, kept as one of its own: what was asked before changes no other."""
    store = Cache(spec, run.options, run.cache, f"where degenerate: {_certified_at(graph)}")
    wider = store.read(run.progress)
    if wider is None or replace(wider, certificates=(), special_cases=(), dims=()) != replace(
        graph, certificates=(), special_cases=(), dims=()
    ):
        try:
            wider = where_degenerate(unbacked_sizes.as_recorded(spec, graph), graph, analysis, run.progress)
        except ModuleNotFoundError:  # without torch, a graph from the cache stands where it was certified before
            return graph
        store.write(wider)
    return replace(wider, dims=graph.dims)


def _certified_at(graph: Graph) -> str:
    """What tells a graph from others of its spec: the sizes that were met so far."""
    cases = ", ".join(f"{dict(case.equal)}: {_certified_at(case.graph)}" for case in graph.special_cases)
    return f"{dict(graph.specialized)} {[dict(record.sizes) for record in graph.certificates]} {{{cases}}}"


# A step of more operators is not run once more for its live bytes: a loop over positions, say, turn by turn.
_MOST_REPLAYED = 40_000


def timeline(derivation: Derivation, *, progress: Progress = _silent) -> Timeline:
    """Live bytes over the step of a derivation, operator by operator. Where its records do not tell what a further iteration adds, the step
    is recorded once more at its sizes, which takes torch.

    Of a derivation from a graph alone, or of a very long step, they may be those of the deepest record there is, and then say so.
    """
    if derivation.replay is None:
        raise BadInputError(f"{derivation.model} was not derived from a record here: derive it with calc.derive")
    live = derivation.replay(None)
    exact = not live.fewer and live.operators == derivation.ledger.calls and derivation["memory.peak"].text is not None
    if exact or derivation.spec is None or derivation.ledger.calls > _MOST_REPLAYED:
        return live
    from calc.trace import trace_at

    progress("recording the step at these sizes")
    return derivation.replay(trace_at(derivation.spec, derivation.specialized, derivation.sizes, {}, Options(**derivation.options)))


# Where the parameters differ, another model was built than the one that was traced.
_NEVER_UNKNOWN = "parameters"


def _traced(spec: Spec, sizes: Mapping[str, int] | None, run: _Run) -> tuple[Graph, Analysis | None, Spec]:
    """The graph at ``sizes``, and the spec that it is of. What the model raises is said to be its own, or that of tracing."""
    try:
        return _with_what_is_known(spec, sizes, run)
    except SizesError as error:
        failure = error
    from calc.trace.real_run import told

    raise told(spec, spec.sizes(unbacked_sizes.given_now(spec, sizes or {})), run.options, failure)


def _with_what_is_known(spec: Spec, sizes: Mapping[str, int] | None, run: _Run) -> tuple[Graph, Analysis | None, Spec]:
    """The same. Quantities that have no closed form whatever was tried become unknown, and the others are derived without them. A dimension
    in which the whole step has none becomes a number."""
    unknown: dict[str, str] = {}
    while True:
        try:
            return _with_multiples(replace(spec, unknown=unknown) if unknown else spec, sizes, run)
        except TraceError as error:
            if error.failures.keys() - unknown.keys() and _NEVER_UNKNOWN not in error.failures:
                unknown |= error.failures
                run.progress(f"no closed form of {', '.join(error.failures)}: tracing the step without")
            elif isinstance(error, PinnedSizeError) and _may_give_way(spec, error.dimension):
                spec, unknown = replace(spec, gives_way=(*spec.gives_way, (error.dimension,))), {}
                run.progress(f"no closed form in {as_numbers([error.dimension])}")
            else:
                raise


def _may_give_way(spec: Spec, name: str) -> bool:
    """Whether a dimension may become a number and is not one yet."""
    return name in spec.dims and not spec.dimensions[name].tied and all(name not in names for names in spec.gives_way)


def _with_multiples(spec: Spec, sizes: Mapping[str, int] | None, run: _Run) -> tuple[Graph, Analysis | None, Spec]:
    """The graph at ``sizes``, and the spec that it is of: with the multiples that the sizes asked for need, where they need any."""
    try:
        return _as_it_is(spec, sizes, run)
    except (ReadByTorchError, SizesError, PinnedSizeError) as error:
        failure = error
    # Outside of the block above: what is raised from here on has nothing to do with that error.
    own = own_error(spec, sizes or {}, run.options)
    if isinstance(own, SizesError) and (isinstance(failure, OtherPathError) or line_in(str(own)) != line_in(str(failure))):
        raise own  # a fault of the model's own, which no multiple mends; what was raised at the same line is told better in symbols
    if isinstance(failure, ReadByTorchError):
        raise own or failure
    if spec.gives_way or own is not None:
        raise failure
    asked = spec.sizes(unbacked_sizes.given_now(spec, sizes or {}))

    def recorded(other: Spec) -> tuple[Graph, Analysis | None, Spec]:
        return _as_it_is(other, sizes, run)

    mended = None
    if isinstance(failure, SizesError) and _may_lack_a_multiple(failure, run.has_general(spec)):
        mended = divisibility.first_that_records(spec, asked, failure, recorded, run.progress, _taken_for_granted)
    return mended or recorded(divisibility.as_numbers(spec, str(failure)))


def _may_lack_a_multiple(failure: SizesError, has_general: bool) -> bool:
    """Whether a size that divides another may mend ``failure``. Where the step was traced for sizes in general, a case of these sizes that
    raises lacks none."""
    if isinstance(failure, OtherPathError):
        return failure.divides
    return type(failure) is not SizesError or not has_general


def _taken_for_granted(recorded: tuple[Graph, Analysis | None, Spec]) -> int:
    """In how many sizes a graph is no closed form, or one of its own."""
    graph = recorded[0]
    return len(graph.specialized) + len(graph.loops) + len(graph.special_cases)


def _as_it_is(spec: Spec, sizes: Mapping[str, int] | None, run: _Run) -> tuple[Graph, Analysis | None, Spec]:
    """The graph at ``sizes``, recorded anew for each size that turns out to be decided by data, and the spec that it is of."""
    while True:
        spec = in_patterns(spec, sizes or {}, run.options)
        try:
            return *_traced_once(spec, sizes or {}, run), spec
        except unbacked_sizes.Declared as more:
            spec = more.spec
            run.progress(more.why)
        except RefusedOperatorError as error:
            raise error if error.at is None else error.at(spec.sizes(sizes)) from None


def _traced_once(spec: Spec, sizes: Mapping[str, int], run: _Run) -> _Made:
    """The general graph depends on the spec alone, so it is the same whatever was asked before; but multiples that were found by
    recording are of what was asked then: a kept graph whose multiples these sizes are not is as good as none."""
    general, options, progress = spec, run.options, run.progress
    values = spec.sizes(unbacked_sizes.given_now(spec, sizes))
    graph, analysis = run.kept(general, "", lambda: _general(general, values, options, progress), lambda kept: _fits(general, kept, sizes))
    spec = unbacked_sizes.as_recorded(spec, graph)
    values = spec.sizes(sizes)
    graph = _with_values(graph, values)
    if not graph.failed_guards(values):
        return graph, analysis

    def at_values() -> _Made:
        walked = walked_otherwise(spec, graph, values)
        held = {**graph.specialized, **{name: (values[name], why) for name, why in walked.items()}}
        if walked or any(values[name] != value for name, (value, _) in held.items()):
            return at_sizes(spec, replace(graph, specialized=held), TracePlan(values, options), progress)
        return completed(spec, graph, run.analysed(general, "", graph), TracePlan(values, options), progress)

    return run.kept(spec, repr(values), at_values)


def _fits(spec: Spec, graph: Graph, sizes: Mapping[str, int]) -> bool:
    try:
        unbacked_sizes.as_recorded(spec, graph).sizes(sizes)
    except DimensionError:
        return False
    return True


def _general(spec: Spec, asked: Mapping[str, int], options: Options, progress: Progress) -> tuple[Graph, Analysis]:
    """The graph at the spec's own sizes.

    Dimensions that the spec lets give way stay numbers where the step has no closed form in them: those that are ``asked``.
    """
    held: dict[str, str] = {}
    turning: list[dict[str, str]] = []
    blameless: list[dict[str, str]] = []
    more: dict[str, str] = {}
    failed_at = ""
    left = list(spec.gives_way)
    first = trip_counts.first_attempt(max((dim.plus for dim in spec.dimensions.values() if dim.multiple_of == 1), default=0))

    def recorded(specialized: Mapping[str, str]) -> tuple[Graph, Analysis]:
        sizes = {**spec.sizes(), **{name: asked[name] for name in specialized}}
        return deep_enough(spec, TracePlan(sizes, options, first, specialized=specialized), progress)

    while True:
        try:
            graph, analysis = recorded(held)
            break
        except (UnknownOperatorError, DataDependentError):
            raise
        except TraceError as error:
            if failed_at and failed_at == line_in(str(error)):  # it fails there whether those are numbers or not
                blameless.append(more)
            failed_at = line_in(str(error))
            more = _giving_way(spec, held, left, error)
            if not more:
                raise
            held |= more
            turning += [more] if isinstance(error, NoPeakError | CertificateError) else []
            progress(f"no closed form in {as_numbers(more)}")
    for sooner in (*blameless, *turning[:-1]):  # it may have been another's fault, which is a number by now
        progress(f"trying {', '.join(sooner)} as a symbol again")
        with contextlib.suppress(TraceError):
            graph, analysis = recorded({name: why for name, why in held.items() if name not in sooner})
            held = {name: why for name, why in held.items() if name not in sooner}
    return graph, analysis


def _giving_way(spec: Spec, held: Mapping[str, str], left: list[tuple[str, ...]], error: TraceError) -> dict[str, str]:
    """Further dimensions to leave as numbers after ``error``: the one it names, else the next set of those that may."""
    why = str(error).removeprefix(f"{spec.name} ").removeprefix(f"{spec.name}: ").partition("; declare what")[0]
    why = f"under symbolic tracing it {why}" if why.startswith("raised ") else why
    if isinstance(error, NoPeakError) and error.dimension not in held:
        return dict.fromkeys(_with_quotients(spec, [error.dimension]), _NO_PEAK.format(error.where))
    may = {name for names in spec.gives_way for name in names}
    if isinstance(error, PinnedSizeError) and error.dimension in may - held.keys():
        return dict.fromkeys(_with_quotients(spec, [error.dimension]), why)
    while left:
        more = [name for name in _with_quotients(spec, left.pop(0)) if name not in held]
        if more:
            return dict.fromkeys(more, why)
    if isinstance(error, CertificateError) and tells_no_peak(error):
        counts = [name for name in spec.pinned if name not in held]
        return dict.fromkeys(_with_quotients(spec, counts[-1:]), _NO_PEAK.format(f"pinned={spec.pinned} of the spec"))
    return {}


_NO_PEAK = "read as a number at {}, and the peak of live bytes has no closed form in it: which iteration needs most depends on other sizes"


def _with_quotients(spec: Spec, names: Sequence[str]) -> list[str]:
    """``names``, with those tied to them: a number divided by a symbol is no size."""
    dims, more = spec.dimensions, list(names)
    for name in more:
        more += [n for n, d in dims.items() if d.at_most == name and n not in more and n not in ("T", "S")]
        part = dims[name].multiple_of
        more += [part] if isinstance(part, str) and part not in more else []
        more += [n for n, d in dims.items() if d.tied and isinstance(d.default, str) and name in names_in(d.default) and n not in more]
    return more


def _with_values(graph: Graph, values: Mapping[str, int]) -> Graph:
    return replace(graph, dims=tuple(replace(d, value=values[d.name]) for d in graph.dims))
