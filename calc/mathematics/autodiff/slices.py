"""Adjacent slices of a tensor along an axis: the parts of a gradient where the forward split its tensor."""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from calc.mathematics.autodiff import ir
from calc.mathematics.autodiff.ir import Equations, Operand, place


def slice_of(equations: Equations, operand: Operand, shape: ir.Shape) -> tuple[int, sp.Expr, int] | None:
    """(axis, offset, node) of an operand that is one slice along one axis, with zeros around it."""
    op = equations[operand.node].op
    if not isinstance(op, ir.Scatter) or operand.at != tuple(range(len(shape))):
        return None
    placement = None
    for i, coordinate in enumerate(op.coordinates):
        if coordinate == ir.Index(place(i)) and equations[op.updates].shape[i] == shape[i]:
            continue
        if not isinstance(coordinate, ir.Index) or placement is not None:
            return None
        offset = sp.expand(coordinate.expr - place(i))
        if any(offset.has(place(j)) for j in range(len(shape))):
            return None
        placement = (i, offset, op.updates)
    return placement


def adjacent_slices(equations: Equations, slices: Sequence[tuple[int, sp.Expr, int]], shape: ir.Shape) -> tuple[int, list[int]] | None:
    """The axis along which slices are adjacent without gaps, and their nodes in order."""
    axes = {axis for axis, _, _ in slices}
    by_offset = {offset: source for _, offset, source in slices}
    if len(axes) != 1 or len(by_offset) != len(slices):
        return None
    (axis,) = axes
    at, order = sp.Integer(0), []
    while at in by_offset:
        order.append(by_offset[at])
        at = sp.expand(at + equations[by_offset.pop(at)].shape[axis])
    return (axis, order) if not by_offset and at == shape[axis] else None
