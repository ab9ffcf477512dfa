"""Peak memory: live bytes after every operator of a step, as polynomials, reduced to the moments that can be the peak.

Moments of runs at different loop counts are matched by what happened (phase, operator, site and the operators before and after)
and by their place in each loop around them: in which layer, counted from the first or from the last, and at which turn of a
loop inside that layer, counted likewise. Between first and last, live bytes change by the same amount each turn, so one
of the ends is at least as high. That argument is not taken on trust: certificates compare every kept moment, and the
maximum, with recordings at other depths and sizes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calc.derive.dominance import Shift, undominated
from calc.derive.loops import Sites
from calc.errors import CertificateError
from calc.graph.step import Size, StepTrace
from calc.symbolic.algebra import Algebra, Poly

Kind = tuple[str, str, str, str]  # phase, operator, site with loop indices as *, the operators before and after
Place = tuple[tuple[str, int], ...]  # for each loop around it, the outermost first: "first" or "last", and how many iterations from there
Label = tuple[Kind, Place]


@dataclass(frozen=True, slots=True)
class Moment:
    """Live bytes right after an operator. ``op`` is its index in the record; ``live`` a polynomial or an int."""

    op: int
    event: int
    live: Any


@dataclass(frozen=True, slots=True)
class Peak:
    """A moment that can be the peak: its closed form, and its parts by role."""

    label: Label
    live: Poly
    parts: Mapping[str, Poly]


def moment_name(peak: Peak) -> str:
    """The words for a peak candidate: the operator after which it is, and in which iteration."""
    (phase, operator, module_path, _), place = peak.label
    short = operator.removeprefix("aten.").rsplit(".", 1)[0]
    return f"{phase}, after {short} at {module_path}{''.join(_iteration(*at) for at in place)}"


def _iteration(end: str, number: int) -> str:
    if number == 0:
        return "" if end == "first" else ", the last"
    return f", number {number + 1} from the {end}"


def moments(trace: StepTrace, step: int, read: Callable[[Size], Any]) -> list[Moment]:
    """The last birth of each operator in a step's window, with the bytes live then."""
    start, end = trace.windows[step - 1]
    live: Any = read(0)
    candidates: list[Moment] = []
    for i, event in enumerate(trace.events[:end]):
        nbytes = read(trace.storages[event.storage].nbytes)
        live = live + nbytes if event.change > 0 else live - nbytes
        if i < start or event.change < 0:
            continue
        if candidates and candidates[-1].op == event.op:
            candidates.pop()
        candidates.append(Moment(event.op, i, live))
    return candidates


def parts_at(trace: StepTrace, events: Iterable[int], read: Callable[[Size], Any]) -> dict[int, dict[str, Any]]:
    """Live bytes by role after each of the events with those indices."""
    wanted = set(events)
    parts: dict[str, Any] = {}
    parts_by_event: dict[int, dict[str, Any]] = {}
    for i, e in enumerate(trace.events[: max(wanted) + 1]):
        storage = trace.storages[e.storage]
        nbytes = read(storage.nbytes)
        parts[storage.role] = parts.get(storage.role, read(0)) + (nbytes if e.change > 0 else -nbytes)
        if i in wanted:
            parts_by_event[i] = {role: value for role, value in parts.items() if value != 0}
    return parts_by_event


# -- places ---------------------------------------------------------------------------------------------------------------

# How many operators before and after one are looked at, to tell it from another of its name.
_BESIDE = 3

At = tuple[int, ...]  # for each loop around a moment, the outermost first: which turn


@dataclass(frozen=True, slots=True)
class _MomentRun:
    """The moments of one kind in one record by iteration; ``trip_counts`` has those of the innermost loop, by outer iteration."""

    moments: Mapping[At, Moment]
    trip_counts: Mapping[At, int]

    def places(self, at: At) -> Iterator[Place]:
        """Every way to say where ``at`` is."""
        ends = [(("first", turn), ("last", self.trip_counts[at[:level]] - 1 - turn)) for level, turn in enumerate(at)]
        return itertools.product(*ends)


