"""Peak memory: live bytes after every operator of a step, as polynomials, reduced to the moments that can be the peak.

Moments of runs at different loop counts are matched by what happened (phase, operator, site) and by their place counted
from the first such moment or from the last; between the two, live bytes change by the same amount each layer, so one
of the ends is at least as high. That argument is not taken on trust: certificates compare every kept moment, and the
maximum, with recordings at other depths and sizes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calc.algebra import Algebra, Poly
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


def parts_at(record: Record, event: int, read: Callable[[Size], Any]) -> dict[str, Any]:
    """Live bytes by role after the event with that index."""
    parts: dict[str, Any] = {}
    for e in record.events[: event + 1]:
        storage = record.storages[e.storage]
        nbytes = read(storage.nbytes)
        parts[storage.role] = parts.get(storage.role, read(0)) + (nbytes if e.change > 0 else -nbytes)
    return {role: value for role, value in parts.items() if value != 0}


def labelled(record: Record, found: Sequence[Moment], general: Callable[[str], str]) -> dict[Label, Moment]:
    """Each moment under its place counted from the first and from the last of its kind."""
    kinds: dict[tuple[str, str, str], list[Moment]] = {}
    for moment in found:
        op = record.ops[moment.op]
        kinds.setdefault((op.phase, op.name, general(op.site)), []).append(moment)
    labels: dict[Label, Moment] = {}
    for (phase, name, site), group in kinds.items():
        for place, moment in enumerate(group):
            labels[phase, name, site, "first", place] = moment
            labels[phase, name, site, "last", len(group) - 1 - place] = moment
    return labels


def peaks(
    records: Sequence[Record],
    step: int,
    algebra: Algebra,
    general: Callable[[str], str],
    interpolate: Callable[[Sequence[Poly]], Poly],
) -> tuple[Peak, ...]:
    """The moments that can be the peak of ``step``, as closed forms over all records' loop counts."""
    runs = [labelled(r, moments(r, step, algebra.parse), general) for r in records]
    shared = [label for label in runs[0] if all(label in run for run in runs)]
    forms: dict[tuple[Poly, ...], Label] = {}
    for label in shared:
        forms.setdefault(tuple(run[label].live for run in runs), label)
    live = {label: interpolate(values) for values, label in forms.items()}
    kept = undominated(live, algebra)
    return tuple(Peak(label, live[label], _parts(label, records, runs, algebra, interpolate)) for label in kept)


def _parts(label: Label, records: Sequence[Record], runs: Sequence[Mapping[Label, Moment]], algebra: Algebra, interpolate: Any) -> dict[str, Poly]:
    each = [parts_at(record, run[label].event, algebra.parse) for record, run in zip(records, runs, strict=True)]
    roles = dict.fromkeys(itertools.chain.from_iterable(each))
    return {role: interpolate([parts.get(role, algebra.parse(0)) for parts in each]) for role in roles}


def undominated(live: Mapping[Label, Poly], algebra: Algebra) -> list[Label]:
    """Labels whose polynomial is not below another one's wherever all sizes are at least 1.

    ``p ≤ q`` for all sizes ≥ 1 follows when ``q - p`` has no negative coefficient after each size x is written 1 + x'.
    """
    labels = list(live)
    matrix = _shifted([live[label] for label in labels])
    order = sorted(range(len(labels)), key=lambda i: (-sum(matrix[i]), i))
    kept: list[int] = []
    for i in order:
        if not any((matrix[i] <= matrix[j]).all() for j in kept):
            kept = [j for j in kept if not (matrix[j] <= matrix[i]).all()] + [i]
    return [labels[i] for i in sorted(kept)]


def _shifted(polys: Sequence[Poly]) -> np.ndarray[Any, Any]:
    """Coefficients of each polynomial after x → 1 + x', one row each. Exact: entries are Python integers or rationals."""
    columns: dict[tuple[int, ...], int] = {}
    expansion: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for poly in polys:
        for monomial in poly.monoms():
            if monomial not in expansion:
                expansion[monomial] = [(columns.setdefault(m, len(columns)), c) for m, c in _expand(monomial)]
    matrix = np.zeros((len(polys), len(columns)), dtype=object)
    for row, poly in enumerate(polys):
        for monomial, coefficient in poly.terms():
            for column, times in expansion[monomial]:
                matrix[row, column] += coefficient * times
    if all(getattr(c, "denominator", 1) == 1 and abs(c) < 2**62 for c in matrix.flat):
        return matrix.astype(np.int64)
    return matrix


def _expand(monomial: tuple[int, ...]) -> list[tuple[tuple[int, ...], int]]:
    """(1 + x)^a (1 + y)^b … multiplied out."""
    terms: list[tuple[tuple[int, ...], int]] = [((0,) * len(monomial), 1)]
    for position, power in enumerate(monomial):
        for _ in range(power):
            raised: dict[tuple[int, ...], int] = {}
            for m, c in terms:
                raised[m] = raised.get(m, 0) + c
                up = (*m[:position], m[position] + 1, *m[position + 1 :])
                raised[up] = raised.get(up, 0) + c
            terms = list(raised.items())
    return terms
