"""Losses from their definitions."""

from __future__ import annotations

from typing import Any

import sympy as sp

from calc.mathematics.autodiff import ir
from calc.mathematics.autodiff.call import OperatorCall, decomposition
from calc.mathematics.autodiff.decompositions.reductions import reduce
from calc.mathematics.autodiff.ir import Operand, argument
from calc.mathematics.autodiff.scalar import Softplus, larger, truth, where
from calc.mathematics.autodiff.views import AxisFactor, NodeView

x, y, z, w = (argument(i) for i in range(4))
_NONE, _MEAN = 0, 1


def reduction(call: OperatorCall, view: NodeView) -> NodeView:
    """The mean or the sum of all elements, or each of them."""
    kind = call.integer("reduction", _MEAN)
    return view if kind == _NONE else reduce(call, view, range(len(view.axes)), "mean" if kind == _MEAN else "sum")


@decomposition("mse_loss")
def mse(call: OperatorCall) -> NodeView:
    """(x - y)²."""
    return reduction(call, call.pointwise((x - y) ** 2, (call.tensor("self"), call.tensor("target"))))


@decomposition("l1_loss")
def absolute(call: OperatorCall) -> NodeView:
    """|x - y|."""
    return reduction(call, call.pointwise(sp.Abs(x - y), (call.tensor("self"), call.tensor("target"))))


@decomposition("smooth_l1_loss")
def smooth(call: OperatorCall) -> NodeView:
    """(x - y)²/2β within β, |x - y| - β/2 beyond (Girshick 2015)."""
    beta = call.number("beta", 1)
    far = sp.Abs(x - y)
    return reduction(
        call, call.pointwise(where(far < beta, (x - y) ** 2 / (2 * beta), far - beta / 2), (call.tensor("self"), call.tensor("target")))
    )


@decomposition("huber_loss")
def huber(call: OperatorCall) -> NodeView:
    """(x - y)²/2 within δ, δ (|x - y| - δ/2) beyond (Huber 1964)."""
    delta = call.number("delta", 1)
    far = sp.Abs(x - y)
    return reduction(
        call, call.pointwise(where(far < delta, (x - y) ** 2 / 2, delta * (far - delta / 2)), (call.tensor("self"), call.tensor("target")))
    )


@decomposition("binary_cross_entropy")
def binary(call: OperatorCall) -> NodeView:
    """-(t log x + (1 - t) log(1 - x)), logarithms cut off at -100 as torch does."""
    logs = [larger(sp.log(e), sp.Integer(-100)) for e in (x, 1 - x)]
    return reduction(call, _weighted(call, -(y * logs[0] + (1 - y) * logs[1])))


@decomposition("binary_cross_entropy_with_logits")
def binary_with_logits(call: OperatorCall) -> NodeView:
    """-(p t log σ(x) + (1 - t) log(1 - σ(x)))."""
    views = [call.tensor("self"), call.tensor("target")]
    expr = (1 - y) * x + Softplus(-x)
    if call.has("pos_weight"):
        views.append(call.tensor("pos_weight"))
        expr = (1 - y) * x + (1 + (z - 1) * y) * Softplus(-x)
    return reduction(call, _weighted(call, expr, views))


def _weighted(call: OperatorCall, expr: sp.Expr, views: list[NodeView] | None = None) -> NodeView:
    views = views or [call.tensor("self"), call.tensor("target")]
    if call.has("weight"):
        expr = argument(len(views)) * expr
        views = [*views, call.tensor("weight")]
    return call.pointwise(expr, views)


@decomposition("soft_margin_loss")
def soft_margin(call: OperatorCall) -> NodeView:
    """log(1 + exp(-t x))."""
    return reduction(call, call.pointwise(Softplus(-y * x), (call.tensor("self"), call.tensor("target"))))


