"""A sweep as a table, as JSON and as a drawing. The drawing stands by itself: SVG without script, colors and fonts inside."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from html import escape
from itertools import pairwise, product

from calc.derive.to_json import number
from calc.errors import BadInputError, suggestion
from calc.pipeline.sweep import Sweep
from calc.symbolic.assignments import sizes_text
from calc.units import Unit
from reports.typeset import numbers
from reports.typeset.escape import visible

_LINES = 8
_WIDTH, _PLOT, _HEIGHT = 720, (76, 24, 520, 250), 316  # of one drawing; left, top, width and height of its area
_COLORS = ("#1f5fa8", "#c2571a", "#2d7d46", "#8a3a8f", "#a3262e", "#5b6770", "#8c6d1f", "#1b8a8f")
_TICKS = 4


def as_csv(sweep: Sweep) -> Iterator[str]:
    """A line of names, then one for each point; a cell is empty where there is no value."""
    yield ",".join([*sweep.axes, *map(_cell, sweep.values)]) + "\n"
    for sizes, values in sweep.rows():
        yield ",".join([*map(str, sizes), *("" if value is None else str(value) for value in values)]) + "\n"


def _cell(name: str) -> str:
    """A name as a cell: an expression may hold commas and quotes."""
    shown = visible(name)
    return f'"{shown.replace(chr(34), chr(34) * 2)}"' if set(shown) & set(',"') else shown


def as_json(sweep: Sweep) -> str:
    """Values stand in the order of points: of a grid, the last of ``sizes`` moves first."""
    columns: list[list[int | str | None]] = [[] for _ in sweep.values]
    for _, values in sweep.rows():
        for column, value in zip(columns, values, strict=True):
            column.append(number(value))
    document = {
        "schema": 1,
        "points": "listed" if sweep.listed else "grid",
        "sizes": {name: [number(size) for size in axis.tolist()] for name, axis in sweep.axes.items()},
        "quantities": {
            name: {"unit": sweep.units[name] or None, "values": column} for name, column in zip(sweep.values, columns, strict=True)
        },
        "gaps": [{"points": gap.points, "first": dict(gap.first), "because": gap.because} for gap in sweep.gaps],
    }
    return json.dumps(document, ensure_ascii=True, allow_nan=False) + "\n"


# -- drawing ----------------------------------------------------------------------------------------------------------

Points = list[tuple[int, int]]


def drawn(sweep: Sweep, over: str | None) -> str:
    """One drawing for each quantity, under one another: lines over one size, a line for each choice of the others."""
    along = _along(sweep, over)
    parts = [_one(name, sweep, along, i * _HEIGHT) for i, name in enumerate(sweep.values)]
    height = _HEIGHT * len(parts)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    style = 'font-family="system-ui, sans-serif" font-size="12" fill="#1d2730"'
    return f'{head} {style} role="img">\n<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>\n{"".join(parts)}</svg>\n'


def _along(sweep: Sweep, over: str | None) -> str:
    if sweep.listed:
        raise BadInputError("points of a file have no axis to draw over: give the sizes with -d")
    if over is not None and over not in sweep.axes:
        raise BadInputError(f"--over {over[:40]!r} is not swept: {suggestion(over, sweep.axes) if sweep.axes else 'no size is'}")
    several = [name for name, axis in sweep.axes.items() if axis.size > 1]
    if over is None and not several:
        raise BadInputError("a drawing needs several sizes of one dimension: give them, e.g. -d T=1024:8192:1024")
    along = over or several[-1]
    lines = sweep.points // sweep.axes[along].size
    if lines > _LINES:
        raise BadInputError(f"a drawing over {along} would have {lines:,} lines, more than {_LINES}: give fewer sizes of the others")
    return along


def _lines(name: str, sweep: Sweep, along: str) -> Iterator[tuple[str, Points]]:
    """Each line with what it stands for; points without a value are left out."""
    at, names = [*sweep.axes].index(along), [*sweep.axes]
    lines: dict[tuple[int, ...], Points] = {}
    place = [*sweep.values].index(name)
    for sizes, values in sweep.rows():
        fixed_sizes = (*sizes[:at], *sizes[at + 1 :])
        value = values[place]
        lines.setdefault(fixed_sizes, []).extend([] if value is None else [(sizes[at], value)])
    other_names = [n for n in names if n != along]
    fixed = {n for n in other_names if sweep.axes[n].size == 1}
    for fixed_sizes, points in lines.items():
        yield sizes_text({n: size for n, size in zip(other_names, fixed_sizes, strict=True) if n not in fixed}), sorted(points)


def _one(name: str, sweep: Sweep, along: str, top: int) -> str:
    left, above, width, height = _PLOT
    lines = list(_lines(name, sweep, along))
    values = [value for _, points in lines for _, value in points]
    if not values:
        raise BadInputError(f"no point of {name[:40]} has a value to draw")
    sizes = sorted({size for _, points in lines for size, _ in points})
    low, high = min(0, *values), max(0, *values)
    spread = max(high - low, 1)

    def x(size: int) -> str:
        return _at(left + width * _share(size, sizes))

    def y(value: int) -> str:
        return _at(top + above + height * Fraction(high - value, spread))

    unit = sweep.units[name]
    title = f"{visible(name)}{f', {unit}' if unit else ''}, over {along}"
    parts = [_text(left, top + above - 8, title, weight="bold")]
    for value in _ticks(low, high):
        parts.append(f'<path d="M{left} {y(value)}h{width}" stroke="#d5dbe0" fill="none"/>\n')
        parts.append(_text(left - 8, y(value), _short(value, unit), anchor="end", shift="0.35em"))
    for size in _shown(sizes):
        parts.append(_text(x(size), top + above + height + 18, f"{size:,}", anchor="middle"))
    for i, (label, points) in enumerate(lines):
        color = _COLORS[i % len(_COLORS)]
        path = " ".join(f"{x(size)},{y(value)}" for size, value in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>\n')
        parts += (f'<circle cx="{x(size)}" cy="{y(value)}" r="2.5" fill="{color}"/>\n' for size, value in points if len(points) <= 60)
        if label:
            parts.append(_text(left + width + 12, top + above + 12 + 18 * i, label, fill=color))
    return "".join(parts)


def _share(size: int, sizes: Sequence[int]) -> Fraction:
    """How far along a size stands: steps by a factor are of one length, other sizes stand as numbers do."""
    if len(sizes) < 2:
        return Fraction(1, 2)
    if len(sizes) > 2 and all(b * sizes[0] == a * sizes[1] for a, b in pairwise(sizes)):
        return Fraction(sizes.index(size), len(sizes) - 1)
    return Fraction(size - sizes[0], sizes[-1] - sizes[0])


def _ticks(low: int, high: int) -> list[int]:
    """Round numbers, a few of them."""
    step, reach = 1, max(high - low, 1)
    for exponent, factor in product(range(len(str(reach)) + 1), (1, 2, 5)):
        step = factor * 10**exponent
        if step * _TICKS >= reach:
            break
    return list(range(-(-low // step) * step, high + 1, step))


def _shown(sizes: Sequence[int]) -> Sequence[int]:
    """Sizes to write under the area, so that they do not touch."""
    apart = -(-len(sizes) // 8)
    return sizes[::apart]


def _short(value: int, unit: str) -> str:
    if not unit:
        return f"{value:,}"
    written = numbers.amount(value, Unit(unit)).headline
    digits, _, tail = written.partition(numbers.NBSP)
    return f"{digits.rstrip('0').rstrip('.') if '.' in digits else digits} {tail}"


def _at(place: Fraction) -> str:
    """A coordinate with two decimals."""
    hundredths = round(place * 100)
    return f"{hundredths // 100}.{hundredths % 100:02d}"


def _text(x: object, y: object, text: str, *, anchor: str = "start", weight: str = "", shift: str = "", fill: str = "") -> str:
    extra: Mapping[str, str] = {"text-anchor": anchor, "font-weight": weight, "dy": shift, "fill": fill}
    written = "".join(f' {name}="{value}"' for name, value in extra.items() if value)
    return f'<text x="{x}" y="{y}"{written}>{escape(text)}</text>\n'
