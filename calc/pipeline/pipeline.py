"""``trace`` and ``derive`` as users call them: a cached trace by a ``TracePlan``, which is refined until the closed forms hold."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from calc.derive.result import Derivation
from calc.dimensions import ordered_names
from calc.errors import BadInputError, CertificateError, NapkinError, RefusedOperatorError, SizesError, TraceError
from calc.graph import trip_counts, unbacked_sizes
from calc.graph.plan import Refusal, TracePlan, outcome_of, refined, simplified
from calc.graph.specialization import trip_counts_to_specialize
from calc.graph.step import Graph, StepTrace
from calc.options import Options
from calc.pipeline import divisibility
from calc.pipeline.ahead import Ahead
from calc.pipeline.cache import Cache
from calc.pipeline.certificates import Certifier, analysed
from calc.pipeline.depth import Attempts, own_error
from calc.pipeline.iterations import Iterations
from calc.pipeline.patterns import in_patterns
from calc.pipeline.refinements import AT_ONE_SPEC, ITERATIONS, REFINEMENTS, parts_of, specialized_too_soon
from calc.pipeline.special_cases import at_sizes, completed, foreseen, multiples_needed
from calc.platform.garbage import rarely_searched
from calc.platform.progress import Progress
from calc.rules.registry import REGISTRY, Registry
from calc.spec import Spec
from calc.symbolic.assignments import PLAIN, sizes_text

if TYPE_CHECKING:
    from calc.derive.analysis import Analysis
    from calc.derive.live_bytes import Timeline
    from calc.derive.other_sizes import TracedGraph

_Analysed = tuple[Graph, "Analysis | None"]


def _silent(_: str) -> None:
    pass


@dataclass(frozen=True)
class Run:
    """How a spec is traced, and the ``registry`` of rules that derives its closed forms. ``made`` holds traces in memory, by dimensions and
    case: other sizes reuse the general graph, up to the numbers of iterations that are ``alike``. ``specialized`` names dimensions that
    are numbers from the start, each with the reason."""

    options: Options = field(default_factory=Options)
    cache: bool = True
    progress: Progress = _silent
    registry: Registry = field(default_factory=lambda: REGISTRY)
    specialized: Mapping[str, str] = field(default_factory=dict)
    made: dict[tuple[str, str], _Analysed] = field(default_factory=dict)
    alike: dict[tuple[str, str], Iterations] = field(default_factory=dict)
    read: list[Cache] = field(default_factory=list)  # cache entries that graphs were read from

    def cached(
        self, spec: Spec, case: str, make: Callable[[], _Analysed | Refusal], usable: Callable[[Graph], bool] = lambda _: True
    ) -> _Analysed | Refusal:
        """The result of ``make``, from memory or the cache if it is there. ``case`` names the special case that it traces."""
        key = repr(spec.dimensions), case
        if key in self.made and usable(self.made[key][0]):
            return self.made[key]
        store = Cache(spec, self.options, self.cache, case)
        graph = store.read(self.progress)
        if graph is not None and usable(graph):
            self.progress("trace read from the cache")
            self.read.append(store)
            self.made[key] = graph, None
            return self.made[key]
        made = make()
        if not isinstance(made, Refusal):
            store.write(made[0])
            self.made[key] = made
        return made

    def iterations(self, spec: Spec, case: str) -> Iterations:
        """The numbers of iterations that are alike in the graph of ``spec`` in this ``case``."""
        store = functools.partial(Cache, spec, self.options, self.cache)
        return self.alike.setdefault((repr(spec.dimensions), case), Iterations(store, case))

    def general_case(self, spec: Spec, sizes: Mapping[str, int]) -> str:
        """The case of the general graph: empty, or with dimensions specialized from the start, their values."""
        if not self.specialized:
            return ""
        values = unbacked_sizes.declared_sizes(spec, sizes)
        numbers = {name: values[name] for name in self.specialized}
        return f"specialized {numbers}"

    def discards(self) -> bool:
        """Discard graphs read from the cache, on disk and in memory, so that they are traced once more. Returns whether there were any."""
        if not self.read:
            return False
        for store in self.read:
            store.discard(self.progress)
        self.read.clear()
        self.made.clear()
        return True

    def analysed(self, spec: Spec, case: str, graph: Graph) -> Analysis:
        """The closed forms of the graph of ``spec`` in this ``case``, derived once."""
        general, analysis = self.made[repr(spec.dimensions), case]
        analysis = analysis or analysed(graph)
        self.made[repr(spec.dimensions), case] = general, analysis
        return analysis


def trace(
    spec: Spec,
    sizes: Mapping[str, int] | None = None,
    *,
    options: Options | None = None,
    cache: bool = True,
    progress: Progress = _silent,
) -> Graph:
    """The graph of one training step of ``spec``, with certificates for its closed forms, also at a batch of 1 and few iterations.

    ``sizes`` sets dimensions (integers ≥ 1); the others have the spec's defaults. Needs torch, unless the trace is cached.
    """
    run = Run(options or Options(), cache, progress)
    planned = traced(spec, sizes, run)
    return _where_degenerate(run, planned.graph, planned.analysis, planned.spec)


def graph_at(spec: Spec, sizes: Mapping[str, int] | None, options: Options, *, cache: bool = True, progress: Progress = _silent) -> Graph:
    """The graph that holds at ``sizes``, without ``trace``'s certificates at further sizes."""
    return graphs(spec, options, cache=cache, progress=progress)(sizes or {})


