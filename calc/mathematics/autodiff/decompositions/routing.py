"""What routing to experts is made of: places in sorted numbers, products of rows with the matrix of their group."""

from __future__ import annotations

import sympy as sp

from calc.mathematics.autodiff import ir
from calc.mathematics.autodiff.call import OperatorCall, decomposition
from calc.mathematics.autodiff.decompositions.contractions import contract
from calc.mathematics.autodiff.decompositions.creation import positions
from calc.mathematics.autodiff.decompositions.reductions import reduce
from calc.mathematics.autodiff.ir import Index, Operand, Pick, argument, place
from calc.mathematics.autodiff.views import AxisFactor, NodeView

x, y = argument(0), argument(1)


def _smaller(call: OperatorCall, ordered: NodeView, values: NodeView, ties: bool) -> NodeView:
    """How many of the ordered numbers are smaller than each value (or equal, with ``ties``)."""
    spread = NodeView(values.node, (*values.axes, ()))
    row = NodeView(ordered.node, (*(() for _ in values.axes), ordered.axes[-1]))
    marked = call.converter.truth(x <= y if ties else x < y, (row, spread))
    return reduce(call, marked, (len(values.axes),))


@decomposition("searchsorted", "bucketize")
def searchsorted(call: OperatorCall) -> NodeView:
    """The first insertion position of a value, or with ``right`` the last."""
    values = call.tensor("self")
    ordered = call.tensor("sorted_sequence" if call.has("sorted_sequence") else "boundaries")
    if len(ordered.axes) != 1:
        raise call.refusal("its sorted sequence has several rows")
    right = bool(call.raw("right", False)) or call.raw("side") == "right"
    return _smaller(call, ordered, values, ties=right)


@decomposition("bincount", "histc")
def counts(call: OperatorCall) -> NodeView:
    """The number of occurrences of each integer."""
    view = call.tensor("self")
    if call.has("weights") or (".histc" in call.instruction.name and not _whole_bins(call)):
        raise call.refusal("its bins are not the integers from 0 on")
    flat = call.views.merged(NodeView(view.node, (tuple(view.parts),)), 0)
    (length,) = call.shape()
    numbers = positions(call, length)
    marked = call.converter.truth(sp.Eq(x, y), (NodeView(numbers.node, (*numbers.axes, ())), flat))
    return reduce(call, marked, (1,))


def _whole_bins(call: OperatorCall) -> bool:
    bins, low, high = call.number("bins", 100), call.number("min", 0), call.number("max", 0)
    return bool(low == 0 and sp.expand(high - bins) in (0, -1))


@decomposition("_grouped_mm")
def grouped_mm(call: OperatorCall) -> NodeView:
    """Y[m, n] = Σₖ A[m, k] B[g(m), k, n], where row m is of the group g(m) whose offset is the first beyond it."""
    a, b = call.tensor("self"), call.views.plain(call.tensor("mat2"))
    if not call.has("offs") or len(a.axes) != 2 or len(b.axes) != 3:
        raise call.refusal("its groups are not slices of rows")
    rows = positions(call, a.shape[0])
    group = call.views.plain(_smaller(call, call.tensor("offs"), rows, ties=True))
    rank = len(call.equations[b.node].shape)
    picked = tuple(Pick(Operand(group.node, (0,))) if i == 0 else Index(place(i)) for i in range(rank))
    shape = (a.shape[0], *call.equations[b.node].shape[1:])
    matrices = NodeView(call.equations.add(ir.Gather(b.node, picked), shape), tuple((AxisFactor(i, s),) for i, s in enumerate(shape)))
    return contract(call, (a, matrices), ("mk", "mkn"), "mn")
