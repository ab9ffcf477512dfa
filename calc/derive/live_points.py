"""Live bytes after every operator of a step, and labels by which points of traces with different trip counts are matched.

A label is an operator (phase, name, module path, and the operators before and after) and its iteration of each loop around it, counted
from the first or from the last. Loops of one module one after another, as over time in each of two stacked cells, have operators of one
kind, and the iterations between them are at no end: such operators are also distinguished by the submodule that ran last before them. In a
loop inside another one of the same module they are, by the iteration of the outer loop.
"""

from __future__ import annotations

import bisect
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calc.derive.loops import LoopIndices
from calc.graph.step import LOSS, TOP, Size, StepTrace

# Phase, operator, module path with loop indices as *, the operators before and after, and the submodule before it where that is needed.
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


AS_THEY_ARE = Distinction()


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


# -- labels ---------------------------------------------------------------------------------------------------------------

# The numbers of operators before and after that distinguish an operator from others of its name.
_BESIDE = 3

At = tuple[int, ...]  # the iteration of each loop around a point, the outermost first


@dataclass(frozen=True, slots=True)
class PointRun:
    """The points of one kind in one trace by iteration; ``trip_counts`` has those of each loop, by the iterations around it."""

    points: Mapping[At, LivePoint]
    trip_counts: Mapping[At, int]

    def places(self, at: At) -> Iterator[Place]:
        """The iterations ``at``, each counted from the first or from the last: every combination."""
        ends = [(("first", index), ("last", self.trip_counts[at[:level]] - 1 - index)) for level, index in enumerate(at)]
        return itertools.product(*ends)


def runs_of(
    trace: StepTrace, candidates: Sequence[LivePoint], module_paths: LoopIndices, distinction: Distinction
) -> dict[Kind, PointRun]:
    """The points of each kind in a trace, by iteration."""
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


def _run(group: Sequence[LivePoint], indices: Sequence[tuple[int, ...]]) -> PointRun:
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
    return PointRun(points, trip_counts)


def by_label(
    trace: StepTrace, points: Sequence[LivePoint], module_paths: LoopIndices, distinction: Distinction = AS_THEY_ARE
) -> dict[Label, LivePoint]:
    """Each point under its labels, which count from the first and from the last iteration of each loop around it."""
    return labels_of(runs_of(trace, points, module_paths, distinction))


def labels_of(runs: Mapping[Kind, PointRun]) -> dict[Label, LivePoint]:
    """Each point of these kinds under its labels."""
    return {(kind, place): point for kind, run in runs.items() for at, point in run.points.items() for place in run.places(at)}