def graphs(spec: Spec, options: Options, *, cache: bool = True, progress: Progress = _silent) -> Callable[[Mapping[str, int]], Graph]:
    """A function that returns ``graph_at`` of any sizes and reuses common traces."""
    run = Run(options, cache, progress)
    return lambda sizes: traced(spec, sizes, run).graph


def derive(
    source: Graph | Spec,
    sizes: Mapping[str, int] | None = None,
    *,
    options: Options | None = None,
    cache: bool = True,
    progress: Progress = _silent,
) -> Derivation:
    """Every quantity of the step with its worked steps, from a graph (torch-free) or from a spec (traced first).

    A derivation from a spec can be evaluated at any other sizes: if the step runs other operators there, it is traced there (``at_sizes``).
    """
    from calc.derive.closed_forms import derive as derive_graph

    if isinstance(source, Spec):
        return derived(source, sizes or {}, Run(options or Options(), cache, progress))
    if not isinstance(source, Graph):
        raise BadInputError(f"derive needs a graph or a spec, not {type(source).__name__}")
    try:
        return derive_graph(source, sizes)
    except _UNFIT as error:  # for a graph traced here it is a bug of Napkin; the traceback shows the cause
        message = f"{type(error).__name__}: {str(error)[:60]}"
        raise BadInputError(f"the graph of {source.model[:60]} does not fit together ({message}): trace the model again") from error


@rarely_searched()
def derived(spec: Spec, sizes: Mapping[str, int], run: Run) -> Derivation:
    """``derive`` of a spec, traced as ``run`` says, by the rules of its registry."""
    from calc.derive.closed_forms import derived_anywhere

    return derived_anywhere(spec, sizes, lambda requested: _from_intact_cache(spec, requested, run))


# Raised by a well-formed graph that no real step produces, e.g. an operator with a missing shape.
_UNFIT = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


@rarely_searched()
def _from_intact_cache(spec: Spec, sizes: Mapping[str, int], run: Run) -> TracedGraph:
    """``_with_closed_forms``, but if cached graphs are inconsistent or their closed forms fail a certificate, the cache is corrupt: the
    step is traced once more."""
    try:
        return _with_closed_forms(spec, sizes, run)
    except (CertificateError, *_UNFIT):
        if run.registry is not REGISTRY or not run.discards():
            raise
    return _with_closed_forms(spec, sizes, run)


def _with_closed_forms(spec: Spec, sizes: Mapping[str, int], run: Run) -> TracedGraph:
    """The graph that holds at ``sizes``, with its closed forms by the rules of the run's registry."""
    from calc.derive.closed_forms import certified
    from calc.derive.other_sizes import TracedGraph

    try:
        planned = traced(spec, sizes, run)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise TraceError(f"{spec.name}: at these sizes the step has to be traced, which takes torch: install it") from None
    graph, analysis, spec = planned.graph, planned.analysis, planned.spec
    own = run.registry is REGISTRY
    by_registry = analysis if analysis is not None and own else certified(graph, run.registry)
    everywhere = functools.cache(lambda: _where_degenerate(run, graph, by_registry if own else analysis, spec))
    trace_here = functools.partial(_trace_at, spec, run.options)
    of_graph = unbacked_sizes.with_traced_dimensions(spec, graph)
    alike = functools.partial(planned.iterations.are_alike, of_graph, graph)
    return TracedGraph(graph, by_registry, of_graph, everywhere, trace_here, alike)


def _trace_at(spec: Spec, options: Options, sizes: Mapping[str, int]) -> StepTrace:
    """A trace of the step at exactly these sizes, all of them numbers."""
    from calc.trace import trace_at

    return trace_at(spec, {}, sizes, {}, options)