@decomposition("kl_div")
def divergence(call: OperatorCall) -> NodeView:
    """t (log t - x), or exp(t)(t - x) where the target is a logarithm."""
    logs = bool(call.raw("log_target", False))
    expr = sp.exp(y) * (y - x) if logs else where(y > 0, y * sp.log(y) - y * x, 0)
    return reduction(call, call.pointwise(expr, (call.tensor("self"), call.tensor("target"))))


@decomposition("nll_loss_forward", "nll_loss2d_forward", "nll_loss", "nll_loss_nd")
def negative_log_likelihood(call: OperatorCall) -> Any:
    """-Σ onehot log p over the classes, where onehot is 1 for the class of a row, else 0; rows of the ignored class count for nothing."""
    logs, target = call.tensor("self"), call.tensor("target")
    classes = 1 if len(logs.axes) > 1 else 0
    axes = [i for i in range(len(logs.axes)) if i != classes]
    ignored, bound = call.integer("ignore_index", -100), call.converter.below.get(target.node)
    certain = bound is not None and bound == logs.shape[classes] and ignored < 0
    for j, i in enumerate(axes):
        logs, target = call.views.aligned((logs, target), (i, j))
    valid = None if certain else call.converter.truth(sp.Ne(x, ignored), (target,))
    label = target if valid is None else call.pointwise(x * y, (target, valid), integral=True)
    marked = delta(call, label, logs, classes)
    about = [marked, logs] if valid is None else [marked, logs, _over(valid, classes)]
    if call.has("weight"):
        weight = call.tensor("weight")
        about.append(NodeView(weight.node, (weight.axes[0], *(() for _ in logs.axes[classes + 1 :]))))
    factors = sp.Mul(*(argument(i) for i in range(len(about))))
    each = reduce(call, call.pointwise(-factors, about), (classes,), "sum")
    kind = call.integer("reduction", _MEAN)
    if kind == _NONE:
        return [each, None]
    total = reduce(call, each, range(len(each.axes)), "sum")
    if kind != _MEAN:
        return [total, None]
    if len(about) == 2:
        return [reduce(call, each, range(len(each.axes)), "mean"), None]
    counted = [v for i, v in enumerate(about) if i != 1]
    weights = call.pointwise(sp.Mul(*(argument(i) for i in range(len(counted)))), counted) if call.has("weight") else valid
    assert weights is not None
    count = reduce(call, weights, range(len(weights.axes)), "sum", name="N")
    return [call.pointwise(x / y, (total, count)), count]


def _over(view: NodeView, classes: int) -> NodeView:
    return NodeView(view.node, (*view.axes[:classes], (), *view.axes[classes:]))


def delta(call: OperatorCall, label: NodeView, logs: NodeView, classes: int) -> NodeView:
    """1 where the place along the axis of classes is the row's class."""
    logs = call.views.merged(logs, classes)
    label = call.views.dense(label)
    rank = len(call.equations[label.node].shape)
    operand = Operand(label.node, tuple(range(rank)))
    size = logs.shape[classes]
    node = call.equations.add(ir.Delta(operand), (*call.equations[label.node].shape, size), name="onehot")
    axes = list(label.axes)
    axes.insert(classes, (AxisFactor(rank, size),))
    return NodeView(node, tuple(axes))


@decomposition("cosine_similarity")
def cosine(call: OperatorCall) -> NodeView:
    """Σ x y/(max(‖x‖, ε) max(‖y‖, ε))."""
    first, second = call.tensor("x1"), call.tensor("x2")
    eps = call.number("eps", 1e-8)
    axis = call.axis(first, "dim", 1)
    dot = reduce(call, call.pointwise(x * y, (first, second)), (axis,))
    lengths = [call.pointwise(sp.sqrt(x), (reduce(call, call.pointwise(x**2, (v,)), (axis,)),)) for v in (first, second)]
    return call.pointwise(x / (larger(y, eps) * larger(z, eps)), (dot, *lengths))


@decomposition("is_same_size")
def same(call: OperatorCall) -> NodeView:
    return call.converter.truth(truth(True), ())
