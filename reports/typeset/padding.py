"""Where the coordinates of a gather lie inside its source, and the conditions for the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import sympy as sp

from calc.mathematics.autodiff import ir
from calc.mathematics.autodiff.ir import Shape, place


def bounds(coordinates: Sequence[ir.Index | ir.Pick], source: Shape, result: Shape) -> Iterator[tuple[int, str, sp.Expr]]:
    """The conditions under which an element is inside its source: (coordinate, relation, number) for each side that a coordinate may
    leave."""
    for i, (coordinate, size) in enumerate(zip(coordinates, source, strict=True)):
        least, largest = _ends(coordinate, result)
        if least is None or not least.is_nonnegative:
            yield i, "≥", sp.Integer(0)
        if largest is None or not sp.expand(largest - size).is_negative:
            yield i, "<", size


def _ends(coordinate: ir.Index | ir.Pick, result: Shape) -> tuple[sp.Expr | None, sp.Expr | None]:
    """The least and the largest value of a coordinate that is linear in the labels."""
    if isinstance(coordinate, ir.Pick):
        return None, None
    labels = {place(i): size for i, size in enumerate(result) if coordinate.expr.has(place(i))}
    slopes = {label: sp.expand(coordinate.expr).coeff(label) for label in labels}
    offset = sp.expand(coordinate.expr - sp.Add(*(label * slope for label, slope in slopes.items())))
    if offset.has(*labels) or any(slope.has(*labels) or slope.is_negative is None for slope in slopes.values()):
        return None, None
    down, up = ([slope * (labels[label] - 1) for label, slope in slopes.items() if slope.is_negative is below] for below in (True, False))
    return sp.expand(offset + sp.Add(*down)), sp.expand(offset + sp.Add(*up))