def _where_degenerate(run: Run, graph: Graph, analysis: Analysis | None, spec: Spec) -> Graph:
    """The graph also certified at degenerate sizes, cached separately, so that no answer depends on earlier ones."""
    store = Cache(spec, run.options, run.cache, f"where degenerate: {_certified_at(graph)}")
    wider = store.read(run.progress)
    if wider is None or replace(wider, certificates=(), special_cases=(), dims=()) != replace(
        graph, certificates=(), special_cases=(), dims=()
    ):
        try:
            wider = Certifier(run.progress).where_degenerate(unbacked_sizes.with_traced_dimensions(spec, graph), graph, analysis)
        except ModuleNotFoundError:  # without torch, a cached graph keeps the certificates that it has
            return graph
        store.write(wider)
    return replace(wider, dims=graph.dims)


def _certified_at(graph: Graph) -> str:
    """A key that distinguishes graphs of one spec: the sizes certified so far."""
    cases = ", ".join(f"{dict(case.equal)}: {_certified_at(case.graph)}" for case in graph.special_cases)
    return f"{dict(graph.specialized)} {[dict(trace.sizes) for trace in graph.certificates]} {{{cases}}}"


# A longer step is not traced at its own sizes, e.g. a loop over positions.
_MOST_CALLS = 40_000


def timeline(derivation: Derivation, *, progress: Progress = _silent) -> Timeline:
    """Live bytes over the step of a derivation, operator by operator. If its traces do not show the effect of one more iteration, the step
    is traced once more at its sizes, which needs torch.

    For a derivation from a graph alone, or of a very long step, they may be those of the deepest trace; the result then says so.
    """
    if derivation.replay is None:
        raise BadInputError(f"{derivation.model} was not derived from a trace here: derive it with calc.derive")
    live = derivation.replay(None)
    exact = not live.fewer and live.operators == derivation.ledger.calls and derivation["memory.peak"].text is not None
    if exact or derivation.spec is None or derivation.ledger.calls > _MOST_CALLS:
        return live
    from calc.trace import trace_at

    progress("tracing the step at these sizes")
    return derivation.replay(trace_at(derivation.spec, derivation.specialized, derivation.sizes, {}, Options(**derivation.options)))


def derived_or_traced(derivation: Derivation, spec: Spec, sizes: Mapping[str, int], run: Run) -> Derivation | StepTrace:
    """The step of ``spec`` with the options of ``run`` at ``sizes`` alone; ``derivation`` is that with other options.

    A trace at exactly these sizes needs no closed form and no certificate. A deep stack of equal layers is derived, as fewer layers are
    traced for that; its sizes are numbers but for its depth. Where neither is possible, the general derivation.
    """
    numbers = dict.fromkeys((name for name in _numbers(derivation) if name in spec.dims), "the step is derived at this size alone")
    at_numbers = Run(run.options, run.cache, run.progress, run.registry, numbers)
    step: Derivation | StepTrace | Refusal
    if derivation.ledger.calls > _MOST_CALLS or _is_deep(derivation):
        step = outcome_of(lambda: derived(spec, sizes, at_numbers))
    else:
        step = outcome_of(lambda: _trace_at(spec, run.options, unbacked_sizes.declared_sizes(spec, sizes)))
    return derived(spec, sizes, run) if isinstance(step, Refusal) else step


def _is_deep(derivation: Derivation) -> bool:
    """Whether every trip count is more than twice what its first two certificates have, which are the longest part of a derivation."""
    certified = [certificate.sizes for certificate in derivation.certificates[:2]]
    counts = derivation.trip_counts
    return bool(counts) and all(derivation.sizes[name] > 2 * sum(sizes[name] for sizes in certified) for name in counts)


# In a trace with larger numbers, evaluating what depends on sizes and constants alone would take too long.
_LARGEST_NUMBER = 2**18


def _numbers(derivation: Derivation) -> list[str]:
    """The dimensions that can be numbers at the sizes of ``derivation``: those that neither contain a trip count nor follow from one."""
    symbols = {*derivation.trip_counts, *(dim.name for dim in derivation.dims if dim.value > _LARGEST_NUMBER)}
    for dim in derivation.dims:
        texts = (dim.expr if dim.tied else None, dim.at_most, dim.multiple_of)
        symbols |= {dim.name} if any(symbols & {*ordered_names(text)} for text in texts if isinstance(text, str)) else set()
    return [dim.name for dim in derivation.dims if dim.name not in symbols]


