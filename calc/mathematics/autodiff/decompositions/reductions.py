"""Sums, means, extremes and what is made of them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import sympy as sp

from calc.mathematics.autodiff import ir
from calc.mathematics.autodiff.call import OperatorCall, decomposition
from calc.mathematics.autodiff.ir import Operand, argument
from calc.mathematics.autodiff.sizes import INFINITY, product
from calc.mathematics.autodiff.views import AxisFactor, NodeView

x, y = argument(0), argument(1)


def reduce(call: OperatorCall, view: NodeView, axes: Collection[int], kind: str = "sum", keep: bool = False, name: str = "") -> NodeView:
    """The view reduced over ``axes``, which stay with size 1 where ``keep``. A repetition is not run through: its size counts."""
    if kind == "prod":
        view = call.views.dense(view)
    labels: dict[int, int] = {}
    shape: list[sp.Expr] = []
    axes_left: list[tuple[AxisFactor, ...]] = []
    for i, axis in enumerate(view.axes):
        if i in axes:
            axes_left += [()] if keep else []
            continue
        parts = []
        for part in axis:
            if part.axis is not None:
                labels[part.axis] = len(shape)
                parts.append(AxisFactor(len(shape), part.size))
                shape.append(part.size)
            else:
                parts.append(part)
        axes_left.append(tuple(parts))
    inner: list[sp.Expr] = []
    times = sp.Integer(1)
    for i in axes:
        for part in view.axes[i]:
            if part.axis is not None:
                labels[part.axis] = len(shape) + len(inner)
                inner.append(part.size)
            else:
                times *= part.size
    operand = Operand(view.node, tuple(labels[i] for i in range(len(labels))))
    node = call.equations.total(operand, tuple(shape), tuple(inner), kind, name=name)
    reduced = NodeView(node, tuple(axes_left))
    return call.pointwise(x * times, (reduced,)) if kind == "sum" and times != 1 else reduced


def _keep(call: OperatorCall) -> bool:
    return bool(call.raw("keepdim", False))


@decomposition("sum", "nansum")
def total(call: OperatorCall) -> NodeView:
    view = call.tensor("self")
    return reduce(call, view, call.axes(view), "sum", _keep(call))


@decomposition("mean")
def mean(call: OperatorCall) -> NodeView:
    view = call.tensor("self")
    return reduce(call, view, call.axes(view), "mean", _keep(call))


@decomposition("prod")
def prod(call: OperatorCall) -> NodeView:
    view = call.tensor("self")
    return reduce(call, view, call.axes(view), "prod", _keep(call))


@decomposition("amax", "amin")
def extreme(call: OperatorCall) -> NodeView:
    view = call.tensor("self")
    return reduce(call, view, call.axes(view), call.instruction.name.removeprefix("aten.a")[:3], _keep(call))


@decomposition("max", "min")
def extreme_of_all(call: OperatorCall) -> NodeView:
    view = call.tensor("self")
    return reduce(call, view, range(len(view.axes)), call.instruction.name.removeprefix("aten.")[:3])


@decomposition("max.dim", "min.dim")
def extreme_along(call: OperatorCall) -> list[NodeView]:
    """The extreme value and its position."""
    view = call.tensor("self")
    axis = call.axis(view)
    where = best(call, view, axis, call.instruction.name.removeprefix("aten.")[:3])
    return [_picked(call, view, axis, where, _keep(call)), _with_axis_of_one(where, axis, _keep(call))]


def best(call: OperatorCall, view: NodeView, axis: int, kind: str) -> NodeView:
    """Positions of the largest or smallest along an axis, which is gone."""
    view = call.views.merged(call.views.dense(view), axis)
    if not view.axes[axis]:
        shape_left = [s for i, s in enumerate(view.shape) if i != axis]
        return NodeView(
            call.equations.map(sp.Integer(0), (), (), integral=True), tuple((AxisFactor(None, s),) if s != 1 else () for s in shape_left)
        )
    at = view.axes[axis][0].axis
    shape = call.equations[view.node].shape
    remaining = [i for i in range(len(shape)) if i != at]
    labels = tuple(len(remaining) if i == at else remaining.index(i) for i in range(len(shape)))
    node = call.equations.add(
        ir.Best(kind, Operand(view.node, labels)), tuple(shape[i] for i in remaining), (view.axes[axis][0].size,), integral=True
    )
    axes = tuple(
        tuple(AxisFactor(remaining.index(p.axis), p.size) for p in a if p.axis is not None) for i, a in enumerate(view.axes) if i != axis
    )
    return NodeView(node, axes)


def _with_axis_of_one(view: NodeView, axis: int, keep: bool) -> NodeView:
    return NodeView(view.node, (*view.axes[:axis], (), *view.axes[axis:])) if keep else view


def _picked(call: OperatorCall, view: NodeView, axis: int, where: NodeView, keep: bool) -> NodeView:
    from calc.mathematics.autodiff.decompositions.indexing import taken

    return _with_axis_of_one(taken(call, view, axis, _with_axis_of_one(where, axis, True), drop=True), axis, keep)


@decomposition("argmax", "argmin")
def argbest(call: OperatorCall) -> NodeView:
    view = call.tensor("self")
    kind = call.instruction.name.removeprefix("aten.arg")[:3]
    if call.raw("dim") is None:
        return best(call, NodeView(view.node, (tuple(view.parts),)), 0, kind)
    axis = call.axis(view)
    return _with_axis_of_one(best(call, view, axis, kind), axis, _keep(call))


@decomposition("any", "all")
def some(call: OperatorCall) -> NodeView:
    view = call.tensor("self")
    truth = call.converter.truth(sp.Ne(x, 0), (view,))
    axes = call.axes(view) if call.has("dim") else list(range(len(view.axes)))
    return reduce(call, truth, axes, "max" if ".any" in call.instruction.name else "min", _keep(call))


@decomposition("count_nonzero")
def count(call: OperatorCall) -> NodeView:
    view = call.tensor("self")
    return reduce(call, call.converter.truth(sp.Ne(x, 0), (view,)), call.axes(view))


@decomposition("var", "std", "var_mean", "std_mean")
def spread(call: OperatorCall) -> Any:
    """Σ (x - mean)²/(n - correction), or the root of it."""
    view = call.tensor("self")
    axes = call.axes(view)
    raw = call.raw("correction", call.raw("unbiased", 1))
    n = product(view.shape[i] for i in axes)
    center = reduce(call, view, axes, "mean", keep=True, name="μ")
    centered = call.pointwise(x - y, (view, center), name="xc")
    squares = call.pointwise(x**2, (centered,))
    correction = sp.Integer(1) if raw is None else sp.Integer(int(raw))
    var = call.pointwise(x / (n - correction), (reduce(call, squares, axes, "sum", _keep(call)),), name="var")
    name = call.instruction.name
    result = call.pointwise(sp.sqrt(x), (var,)) if ".std" in name else var
    if "_mean" not in name:
        return result
    return [result, reduce(call, view, axes, "mean", _keep(call), name="μ")]


@decomposition("norm", "linalg_vector_norm")
def norm(call: OperatorCall) -> NodeView:
    """(Σ |x|ᵖ)^(1/p), the largest |x| for p = ∞."""
    view = call.tensor("self")
    axes = call.axes(view)
    order = call.number("p" if call.has("p") else "ord", 2)
    size = call.pointwise(sp.Abs(x), (view,))
    if order.is_infinite or order.has(INFINITY):
        return reduce(call, size, axes, "max" if order.as_coeff_Mul()[0] > 0 else "min", _keep(call))
    if order == 0:
        return reduce(call, call.converter.truth(sp.Ne(x, 0), (view,)), axes, "sum", _keep(call))
    if order == 1:
        return reduce(call, size, axes, "sum", _keep(call))
    powers = call.pointwise(x**order, (view if order.is_integer and order % 2 == 0 else size,))
    return call.pointwise(x ** (1 / order), (reduce(call, powers, axes, "sum", _keep(call)),))


@decomposition("logsumexp")
def logsumexp(call: OperatorCall) -> NodeView:
    """log Σ exp(x)."""
    from calc.mathematics.autodiff.decompositions.softmax import log_total

    view = call.tensor("self")
    return log_total(call, view, call.axes(view), _keep(call))


@decomposition("cumsum")
def cumsum(call: OperatorCall) -> NodeView:
    view = call.views.plain(call.tensor("self"))
    axis = call.axis(view)
    if not view.axes[axis]:
        return view
    at = view.axes[axis][0].axis
    assert at is not None
    integral = call.equations[view.node].integral
    return NodeView(call.equations.add(ir.Cumulate(view.node, at), call.equations[view.node].shape, integral=integral), view.axes)


@decomposition("logcumsumexp")
def logcumsumexp(call: OperatorCall) -> NodeView:
    """log of the running sums of exp(x - M), plus M."""
    from calc.mathematics.autodiff.decompositions.softmax import shifted

    view = call.views.plain(call.tensor("self"))
    axis = call.axis(view)
    if not view.axes[axis]:
        return view
    centered, largest = shifted(call, view, (axis,))
    powers = call.views.plain(call.pointwise(sp.exp(x), (centered,), name="E"))
    at = powers.axes[axis][0].axis
    assert at is not None
    run = NodeView(call.equations.add(ir.Cumulate(powers.node, at), call.equations[powers.node].shape), powers.axes)
    return call.pointwise(sp.log(x) + y, (run, largest))


@decomposition("_cdist_forward", "_euclidean_dist", "cdist", "pairwise_distance")
def distances(call: OperatorCall) -> NodeView:
    """(Σ |a - b|ᵖ)^(1/p) of every row of one with every row of the other; between equal rows torch has the gradient 0."""
    a, b = call.tensor("x1"), call.tensor("x2")
    order = call.number("p", 2)
    apart = call.pointwise(x - y, (NodeView(a.node, (*a.axes[:-1], (), a.axes[-1])), NodeView(b.node, (*b.axes[:-2], (), *b.axes[-2:]))))
    last = len(apart.axes) - 1
    if order.has(INFINITY) or order == 0:
        raise call.refusal("its norm has order 0 or infinity")
    powers = call.pointwise(x**order if order.is_integer and order % 2 == 0 else sp.Abs(x) ** order, (apart,))
    total = reduce(call, powers, (last,))
    return call.pointwise(sp.Piecewise((x ** (1 / order), x > 0), (0, True)), (total,))


@decomposition("trace")
def trace(call: OperatorCall) -> NodeView:
    """The sum of the diagonal."""
    from calc.mathematics.autodiff.decompositions.creation import positions

    view = call.tensor("self")
    rows, columns = (positions(call, s) for s in view.shape)
    diagonal_values = call.pointwise(
        sp.Piecewise((x, sp.Eq(y, argument(2))), (0, True)), (view, NodeView(rows.node, (*rows.axes, ())), columns), integral=False
    )
    return reduce(call, diagonal_values, (0, 1))
