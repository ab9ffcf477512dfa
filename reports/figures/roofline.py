"""The roofline of a step on a device: one dot for each module under the device's rates, both axes logarithmic.

``napkin roofline`` draws every operator; here a dot is a module, forward and backward together, and the optimizer is one dot. A dot on the
roof takes as long as its bound; one below it partly waits for memory or launches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

from calc.performance.roofline import Sums
from reports.figures.roofline_bounds import RooflinePair, bounds, ceilings, finding
from reports.figures.scales import Logarithmic, around, short_power
from reports.figures.shapes import ROOFLINE as ANCHOR
from reports.figures.shapes import Figure, Key, Label, SvgCircle, SvgLine, apart, letter, percent
from reports.typeset import numbers
from reports.typeset.numbers import NBSP
from reports.typeset.wording import several

_TOP, _PLOT = 30, 230
_LARGEST = 22  # radius of a dot that takes all of the time, in pixels
_LETTERED = 8
_ROOM = Fraction(45, 100)  # of the width, for the name of a roof
_INSIDE = 9  # pixels: a dot with a smaller radius has its letter beside it
_HEADS = ("FLOP", "Bytes", "FLOP per byte", "FLOP/s", "Time", "Of the step")
_NARROWEST, _ABREAST = 230, 16  # pixels: the width of a plot on a small screen, and the least distance of two letters on it


def figure(rooflines: RooflinePair) -> Figure:
    """The figure of a step under a device's roofline, or one without a drawing that says why."""
    device = rooflines.eager.ceiling.device
    modules = rooflines.eager.by_module()
    drawn = [(i, module_path, sums) for i, (module_path, sums) in enumerate(modules) if sums.flops and sums.bytes and sums.seconds]
    title = f"Roofline on {device.name}, by module"
    if not drawn or not rooflines.formats:
        return Figure(ANCHOR, title, absent="the step has no matmul, or no module with both FLOPs and memory traffic")
    x, y = _axes(rooflines, [sums for _, _, sums in drawn])
    lettered = {i: letter(n) for n, i in enumerate(_to_be_named(drawn, x, y))}
    return Figure(
        ANCHOR,
        title,
        description=f"{several(len(drawn), 'module')} by FLOP per byte and FLOP/s under the roof of {device.name}, both axes logarithmic;"
        " the area of a dot is its share of the time. The table below has the numbers.",
        finding=" ".join((finding(rooflines), f"Ceilings: {ceilings(rooflines)[0]}.", _left_out(modules, len(drawn)))).strip(),
        height=_TOP + _PLOT + 38,
        axis=(Label("FLOP/s", "100%", "12", "end"), *(Label(short_power(p), "100%", _down(y, 10.0**p, 4), "end") for p in y.powers)),
        lines=(*(SvgLine("tick", "0", _down(y, 10.0**p), "100%", _down(y, 10.0**p)) for p in y.powers), *_roofs(rooflines, x, y)),
        dots=tuple(_dot(sums, rooflines, x, y) for _, _, sums in drawn),
        labels=(*_roof_names(rooflines, x, y), *_letters(drawn, lettered, rooflines, x, y), *_ticks(x)),
        keys=tuple(_keys(rooflines)),
        columns=(("Module path", "text"), *((head, "number") for head in _HEADS), ("Bound by", "text")),
        rows=tuple(_rows(modules, lettered, rooflines)),
        folded=f"{several(len(modules), 'module')}, eager, slowest first{'; a letter names a dot of the drawing' if lettered else ''}",
    )


def _rows(modules: Sequence[tuple[str, Sums]], lettered: dict[int, str], rooflines: RooflinePair) -> Iterator[tuple[str, ...]]:
    whole = rooflines.eager.total.seconds
    for i, (module_path, sums) in enumerate(modules):
        intensity = numbers.significant(Fraction(sums.flops, sums.bytes)) if sums.bytes else "none"
        rate = numbers.rate(sums.flops / sums.seconds, "FLOP") if sums.seconds else "none"
        share = numbers.percent(sums.seconds / whole) if whole else "0"
        head = f"{lettered[i]}: {module_path}" if i in lettered else module_path
        counts = numbers.integer(sums.flops), numbers.integer(sums.bytes)
        yield head, *counts, intensity, rate, numbers.duration(sums.seconds), share, bounds(sums)


def _keys(rooflines: RooflinePair) -> Iterator[Key]:
    total = rooflines.eager.total
    for bound, seconds in total.bounds.items():
        if seconds:
            yield Key("", f"bound-{bound}", f"bound by {bound}", numbers.duration(seconds), numbers.percent(seconds / total.seconds))


def _left_out(modules: Sequence[tuple[str, Sums]], drawn: int) -> str:
    left = len(modules) - drawn
    return f"Not drawn, without arithmetic or memory traffic: {several(left, 'module')}." if left else ""