@dataclass(frozen=True, slots=True)
class Planned:
    """A graph, its closed forms if already derived, its spec, the plan that traced it, and up to which numbers of iterations it holds."""

    graph: Graph
    analysis: Analysis | None
    spec: Spec
    plan: TracePlan
    iterations: Iterations


def traced(spec: Spec, sizes: Mapping[str, int] | None, run: Run) -> Planned:
    """The graph that holds at ``sizes``. Errors state whether the model raised them or tracing did."""
    with Ahead() as ahead:
        return _traced(spec, sizes, run, Certifier(run.progress, ahead=ahead))


def _traced(spec: Spec, sizes: Mapping[str, int] | None, run: Run, certifier: Certifier) -> Planned:
    refuses = functools.partial(multiples_needed, sizes=sizes or {}, certifier=certifier)
    once = Attempts(certifier, refuses, functools.partial(foreseen, sizes=sizes or {}))

    def attempt(plan: TracePlan) -> Planned | Refusal:
        return _attempt(plan, run, once)

    store = _multiples_at(spec, sizes or {}, run)
    inferred = store.read_spec(run.progress) or spec
    first = TracePlan(inferred, sizes or {}, run.options, specialized=run.specialized, given=spec)
    outcome, plan = refined(first, attempt, REFINEMENTS, run.progress)
    if isinstance(outcome, Refusal):
        raise _error_for_user(spec, plan, outcome.error)
    if plan.given == spec and plan.spec.key != inferred.key:
        store.write_spec(plan.spec)
    if plan.search is None or plan.search.trying is None:
        return outcome

    def smaller(simpler: TracePlan) -> Planned | Refusal:
        return refined(simpler, attempt, AT_ONE_SPEC, run.progress)[0]

    ways = [functools.partial(divisibility.with_less, name=name) for name in divisibility.inferred(plan)]
    return simplified(outcome, plan, ways, smaller, _complexity, run.progress)[0]


def _multiples_at(spec: Spec, sizes: Mapping[str, int], run: Run) -> Cache:
    """The cache of the dimensions of ``spec`` with the multiples that the step needs at ``sizes``; of sizes that are refused, none."""
    values = outcome_of(lambda: unbacked_sizes.declared_sizes(spec, sizes))
    if isinstance(values, Refusal):
        return Cache(spec, run.options, used=False)
    return Cache(spec, run.options, run.cache, f"multiples that the step needs at {values}, {dict(run.specialized)}")


def _error_for_user(spec: Spec, plan: TracePlan, error: NapkinError) -> NapkinError:
    """The error for a step that no plan can trace."""
    if isinstance(error, RefusedOperatorError) and error.at is not None:
        return error.at(in_patterns(plan.spec, plan.sizes, plan.options).sizes(plan.sizes))
    if not isinstance(error, SizesError):
        return error
    from calc.trace.real_run import attributed

    sizes = unbacked_sizes.declared_sizes(spec, plan.sizes)
    attributed_error = attributed(spec, sizes, plan.options, error)
    return _with_larger_batch(spec, sizes, plan.options, attributed_error)


def _with_larger_batch(spec: Spec, sizes: Mapping[str, int], options: Options, error: SizesError) -> SizesError:
    """``error``, with the way out where the step fails at a batch of one alone, as for the statistics of a batch norm."""
    if sizes.get("B") != 1 or own_error(spec, sizes, options) is None or own_error(spec, {**sizes, "B": 2}, options) is not None:
        return error
    return SizesError(replace(error.failure, advice="with B = 2 the step runs"))


def _complexity(traced: Planned) -> int:
    """The number of specialized sizes, loops and special cases of a graph."""
    return len(traced.graph.specialized) + len(traced.graph.loops) + len(traced.graph.special_cases)


def _attempt(plan: TracePlan, run: Run, once: Attempts) -> Planned | Refusal:
    """The graph by ``plan``: the general one, which depends on the spec alone, so that earlier calls do not change it; and the special case
    of these sizes, if the general graph does not hold there."""
    spec, sizes = in_patterns(plan.spec, plan.sizes, plan.options), plan.sizes
    general = run.general_case(spec, sizes) + (f"certified at {dict(plan.deeper)}" if plan.deeper else "")
    made = run.cached(spec, general, lambda: _general(plan, spec, run, once), lambda graph: _fits(spec, graph, sizes))
    if isinstance(made, Refusal):
        return made
    inferred = unbacked_sizes.with_traced_dimensions(spec, made[0])
    values = inferred.sizes(sizes)
    graph = _with_values(made[0], values)
    alike = run.iterations(spec, general)
    unlike = alike.unlike(inferred, graph, values)
    if unlike is not None:
        counts = sizes_text({loop: unlike.at[loop] for loop in graph.loops}, PLAIN)
        return Refusal(TraceError(f"{spec.name}: at {counts} a forward runs or allocates what fewer iterations do not foretell"), unlike)
    if graph.failed_guards(values):
        at_values = TracePlan(inferred, values, plan.options)
        analysis = functools.partial(run.analysed, spec, general, graph)
        case = outcome_of(
            lambda: run.cached(inferred, f"{general}{values}", lambda: _special_case(graph, analysis, at_values, once.certifier))
        )
        if isinstance(case, Refusal):
            return replace(case, of_case=True)
        return Planned(*case, inferred, plan, alike)
    return Planned(graph, made[1], inferred, plan, alike)


