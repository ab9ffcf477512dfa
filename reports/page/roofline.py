"""The page of ``napkin roofline``: the figure with the position of every dot and line, its finding, and tables of the same numbers.

Both axes are logarithmic: FLOP per byte to the right, FLOP/s upwards. The roof is the device's. A dot is one kind of operator of the step;
its area is the share of the time. A dot on the roof takes as long as its bound; one below it waits for launches.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from calc.performance.roofline import RooflineRow, Sums
from reports.figures.roofline_bounds import RooflinePair, bounds, ceilings, finding, notes
from reports.figures.scales import trimmed
from reports.figures.shapes import Label
from reports.typeset.numbers import duration, integer, percent, rate, significant
from reports.typeset.wording import sizes_text

WIDTH, HEIGHT = 720, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 8, 96, 16, 40  # margins, in units of the drawing
_SEEN = Fraction(1, 1000)  # of the time, from which on an operator is drawn
_LARGEST = 26  # radius of a dot that takes all of the time
SECTIONS = {"figure": "The roofline", "phases": "Forward, backward and optimizer", "operators": "Operators", "notes": "Assumptions"}


@dataclass(frozen=True, slots=True)
class OperatorDot:
    x: str
    y: str
    radius: str
    css: str
    words: str


@dataclass(frozen=True, slots=True)
class RooflinePlot:
    """The figure: positions in units of the drawing. ``roofs``: (points of a polyline, its label)."""

    width: int
    height: int
    roofs: tuple[tuple[str, Label], ...]
    dots: tuple[OperatorDot, ...]
    across: tuple[Label, ...]
    upwards: tuple[Label, ...]
    keys: tuple[tuple[str, str, str], ...]
    left_out: str


@dataclass(frozen=True, slots=True)
class RooflinePage:
    """The whole page, with every number written."""

    model: str
    step: str
    subtitle: str
    sizes: str
    date: str
    finding: str
    description: str
    plot: RooflinePlot
    phases: tuple[tuple[str, ...], ...]
    operators: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]
    sections: Mapping[str, str]
    inputs: str = ""


def page(rooflines: RooflinePair, today: datetime.date) -> RooflinePage:
    """The page of a roofline: the step eager, and fused."""
    device = rooflines.eager.ceiling.device
    total = rooflines.eager.total.seconds
    drawn = [row for row in rooflines.eager.rows if row.flops and row.bytes and row.total >= total * _SEEN]
    ordered = sorted(rooflines.eager.rows, key=lambda row: -row.total)
    return RooflinePage(
        model=rooflines.model,
        step=f"a step on {device.name}",
        subtitle=", ".join(rooflines.options.values()),
        sizes=sizes_text(rooflines.sizes),
        date=today.isoformat(),
        finding=finding(rooflines),
        description=_description(rooflines, drawn),
        plot=_plot(rooflines, drawn),
        phases=tuple(_phases(rooflines)),
        operators=tuple(_operator(row, total) for row in ordered),
        notes=(*ceilings(rooflines), f"{device.name}: {device.source}", *notes(rooflines)),
        sections=SECTIONS,
    )


def _description(rooflines: RooflinePair, drawn: Sequence[RooflineRow]) -> str:
    device = rooflines.eager.ceiling.device.name
    text = f"{len(drawn)} kinds of operators by FLOP per byte and FLOP/s, both axes logarithmic, under the roof of {device}."
    longest = max(drawn, key=lambda row: row.total, default=None)
    if longest is None or longest.intensity is None:
        return text
    at = f"{longest.phase} {longest.name} at {longest.module_path or 'the top level'}"
    return f"{text} The largest dot is {at}, with {significant(longest.intensity)} FLOP per byte. The tables below have the numbers."


def _phases(rooflines: RooflinePair) -> Iterator[tuple[str, ...]]:
    rows = [(name, rooflines.eager.phase(name), rooflines.fused.phase(name)) for name in rooflines.eager.phases]
    for name, eager, fused in (*rows, ("step", rooflines.eager.total, rooflines.fused.total)):
        yield (name, *_counts(eager, fused), duration(eager.seconds), duration(fused.seconds), bounds(eager))


def _counts(eager: Sums, fused: Sums) -> tuple[str, ...]:
    return tuple(integer(n) for n in (eager.flops, eager.bytes, fused.bytes, eager.launches, fused.launches))


def _operator(row: RooflineRow, total: Fraction) -> tuple[str, ...]:
    intensity = "none" if row.intensity is None else significant(row.intensity)
    counts = (integer(row.times), integer(row.flops), integer(row.bytes), intensity)
    return (
        row.name,
        row.module_path or "(top level)",
        row.phase,
        *counts,
        row.bound,
        duration(row.total),
        percent(row.total / total) if total else "0",
    )


# -- positions -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _LogAxis:
    """A logarithmic axis from 10**low to 10**high, drawn from ``start`` to ``end``."""

    low: int
    high: int
    start: float
    end: float

    def at(self, value: float) -> float:
        return self.start + (math.log10(value) - self.low) / (self.high - self.low) * (self.end - self.start)


def _axis(values: Sequence[float], start: float, end: float) -> _LogAxis:
    """The axis between the powers of ten around the values."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return _LogAxis(low, max(high, low + 1), start, end)


