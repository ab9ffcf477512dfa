"""The trip counts at which a step is traced and certified. A loop is over layers, or over time steps inside them.

Two trip counts determine what one iteration adds. From 3 on there is an iteration between the first and the last, from 5 on there are
three; more trip counts determine a polynomial of higher degree. A step may need both: where each iteration takes its part of one tensor,
it makes the gradient of the whole, and several iterations at the ends differ in what is alive. Every loop multiplies the number of traces,
so of several loops only the inner ones, whose iterations are many and small, start higher.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Protocol

Counts = tuple[int, ...]

# Trip counts by attempt: of the only loop ...
_ALONE: tuple[Counts, ...] = ((3, 4), (5, 6), (7, 8), (3, 4, 5), (3, 4, 5, 6), (5, 6, 7), (9, 10, 11))
# ... and those of the outermost loop and of the others.
_NESTED: tuple[tuple[Counts, Counts], ...] = (
    ((3, 4), (6, 7)),
    ((3, 4), (8, 9)),
    ((5, 6), (8, 9)),
    ((3, 4), (6, 7, 8)),
    ((3, 4), (9, 10, 11)),
    ((3, 4, 5), (6, 7, 8)),
    ((3, 4, 5), (6, 7, 8, 9)),
)


class Bounded(Protocol):
    """A dimension, which may be at most another one."""

    @property
    def at_most(self) -> str | None: ...


def limits(loops: Sequence[str], dims: Mapping[str, Bounded], basis: Mapping[str, str]) -> dict[str, str]:
    """Loops that run no more iterations than another one, each with that one, or than a number in ``basis``, which defines dimensions: over
    the experts that were chosen, and over all."""
    bounds = {name: dims[name].at_most or "" for name in loops if name in dims}
    return {name: bound for name, bound in bounds.items() if bound in loops or basis.get(bound, bound).isdigit()}


def traced_counts(attempt: int, loops: Sequence[str], limits: Mapping[str, str] = {}) -> dict[str, Counts]:
    """The trip counts at which each loop is traced with symbolic sizes; ``loops`` are in the order of their discovery. ``limits`` are
    loops that run no more iterations than another one."""
    if len(loops) < 2:
        return dict.fromkeys(loops, _ALONE[min(attempt, len(_ALONE) - 1)])  # the second loop may not be discovered yet
    few, more = _NESTED[attempt]
    outer = {loops[0], *limits} - {*limits.values()}
    return {name: few if name in outer else more for name in loops}


def certified_counts(attempt: int, loops: Sequence[str], limits: Mapping[str, str] = {}) -> list[dict[str, int]]:
    """Trip counts for the two certificates, larger than the traced ones and different in every loop."""
    most = {name: counts[-1] for name, counts in traced_counts(attempt, loops, limits).items()}
    return [{name: most[name] + 1 + (number + i) % 2 for i, name in enumerate(loops)} for number in range(2)]


def first_attempt(irregular: int) -> int:
    """The first attempt for a loop whose first ``irregular`` iterations differ from the rest: it must trace more iterations than these."""
    return next((attempt for attempt, counts in enumerate(_ALONE) if counts[0] > irregular), 0)


def next_attempt(attempt: int, loops: Sequence[str], degree: bool) -> int | None:
    """The attempt after one that did not determine the closed forms; None after the last. ``degree``: only a higher degree can help, with
    as many iterations if there is such an attempt: fewer of them did not suffice before."""
    later = range(attempt + 1, len(_ALONE if len(loops) < 2 else _NESTED))
    higher = [number for number in later if not degree or _points(number, loops) > _points(attempt, loops)]
    least = _fewest(attempt, loops)
    as_many = (number for number in higher if degree and all(map(operator.ge, _fewest(number, loops), least)))
    return next(as_many, next(iter(higher), None))


def attempt_of(loops: Sequence[str], traces: Sequence[Mapping[str, int]], limits: Mapping[str, str] = {}) -> int:
    """The first attempt whose trip counts are those of ``traces``; 0 where there is no loop."""
    met = {name: tuple(sorted({sizes[name] for sizes in traces})) for name in loops}
    tried = range(len(_ALONE if len(loops) < 2 else _NESTED))
    return next((attempt for attempt in tried if traced_counts(attempt, loops, limits) == met), 0)


def _points(attempt: int, loops: Sequence[str]) -> int:
    return sum(map(len, traced_counts(attempt, loops).values()))


def _fewest(attempt: int, loops: Sequence[str]) -> list[int]:
    return [counts[0] for counts in traced_counts(attempt, loops).values()]


def fewest(traces: Sequence[Mapping[str, int]], loop: str) -> int:
    """The smallest traced trip count of a loop."""
    return min(sizes[loop] for sizes in traces)
