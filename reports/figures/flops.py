"""FLOPs of a step by part, over the size with the highest degree; both axes logarithmic, so that a power law is a straight line."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

from calc.derive.scaling import FlopsByPart, Part
from calc.symbolic.readable import superscript
from calc.units import Unit
from reports.figures.scales import Logarithmic, short_power, whole_powers
from reports.figures.shapes import WHOLE, Curve, Figure, Key, Label, SvgLine, apart, letter, percent
from reports.typeset import numbers
from reports.typeset.numbers import NBSP
from reports.typeset.wording import several

ANCHOR = "figure-flops"
_TOP, _PLOT = 40, 190
_ROWS = (12, 28)  # of the labels above the plot
_WIDTH = Fraction(96, 100)  # of the curves; their letters are to the right
_TICKS = 4
_LISTED = 3  # named in the finding


def flops(split: FlopsByPart) -> Figure:
    """The figure of a step's FLOPs by part, or one without a drawing that says why."""
    title = f"FLOPs by part over {split.dim}" if split.dim else "FLOPs by part"
    if not split.points:
        return Figure(ANCHOR, title, absent=split.because)
    names = [part_name(part, split.dim) for part in split.parts]
    x = Logarithmic(math.log10(split.points[0].size), math.log10(split.points[-1].size))
    y = whole_powers([v for p in split.points for v in p.values.values() if v > 0])
    return Figure(
        ANCHOR,
        title,
        description=f"FLOPs of a step over {split.dim}, both axes logarithmic: {'; '.join(names)}. The table below has the numbers.",
        finding=finding(split),
        height=_TOP + _PLOT + 38,
        top=_TOP,
        plot=_PLOT,
        axis=(Label("FLOP", "100%", str(_ROWS[0]), "end"), *(Label(short_power(p), "100%", _down(y, 10.0**p, 4), "end") for p in y.powers)),
        lines=(*(SvgLine("tick", "0", _down(y, 10.0**p), "100%", _down(y, 10.0**p)) for p in y.powers), *_uprights(split, x)),
        curves=tuple(Curve(_css(i, part), _path(split, part, x, y)) for i, part in enumerate(split.parts)),
        labels=(*_marks(split, x), *_letters(split, y), *_ticks(split, x)),
        keys=tuple(_key(i, part, split) for i, part in enumerate(split.parts)),
        columns=((split.dim, "text"), *((name, "number") for name in names), ("all FLOPs", "number")),
        rows=tuple(_rows(split)),
        folded=f"FLOPs at {len(split.points)} sizes",
    )


def part_name(part: Part, dim: str) -> str:
    """The name of a part: ``matmuls growing with T²``."""
    if part is None:
        return "elementwise arithmetic"
    return f"matmuls growing with {_power(dim, part)}" if part else f"matmuls independent of {dim}"


def _power(dim: str, power: int) -> str:
    return dim if power == 1 else f"{dim}{superscript(power)}"


# -- text ----------------------------------------------------------------------------------------------------------------


def finding(split: FlopsByPart) -> str:
    """The shares at the present size, where the highest power overtakes the others, and which limits follow the size."""
    split_here, highest = split.at_hand, split.parts[0]
    shares = ", ".join(
        f"{part_name(p, split.dim)} {numbers.percent(Fraction(split_here.values.get(p, 0), split_here.total))}" for p in split.parts
    )
    total = numbers.amount(split_here.total, Unit.FLOP).headline
    text = f"At {_sized(split.dim, split.size)}, the step takes {total}: {shares}."
    if highest is not None:
        text += f" {_overtaking(split, highest)}"
    for limit in split.raised:
        text += f" Where {split.dim} exceeds {limit}, {limit} is raised to {split.dim}."
    if split.refused:
        refused = ", ".join(map(numbers.integer, split.refused))
        text += f" Left out, because the closed forms do not hold there: {split.dim}{NBSP}={NBSP}{refused}."
    return text


def _overtaking(split: FlopsByPart, highest: int) -> str:
    name = part_name(highest, split.dim)
    if highest < 2:
        return f"No matmul grows faster than {split.dim}."
    where = f" (at {_listed(split.module_paths)})" if split.module_paths else ""
    name = f"{_upper(name)}{where}"
    if split.crossover is not None:
        return f"{name} are at least half of all matmul FLOPs from {_sized(split.dim, split.crossover)}."
    over = [2 * p.values.get(highest, 0) >= sum(v for part, v in p.values.items() if part is not None) for p in split.points]
    span = f"from {_sized(split.dim, split.points[0].size)} to {numbers.integer(split.points[-1].size)}"
    if all(over):
        return f"{name} are at least half of all matmul FLOPs at every size drawn, {span}."
    return f"{name} are less than half of all matmul FLOPs at every size drawn, {span}." if not any(over) else ""


