"""Peak memory: live bytes after every operator of a step, as polynomials, reduced to the peak candidates.

Points of traces with different trip counts are matched by operator (phase, name, module path, and the operators before and after) and by
their iteration of each loop around them, counted from the first or from the last. Between these, live bytes change by the same amount each
iteration, so one of the ends is at least as high. Certificates verify this: they compare every candidate, and the maximum, with traces at
other depths and sizes.

Loops of one module one after another, as over time in each of two stacked cells, have operators of one kind, and the iterations between
them are at no end. Where that leaves a peak without a closed form, an operator is also distinguished by the submodule that ran last before
it; where it still does, as in a loop inside another one of the same module, by the iteration of the outer loop.
"""

from __future__ import annotations

import bisect
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from calc.derive.dominance import Shift, undominated
from calc.derive.loops import LoopIndices
from calc.derive.names import PeakPlace
from calc.errors import CertificateError
from calc.graph.step import LOSS, TOP, Size, StepTrace, bare_name
from calc.symbolic.algebra import Algebra, Poly

# Phase, operator, module path with loop indices as *, the operators before and after, and the submodule before it if that tells it apart.
Kind = tuple[str, str, str, str, str]
Place = tuple[tuple[str, int], ...]  # for each loop around it, the outermost first: "first" or "last", and how many iterations from there
Label = tuple[Kind, Place]


@dataclass(frozen=True, slots=True)
class LivePoint:
    """Live bytes right after an operator. ``op`` is its index in the trace; ``live`` is a polynomial or an int."""

    op: int
    event: int
    live: Any


@dataclass(frozen=True, slots=True)
class Distinction:
    """By what points of one operator are distinguished, beside its module path and the operators before and after: the ``submodule`` that
    ran last, or the iteration of ``outer_loop``, a trip count."""

    submodule: bool = False
    outer_loop: str = ""


@dataclass(frozen=True, slots=True)
class PeakCandidate:
    """A point of the step that can be the peak: its closed form, its parts by role, the index of its event in the first trace, and by what
    its label distinguishes it."""

    label: Label
    live: Poly
    parts: Mapping[str, Poly]
    event: int = -1
    distinction: Distinction = Distinction()


def place_of(peak: PeakCandidate) -> PeakPlace:
    """Where a peak candidate is: the operator before it, in which iteration of each loop, and at which of its calls in that iteration."""
    (phase, operator, module_path, *_), (*loops, call) = peak.label
    several = len(loops) > 1
    iterations = (_which(*at, "iteration", f" of loop {number}" if several else "") for number, at in enumerate(loops, 1))
    return PeakPlace(phase, bare_name(operator), module_path, f"{''.join(iterations)}{_which(*call, 'call', '')}")


def highest(trace: StepTrace, step: int, module_paths: LoopIndices) -> PeakCandidate:
    """The peak of a step of one concrete trace; its place is in iterations of the loops of ``module_paths``, counted from the nearer end,
    and calls, counted from the first."""
    points = live_points(trace, step, int)
    top = max(points, key=lambda point: point.live)
    labels = [label for label, point in by_label(trace, points, module_paths).items() if point is top]
    nearest = min((label for label in labels if label[1][-1][0] == "first"), key=lambda label: [number for _, number in label[1]])
    return PeakCandidate(nearest, top.live, {})


def _which(end: str, number: int, noun: str, of: str) -> str:
    """``", iteration 2"``, counted from the first or from the last; the first is not mentioned."""
    if number == 0:
        return "" if end == "first" else f", last {noun}{of}"
    return f", {noun} {number + 1}{of}" if end == "first" else f", {noun} {number + 1} from the end{of}"


def live_points(trace: StepTrace, step: int, read: Callable[[Size], Any]) -> list[LivePoint]:
    """The bytes live after the last allocation of each operator in a step's window."""
    start, end = trace.windows[step - 1]
    live: Any = read(0)
    candidates: list[LivePoint] = []
    for i, event in enumerate(trace.events[:end]):
        nbytes = read(trace.storages[event.storage].nbytes)
        live = live + nbytes if event.change > 0 else live - nbytes
        if i < start or event.change < 0:
            continue
        if candidates and candidates[-1].op == event.op:
            candidates.pop()
        candidates.append(LivePoint(event.op, i, live))
    return candidates