def _plot(rooflines: RooflinePair, drawn: Sequence[RooflineRow]) -> RooflinePlot:
    at = rooflines.eager.ceiling
    roofs = [(name, float(at.device.peak(name)), float(at.ridge(name))) for name in rooflines.formats]
    reached = [row.flops / float(row.seconds) for row in drawn]
    intense = [float(row.intensity or 1) for row in drawn]
    x = _axis([*(ridge * 10 for _, _, ridge in roofs), *intense, 1.0], _LEFT, WIDTH - _RIGHT)
    y = _axis([*(peak for _, peak, _ in roofs), *reached, float(at.device.bandwidth)], HEIGHT - _BOTTOM, _TOP)
    total = float(rooflines.eager.total.seconds)
    return RooflinePlot(
        WIDTH,
        HEIGHT,
        tuple(_roof(name, peak, ridge, x, y) for name, peak, ridge in roofs),
        tuple(_dot(row, rate, x, y, total) for row, rate in sorted(zip(drawn, reached, strict=True), key=lambda pair: -pair[0].total)),
        tuple(Label(_power(p), f"{x.at(10.0**p):.1f}", f"{HEIGHT - _BOTTOM + 16}") for p in range(x.low, x.high + 1)),
        tuple(Label(_speed(p), f"{WIDTH - _RIGHT + 6}", f"{y.at(10.0**p):.1f}") for p in range(y.low, y.high + 1)),
        tuple(_keys(rooflines)),
        _left_out(rooflines, drawn),
    )


def _speed(power: int) -> str:
    """``10 TFLOP/s``: a power of ten without the zeros that precision would add."""
    return trimmed(rate(Fraction(10) ** power, "FLOP"))


def _power(power: int) -> str:
    return f"{10**power:,}" if power >= 0 else f"{10.0**power:g}"


def _roof(name: str, peak: float, ridge: float, x: _LogAxis, y: _LogAxis) -> tuple[str, Label]:
    """A polyline along the bandwidth to the ridge, then along the peak rate; it begins at the left or the lower edge."""
    begin = max(10.0**x.low, 10.0**y.low * ridge / peak)
    points = ((begin, begin * peak / ridge), (ridge, peak), (10.0**x.high, peak))
    label = Label(f"{rate(Fraction(peak), 'FLOP')} {name}", f"{x.at(10.0**x.high):.1f}", f"{y.at(peak) - 6:.1f}", "end")
    return " ".join(f"{x.at(a):.1f},{y.at(b):.1f}" for a, b in points), label


def _dot(row: RooflineRow, reached: float, x: _LogAxis, y: _LogAxis, total: float) -> OperatorDot:
    radius = max(2.0, _LARGEST * math.sqrt(float(row.total) / total))
    text = f"{row.phase} {row.name} at {row.module_path or 'the top level'}: {row.bound}, {duration(row.total)}"
    return OperatorDot(f"{x.at(float(row.intensity or 1)):.1f}", f"{y.at(reached):.1f}", f"{radius:.1f}", f"bound-{row.bound}", text)


def _keys(rooflines: RooflinePair) -> Iterator[tuple[str, str, str]]:
    total = rooflines.eager.total
    for bound, seconds in total.bounds.items():
        yield bound, f"bound-{bound}", percent(seconds / total.seconds) if total.seconds else "0"


def _left_out(rooflines: RooflinePair, drawn: Sequence[RooflineRow]) -> str:
    """Operators that are not drawn: copies, since 0 has no logarithm, and very short ones, which would stretch the axes."""
    total = rooflines.eager.total.seconds
    remaining = total - sum((row.total for row in drawn), start=Fraction(0))
    text = "Not drawn: operators that only move bytes, and those with less than a thousandth of the time"
    return f"{text}; together {percent(remaining / total)} of the time." if remaining else ""
