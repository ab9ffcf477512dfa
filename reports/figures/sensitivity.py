"""Factors of the answers when one size doubles, as small bars from ×1 to the largest factor."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from calc.derive.result import Derivation
from calc.derive.sensitivity import Doubling
from calc.platform.reading import clipped
from reports.figures.shapes import Figure, Label, SvgLine, SvgRect, percent
from reports.typeset import numbers
from reports.typeset.numbers import NBSP
from reports.typeset.wording import several

ANCHOR, TITLE = "figure-sensitivity", "Growth when one size doubles"
HEADS = {"parameters": "parameters", "memory.peak": "peak bytes", "flops.step.total": "FLOPs"}
_TOP, _ROW, _HIGH = 26, 19, 11
_FIRST = Fraction(13, 100)  # of the width, for the names of the sizes
_BAR = Fraction(15, 100)  # the length of the largest factor; its number is to the right
_MOST = 14
_LONGEST = 5  # characters of a size's name in the drawing


def growth(derivation: Derivation, twice: Mapping[str, tuple[Doubling, ...]]) -> Figure:
    """The figure of the factors when one size doubles, or one without a drawing that says why."""
    factors = {name: {d.dim: d.factor for d in doublings if d.factor is not None} for name, doublings in twice.items()}
    if not any(factors.values()):
        return Figure(ANCHOR, TITLE, absent="no size can double, or no answer depends on a size")
    order = [dim.name for dim in derivation.dims]
    never = {d.dim for doublings in twice.values() for d in doublings if d.factor is None}
    fixed = [dim for dim in order if dim in never]
    grid = _grid(factors, order)
    return Figure(
        ANCHOR,
        TITLE,
        description=f"Factors by which {', '.join(factors)} grow when one size doubles, and those that depend on it by default follow; the"
        " length of a bar is the logarithm of its factor. The table below has the numbers.",
        finding=" ".join((_finding(factors), *_notes(grid, fixed))),
        height=grid.bottom + 4,
        rects=tuple(_bars(grid)),
        lines=tuple(SvgLine("tick", percent(at), "18", percent(at), str(grid.bottom)) for at in grid.columns.values()),
        labels=(*(Label(HEADS[name], percent(at), "12") for name, at in grid.columns.items()), *_labels(grid)),
    )


# -- text ----------------------------------------------------------------------------------------------------------------


def _finding(factors: Mapping[str, Mapping[str, Fraction]]) -> str:
    """The size with the largest factor for each answer, as a sentence."""
    clauses = []
    for name, by_dim in factors.items():
        if by_dim:
            largest = max(by_dim.values())
            dims = " or ".join(dim for dim, factor in by_dim.items() if factor == largest)
            clauses.append(f"{name} {numbers.times(largest)} with {dims}")
    return f"The largest factors when one size doubles, and those that depend on it by default follow: {'; '.join(clauses)}."


def _notes(grid: _BarGrid, fixed: list[str]) -> Iterator[str]:
    """How to read the bars, and which factors have none."""
    yield f"A factor of {numbers.times(Fraction(2))} is growth in proportion to the size; a bar twice as long is growth with its square."
    if any(factor < 1 for by_dim in grid.factors.values() for factor in by_dim.values()):
        yield "A factor below 1 has no bar."
    if fixed:
        yield f"With {' or '.join(fixed)} doubled, some answer is unknown; the table says why."
    if grid.left:
        yield f"The {several(grid.left, 'size')} with the least effect {'is' if grid.left == 1 else 'are'} in the table only."


# -- positions -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _BarGrid:
    """A column for each answer, by its left edge, and a row for each size; ``left`` sizes have no row."""

    factors: Mapping[str, Mapping[str, Fraction]]
    columns: Mapping[str, Fraction]
    dims: tuple[str, ...]
    largest: Fraction
    left: int

    @property
    def bottom(self) -> int:
        return _TOP + _ROW * len(self.dims)

    def bars(self) -> Iterator[tuple[Fraction, int, Fraction, Fraction]]:
        """(left edge, top in pixels, length, factor) of each bar; edges and lengths are shares of the width."""
        for name, at in self.columns.items():
            for row, dim in enumerate(self.dims):
                factor = self.factors[name].get(dim)
                if factor is not None:
                    yield at, _TOP + row * _ROW, self._length(factor), factor

    def _length(self, factor: Fraction) -> Fraction:
        share = math.log2(factor) / math.log2(self.largest) if factor > 1 else 0.0
        return _BAR * Fraction(round(share * 1000), 1000)


def _grid(factors: Mapping[str, Mapping[str, Fraction]], order: list[str]) -> _BarGrid:
    by_size = {dim: [by_dim[dim] for by_dim in factors.values() if dim in by_dim] for dim in order}
    top = {dim: max(values) for dim, values in by_size.items() if values}
    dims = sorted(sorted(top, key=lambda dim: (-top[dim], order.index(dim)))[:_MOST], key=order.index)
    step = (1 - _FIRST) / len(factors)
    columns = {name: _FIRST + i * step for i, name in enumerate(factors)}
    return _BarGrid(factors, columns, tuple(dims), max([*top.values(), Fraction(2)]), len(top) - len(dims))


def _bars(grid: _BarGrid) -> Iterator[SvgRect]:
    for at, down, length, _ in grid.bars():
        if length:
            yield SvgRect("bar", percent(at), str(down), percent(length), str(_HIGH))


def _labels(grid: _BarGrid) -> Iterator[Label]:
    for row, dim in enumerate(grid.dims):
        yield Label(clipped(dim, _LONGEST), "0", str(_TOP + row * _ROW + 10))
    for at, down, length, factor in grid.bars():
        yield Label(f"{NBSP}{numbers.times(factor)}", percent(at + length), str(down + 10))