def _fits(spec: Spec, graph: Graph, sizes: Mapping[str, int]) -> bool:
    """Whether ``sizes`` are multiples of the divisors that were inferred when ``graph`` was traced at other sizes."""
    return not isinstance(outcome_of(lambda: unbacked_sizes.with_traced_dimensions(spec, graph).sizes(sizes)), Refusal)


def _general(plan: TracePlan, spec: Spec, run: Run, once: Attempts) -> _Analysed | Refusal:
    """The graph at the spec's own sizes; specialized dimensions have the requested values. Dimensions specialized before the actual cause
    was clear become symbols, where possible."""
    requested = unbacked_sizes.declared_sizes(spec, plan.sizes)
    first = trip_counts.first_attempt(max((dim.plus for dim in spec.dimensions.values() if dim.multiple_of == 1), default=0))

    def own(plan: TracePlan) -> TracePlan:
        sizes = {**spec.sizes(), **{name: requested[name] for name in plan.specialized}}
        return replace(plan, spec=spec, sizes=sizes, attempt=max(plan.attempt, first))

    def at_own_sizes(plan: TracePlan) -> _Analysed | Refusal:
        return once(own(plan))

    def refined_again(simpler: TracePlan) -> _Analysed | Refusal:
        return refined(simpler, at_own_sizes, ITERATIONS, run.progress)[0]

    def traced_alone(simpler: TracePlan) -> Graph | Refusal:
        return refined(simpler, lambda plan: once.traced(own(plan)), ITERATIONS, run.progress)[0]

    ways = [functools.partial(_as_symbols, names=names) for names in specialized_too_soon(plan)]
    # Which sizes are symbols shows in traces alone, unless it was a certificate that failed: then only the last plan is certified.
    if ways and not any(tried.refusal.of_certificate for tried in plan.history if tried.refusal):
        graph = once.traced(own(plan))
        if isinstance(graph, Refusal):
            return graph
        simpler = simplified(graph, plan, ways, traced_alone, lambda _: 0, run.progress)[1]
        if simpler is not plan and not isinstance(made := refined_again(simpler), Refusal):
            return made
        if simpler is plan or len(ways) == 1:
            ways = []  # what a trace refused, or the certificates of the only way, would be refused once more
    made = at_own_sizes(plan)
    return made if isinstance(made, Refusal) else simplified(made, plan, ways, refined_again, lambda _: 0, run.progress)[0]


def _as_symbols(plan: TracePlan, names: Sequence[str]) -> list[TracePlan]:
    """The plan with ``names`` as symbols, unless it is one that was refused, or one of them divides or bounds what remains a number."""
    specialized = {name: why for name, why in plan.specialized.items() if name not in names}
    refused = any(earlier.spec == plan.spec and earlier.specialized.keys() == specialized.keys() for earlier in plan.history)
    parts = {part for name in specialized for part in parts_of(plan.spec, name)}
    if refused or not parts.isdisjoint(names):
        return []
    return [plan.specializing(specialized, f"trying {', '.join(names)} as a symbol again")]


def _special_case(graph: Graph, analysis: Callable[[], Analysis], plan: TracePlan, certifier: Certifier) -> _Analysed | Refusal:
    """The graph that also holds at the sizes of ``plan``, where the general one is not certified."""
    values = plan.sizes
    more = {name: (values[name], why) for name, why in trip_counts_to_specialize(plan.spec, graph, values).items()}
    specialized = {**graph.specialized, **more}
    if more or any(values[name] != value for name, (value, _) in specialized.items()):
        return at_sizes(plan, replace(graph, specialized=specialized), certifier)
    return completed(plan, graph, analysis(), certifier)


def _with_values(graph: Graph, values: Mapping[str, int]) -> Graph:
    return replace(graph, dims=tuple(replace(d, value=values[d.name]) for d in graph.dims))