def _runs(trace: StepTrace, candidates: Sequence[Moment], module_paths: Sites) -> dict[Kind, _MomentRun]:
    kinds: dict[Kind, list[Moment]] = {}
    for moment in candidates:
        kinds.setdefault(_kind(trace, moment.op, module_paths), []).append(moment)
    return {kind: _run(trace, group, module_paths) for kind, group in kinds.items()}


def _kind(trace: StepTrace, op: int, module_paths: Sites) -> Kind:
    """What happened, and between what: in a loop inside one module, only that tells its operators from those before and after it."""
    here = trace.ops[op]
    beside = " ".join(_what(trace, i, module_paths) for i in range(op - _BESIDE, op + _BESIDE + 1) if i != op)
    return here.phase, here.name, module_paths.place(here.module_path)[0], beside


def _what(trace: StepTrace, op: int, module_paths: Sites) -> str:
    return f"{trace.ops[op].name}@{module_paths.place(trace.ops[op].module_path)[0]}" if 0 <= op < len(trace.ops) else "-"


def _run(trace: StepTrace, group: Sequence[Moment], module_paths: Sites) -> _MomentRun:
    """Turns are numbered as they come: a layer's is the one in which its number comes up, whatever that number is."""
    moments: dict[At, Moment] = {}
    trip_counts: dict[At, int] = {}
    number: dict[tuple[int, ...], int] = {}
    for moment in group:
        at: At = ()
        indices = module_paths.place(trace.ops[moment.op].module_path)[1]
        for level in range(len(indices)):
            seen = indices[: level + 1]
            if seen not in number:
                number[seen] = trip_counts.get(at, 0)
                trip_counts[at] = number[seen] + 1
            at = (*at, number[seen])
        trip_counts[at] = trip_counts.get(at, 0) + 1
        moments[*at, trip_counts[at] - 1] = moment
    return _MomentRun(moments, trip_counts)


def labelled(trace: StepTrace, candidates: Sequence[Moment], module_paths: Sites) -> dict[Label, Moment]:
    """Each moment under its places, counted from the first and from the last turn of each loop around it."""
    return _labels(_runs(trace, candidates, module_paths))


def _labels(runs: Mapping[Kind, _MomentRun]) -> dict[Label, Moment]:
    return {(kind, place): moment for kind, run in runs.items() for at, moment in run.moments.items() for place in run.places(at)}


# -- iterations of a loop --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Loop:
    """One level of a kind: the fewest iterations anywhere, and by how many they grow from one record to the next (0: no loop)."""

    fewest: int
    growth: int

    def comparable(self, end: str, place: int) -> bool:
        """Whether a place means the same moment at every depth: it lies outside the turn at the opposite end.

        Where more iterations are seen, it must lie in the nearer half: the first and the last few iterations may each be peculiar.
        """
        if not self.growth:
            return end == "first"
        if self.fewest < 4 * self.growth:
            return place < max(self.fewest - self.growth, min(self.fewest, self.growth))
        return 2 * place < self.fewest


@dataclass(frozen=True, slots=True)
class _Iterations:
    """Moments of one kind in every record, and the loops they are in, the outermost first."""

    runs: tuple[_MomentRun, ...]
    loops: tuple[_Loop, ...]

    def comparable(self, place: Place) -> bool:
        return all(loop.comparable(end, turn) for loop, (end, turn) in zip(self.loops, place, strict=True))

    def between(self, run: _MomentRun, at: At) -> list[int]:
        """The loops of which a moment is at neither end."""
        return [
            level
            for level, loop in enumerate(self.loops)
            if loop.growth and loop.growth <= at[level] < run.trip_counts[at[:level]] - loop.growth
        ]

    def below(self, run: _MomentRun, at: At, level: int, shift: Shift) -> bool:
        """Whether a moment in between is not above the mean of the same moment one turn before and one turn after.

        Then it need not be looked at: of all moments that are the largest at some sizes, the one with the most iterations behind it
        in all loops together is not of that sort, since one of those beside it would be as large.
        """
        step = self.loops[level].growth
        beside = [run.moments.get((*at[:level], at[level] + by, *at[level + 1 :])) for by in (-step, step)]
        if None in beside:
            return False
        twice = sum((m.live for m in beside if m is not None), start=-2 * run.moments[at].live)
        return twice == 0 or all(coefficient >= 0 for coefficient in shift(twice).values())


