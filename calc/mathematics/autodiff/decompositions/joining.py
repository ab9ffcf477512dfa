"""Several tensors as one: cat and stack."""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from calc.mathematics.autodiff import ir
from calc.mathematics.autodiff.call import OperatorCall, decomposition
from calc.mathematics.autodiff.views import AxisFactor, NodeView


def joined(call: OperatorCall, views: Sequence[NodeView], axis: int) -> NodeView:
    """One after the other along an axis."""
    views = [v for v in views if not (len(v.axes) == 1 and v.shape[0] == 0)]
    rank = len(views[0].axes)
    aligned = list(views)
    for axis_index in range(rank):
        if axis_index != axis:
            aligned = call.views.aligned(aligned, [axis_index] * len(aligned))
    aligned = [_with_axis(call, v, axis) for v in aligned]
    shape_of = call.equations
    at = aligned[0].axes[axis][0].axis
    assert at is not None
    shape = shape_of[aligned[0].node].shape
    length = sp.expand(sp.Add(*(shape_of[v.node].shape[at] for v in aligned)))
    integral = all(shape_of[v.node].integral for v in aligned)
    node = shape_of.add(ir.Concatenate(tuple(v.node for v in aligned), at), (*shape[:at], length, *shape[at + 1 :]), integral=integral)
    return NodeView(node, (*aligned[0].axes[:axis], (AxisFactor(at, length),), *aligned[0].axes[axis + 1 :]))


def _with_axis(call: OperatorCall, view: NodeView, axis: int) -> NodeView:
    """A view whose node has all axes in the order of the tensor's, and ``axis`` as one part of it, also where its size is 1."""
    view = call.views.merged(call.views.dense(view), axis)
    order = [p.axis for p in view.parts if p.axis is not None]
    shape = call.equations[view.node].shape
    if order != sorted(order):
        at = tuple(order.index(i) for i in range(len(order)))
        node = call.equations.map(ir.argument(0), (ir.Operand(view.node, at),), tuple(shape[i] for i in order))
        view = _renumbered(NodeView(node, view.axes))
    if view.axes[axis]:
        return view
    before = sum(len(a) for a in view.axes[:axis])
    shape = call.equations[view.node].shape
    labels = tuple(i + (i >= before) for i in range(len(shape)))
    node = call.equations.map(ir.argument(0), (ir.Operand(view.node, labels),), (*shape[:before], sp.Integer(1), *shape[before:]))
    return _renumbered(NodeView(node, (*view.axes[:axis], (AxisFactor(before, sp.Integer(1)),), *view.axes[axis + 1 :])))


def _renumbered(view: NodeView) -> NodeView:
    """The parts numbered in the order in which they stand."""
    axes, at = [], 0
    for axis in view.axes:
        axes.append(tuple(AxisFactor(at + i, p.size) for i, p in enumerate(axis)))
        at += len(axis)
    return NodeView(view.node, tuple(axes))


@decomposition("cat", "concat", "concatenate")
def cat(call: OperatorCall) -> NodeView:
    views = call.tensors("tensors")
    return joined(call, views, call.integer("dim", 0) % len(views[-1].axes))


@decomposition("stack")
def stack(call: OperatorCall) -> NodeView:
    views = call.tensors("tensors")
    at = call.integer("dim", 0) % (len(views[0].axes) + 1)
    return joined(call, [NodeView(v.node, (*v.axes[:at], (), *v.axes[at:])) for v in views], at)
