"""``trace`` and ``derive`` as users call them: recordings made as deep as the certificates demand, and kept in a cache."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from calc.derive.result import Derivation
from calc.dimensions import names_in
from calc.errors import (
    BadInputError,
    CertificateError,
    DataDependentError,
    DimensionError,
    NapkinError,
    NoPeakError,
    OtherPathError,
    PinnedSizeError,
    ReadByTorchError,
    RefusedOperatorError,
    SizesError,
    TraceError,
    UndecidedSizeError,
    UnknownOperatorError,
    line_in,
)
from calc.graph import trip_counts, unbacked_sizes
from calc.graph.specialization import as_asked, coincidences, compared_as_asked, held_instead, telling, walked_otherwise, without_ones
from calc.graph.step import Assumption, Condition, Graph, Record, Special
from calc.options import Options
from calc.pipeline import divisibility
from calc.pipeline.block_patterns import in_patterns
from calc.pipeline.cache import Cache
from calc.pipeline.certificates import analysed, probed, where_degenerate, with_certificate, with_one_certificate
from calc.rules.registry import REGISTRY, Registry
from calc.spec import Spec

if TYPE_CHECKING:
    from calc.derive.analysis import Analysis
    from calc.derive.elsewhere import Traced
    from calc.derive.live_bytes import Timeline
    from calc.trace.symbolic_sizes import Near

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


# How often counts are tried of a loop that may stay a number just as well.
_TRIES_OF_WALKED = 2


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


def _believed(spec: Spec, sizes: Mapping[str, int], run: _Run, registry: Registry) -> Traced:
    """``_with_closed_forms``. Where graphs of the cache do not fit together, or their closed forms fail a certificate, they are not what
    was written there: the step is traced anew."""
    try:
        return _with_closed_forms(spec, sizes, run, registry)
    except (CertificateError, *_UNFIT):
        if registry is not REGISTRY or not run.discards():
            raise
    return _with_closed_forms(spec, sizes, run, registry)


def _with_closed_forms(spec: Spec, sizes: Mapping[str, int], run: _Run, registry: Registry) -> Traced:
    """The graph that holds at ``sizes``, with its closed forms by the rules of ``registry``."""
    from calc.derive.closed_forms import certified
    from calc.derive.elsewhere import Traced

    try:
        graph, analysis, spec = _traced(spec, sizes, run)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise TraceError(f"{spec.name}: at these sizes the step has to be traced, which takes torch: install it") from None
    by_registry = analysis if analysis is not None and registry is REGISTRY else certified(graph, registry)
    everywhere = functools.cache(lambda: _where_degenerate(run, graph, by_registry if registry is REGISTRY else analysis, spec))
    record = functools.partial(_recorded_at, spec, run.options)
    return Traced(graph, by_registry, unbacked_sizes.as_recorded(spec, graph), everywhere, record)


def _recorded_at(spec: Spec, options: Options, sizes: Mapping[str, int]) -> Record:
    """A trace of the step at these very sizes, all of them numbers."""
    from calc.trace import again

    return again(spec, {}, sizes, {}, options)


def _where_degenerate(run: _Run, graph: Graph, analysis: Analysis | None, spec: Spec) -> Graph:
    """The graph certified at degenerate sizes too, kept as one of its own: what was asked before changes no other."""
    store = Cache(spec, run.options, run.cache, f"where degenerate: {_certified_at(graph)}")
    found = store.read(run.progress)
    if found is None or replace(found, certificates=(), special=(), dims=()) != replace(graph, certificates=(), special=(), dims=()):
        try:
            found = where_degenerate(unbacked_sizes.as_recorded(spec, graph), graph, analysis, run.progress)
        except ModuleNotFoundError:  # without torch, a graph from the cache stands where it was certified before
            return graph
        store.write(found)
    return replace(found, dims=graph.dims)


def _certified_at(graph: Graph) -> str:
    """What tells a graph from others of its spec: the sizes that were met so far."""
    cases = ", ".join(f"{dict(case.equal)}: {_certified_at(case.graph)}" for case in graph.special)
    return f"{dict(graph.held)} {[dict(record.sizes) for record in graph.certificates]} {{{cases}}}"


# A step of more operators is not run once more for its live bytes: a loop over positions, say, turn by turn.
_MOST_REPLAYED = 40_000


def timeline(derivation: Derivation, *, progress: Progress = _silent) -> Timeline:
    """Live bytes over the step of a derivation, operator by operator. Where its records do not tell what a further iteration adds, the step
    is recorded once more at its sizes, which takes torch.

    Of a derivation from a graph alone, or of a very long step, they may be those of the deepest record there is, and then say so.
    """
    if derivation.replay is None:
        raise BadInputError(f"{derivation.model} was not derived from a record here: derive it with calc.derive")
    found = derivation.replay(None)
    exact = not found.fewer and found.operators == derivation.ledger.calls and derivation["memory.peak"].text is not None
    if exact or derivation.spec is None or derivation.ledger.calls > _MOST_REPLAYED:
        return found
    from calc.trace import again

    progress("recording the step at these sizes")
    return derivation.replay(again(derivation.spec, derivation.held, derivation.sizes, {}, Options(**derivation.options)))


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
                run.progress(f"no closed form in {_as_numbers([error.dimension])}")
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
    own = _own_error(spec, sizes or {}, run.options)
    if isinstance(own, SizesError) and (isinstance(failure, OtherPathError) or line_in(str(own)) != line_in(str(failure))):
        raise own  # a fault of the model's own, which no multiple mends; what was raised at the same line is told better in symbols
    if isinstance(failure, ReadByTorchError):
        raise own or failure
    if spec.gives_way or own is not None:
        raise failure
    asked = spec.sizes(unbacked_sizes.given_now(spec, sizes or {}))

    def recorded(other: Spec) -> tuple[Graph, Analysis | None, Spec]:
        return _as_it_is(other, sizes, run)

    found = None
    if isinstance(failure, SizesError) and _may_lack_a_multiple(failure, run.has_general(spec)):
        found = divisibility.first_that_records(spec, asked, failure, recorded, run.progress, _taken_for_granted)
    return found or recorded(divisibility.as_numbers(spec, str(failure)))


def _may_lack_a_multiple(failure: SizesError, has_general: bool) -> bool:
    """Whether a size that divides another may mend ``failure``. Where the step was traced for sizes in general, a case of these sizes that
    raises lacks none."""
    if isinstance(failure, OtherPathError):
        return failure.divides
    return type(failure) is not SizesError or not has_general


def _taken_for_granted(recorded: tuple[Graph, Analysis | None, Spec]) -> int:
    """In how many sizes a graph is no closed form, or one of its own."""
    graph = recorded[0]
    return len(graph.held) + len(graph.loops) + len(graph.special)


def _own_error(spec: Spec, sizes: Mapping[str, int], options: Options) -> NapkinError | None:
    """What the step raises at the very sizes asked for, or nothing. A size that data decide is not in the way of another recording."""
    from calc.trace import again

    try:
        again(spec, {}, spec.sizes(unbacked_sizes.given_now(spec, sizes)), {}, options)
    except UndecidedSizeError:
        return None
    except NapkinError as error:
        return error
    return None


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
    if not graph.unmet(values):
        return graph, analysis

    def at_values() -> _Made:
        walked = walked_otherwise(spec, graph, values)
        held = {**graph.held, **{name: (values[name], why) for name, why in walked.items()}}
        if walked or any(values[name] != value for name, (value, _) in held.items()):
            return _at_sizes(spec, replace(graph, held=held), values, options, progress)
        return _completed(spec, graph, run.analysed(general, "", graph), values, options, progress)

    return run.kept(spec, repr(values), at_values)


def _at_sizes(spec: Spec, general: Graph, values: Mapping[str, int], options: Options, progress: Progress) -> tuple[Graph, Analysis]:
    """The graph recorded anew where a dimension that stays a number has another value."""
    held = {name: why for name, (_, why) in general.held.items()}
    graph, analysis = _deep_enough(spec, values, options, None, progress, held, _attempt_of(general))
    return _completed(spec, graph, analysis, values, options, progress) if graph.unmet(values) else (graph, analysis)


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

    def recorded(held: Mapping[str, str]) -> tuple[Graph, Analysis]:
        return _deep_enough(spec, {**spec.sizes(), **{name: asked[name] for name in held}}, options, None, progress, held, first)

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
            progress(f"no closed form in {_as_numbers(more)}")
    for sooner in (*blameless, *turning[:-1]):  # it may have been another's fault, which is a number by now
        progress(f"trying {', '.join(sooner)} as a symbol again")
        with contextlib.suppress(TraceError):
            graph, analysis = recorded({name: why for name, why in held.items() if name not in sooner})
            held = {name: why for name, why in held.items() if name not in sooner}
    return graph, analysis


def _as_numbers(names: Collection[str]) -> str:
    return f"{', '.join(names)}: taking {'it as a number' if len(names) == 1 else 'them as numbers'}"


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
    if isinstance(error, CertificateError) and _tells_no_peak(error):
        counts = [name for name in spec.pinned if name not in held]
        return dict.fromkeys(_with_quotients(spec, counts[-1:]), _NO_PEAK.format(f"pinned={spec.pinned} of the spec"))
    return {}


def _tells_no_peak(error: CertificateError) -> bool:
    """Whether it says that a peak has no closed form. Of a wrong closed form the sizes are known."""
    from calc.derive.analysis import PEAKS

    return error.quantity in PEAKS and not error.sizes


_NO_PEAK = "read as a number at {}, and the peak of live bytes has no closed form in it: which turn needs most depends on other sizes"


def _with_quotients(spec: Spec, names: Sequence[str]) -> list[str]:
    """``names``, with those tied to them: a number divided by a symbol is no size."""
    dims, found = spec.dimensions, list(names)
    for name in found:
        found += [n for n, d in dims.items() if d.at_most == name and n not in found and n not in ("T", "S")]
        part = dims[name].multiple_of
        found += [part] if isinstance(part, str) and part not in found else []
        found += [n for n, d in dims.items() if d.tied and isinstance(d.default, str) and name in names_in(d.default) and n not in found]
    return found


def _completed(
    spec: Spec, graph: Graph, analysis: Analysis, values: Mapping[str, int], options: Options, progress: Progress
) -> tuple[Graph, Analysis]:
    """A graph that holds at ``values`` too, where the general one is not known to: certified there, or, since a step may run
    otherwise where some sizes are 1 or equal (a sum over a batch of 1 is no sum), with that case recorded apart."""
    for probes in (as_asked, without_ones, telling):
        graph = probed(spec, graph, analysis, probes(graph, values), progress)
    changed = graph.unmet(values)
    if not changed:
        return graph, analysis
    repeated = _repeated(spec, graph, values, changed)
    if repeated:
        graph = probed(spec, graph, analysis, compared_as_asked(graph, values, _symbols_of(repeated, graph)), progress)
        changed = graph.unmet(values)
        if not changed:
            return graph, analysis
        repeated = _repeated(spec, graph, values, changed)
    attempts = coincidences(graph, values, changed)
    held = held_instead(spec, graph, changed, values) if any(_divides(c) for c in repeated) else {}
    near = None if held else _near_foreseen(spec, graph, values, repeated, attempts[-1])
    for equal in attempts if near is not None else ():
        with contextlib.suppress(TraceError):
            return _apart(spec, graph, analysis, values, options, equal, changed[0], progress, near)
    for equal in attempts[:-1] if not held else ():
        with contextlib.suppress(TraceError):
            return _apart(spec, graph, analysis, values, options, equal, changed[0], progress)
    if not held:
        try:
            return _apart(spec, graph, analysis, values, options, attempts[-1], changed[0], progress)
        except TraceError as error:
            held = held_instead(spec, graph, changed, values)
            compared = error.compared if isinstance(error, OtherPathError) else frozenset()
            if compared or not held:
                nearer = _nearer(spec, graph, analysis, values, options, progress, compared, attempts[-1:] if held else attempts)
                if nearer is not None:
                    return nearer
            if not held:
                raise
    progress(f"the step runs otherwise by {_as_numbers(held)}")
    return _at_sizes(spec, replace(graph, held={name: (values[name], why) for name, why in held.items()}), values, options, progress)


def _repeated(spec: Spec, graph: Graph, values: Mapping[str, int], changed: Sequence[Condition]) -> list[Condition]:
    """``changed`` conditions on what is larger and what divides that a case of 1 or equal sizes would answer as in general again: symbols
    of that case are as small as ever, and primes."""
    from calc.trace import answered_otherwise

    equal = coincidences(graph, values, changed)[-1]
    again = [c for c in answered_otherwise(spec, graph, values, equal, None) if c in changed and (c.compares or _divides(c))]
    return [c for c in again if _symbols_of([c], graph)]


def _divides(condition: Condition) -> bool:
    return "Mod(" in condition.expr


def _symbols_of(conditions: Sequence[Condition], graph: Graph) -> set[str]:
    """The symbols that conditions are about, other than numbers of iterations."""
    return {name for c in conditions for name in names_in(c.expr)} & {*graph.symbols} - {*graph.loops}


def _near_foreseen(
    spec: Spec, graph: Graph, values: Mapping[str, int], repeated: Sequence[Condition], equal: Mapping[str, str]
) -> Near | None:
    """Where to trace the case of ``equal`` dimensions: near the sizes asked for, where comparisons with numbers come out as asked. What
    must divide is no such case."""
    from calc.trace import answered_otherwise
    from calc.trace.symbolic_sizes import Near

    if not repeated or any(_divides(c) for c in repeated):
        return None
    compared = frozenset(_symbols_of(repeated, graph))
    ways = (None, Near(compared), Near(compared, exactly=True))
    return min(ways, key=lambda near: sum(c.compares for c in answered_otherwise(spec, graph, values, equal, near)))


def _nearer(
    spec: Spec,
    graph: Graph,
    analysis: Analysis,
    values: Mapping[str, int],
    options: Options,
    progress: Progress,
    more: Collection[str],
    attempts: Sequence[Mapping[str, str]],
) -> tuple[Graph, Analysis] | None:
    """The graph with the case recorded apart with symbols near the sizes asked for, where what the step compares them with is a number
    between those and the usual ones; nothing where that is no help. What must divide is no such case: it is a multiple. ``more`` are
    further symbols that are compared with numbers, ``attempts`` the dimensions to fix, in turn."""
    from calc.trace.symbolic_sizes import Near

    changed = graph.unmet(values)
    if (not more and any("Mod(" in condition.expr for condition in changed)) or _own_error(spec, values, options):
        return None
    compared = frozenset(more) or frozenset(name for c in changed if not _about_turns(c, graph) for name in names_in(c.expr))
    for exactly, equal in itertools.product((False, True), attempts):
        with contextlib.suppress(TraceError):
            return _apart(spec, graph, analysis, values, options, equal, changed[0], progress, Near(compared, exactly))
    return None


def _apart(
    spec: Spec,
    graph: Graph,
    analysis: Analysis,
    values: Mapping[str, int],
    options: Options,
    equal: Mapping[str, str],
    changed: Condition,
    progress: Progress,
    near: Near | None = None,
) -> tuple[Graph, Analysis]:
    """The graph with the case where ``equal`` dimensions are 1 or equal, recorded apart; nothing equal: the case itself."""
    if not equal and values == spec.sizes() and near is None:
        raise _another_path(spec, graph, graph.unmet(values))  # these are the sizes that it was recorded for
    at = " and ".join(f"{name} = {to}" for name, to in equal.items())
    progress(f"the step runs otherwise where {at}: recording that case apart" if at else "recording at these sizes")
    held = {name: why for name, (_, why) in graph.held.items() if name not in equal}
    case, inner = _deep_enough(spec, values, options, equal, progress, held, _attempt_of(graph), near)
    case = probed(spec, case, inner, as_asked(case, values), progress)
    if not all(_about_turns(condition, graph) for condition in case.unmet(values)):  # these may be met below
        raise _another_path(spec, graph, case.unmet(values))
    case = probed(spec, case, inner, telling(case, values), progress)
    if case.unmet(values):
        raise _another_path(spec, graph, case.unmet(values))
    if not equal:
        return case, inner
    because = f"there {changed.expr} is {not changed.holds}, asked at {changed.where}; that case was recorded apart"
    noted = (*graph.assumptions, Assumption(f"the closed forms have a case of their own where {at}", because))
    return replace(graph, special=(Special(equal, case),), assumptions=noted), replace(analysis, special=inner)


def _about_turns(condition: Condition, graph: Graph) -> bool:
    return not {*names_in(condition.expr)}.isdisjoint(graph.loops)


def _another_path(spec: Spec, graph: Graph, unmet: Sequence[Condition]) -> TraceError:
    """What to say of ``unmet`` conditions: other sizes may help where one is about more than turns."""
    of_sizes = [condition for condition in unmet if not _about_turns(condition, graph)]
    condition = (of_sizes or unmet)[0]
    said = (
        f"{spec.name}: at these sizes the step takes another path than its closed forms ({condition.expr} is no longer"
        f" {condition.holds}), asked at {condition.where}: choose other sizes"
    )
    compared = names_in(condition.expr) if condition.compares else ()
    return _by_values(spec, [condition]) or (OtherPathError(said, "Mod(" in condition.expr, compared) if of_sizes else TraceError(said))


_BY_VALUES = (
    "{}: what the step does hangs on a value that it reads out of a tensor, or makes of sizes as a number, at {}, and on how that follows"
    " from sizes: at others it may be another one, or is of too many elements to be evaluated; make the branch depend on sizes, or choose"
    " other sizes"
)


def _by_values(spec: Spec, conditions: Sequence[Condition]) -> SizesError | None:
    """What to say of a step that is another one at other sizes, where values that it reads decide so. No multiple mends that."""
    return next((OtherPathError(_BY_VALUES.format(spec.name, c.where), divides=False) for c in conditions if c.each), None)


def _deep_enough(
    spec: Spec,
    values: Mapping[str, int],
    options: Options,
    equal: Mapping[str, str] | None,
    progress: Progress,
    held: Mapping[str, str] | None = None,
    first: int = 0,
    near: Near | None = None,
) -> tuple[Graph, Analysis]:
    """The graph recorded with as many turns of its loops as its closed forms need, from the attempt ``first`` on."""
    from calc.derive.analysis import PEAKS, analyse
    from calc.rules import families  # noqa: F401  # registers the rules
    from calc.trace import Recordings, certificate_sizes, divided_in, record

    known: Recordings = {}
    failure: CertificateError | None = None
    pins: Mapping[str, str] = {}
    attempt: int | None = first
    tries = 0
    while attempt is not None:
        analysis: Analysis | None = None
        graph = replace(record(spec, values, options, attempt, progress, equal, known, held, near), unknown=spec.unknown)
        try:
            analysis = analyse(graph, REGISTRY)
            for any_of in certificate_sizes(graph, values, attempt):
                graph = with_one_certificate(spec, graph, analysis, any_of, progress)
        except CertificateError as raised:
            # A value from a trace at any sizes would be that of a number which the trace made up.
            error = raised.without_values() if graph.reads_numbers else raised
            if error.sizes and not graph.loops:
                _require_its_path(spec, graph, error.sizes)
            again = failure is not None and failure.quantity == error.quantity
            divided = divided_in(spec, graph, known)
            if divided is not None and tries + 1 == _TRIES_OF_WALKED:
                raise divided from None
            if not graph.loops or (again and not graph.pins) or _whatever_the_depth(spec, graph, analysis, error, progress):
                read = [c for c in graph.conditions if " < " not in c.expr]  # a closed form that rests on numbers of its own may be wrong
                raise divided or _by_values(spec, read) or error from None  # depth is not what it depends on
            failure, pins, tries = error, graph.pins, tries + 1
            attempt = trip_counts.next_attempt(attempt, graph.loops, degree=error.quantity not in PEAKS)
            if tries == _TRIES_OF_WALKED and spec.walked and pins:
                break
            progress("the depths recorded do not tell enough: recording deeper")
            continue
        return graph, analysis
    assert failure is not None  # the loop ends without a return only after a failure
    widths = {name for c in graph.conditions if c.each for name in names_in(c.expr)}
    raise _no_polynomial(spec, pins, failure, widths)


def _require_its_path(spec: Spec, graph: Graph, at: Mapping[str, int]) -> None:
    """Raise where the step takes another path ``at`` these values of the basis symbols, which were the best there are for a certificate:
    closed forms that hold at no other sizes cannot be certified, and the sizes that choose the path are numbers."""
    elsewhere = [c for c in graph.conditions if not c.each and not c.same_at(at)]
    if elsewhere:
        c = elsewhere[0]
        said = f"{spec.name}: no two sizes take the path that was recorded, where {c.expr} is {c.holds}, asked at {c.where}"
        raise OtherPathError(said, divides=False)


def _attempt_of(graph: Graph) -> int:
    """The attempt whose counts of turns told enough: a case of the same step is likely to need no fewer."""
    return trip_counts.attempt_of(graph.loops, [record.sizes for record in graph.records])


def _whatever_the_depth(spec: Spec, graph: Graph, analysis: Analysis | None, error: CertificateError, progress: Progress) -> bool:
    """Whether a closed form that failed a certificate fails at a depth it was recorded at too: then deeper recordings are in vain."""
    from calc.derive.analysis import PEAKS

    if analysis is None or not error.sizes or error.quantity in PEAKS:
        return False
    at = {**error.sizes, **{name: graph.records[0].sizes[name] for name in graph.loops}}
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
        no_peak = _tells_no_peak(failure) and name in spec.dims and name not in spec.walked
        return _of(failure, (NoPeakError if no_peak else PinnedSizeError)(name, where, said))
    return failure


def _of(failure: CertificateError, error: TraceError) -> TraceError:
    """``error``, which tells of the quantities of ``failure`` as well."""
    error.failures = failure.failures
    return error


def _with_values(graph: Graph, values: Mapping[str, int]) -> Graph:
    return replace(graph, dims=tuple(replace(d, value=values[d.name]) for d in graph.dims))