def parts_at(trace: StepTrace, events: Iterable[int], read: Callable[[Size], Any]) -> dict[int, dict[str, Any]]:
    """Live bytes by role after each of the events with those indices."""
    indices = set(events)
    parts: dict[str, Any] = {}
    parts_by_event: dict[int, dict[str, Any]] = {}
    for i, e in enumerate(trace.events[: max(indices) + 1]):
        storage = trace.storages[e.storage]
        nbytes = read(storage.nbytes)
        parts[storage.role] = parts.get(storage.role, read(0)) + (nbytes if e.change > 0 else -nbytes)
        if i in indices:
            parts_by_event[i] = {role: value for role, value in parts.items() if value != 0}
    return parts_by_event


# -- places ---------------------------------------------------------------------------------------------------------------

# The numbers of operators before and after that distinguish an operator from others of its name.
_BESIDE = 3

At = tuple[int, ...]  # the iteration of each loop around a point, the outermost first
Depths = Sequence[Mapping[str, int]]  # the trip counts of each trace


@dataclass(frozen=True, slots=True)
class _PointRun:
    """The points of one kind in one trace by iteration; ``trip_counts`` has those of each loop, by the iterations around it."""

    points: Mapping[At, LivePoint]
    trip_counts: Mapping[At, int]

    def places(self, at: At) -> Iterator[Place]:
        """The iterations ``at``, each counted from the first or from the last: every combination."""
        ends = [(("first", index), ("last", self.trip_counts[at[:level]] - 1 - index)) for level, index in enumerate(at)]
        return itertools.product(*ends)


def _runs(
    trace: StepTrace, candidates: Sequence[LivePoint], module_paths: LoopIndices, distinction: Distinction
) -> dict[Kind, _PointRun]:
    by_submodule = distinction.submodule
    paths = _last_submodules(trace) if by_submodule else [op.module_path for op in trace.ops]
    kinds: dict[Kind, list[LivePoint]] = {}
    for point in candidates:
        submodule = module_paths.place(paths[point.op])[0] if by_submodule else ""
        kinds.setdefault((*_kind(trace, point.op, module_paths), submodule), []).append(point)
    indices = {kind: [module_paths.place(paths[point.op])[1] for point in group] for kind, group in kinds.items()}
    if distinction.outer_loop:
        indices |= _of_outer_loop(kinds, indices, trace.sizes[distinction.outer_loop])
    return {kind: _run(group, indices[kind]) for kind, group in kinds.items()}


def _of_outer_loop(
    kinds: Mapping[Kind, Sequence[LivePoint]], indices: Mapping[Kind, Sequence[At]], trip_count: int
) -> dict[Kind, list[At]]:
    """The ``indices`` of points in a loop inside another one of the same module, with the iteration of the outer one, which runs
    ``trip_count`` times.

    An iteration begins with an operator that runs as often; operators that run more often are in the inner loop.
    """
    begins: dict[tuple[str, str], Kind] = {}
    times = {kind: Counter(each) for kind, each in indices.items()}
    for kind, counts in times.items():
        if {*counts.values()} == {trip_count}:
            begins.setdefault((kind[0], kind[2]), kind)
    nested: dict[Kind, list[At]] = {}
    for kind, group in kinds.items():
        first = next((begins[kind[0], path] for path in (kind[2], *_around(kind[2])) if (kind[0], path) in begins), None)
        if first is not None and min(times[kind].values()) > trip_count:
            nested[kind] = _after(group, indices[kind], kinds[first], indices[first])
    return nested


def _around(module_path: str) -> list[str]:
    """The paths of the modules around one, the nearest first."""
    names = module_path.split(".")
    return [] if module_path in (TOP, LOSS) else [*(".".join(names[:i]) for i in range(len(names) - 1, 0, -1)), TOP]


