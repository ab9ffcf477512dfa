"""Normalization layers from their definitions: center, divide by the root mean square, scale and shift."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import sympy as sp

from calc.mathematics.autodiff.call import OperatorCall, decomposition
from calc.mathematics.autodiff.decompositions.reductions import reduce
from calc.mathematics.autodiff.ir import argument
from calc.mathematics.autodiff.views import NodeView

x, y, z = argument(0), argument(1), argument(2)
_ROOT = sp.Rational(-1, 2)


def normalized(call: OperatorCall, view: NodeView, axes: Collection[int]) -> tuple[NodeView, NodeView, NodeView, NodeView]:
    """n = (x - μ) r with μ = mean(x), v = mean((x - μ)²), r = 1/√(v + ε): n, μ, r and v."""
    center = reduce(call, view, axes, "mean", keep=True, name="μ")
    centered = call.pointwise(x - y, (view, center), name="xc")
    var = reduce(call, call.pointwise(x**2, (centered,), name="xc²"), axes, "mean", keep=True, name="var")
    scale = call.pointwise((x + call.number("eps", 1e-5)) ** _ROOT, (var,), name="rstd")
    return call.pointwise(x * y, (centered, scale), name="x̂"), center, scale, var


def scaled(call: OperatorCall, view: NodeView, weight: NodeView | None, bias: NodeView | None) -> NodeView:
    """n w + b."""
    views = [v for v in (view, weight, bias) if v is not None]
    expr = x if weight is None else x * y
    if bias is not None:
        expr += argument(len(views) - 1)
    return call.pointwise(expr, views, name="")


def _optional(call: OperatorCall, name: str) -> NodeView | None:
    return call.tensor(name) if call.has(name) else None


@decomposition("native_layer_norm")
def layer_norm(call: OperatorCall) -> list[NodeView]:
    """Ba, Kiros and Hinton 2016: y = n w + b over the last axes."""
    view = call.tensor("input")
    axes = range(len(view.axes) - len(call.raw("normalized_shape")), len(view.axes))
    n, center, scale, _ = normalized(call, view, axes)
    return [scaled(call, n, _optional(call, "weight"), _optional(call, "bias")), center, scale]


@decomposition("_fused_rms_norm", "rms_norm")
def rms_norm(call: OperatorCall) -> Any:
    """Zhang and Sennrich 2019: y = x r w, r = 1/√(mean(x²) + ε)."""
    view = call.tensor("input")
    axes = range(len(view.axes) - len(call.raw("normalized_shape")), len(view.axes))
    square = reduce(call, call.pointwise(x**2, (view,), name="x²"), axes, "mean", keep=True, name="ms")
    scale = call.pointwise((x + call.number("eps", 2.220446049250313e-16)) ** _ROOT, (square,), name="rstd")
    result = scaled(call, call.pointwise(x * y, (view, scale), name="x̂"), _optional(call, "weight"), None)
    return result if "fused" not in call.instruction.name else [result, scale]


@decomposition("native_group_norm")
def group_norm(call: OperatorCall) -> list[NodeView]:
    """Wu and He 2018: channels in groups, each normalized over its positions."""
    view = call.tensor("input")
    groups = call.integer("group")
    shape = view.shape
    inside = sp.cancel(shape[1] / groups)
    grouped = call.views.reshaped(view, (shape[0], sp.Integer(groups), inside, *shape[2:]))
    n, center, scale, _ = normalized(call, grouped, range(2, len(grouped.axes)))
    result = scaled(call, call.views.reshaped(n, shape), _channels(call, "weight", view), _channels(call, "bias", view))
    flat = [call.views.reshaped(v, (shape[0], sp.Integer(groups))) for v in (center, scale)]
    return [result, *flat]


def _channels(call: OperatorCall, name: str, view: NodeView) -> NodeView | None:
    """A number a channel, with an axis for each of the places."""
    channels = _optional(call, name)
    return None if channels is None else NodeView(channels.node, (*channels.axes, *(() for _ in view.axes[2:])))


def _along_channels(view: NodeView, like: NodeView) -> NodeView:
    return NodeView(view.node, ((), view.axes[0], *(() for _ in like.axes[2:]))) if len(view.axes) == 1 else view


@decomposition(
    *("native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_functional", "cudnn_batch_norm", "batch_norm"),
    *("_batch_norm_with_update", "_batch_norm_no_update"),
)
def batch_norm(call: OperatorCall) -> Any:
    """Ioffe and Szegedy 2015: in training over all but the channels, in evaluation by the running statistics, which are constants."""
    view = call.tensor("input")
    training = bool(call.raw("training", True))
    axes = [i for i in range(len(view.axes)) if i != 1]
    if training:
        n, center, scale, _ = normalized(call, view, axes)
    else:
        center, var = (_along_channels(call.tensor(name), view) for name in ("running_mean", "running_var"))
        scale = call.pointwise((x + call.number("eps", 1e-5)) ** _ROOT, (var,), name="rstd")
        n = call.pointwise((x - y) * z, (view, center, scale), name="x̂")
    result = scaled(call, n, _channels(call, "weight", view), _channels(call, "bias", view))
    return [result, _flat(center), _flat(scale)]


def _flat(view: NodeView) -> NodeView:
    return NodeView(view.node, tuple(axis for axis in view.axes if axis))


@decomposition("_weight_norm_interface", "_weight_norm")
def weight_norm(call: OperatorCall) -> Any:
    """w = g v/‖v‖, the norm over all axes but one."""
    v, g = call.tensor("v"), call.tensor("g")
    axis = call.integer("dim", 0) % len(v.axes)
    axes = [i for i in range(len(v.axes)) if i != axis]
    length = call.pointwise(sp.sqrt(x), (reduce(call, call.pointwise(x**2, (v,)), axes, "sum", keep=True),))
    result = call.pointwise(x * y / z, (v, g, length))
    return [result, length] if "interface" in call.instruction.name else result