def _iterations(runs: Sequence[Mapping[Kind, _MomentRun]]) -> dict[Kind, _Iterations]:
    """Kinds that every record has."""
    loops: dict[Kind, _Iterations] = {}
    for kind in runs[0]:
        if all(kind in other for other in runs):
            mine = tuple(other[kind] for other in runs)
            levels = len(next(iter(mine[0].moments)))
            loops[kind] = _Iterations(mine, tuple(_loop(mine, level) for level in range(levels)))
    return loops


def _loop(runs: Sequence[_MomentRun], level: int) -> _Loop:
    counts = [[n for at, n in run.trip_counts.items() if len(at) == level] for run in runs]
    most = sorted({max(each) for each in counts})
    return _Loop(min(map(min, counts)), max((b - a for a, b in itertools.pairwise(most)), default=0))


# -- the moments that count -------------------------------------------------------------------------------------------------


def peaks(
    traces: Sequence[StepTrace],
    step: int,
    algebra: Algebra,
    module_paths: Sites,
    interpolate: Callable[[Sequence[Poly]], Poly],
    bounds: Sequence[tuple[str, str]] = (),
) -> tuple[Peak, ...]:
    """The moments that can be the peak of ``step``, as closed forms over all records' loop counts."""
    each = [_runs(r, moments(r, step, algebra.parse), module_paths) for r in traces]
    runs = [_labels(kinds) for kinds in each]
    iterations = _iterations(each)
    shift = Shift(algebra, bounds)
    dropped, inner = _dropped(iterations, shift)
    shared = [label for label in runs[0] if label[0] in iterations and iterations[label[0]].comparable(label[1])]
    shared = [label for label in shared if all(label in run for run in runs)]
    _require_deep_enough(runs[-1], shared, inner - dropped)
    shared = [label for label in shared if any(id(run[label]) not in dropped for run in runs)]
    forms: dict[tuple[Poly, ...], Label] = {}
    for label in shared:
        forms.setdefault(tuple(run[label].live for run in runs), label)
    live = {label: interpolate(values) for values, label in forms.items()}
    labels = undominated(live, shift)
    parts = [parts_at(trace, [run[label].event for label in labels], algebra.parse) for trace, run in zip(traces, runs, strict=True)]
    return tuple(
        Peak(label, live[label], _parts([at[run[label].event] for at, run in zip(parts, runs, strict=True)], algebra, interpolate))
        for label in labels
    )


def _dropped(iterations: Mapping[Kind, _Iterations], shift: Shift) -> tuple[set[int], set[int]]:
    """Identities of the moments that need not be looked at, and of all that are between the ends of some loop."""
    dropped: set[int] = set()
    inner: set[int] = set()
    for turn in iterations.values():
        for run in turn.runs:
            for at, moment in run.moments.items():
                levels = turn.between(run, at)
                inner |= {id(moment)} if levels else set()
                dropped |= {id(moment)} if any(turn.below(run, at, level, shift) for level in levels) else set()
    return dropped, inner


_BETWEEN = "which layer between the first and the last needs most memory has no closed form in the depths that were traced"


def _require_deep_enough(run: Mapping[Label, Moment], shared: Sequence[Label], needed: set[int]) -> None:
    """Every moment of the deepest record that is between ends and counts must have a place that means the same at every depth."""
    covered = {id(run[label]) for label in shared}
    if any(id(moment) in needed and id(moment) not in covered for moment in run.values()):
        raise CertificateError("memory.peak", _BETWEEN)


def _parts(each: Sequence[Mapping[str, Poly]], algebra: Algebra, interpolate: Callable[[Sequence[Poly]], Poly]) -> dict[str, Poly]:
    roles = dict.fromkeys(itertools.chain.from_iterable(each))
    return {role: interpolate([parts.get(role, algebra.parse(0)) for parts in each]) for role in roles}