def _after(group: Sequence[LivePoint], indices: Sequence[At], begins: Sequence[LivePoint], outer: Sequence[At]) -> list[At]:
    """The ``indices`` of the points of a ``group``, each with the number of points ``begins`` before it in the iterations ``outer``."""
    starts: dict[At, list[int]] = {}
    for at, point in zip(outer, begins, strict=True):
        starts.setdefault(at, []).append(point.op)
    around = [(at[: len(outer[0])], at[len(outer[0]) :]) for at in indices]
    numbers = [bisect.bisect(starts.get(at, []), point.op) for (at, _), point in zip(around, group, strict=True)]
    return [(*at, number, *inner) for (at, inner), number in zip(around, numbers, strict=True)]


def _last_submodules(trace: StepTrace) -> list[str]:
    """For each operator the module path of the last one before it, in its phase, that a submodule of its own module runs; its own module
    path where there is none."""
    paths, last, phase = [], dict[str, str](), ""
    for op in trace.ops:
        if op.phase != phase:
            last, phase = {}, op.phase
        paths.append(last.get(op.module_path, op.module_path))
        last |= dict.fromkeys(_around(op.module_path), op.module_path)
    return paths


def _kind(trace: StepTrace, op: int, module_paths: LoopIndices) -> tuple[str, str, str, str]:
    """The operator and those beside it: in a loop inside one module, only these distinguish its operators from those around it."""
    operator = trace.ops[op]
    beside = " ".join(_at_path(trace, i, module_paths) for i in range(op - _BESIDE, op + _BESIDE + 1) if i != op)
    return operator.phase, operator.name, module_paths.place(operator.module_path)[0], beside


def _at_path(trace: StepTrace, op: int, module_paths: LoopIndices) -> str:
    return f"{trace.ops[op].name}@{module_paths.place(trace.ops[op].module_path)[0]}" if 0 <= op < len(trace.ops) else "-"


def _run(group: Sequence[LivePoint], indices: Sequence[tuple[int, ...]]) -> _PointRun:
    """The points of one kind; ``indices`` are those in the module path of each. Iterations are numbered in order of appearance, whatever
    the index is."""
    points: dict[At, LivePoint] = {}
    trip_counts: dict[At, int] = {}
    number: dict[tuple[int, ...], int] = {}
    for point, of_point in zip(group, indices, strict=True):
        at: At = ()
        for level in range(len(of_point)):
            loops = of_point[: level + 1]
            if loops not in number:
                number[loops] = trip_counts.get(at, 0)
                trip_counts[at] = number[loops] + 1
            at = (*at, number[loops])
        trip_counts[at] = trip_counts.get(at, 0) + 1
        points[*at, trip_counts[at] - 1] = point
    return _PointRun(points, trip_counts)


def by_label(
    trace: StepTrace, points: Sequence[LivePoint], module_paths: LoopIndices, distinction: Distinction = Distinction()
) -> dict[Label, LivePoint]:
    """Each point under its labels, which count from the first and from the last iteration of each loop around it."""
    return _labels(_runs(trace, points, module_paths, distinction))


def _labels(runs: Mapping[Kind, _PointRun]) -> dict[Label, LivePoint]:
    return {(kind, place): point for kind, run in runs.items() for at, point in run.points.items() for place in run.places(at)}


# -- iterations of a loop --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Loop:
    """One loop around the points of a kind: the fewest iterations in any trace, and how many more the next trace has (0: no loop).
    ``nested``: the numbers of points do not grow evenly, as those of a loop inside another one."""

    fewest: int
    growth: int
    nested: bool = False

    def comparable(self, end: str, place: int) -> bool:
        """Whether an iteration means the same at every depth: it is not the one at the opposite end.

        With more iterations it must lie in the nearer half: the first and the last few may each be different from the others.
        """
        if not self.growth:
            return end == "first"
        if self.nested:
            return place == 0
        if self.fewest < 4 * self.growth:
            return place < max(self.fewest - self.growth, min(self.fewest, self.growth))
        return 2 * place < self.fewest


