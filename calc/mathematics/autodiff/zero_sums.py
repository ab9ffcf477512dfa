"""Whether the sum of a gradient over some of its axes is zero by the equations, as for a bias before a norm."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from calc.mathematics.autodiff import ir
from calc.mathematics.autodiff.ir import Equations, Operand, place
from calc.mathematics.autodiff.summing import Summing


def sums_to_zero(equations: Equations, summing: Summing, index: int, axes: Collection[int]) -> bool:
    """Whether the sum of a node over some of its axes is zero by the equations."""
    node = equations[index]
    op = node.op
    match op:
        case ir.Map() if index >= summing.forward and index in summing.written:
            poly = summing.normal(summing.written[index])
            return not summing.total(poly, {i: node.shape[i] for i in axes})
        case ir.Map(expr, _):
            return bool(expr == 0)
        case ir.Contract(operands):
            return any(_carries(equations, summing, operands, i, axes) for i in range(len(operands)))
        case ir.Merge(source, axis, count):
            moved = [i + (count - 1) * (i > axis) for i in axes if i != axis]
            return sums_to_zero(equations, summing, source, [*moved, *(range(axis, axis + count) if axis in axes else ())])
        case ir.Split(source, axis, count):
            inside = [i for i in axes if axis <= i < axis + count]
            if inside and len(inside) < count:
                return False
            outside = [i - (count - 1) * (i >= axis + count) for i in axes if i not in inside]
            return sums_to_zero(equations, summing, source, [*outside, *([axis] if inside else [])])
        case ir.Scatter(source, coordinates):
            return all(i < len(coordinates) and coordinates[i] == ir.Index(place(i)) for i in axes) and sums_to_zero(
                equations, summing, source, axes
            )
        case ir.Concatenate(parts, axis):
            return axis not in axes and all(sums_to_zero(equations, summing, part, axes) for part in parts)
    return False


def _carries(equations: Equations, summing: Summing, operands: Sequence[Operand], i: int, axes: Collection[int]) -> bool:
    """Whether a factor that alone carries some of the labels sums to zero over them."""
    elsewhere = {label for j, o in enumerate(operands) if j != i for label in o.at}
    own = [n for n, label in enumerate(operands[i].at) if label in axes and label not in elsewhere]
    return bool(own) and sums_to_zero(equations, summing, operands[i].node, own)
