"""Pooling: windows of places as a gather, and a mean or a maximum over them; interpolation by nearest places."""

from __future__ import annotations

from typing import Any

import sympy as sp

from calc.mathematics.autodiff import ir
from calc.mathematics.autodiff.call import OperatorCall, decomposition
from calc.mathematics.autodiff.decompositions.convolution import full
from calc.mathematics.autodiff.ir import Operand, argument, place
from calc.mathematics.autodiff.sizes import INFINITY, quotient
from calc.mathematics.autodiff.views import NodeView, of_node

x, y = argument(0), argument(1)


def _windows(call: OperatorCall, view: NodeView, count: int, fill: sp.Expr) -> tuple[int, list[sp.Expr]]:
    """Labels: the axes in front, places of the result, places of the window."""

    def each(name: str, default: list[sp.Expr]) -> list[sp.Expr]:
        sizes = call.sizes(name, ())
        return default if not sizes else sizes * count if len(sizes) == 1 else sizes

    ones, zeros = [sp.Integer(1)] * count, [sp.Integer(0)] * count
    kernel = each("kernel_size", ones)
    stride, padding, dilation = each("stride", kernel), each("padding", zeros), each("dilation", ones)
    out = call.shape()
    n = len(out) - count
    places = [ir.Index(place(i)) for i in range(n)]
    places += [ir.Index(sp.expand(stride[i] * place(n + i) + dilation[i] * place(n + count + i) - padding[i])) for i in range(count)]
    # A result that is rounded up, or padded, looks at places outside.
    node = call.equations.add(ir.Gather(full(call, view), tuple(places), fill), (*out, *kernel), name="X'")
    return node, kernel


def _over(call: OperatorCall, node: int, kernel: list[sp.Expr], kind: str) -> NodeView:
    shape = call.shape()
    rank = len(shape) + len(kernel)
    reduced = call.equations.add(ir.Reduce(kind, Operand(node, tuple(range(rank)))), shape, tuple(kernel))
    return of_node(call.equations, reduced)


@decomposition("max_pool1d", "max_pool2d", "max_pool3d")
def max_pool(call: OperatorCall) -> NodeView:
    count = int(call.instruction.name.removeprefix("aten.max_pool")[0])
    node, kernel = _windows(call, call.tensor("self"), count, -INFINITY)
    return _over(call, node, kernel, "max")


@decomposition("max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices")
def max_pool_with_indices(call: OperatorCall) -> list[Any]:
    return [max_pool(call), None]


@decomposition("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(call: OperatorCall) -> NodeView:
    """The mean of a window. Padding counts as zeros, or not at all; what lies beyond the padding never counts."""
    count = int(call.instruction.name.removeprefix("aten.avg_pool")[0])
    view = call.tensor("self")
    node, kernel = _windows(call, view, count, sp.Integer(0))
    padded = any(p != 0 for p in call.sizes("padding", (0,)))
    if call.raw("ceil_mode", False) or call.has("divisor_override"):
        raise call.refusal("its windows exceed the padding, or it has divisor_override")
    if not padded or call.raw("count_include_pad", True):
        return _over(call, node, kernel, "mean")
    ones = call.equations.map(sp.Integer(1), (), view.shape)
    from calc.mathematics.autodiff.views import AxisFactor

    inside, _ = _windows(call, NodeView(ones, tuple((AxisFactor(i, s),) for i, s in enumerate(view.shape))), count, sp.Integer(0))
    return call.pointwise(x / y, (_over(call, node, kernel, "sum"), _over(call, inside, kernel, "sum")))


@decomposition("adaptive_avg_pool1d", "_adaptive_avg_pool2d", "adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_avg_pool3d")
def adaptive_avg_pool(call: OperatorCall) -> NodeView:
    """The mean of equal windows."""
    return _of_equal_windows(call, "mean")


@decomposition("adaptive_max_pool2d", "adaptive_max_pool3d", "adaptive_max_pool1d")
def adaptive_max_pool(call: OperatorCall) -> list[Any]:
    """The largest element of equal windows."""
    return [_of_equal_windows(call, "max"), None]


def _of_equal_windows(call: OperatorCall, how: str) -> NodeView:
    """The sides that are pooled come as (places, window), and the windows are reduced."""
    view = call.tensor("self")
    shape, out = view.shape, call.shape()
    count = len(call.raw("output_size"))
    lead = len(shape) - count
    sizes, axes = [*shape[:lead]], []
    for have, want in zip(shape[lead:], out[lead:], strict=True):
        window = quotient(have, want)
        if window is None:
            raise call.refusal(f"its windows have unequal sizes: {have} positions become {want}")
        axes.append(len(sizes) + 1)
        sizes += [want, window]
    from calc.mathematics.autodiff.decompositions.reductions import reduce

    return call.views.reshaped(reduce(call, call.views.reshaped(view, sizes), axes, how), out)


@decomposition("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d")
def upsample_nearest(call: OperatorCall) -> NodeView:
    """Every place takes the nearest one: place ⌊i n/m⌋ of n where there are m."""
    view = call.tensor("self")
    shape, out = view.shape, call.shape()
    places = tuple(ir.Index(place(i) if shape[i] == out[i] else sp.floor(place(i) * shape[i] / out[i])) for i in range(len(out)))
    return of_node(call.equations, call.equations.add(ir.Gather(full(call, view), places), out))


@decomposition("pixel_shuffle", "pixel_unshuffle")
def pixel_shuffle(call: OperatorCall) -> NodeView:
    """Channels become places, or places channels."""
    view = call.tensor("self")
    *lead, c, h, w = view.shape
    up = call.has("upscale_factor")
    r = call.sizes("upscale_factor" if up else "downscale_factor")[0]
    n = len(lead)
    if up:
        split = call.views.reshaped(view, (*lead, quotient(c, r * r) or c, r, r, h, w))
        order = [*range(n), n, n + 3, n + 1, n + 4, n + 2]
    else:
        split = call.views.reshaped(view, (*lead, c, quotient(h, r) or h, r, quotient(w, r) or w, r))
        order = [*range(n), n, n + 2, n + 4, n + 1, n + 3]
    return call.views.reshaped(NodeView(split.node, tuple(split.axes[i] for i in order)), call.shape())