@dataclass(frozen=True, slots=True)
class _Iterations:
    """Points of one kind in every trace, and the loops around them, the outermost first."""

    runs: tuple[_PointRun, ...]
    loops: tuple[_Loop, ...]

    def comparable(self, place: Place) -> bool:
        return all(loop.comparable(end, index) for loop, (end, index) in zip(self.loops, place, strict=True))

    def between(self, run: _PointRun, at: At) -> list[int]:
        """The loops in which a point is at neither end."""
        return [
            level
            for level, loop in enumerate(self.loops)
            if loop.growth and loop.growth <= at[level] < run.trip_counts[at[:level]] - loop.growth
        ]

    def below(self, run: _PointRun, at: At, level: int, shift: Shift) -> bool:
        """Whether a point between the ends is at most the mean of the same point one iteration before and one after.

        Such a point need not be a candidate: of all points that are the largest at some sizes, the one after the most iterations of all
        loops together is not of this kind, since a neighbor would be as large.
        """
        step = self.loops[level].growth
        beside = [run.points.get((*at[:level], at[level] + by, *at[level + 1 :])) for by in (-step, step)]
        if None in beside:
            return False
        twice = sum((m.live for m in beside if m is not None), start=-2 * run.points[at].live)
        return twice == 0 or shift.never_negative(twice)


def _iterations(runs: Sequence[Mapping[Kind, _PointRun]], depths: Depths = ()) -> dict[Kind, _Iterations]:
    """The points of each kind that every trace has, in as many loops. ``depths``: the trip counts of each trace, to see which loops are
    nested."""
    loops: dict[Kind, _Iterations] = {}
    for kind in runs[0]:
        if all(kind in numbering for numbering in runs):
            mine = tuple(numbering[kind] for numbering in runs)
            levels, *of_others = {len(next(iter(run.points))) for run in mine}
            if not of_others:  # else a loop inside another one in some traces alone
                loops[kind] = _Iterations(mine, tuple(_loop(mine, level, depths) for level in range(levels)))
    return loops


def _loop(runs: Sequence[_PointRun], level: int, depths: Depths) -> _Loop:
    counts = [[n for at, n in run.trip_counts.items() if len(at) == level] for run in runs]
    most, fewest = [max(each) for each in counts], min(map(min, counts))
    if depths and not _grow_evenly(most, depths):
        return _Loop(fewest, 1, nested=True)
    return _Loop(fewest, max((b - a for a, b in itertools.pairwise(sorted({*most}))), default=0))


def _grow_evenly(counts: Sequence[int], depths: Depths) -> bool:
    """Whether the ``counts`` at these depths are those of a loop that is in no other one: linear in one trip count, as many for each
    iteration but a few."""
    lines = {name: _lines(name, counts, depths) for name in depths[0]}
    growing = [of_one for of_one in lines.values() if of_one not in (set(), {(0, 0)})]
    return len(growing) < 2 and all(len(of_one) == 1 and _of_whole_iterations(*next(iter(of_one))) for of_one in growing)


def _lines(name: str, counts: Sequence[int], depths: Depths) -> set[tuple[Fraction, Fraction]]:
    """The lines through the counts of two traces that differ in one trip count alone: by how much they grow for each further iteration,
    and what all iterations lack of that; (0, 0) where they do not grow."""
    alike: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for depth, count in zip(depths, counts, strict=True):
        alike.setdefault(tuple(depth[loop] for loop in depths[0] if loop != name), []).append((depth[name], count))
    pairs = [pair for group in alike.values() for pair in itertools.pairwise(sorted(group))]
    slopes = [Fraction(after - before, deeper - depth) for (depth, before), (deeper, after) in pairs]
    lacking = [slope * depth - before if slope else Fraction(0) for slope, ((depth, before), _) in zip(slopes, pairs, strict=True)]
    return {*zip(slopes, lacking, strict=True)}


def _of_whole_iterations(slope: Fraction, lacking: Fraction) -> bool:
    """Whether iterations that lack all their points explain a line: n² points at two numbers of iterations lack others."""
    return lacking <= slope or lacking % slope == 0


# -- peak candidates ------------------------------------------------------------------------------------------------------------


