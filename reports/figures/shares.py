"""Shares of a quantity's parts in several steps: a stacked bar for each step, each of the whole width."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from calc.derive.side_by_side import PartRow, QuantityTable
from reports.figures.shapes import Figure, Key, Label, SvgRect, letter, percent
from reports.typeset import numbers

_ROW, _BAR, _WORDS = 46, 16, 14  # pixels of a row, its bar, and from its top to the foot of its words
_LETTERED = Fraction(4, 100)  # of the width, from which on a segment has its letter
MOST = 8  # segments, each with a color


def shares(table: QuantityTable, names: Sequence[str]) -> Figure:
    """The figure of a quantity's shares, or one without a drawing that says why."""
    anchor, title = f"figure-shares-{table.quantity}", f"Shares of {table.quantity}"
    drawn = [i for i, value in enumerate(table.values) if value]
    rows = table.largest(MOST)
    if not rows or not drawn:
        return Figure(anchor, title, absent="no step has a value with parts")
    if any(value < 0 for row in rows for value in row.values):
        return Figure(anchor, title, absent="a part is negative, so that shares are not parts of a whole")
    return Figure(
        anchor,
        title,
        description=f"A bar for each step, of the whole width, divided by the shares of the parts of {table.quantity}. The tables have the"
        " numbers.",
        finding=_finding(table, rows, drawn, names),
        height=_ROW * len(drawn) + 4,
        rects=tuple(_segments(table, rows, drawn)),
        labels=(*_names(table, drawn, names), *_letters(table, rows, drawn)),
        keys=tuple(_key(i, row, table, drawn) for i, row in enumerate(rows)),
    )


def _finding(table: QuantityTable, rows: Sequence[PartRow], drawn: Sequence[int], names: Sequence[str]) -> str:
    """The part whose share changes most, as a sentence."""
    first, last = drawn[0], drawn[-1]
    changes = {row.part: (_share(table, row, last) - _share(table, row, first), row) for row in rows}
    change, row = max(changes.values(), key=lambda pair: abs(pair[0]))
    if first == last or not change:
        largest = max(rows, key=lambda row: _share(table, row, first))
        return f"The largest part is {largest.part}: {numbers.percent(_share(table, largest, first))}."
    before, after = (f"{numbers.percent(_share(table, row, step))} ({names[step]})" for step in (first, last))
    return f"From the first column to the last, the share of {row.part} changes most: {before}, {after}."


def _share(table: QuantityTable, row: PartRow, step: int) -> Fraction:
    return table.share(row, step) or Fraction(0)


def _color(number: int) -> str:
    return f"segment part-{number}"


def _spans(table: QuantityTable, rows: Sequence[PartRow], step: int) -> Iterator[tuple[int, Fraction, Fraction]]:
    """(number of the part, left edge, width) of each segment of a bar."""
    start = Fraction(0)
    for i, row in enumerate(rows):
        yield i, start, _share(table, row, step)
        start += _share(table, row, step)


def _segments(table: QuantityTable, rows: Sequence[PartRow], drawn: Sequence[int]) -> Iterator[SvgRect]:
    for place, step in enumerate(drawn):
        for i, start, width in _spans(table, rows, step):
            if width:
                yield SvgRect(_color(i), percent(start), str(place * _ROW + _WORDS + 4), percent(width), str(_BAR))


def _names(table: QuantityTable, drawn: Sequence[int], names: Sequence[str]) -> Iterator[Label]:
    for place, step in enumerate(drawn):
        yield Label(names[step], "0", str(place * _ROW + _WORDS))
        yield Label(numbers.amount(table.values[step] or 0, table.unit).headline, "100%", str(place * _ROW + _WORDS), "end")


def _letters(table: QuantityTable, rows: Sequence[PartRow], drawn: Sequence[int]) -> Iterator[Label]:
    for place, step in enumerate(drawn):
        for i, start, width in _spans(table, rows, step):
            if width >= _LETTERED:
                yield Label(letter(i), percent(start + width / 2), str(place * _ROW + _WORDS + _BAR), "middle")


def _key(number: int, row: PartRow, table: QuantityTable, drawn: Sequence[int]) -> Key:
    low, high = (numbers.percent(of(_share(table, row, step) for step in drawn)) for of in (min, max))
    return Key(letter(number), _color(number), row.part, low if low == high else f"{low} to {high}", "")