# -- positions -----------------------------------------------------------------------------------------------------------


def _axes(rooflines: RooflinePair, sums: Sequence[Sums]) -> tuple[Logarithmic, Logarithmic]:
    at = rooflines.eager.ceiling
    ridges = [at.ridge(name) for name in rooflines.formats]
    peaks = [at.device.peak(name) for name in rooflines.formats]
    x = around([*ridges, *(Fraction(s.flops, s.bytes) for s in sums)], 0.3, 0.2)
    y = around([*peaks, *(s.flops / s.seconds for s in sums)], 0.3, 0.3)
    return x, y


def _down(y: Logarithmic, value: float | Fraction, below: int = 0) -> str:
    return str(_height(y, value) + below)


def _height(y: Logarithmic, value: float | Fraction) -> int:
    return _TOP + round((1 - y.at(value)) * _PLOT)


def _roofs(rooflines: RooflinePair, x: Logarithmic, y: Logarithmic) -> Iterator[SvgLine]:
    """For each peak rate: a line along the bandwidth to the ridge, and one along the peak."""
    at = rooflines.eager.ceiling
    for name in rooflines.formats:
        peak, ridge = float(at.device.peak(name)), float(at.ridge(name))
        begin = max(10.0**x.low, 10.0**y.low * ridge / peak)
        yield SvgLine("roof", percent(x.at(begin)), _down(y, begin * peak / ridge), percent(x.at(ridge)), _down(y, peak))
        yield SvgLine("roof", percent(x.at(ridge)), _down(y, peak), "100%", _down(y, peak))


def _roof_names(rooflines: RooflinePair, x: Logarithmic, y: Logarithmic) -> Iterator[Label]:
    """Names of the peak rates: left of the ridge, where no dot can be, or above the plot if that is too narrow. Near names move apart."""
    at = rooflines.eager.ceiling
    ridges = [x.at(at.ridge(name)) for name in rooflines.formats]
    heights = [_height(y, at.device.peak(name)) - 6 if ridge > _ROOM else 12 for name, ridge in zip(rooflines.formats, ridges, strict=True)]
    for i, height in apart([(float(h), i) for i, h in enumerate(heights)], 15).items():
        name = rooflines.formats[i]
        words = f"{numbers.rate(at.device.peak(name), 'FLOP')}{NBSP}{name}{NBSP}"
        yield Label(words, percent(ridges[i]) if ridges[i] > _ROOM else "100%", str(round(height)), "end")


def _place(sums: Sums, x: Logarithmic, y: Logarithmic) -> tuple[Fraction, int]:
    return x.at(Fraction(sums.flops, sums.bytes)), _height(y, sums.flops / sums.seconds)


def _radius(sums: Sums, rooflines: RooflinePair) -> float:
    return max(2.0, _LARGEST * math.sqrt(float(sums.seconds / rooflines.eager.total.seconds)))


def _dot(sums: Sums, rooflines: RooflinePair, x: Logarithmic, y: Logarithmic) -> SvgCircle:
    at, height = _place(sums, x, y)
    return SvgCircle(f"dot bound-{sums.dominant}", percent(at), str(height), f"{_radius(sums, rooflines):.1f}")


def _to_be_named(drawn: Sequence[tuple[int, str, Sums]], x: Logarithmic, y: Logarithmic) -> list[int]:
    """Indices of the slowest modules whose letters do not touch on a small screen."""
    taken: list[tuple[float, int]] = []
    lettered: list[int] = []
    for i, _, sums in drawn:
        share, height = _place(sums, x, y)
        across = float(share) * _NARROWEST
        if len(lettered) < _LETTERED and all(abs(across - a) > _ABREAST or abs(height - h) > _ABREAST for a, h in taken):
            taken.append((across, height))
            lettered.append(i)
    return lettered


def _letters(
    drawn: Sequence[tuple[int, str, Sums]], lettered: dict[int, str], rooflines: RooflinePair, x: Logarithmic, y: Logarithmic
) -> Iterator[Label]:
    """The letter of a dot: inside it, or above and left of a small one."""
    for i, _, sums in drawn:
        if i in lettered:
            (at, height), radius = _place(sums, x, y), _radius(sums, rooflines)
            words, down, anchor = (f"{lettered[i]}{NBSP}", -2, "end") if radius < _INSIDE else (lettered[i], 4, "middle")
            yield Label(words, percent(at), str(height + down), anchor)


def _ticks(x: Logarithmic) -> Iterator[Label]:
    for power in x.powers:
        at = x.at(10.0**power)
        anchor = "start" if at < Fraction(5, 100) else "end" if at > Fraction(95, 100) else "middle"
        yield Label(short_power(power), percent(at), str(_TOP + _PLOT + 16), anchor)
    yield Label("FLOP per byte", "50%", str(_TOP + _PLOT + 32), "middle")
