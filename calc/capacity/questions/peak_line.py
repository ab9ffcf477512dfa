"""The memory peak as a line in one size, ``a·B + b``, and the range of sizes in which its candidate is the largest. SymPy-free.

The largest of several lines is convex, so one of them is the largest in one interval, whose ends follow from its crossings with the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

Values = Callable[[int], Sequence[Fraction] | None]


class Stepped(Protocol):
    """A dimension: its sizes are multiples of a number, plus another."""

    @property
    def multiple_of(self) -> int | str | None: ...


@dataclass(frozen=True, slots=True)
class PeakLine:
    """``slope`` times the size plus ``offset`` bytes; the peak from ``first`` to ``last`` (None: for all larger sizes)."""

    slope: Fraction
    offset: Fraction
    first: int
    last: int | None

    def text(self, symbol: str) -> str:
        """``1254097668*B + 3019898880``."""
        return f"{self.slope}*{symbol} {'-' if self.offset < 0 else '+'} {abs(self.offset)}"

    def range(self, symbol: str) -> str:
        """``B from 2 to 17`` or ``B from 18``."""
        return f"{symbol} from {self.first:,}" + ("" if self.last is None else f" to {self.last:,}")


def line_through(values: Values, dim: Stepped, size: int, peak: Callable[[int], int]) -> PeakLine | None:
    """The line of the candidate that is the largest at ``size``. ``values`` are those of all candidates at a size; None if it is invalid.

    None where sizes have gaps, where there is no closed form, where a candidate is no line, or where the step runs other operators at
    sizes in which it is.
    """
    points = [size, size + 1, size + 2, size + 5]
    at = [values(point) for point in points]
    if dim.multiple_of is not None or any(v is None for v in at):
        return None
    rows = list(zip(*(v for v in at if v is not None), strict=True))
    lines = [(row[1] - row[0], row[0] - (row[1] - row[0]) * size) for row in rows]
    if not lines or any(a * point + b != v for (a, b), row in zip(lines, rows, strict=True) for point, v in zip(points, row, strict=True)):
        return None
    slope, offset = max(lines, key=lambda line: (line[0] * size + line[1], line[0]))
    first, last = _interval(slope, offset, lines)
    while first < size and peak(first) != slope * first + offset:  # a special case, as at B = 1
        first += 1
        if first > 3:
            return None
    if any(peak(point) != slope * point + offset for point in points if last is None or point <= last):  # ``size`` is a special case
        return None
    return PeakLine(slope, offset, first, last)


def _interval(slope: Fraction, offset: Fraction, lines: Sequence[tuple[Fraction, Fraction]]) -> tuple[int, int | None]:
    """The whole sizes from 1 on at which no line is above the one of ``slope`` and ``offset``."""
    first, last = 1, None
    for a, b in lines:
        if a == slope:
            continue
        crossing = (b - offset) / (slope - a)
        if a < slope:
            first = max(first, math.ceil(crossing))
        else:
            last = math.floor(crossing) if last is None else min(last, math.floor(crossing))
    return first, last
