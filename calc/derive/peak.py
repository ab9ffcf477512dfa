"""Peak memory: live bytes after every operator of a step, as polynomials, reduced to the peak candidates.

Points of traces with different trip counts are matched by their labels, which have an iteration of each loop around them, counted from the
first or from the last. Between these, live bytes change by the same amount each iteration, so one of the ends is at least as high.
Certificates verify this: they compare every candidate, and the maximum, with traces at other depths and sizes.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from calc.derive.dominance import Shift, undominated
from calc.derive.live_points import (
    AS_THEY_ARE,
    At,
    Distinction,
    Kind,
    Label,
    LivePoint,
    Place,
    PointRun,
    by_label,
    labels_of,
    live_points,
    parts_at,
    runs_of,
)
from calc.derive.loops import LoopIndices
from calc.derive.names import PeakPlace
from calc.errors import CertificateError
from calc.graph.step import StepTrace, bare_name
from calc.symbolic.algebra import Algebra, Poly

Depths = Sequence[Mapping[str, int]]  # the trip counts of each trace


@dataclass(frozen=True, slots=True)
class PeakCandidate:
    """A point of the step that can be the peak: its closed form, its parts by role, the index of its event in the first trace, and by what
    its label distinguishes it."""

    label: Label
    live: Poly
    parts: Mapping[str, Poly]
    event: int = -1
    distinction: Distinction = AS_THEY_ARE


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

    runs: tuple[PointRun, ...]
    loops: tuple[_Loop, ...]

    def comparable(self, place: Place) -> bool:
        return all(loop.comparable(end, index) for loop, (end, index) in zip(self.loops, place, strict=True))

    def between(self, run: PointRun, at: At) -> list[int]:
        """The loops in which a point is at neither end."""
        return [
            level
            for level, loop in enumerate(self.loops)
            if loop.growth and loop.growth <= at[level] < run.trip_counts[at[:level]] - loop.growth
        ]

    def below(self, run: PointRun, at: At, level: int, shift: Shift) -> bool:
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


def _iterations(runs: Sequence[Mapping[Kind, PointRun]], depths: Depths = ()) -> dict[Kind, _Iterations]:
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


def _loop(runs: Sequence[PointRun], level: int, depths: Depths) -> _Loop:
    counts = [[n for at, n in run.trip_counts.items() if len(at) == level] for run in runs]
    most, fewest = [max(each) for each in counts], min(map(min, counts))
    if depths and not _grow_evenly(most, depths):
        return _Loop(fewest, 1, nested=True)
    return _Loop(fewest, max((b - a for a, b in itertools.pairwise(sorted({*most}))), default=0))


def _grow_evenly(counts: Sequence[int], depths: Depths) -> bool:
    """Whether the ``counts`` at these depths are those of a loop that is in no other one: linear in one trip count, as many for each
    iteration but a few."""
    lines = {name: _lines(name, counts, depths) for name in depths[0]}
    growing = [of_one for of_one in lines.values() if any(slope for slope, _ in of_one)]
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

    @functools.cache
    def runs(distinction: Distinction) -> list[dict[Kind, PointRun]]:
        return [runs_of(trace, of_trace, module_paths, distinction) for trace, of_trace in zip(traces, points, strict=True)]

    for distinction in _distinctions(runs(AS_THEY_ARE), depths):
        each = runs(distinction)
        shared = _comparable(each, shift, depths if distinction.outer_loop else ())
        if shared is not None:
            candidates = _candidates(traces, [labels_of(kinds) for kinds in each], shared, shift, interpolate)
            return tuple(replace(candidate, distinction=distinction) for candidate in candidates)
    raise CertificateError("memory.peak", _BETWEEN)


def _distinctions(each: Sequence[Mapping[Kind, PointRun]], depths: Depths) -> list[Distinction]:
    """By what points are distinguished, what is tried first before: by outer loops where their numbers do not grow evenly."""
    nested = any(loop.nested for iterations in _iterations(each, depths).values() for loop in iterations.loops)
    alone, by_loop = [AS_THEY_ARE, Distinction(submodule=True)], [Distinction(outer_loop=name) for name in depths[0]]
    return [*by_loop, *alone] if nested else [*alone, *by_loop]


_BETWEEN = "which iteration between the first and the last needs the most memory has no closed form at the traced depths"


def _comparable(each: Sequence[Mapping[Kind, PointRun]], shift: Shift, depths: Depths) -> list[Label] | None:
    """The labels of points that every trace has and that may be the only peak; None if one that may be, of the deepest trace, is between
    the ends of a loop and not comparable at every depth."""
    runs, iterations = [labels_of(kinds) for kinds in each], _iterations(each, depths)
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
