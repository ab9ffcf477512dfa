"""How many turns of its loops a step is recorded with, and certified at. A loop is over layers, or over time inside them.

Two counts tell what a turn adds; from 3 turns on, one in between is seen beside the first and the last, from 5 on three of them; more
counts determine a polynomial of higher degree. Every loop multiplies the number of recordings, so where there are several only the
inner ones, whose turns are many and small, begin higher.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Counts = tuple[int, ...]

# What is tried one after the other: the counts of the only loop ...
_ALONE: tuple[Counts, ...] = ((3, 4), (5, 6), (7, 8), (3, 4, 5), (3, 4, 5, 6))
# ... and those of the outermost loop and of the others.
_NESTED: tuple[tuple[Counts, Counts], ...] = (
    ((3, 4), (6, 7)),
    ((3, 4), (8, 9)),
    ((5, 6), (8, 9)),
    ((3, 4), (6, 7, 8)),
    ((3, 4, 5), (6, 7, 8)),
    ((3, 4, 5), (6, 7, 8, 9)),
)


def traced_counts(attempt: int, loops: Sequence[str]) -> dict[str, Counts]:
    """The counts at which each loop is recorded with symbolic sizes; ``loops`` are in the order in which they were found."""
    if len(loops) < 2:
        return dict.fromkeys(loops, _ALONE[min(attempt, len(_ALONE) - 1)])  # the second loop may not have been met yet
    first, rest = _NESTED[attempt]
    return {name: rest if number else first for number, name in enumerate(loops)}


def certified_counts(attempt: int, loops: Sequence[str]) -> list[dict[str, int]]:
    """Two further counts of each loop for the certificates, which differ in all loops."""
    most = {name: counts[-1] for name, counts in traced_counts(attempt, loops).items()}
    return [{name: most[name] + 1 + (number + i) % 2 for i, name in enumerate(loops)} for number in range(2)]


def first_attempt(apart: int) -> int:
    """What to try first of a loop whose first ``apart`` turns are not like the others: those after them have to be the most."""
    return next((attempt for attempt, counts in enumerate(_ALONE) if counts[0] > apart), 0)


def next_attempt(attempt: int, loops: Sequence[str], degree: bool) -> int | None:
    """What to try after counts that did not tell enough, or nothing. ``degree``: only a higher degree can help."""
    for later in range(attempt + 1, len(_ALONE if len(loops) < 2 else _NESTED)):
        if not degree or _points(later, loops) > _points(attempt, loops):
            return later
    return None


def attempt_of(loops: Sequence[str], traces: Sequence[Mapping[str, int]]) -> int:
    """The first attempt that has the counts which were recorded; that of no loop is the first of all."""
    met = {name: tuple(sorted({sizes[name] for sizes in traces})) for name in loops}
    tried = range(len(_ALONE if len(loops) < 2 else _NESTED))
    return next((attempt for attempt in tried if traced_counts(attempt, loops) == met), 0)


def _points(attempt: int, loops: Sequence[str]) -> int:
    return sum(map(len, traced_counts(attempt, loops).values()))


def fewest(traces: Sequence[Mapping[str, int]], loop: str) -> int:
    """The smallest count of a loop that was recorded."""
    return min(sizes[loop] for sizes in traces)
