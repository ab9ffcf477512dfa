"""The drawing of live bytes over the step: positions of areas, lines and labels. The table beside it has the same numbers.

Areas are in units of operators and thousandths of the peak, stretched to the width of the page. Text is not stretched: its positions are
shares of that width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from calc.derive.live_bytes import Column, Timeline
from reports.figures.scales import round_step, short_bytes
from reports.figures.shapes import Area, Drawing, Label, css_class, percent
from reports.typeset.numbers import bytes_text

HEIGHT = 1000  # of the areas, in their own units
PLOT = 240  # of the areas, in pixels
TOP = 28  # room for the label of the peak
_NARROW = Fraction(6, 100)  # a phase of less of the width has no label
_ROWS = (TOP + PLOT + 17, TOP + PLOT + 33)


def drawing(timeline: Timeline) -> Drawing:
    """The drawing of a timeline."""
    areas = tuple(_areas(timeline))
    end = max((c.last + 1 for c in timeline.columns), default=1)
    return Drawing(
        width=end,
        height=HEIGHT,
        areas=areas,
        ticks=tuple(_ticks(timeline.peak.total)),
        phases=tuple(_phases(timeline, end)),
        borders=tuple(percent(Fraction(first, end)) for _, first, _ in timeline.phases[1:]),
        peak=_peak(timeline, end),
    )


def _areas(timeline: Timeline) -> Iterator[Area]:
    """One area for each role, stacked from the bottom in the order of ``Timeline.roles``."""
    below = [0] * len(timeline.columns)
    for role in timeline.roles:
        above = [b + c.high.live.get(role, 0) for b, c in zip(below, timeline.columns, strict=True)]
        yield Area(role, css_class(role), _path(timeline.columns, above, below, timeline.peak.total))
        below = above


def _path(columns: Sequence[Column], above: Sequence[int], below: Sequence[int], largest: int) -> str:
    """An SVG path along the upper edge to the right and along the lower edge back, in steps."""
    upper = _edge([(c.first, c.last + 1, _height(v, largest)) for c, v in zip(columns, above, strict=True)])
    lower = _edge([(c.last + 1, c.first, _height(v, largest)) for c, v in zip(reversed(columns), reversed(below), strict=True)])
    return f"M0 {HEIGHT}{upper}{lower}Z"


def _edge(steps: Sequence[tuple[int, int, int]]) -> str:
    """SVG commands for the steps of an edge; neighbors of equal height are merged."""
    levels: list[tuple[int, int]] = []
    for _, stop, height in steps:
        if levels and levels[-1][0] == height:
            levels[-1] = (height, stop)
        else:
            levels.append((height, stop))
    return "".join(f"V{height}H{stop}" for height, stop in levels)


def _height(value: int, largest: int) -> int:
    return HEIGHT - (value * HEIGHT + largest // 2) // max(largest, 1)


def _ticks(largest: int) -> Iterator[Label]:
    """A few round numbers of bytes, from 0."""
    step = round_step(largest)
    for value in range(0, largest + 1, step):
        y = TOP + PLOT - round(Fraction(value * PLOT, max(largest, 1)))
        yield Label(short_bytes(value), "", str(y))


def _phases(timeline: Timeline, end: int) -> Iterator[Label]:
    """Names of the phases that are wide enough, alternating between two rows so that neighbors do not touch."""
    wide = [(phase, first, last) for phase, first, last in timeline.phases if Fraction(last + 1 - first, end) >= _NARROW]
    for i, (phase, first, last) in enumerate(wide):
        ends = Fraction(first, end) > Fraction(7, 10)
        at = Fraction(last + 1 if ends else first, end)
        yield Label(phase.replace("_", " "), percent(at), str(_ROWS[i % 2]), "end" if ends else "start")


def _peak(timeline: Timeline, end: int) -> Label:
    at = Fraction(2 * max(timeline.peak.op, 0) + 1, 2 * end)
    anchor = "start" if at < Fraction(1, 2) else "end"
    return Label(f"peak {bytes_text(timeline.peak.total)}", percent(at), str(TOP - 12), anchor)