def peak_candidates(
    traces: Sequence[StepTrace],
    step: int,
    algebra: Algebra,
    module_paths: LoopIndices,
    interpolate: Callable[[Sequence[Poly]], Poly],
    bounds: Sequence[tuple[str, str]] = (),
) -> tuple[PeakCandidate, ...]:
    """The peak candidates of ``step``, as closed forms over the trip counts of all traces."""
    points = [live_points(trace, step, algebra.parse) for trace in traces]
    shift, depths = Shift(algebra, bounds), [trace.sizes for trace in traces]

    def runs(distinction: Distinction) -> list[dict[Kind, _PointRun]]:
        return [_runs(trace, of_trace, module_paths, distinction) for trace, of_trace in zip(traces, points, strict=True)]

    for distinction in _distinctions(runs(Distinction()), depths):
        each = runs(distinction)
        shared = _comparable(each, shift, depths if distinction.outer_loop else ())
        if shared is not None:
            candidates = _candidates(traces, [_labels(kinds) for kinds in each], shared, shift, interpolate)
            return tuple(replace(candidate, distinction=distinction) for candidate in candidates)
    raise CertificateError("memory.peak", _BETWEEN)


def _distinctions(each: Sequence[Mapping[Kind, _PointRun]], depths: Depths) -> list[Distinction]:
    """By what points are distinguished, what is tried first before: by outer loops where their numbers do not grow evenly."""
    nested = any(loop.nested for iterations in _iterations(each, depths).values() for loop in iterations.loops)
    alone, by_loop = [Distinction(), Distinction(submodule=True)], [Distinction(outer_loop=name) for name in depths[0]]
    return [*by_loop, *alone] if nested else [*alone, *by_loop]


_BETWEEN = "which iteration between the first and the last needs the most memory has no closed form at the traced depths"


def _comparable(each: Sequence[Mapping[Kind, _PointRun]], shift: Shift, depths: Depths) -> list[Label] | None:
    """The labels of points that every trace has and that may be the only peak; None if one that may be, of the deepest trace, is between
    the ends of a loop and not comparable at every depth."""
    runs, iterations = [_labels(kinds) for kinds in each], _iterations(each, depths)
    dropped, inner = _dropped(iterations, shift)
    shared = [label for label in runs[0] if label[0] in iterations and iterations[label[0]].comparable(label[1])]
    shared = [label for label in shared if all(label in run for run in runs)]
    covered = {id(runs[-1][label]) for label in shared}
    between = inner - dropped - covered
    if any(id(point) in between for point in runs[-1].values()):
        return None
    return [label for label in shared if any(id(run[label]) not in dropped for run in runs)]


def _candidates(
    traces: Sequence[StepTrace],
    runs: Sequence[Mapping[Label, LivePoint]],
    shared: Sequence[Label],
    shift: Shift,
    interpolate: Callable[[Sequence[Poly]], Poly],
) -> tuple[PeakCandidate, ...]:
    """The undominated among the ``shared`` points, by label in each run."""
    algebra = shift.algebra
    forms: dict[tuple[Poly, ...], Label] = {}
    for label in shared:
        forms.setdefault(tuple(run[label].live for run in runs), label)
    live = {label: interpolate(values) for values, label in forms.items()}
    labels = undominated(live, shift)
    parts = [parts_at(trace, [run[label].event for label in labels], algebra.parse) for trace, run in zip(traces, runs, strict=True)]
    return tuple(
        PeakCandidate(
            label,
            live[label],
            _parts([at[run[label].event] for at, run in zip(parts, runs, strict=True)], algebra, interpolate),
            runs[0][label].event,
        )
        for label in labels
    )


def _dropped(iterations: Mapping[Kind, _Iterations], shift: Shift) -> tuple[set[int], set[int]]:
    """Identities of the points that cannot be the only peak, and of all points between the ends of some loop."""
    dropped: set[int] = set()
    inner: set[int] = set()
    for points in iterations.values():
        for run in points.runs:
            for at, point in run.points.items():
                levels = points.between(run, at)
                inner |= {id(point)} if levels else set()
                dropped |= {id(point)} if any(points.below(run, at, level, shift) for level in levels) else set()
    return dropped, inner


def _parts(each: Sequence[Mapping[str, Poly]], algebra: Algebra, interpolate: Callable[[Sequence[Poly]], Poly]) -> dict[str, Poly]:
    roles = dict.fromkeys(itertools.chain.from_iterable(each))
    return {role: interpolate([parts.get(role, algebra.parse(0)) for parts in each]) for role in roles}