def _listed(module_paths: Sequence[str]) -> str:
    omitted = f" and {several(len(module_paths) - _LISTED, 'other module')}" if len(module_paths) > _LISTED else ""
    return f"{', '.join(module_paths[:_LISTED])}{omitted}"


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _sized(dim: str, size: int) -> str:
    return f"{dim}{NBSP}={NBSP}{numbers.integer(size)}"


def _key(number: int, part: Part, split: FlopsByPart) -> Key:
    split_here = split.at_hand
    value = split_here.values.get(part, 0)
    written, share = numbers.amount(value, Unit.FLOP).headline, numbers.percent(Fraction(value, split_here.total))
    return Key(letter(number), _css(number, part), part_name(part, split.dim), written, share, line=True)


def _rows(split: FlopsByPart) -> Iterator[tuple[str, ...]]:
    for point in split.points:
        note = "here" if point.size == split.size else "overtakes" if point.size == split.crossover else ""
        head = f"{numbers.integer(point.size)}{f' ({note})' if note else ''}"
        yield (head, *(numbers.integer(point.values.get(part, 0)) for part in split.parts), numbers.integer(point.total))


# -- positions -----------------------------------------------------------------------------------------------------------


def _css(number: int, part: Part) -> str:
    return f"curve curve-{'other' if part is None else min(number, 2)}"


def _across(x: Logarithmic, size: int) -> str:
    return percent(x.at(size) * _WIDTH)


def _down(y: Logarithmic, value: float, below: int = 0) -> str:
    return str(_TOP + round((1 - y.at(value)) * _PLOT) + below)


def _path(split: FlopsByPart, part: Part, x: Logarithmic, y: Logarithmic) -> str:
    """An SVG path through the points with a positive value; 0 has no logarithm."""
    path, pen = "", "M"
    for point in split.points:
        value = point.values.get(part, 0)
        if value > 0:
            path += f"{pen}{round(x.at(point.size) * WHOLE)} {round((1 - y.at(value)) * WHOLE)}"
        pen = "L" if value > 0 else "M"
    return path


def _marked(split: FlopsByPart) -> Iterator[tuple[int, str, int]]:
    yield split.size, f"here, {_sized(split.dim, split.size)}", _ROWS[0]
    if split.crossover is not None and split.crossover != split.size:
        yield split.crossover, f"overtakes, {_sized(split.dim, split.crossover)}", _ROWS[1]


def _uprights(split: FlopsByPart, x: Logarithmic) -> Iterator[SvgLine]:
    for size, _, row in _marked(split):
        yield SvgLine("border", _across(x, size), str(row - 8), _across(x, size), str(_TOP + _PLOT))


def _marks(split: FlopsByPart, x: Logarithmic) -> Iterator[Label]:
    for size, text, row in _marked(split):
        yield Label(f"{NBSP}{text}{NBSP}", _across(x, size), str(row), "start" if x.at(size) < Fraction(1, 2) else "end")


def _letters(split: FlopsByPart, y: Logarithmic) -> Iterator[Label]:
    """A letter at the right end of each curve, so that curves differ by more than their color."""
    last = split.points[-1].values
    places = [(float((1 - y.at(last[part])) * _PLOT), i) for i, part in enumerate(split.parts) if last.get(part, 0) > 0]
    for number, height in apart(places, 14).items():
        yield Label(letter(number), "100%", str(_TOP + round(height) + 4), "end")


def _ticks(split: FlopsByPart, x: Logarithmic) -> Iterator[Label]:
    """A few doublings and halvings of the present size."""
    sizes = [point.size for point in split.points if point.size != split.crossover or point.size == split.size]
    step = -(-(len(sizes) - 1) // _TICKS)
    for size in sizes[::step]:
        at = x.at(size)
        anchor = "start" if at < Fraction(5, 100) else "end" if at > Fraction(95, 100) else "middle"
        yield Label(numbers.integer(size), _across(x, size), str(_TOP + _PLOT + 16), anchor)
    yield Label(split.dim, percent(_WIDTH / 2), str(_TOP + _PLOT + 32), "middle")
