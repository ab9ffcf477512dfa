"""Peak memory: live bytes after every operator of a step, as polynomials, reduced to the moments that can be the peak.

Moments of runs at different loop counts are matched by what happened (phase, operator, site) and by their place counted
from the first such moment or from the last; between the two, live bytes change by the same amount each layer, so one
of the ends is at least as high. That argument is not taken on trust: certificates compare every kept moment, and the
maximum, with recordings at other depths and sizes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calc.algebra import Algebra, Poly
from calc.derive.dominance import Shift, undominated
from calc.errors import CertificateError
from calc.graph import Record, Size

Label = tuple[str, str, str, str, int]  # phase, operator, site with loop indices as *, "first" or "last", place


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


def moments(record: Record, step: int, read: Callable[[Size], Any]) -> list[Moment]:
    """The last birth of each operator in a step's window, with the bytes live then."""
    start, end = record.windows[step - 1]
    live: Any = read(0)
    found: list[Moment] = []
    for i, event in enumerate(record.events[:end]):
        nbytes = read(record.storages[event.storage].nbytes)
        live = live + nbytes if event.change > 0 else live - nbytes
        if i < start or event.change < 0:
            continue
        if found and found[-1].op == event.op:
            found.pop()
        found.append(Moment(event.op, i, live))
    return found


def parts_at(record: Record, events: Iterable[int], read: Callable[[Size], Any]) -> dict[int, dict[str, Any]]:
    """Live bytes by role after each of the events with those indices."""
    wanted = set(events)
    parts: dict[str, Any] = {}
    found: dict[int, dict[str, Any]] = {}
    for i, e in enumerate(record.events[: max(wanted) + 1]):
        storage = record.storages[e.storage]
        nbytes = read(storage.nbytes)
        parts[storage.role] = parts.get(storage.role, read(0)) + (nbytes if e.change > 0 else -nbytes)
        if i in wanted:
            found[i] = {role: value for role, value in parts.items() if value != 0}
    return found


def labelled(record: Record, found: Sequence[Moment], general: Callable[[str], str]) -> dict[Label, Moment]:
    """Each moment under its place counted from the first and from the last of its kind."""
    labels: dict[Label, Moment] = {}
    for (phase, name, site), group in _kinds(record, found, general).items():
        for place, moment in enumerate(group):
            labels[phase, name, site, "first", place] = moment
            labels[phase, name, site, "last", len(group) - 1 - place] = moment
    return labels


def _kinds(record: Record, found: Sequence[Moment], general: Callable[[str], str]) -> dict[tuple[str, str, str], list[Moment]]:
    kinds: dict[tuple[str, str, str], list[Moment]] = {}
    for moment in found:
        op = record.ops[moment.op]
        kinds.setdefault((op.phase, op.name, general(op.site)), []).append(moment)
    return kinds


Kind = tuple[str, str, str]  # phase, operator, site


@dataclass(frozen=True, slots=True)
class _Turns:
    """Moments of one kind in every record, and by how many they grow from one turn of a loop to the next (0: no loop)."""

    runs: tuple[list[Moment], ...]
    growth: int

    def comparable(self, end: str, place: int) -> bool:
        """Whether a place means the same moment at every depth: it lies outside the turn at the opposite end.

        Where more turns are seen, it must lie in the nearer half: the first and the last few turns may each be peculiar.
        """
        fewest = min(len(run) for run in self.runs)
        if not self.growth:
            return end == "first" and place < fewest
        return place < fewest - self.growth if fewest < 4 * self.growth else 2 * place < fewest

    def between(self, run: list[Moment], index: int) -> bool:
        return bool(self.growth) and self.growth <= index < len(run) - self.growth

    def bent(self, run: list[Moment], index: int, shift: Shift) -> bool:
        """Whether a moment in between is not below the mean of the same moment one turn before and one turn after.

        Where none is bent, the first or the last turn needs the most.
        """
        twice = run[index - self.growth].live + run[index + self.growth].live - 2 * run[index].live
        return twice != 0 and any(coefficient < 0 for coefficient in shift(twice).values())


def _turns(records: Sequence[Record], found: Sequence[Sequence[Moment]], general: Callable[[str], str]) -> dict[Kind, _Turns]:
    kinds = [_kinds(r, m, general) for r, m in zip(records, found, strict=True)]
    turns: dict[Kind, _Turns] = {}
    for kind in kinds[0]:
        if all(kind in other for other in kinds):
            runs = tuple(other[kind] for other in kinds)
            counts = sorted({len(run) for run in runs})
            turns[kind] = _Turns(runs, max((b - a for a, b in itertools.pairwise(counts)), default=0))
    return turns


def _bent(turns: Mapping[Kind, _Turns], shift: Shift) -> set[int]:
    """Identities of the moments in between that may need more than the turns beside them."""
    return {
        id(run[i])
        for turn in turns.values()
        for run in turn.runs
        for i in range(len(run))
        if turn.between(run, i) and turn.bent(run, i, shift)
    }


def peaks(
    records: Sequence[Record],
    step: int,
    algebra: Algebra,
    general: Callable[[str], str],
    interpolate: Callable[[Sequence[Poly]], Poly],
    bounds: Sequence[tuple[str, str]] = (),
) -> tuple[Peak, ...]:
    """The moments that can be the peak of ``step``, as closed forms over all records' loop counts."""
    found = [moments(r, step, algebra.parse) for r in records]
    runs = [labelled(r, m, general) for r, m in zip(records, found, strict=True)]
    turns = _turns(records, found, general)
    shift = Shift(algebra, bounds)
    bent = _bent(turns, shift)
    shared = [label for label in runs[0] if label[:3] in turns and turns[label[:3]].comparable(label[3], label[4])]
    _require_deep_enough(runs[-1], shared, bent)
    shared = [label for label in shared if any(_kept(run[label], turns[label[:3]], bent) for run in runs)]
    forms: dict[tuple[Poly, ...], Label] = {}
    for label in shared:
        forms.setdefault(tuple(run[label].live for run in runs), label)
    live = {label: interpolate(values) for values, label in forms.items()}
    kept = undominated(live, shift)
    each = [parts_at(record, [run[label].event for label in kept], algebra.parse) for record, run in zip(records, runs, strict=True)]
    return tuple(
        Peak(label, live[label], _parts([parts[run[label].event] for parts, run in zip(each, runs, strict=True)], algebra, interpolate))
        for label in kept
    )


def _kept(moment: Moment, turn: _Turns, bent: set[int]) -> bool:
    """Whether a moment is at an end of its kind, or bent."""
    if id(moment) in bent:
        return True
    return any(not turn.between(run, i) for run in turn.runs for i, m in enumerate(run) if m is moment)


def _require_deep_enough(run: Mapping[Label, Moment], shared: Sequence[Label], bent: set[int]) -> None:
    """Every bent moment of the deepest record must have a place that means the same at every depth."""
    covered = {id(run[label]) for label in shared}
    if any(id(moment) in bent and id(moment) not in covered for moment in run.values()):
        raise CertificateError("memory.peak", "a layer in between needs more memory than those beside it: record it deeper")


def _parts(each: Sequence[Mapping[str, Poly]], algebra: Algebra, interpolate: Callable[[Sequence[Poly]], Poly]) -> dict[str, Poly]:
    roles = dict.fromkeys(itertools.chain.from_iterable(each))
    return {role: interpolate([parts.get(role, algebra.parse(0)) for parts in each]) for role in roles}
