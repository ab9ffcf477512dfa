"""Softmax and its kin from their definition: P = exp(S)/Σ exp(S)."""

from __future__ import annotations

from collections.abc import Collection

import sympy as sp

from calc.mathematics.autodiff import ir
from calc.mathematics.autodiff.call import OperatorCall, decomposition
from calc.mathematics.autodiff.decompositions.reductions import reduce
from calc.mathematics.autodiff.ir import argument
from calc.mathematics.autodiff.views import NodeView

x, y, z = argument(0), argument(1), argument(2)

_SHIFT = "a softmax is the same for S and S - c, so the maximum that is subtracted for stability counts as a constant"


def shifted(call: OperatorCall, view: NodeView, axes: Collection[int]) -> tuple[NodeView, NodeView]:
    """S - M and M, where M is the largest element along ``axes``, a constant."""
    largest = reduce(call, view, axes, "max", keep=True, name="M")
    shift = call.equations.add(ir.Hold(largest.node, _SHIFT, free=True), call.equations[largest.node].shape, name="M")
    constant = NodeView(shift, largest.axes)
    return call.pointwise(x - y, (view, constant), name="S'"), constant


def softmax(call: OperatorCall, view: NodeView, axis: int) -> NodeView:
    """E = exp(S - M), Z = Σ E, P = E/Z."""
    centered, _ = shifted(call, view, (axis,))
    powers = call.pointwise(sp.exp(x), (centered,), name="E")
    total = reduce(call, powers, (axis,), "sum", keep=True, name="Z")
    return call.pointwise(x / y, (powers, total), name="P")


def log_softmax(call: OperatorCall, view: NodeView, axis: int) -> NodeView:
    """log P = S - M - log Σ exp(S - M)."""
    centered, _ = shifted(call, view, (axis,))
    powers = call.pointwise(sp.exp(x), (centered,), name="E")
    total = reduce(call, powers, (axis,), "sum", keep=True, name="Z")
    call.pointwise(x / y, (powers, total), name="P")  # what the gradient is written in
    return call.pointwise(x - sp.log(y), (centered, total), name="log P")


def log_total(call: OperatorCall, view: NodeView, axes: Collection[int], keep: bool) -> NodeView:
    """log Σ exp(x) = M + log Σ exp(x - M)."""
    centered, largest = shifted(call, view, axes)
    powers = call.pointwise(sp.exp(x), (centered,), name="E")
    total = reduce(call, powers, axes, "sum", keep=True, name="Z")
    call.pointwise(x / y, (powers, total), name="P")  # as above
    result = call.pointwise(sp.log(x) + y, (total, largest))
    return result if keep else NodeView(result.node, tuple(axis for i, axis in enumerate(result.axes) if i not in set(axes)))


@decomposition("_softmax", "softmax", "_safe_softmax")
def _softmax(call: OperatorCall) -> NodeView:
    view = call.tensor("self")
    return softmax(call, view, call.axis(view))


@decomposition("_log_softmax", "log_softmax")
def _log_softmax(call: OperatorCall) -> NodeView:
    view = call.tensor("self")
    return log_softmax(call, view, call.axis(view))
