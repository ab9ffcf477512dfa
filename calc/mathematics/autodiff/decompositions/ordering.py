"""Sorting and the largest few: an order is taken, and elements are read in it."""

from __future__ import annotations

import sympy as sp

from calc.mathematics.autodiff import ir
from calc.mathematics.autodiff.call import OperatorCall, decomposition
from calc.mathematics.autodiff.decompositions.indexing import taken
from calc.mathematics.autodiff.decompositions.shapes import narrowed
from calc.mathematics.autodiff.views import NodeView


def _ordered(call: OperatorCall, view: NodeView, axis: int, descending: bool) -> tuple[NodeView, NodeView]:
    """The sorted elements along an axis, and their positions."""
    view = call.views.plain(view)
    at = view.axes[axis][0].axis
    assert at is not None
    shape = call.equations[view.node].shape
    order = NodeView(call.equations.add(ir.Order(view.node, at, descending), shape, integral=True), view.axes)
    return taken(call, view, axis, order), order


@decomposition("sort")
def sort(call: OperatorCall) -> list[NodeView]:
    view = call.tensor("self")
    return list(_ordered(call, view, call.axis(view), bool(call.raw("descending", False))))


@decomposition("argsort")
def argsort(call: OperatorCall) -> NodeView:
    view = call.tensor("self")
    return _ordered(call, view, call.axis(view), bool(call.raw("descending", False)))[1]


@decomposition("topk")
def topk(call: OperatorCall) -> list[NodeView]:
    """The k largest (smallest), in order, and their positions."""
    view = call.tensor("self")
    axis = call.axis(view)
    _, order = _ordered(call, view, axis, bool(call.raw("largest", True)))
    first = narrowed(call, order, axis, sp.Integer(0), call.shape()[axis])
    return [taken(call, view, axis, first), first]
