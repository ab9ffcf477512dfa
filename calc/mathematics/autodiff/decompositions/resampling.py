"""Reads at other positions: reflection and replication padding, interpolation, channel shuffles."""

from __future__ import annotations

import sympy as sp

from calc.mathematics.autodiff import ir
from calc.mathematics.autodiff.call import OperatorCall, decomposition
from calc.mathematics.autodiff.decompositions.convolution import full
from calc.mathematics.autodiff.decompositions.creation import positions
from calc.mathematics.autodiff.decompositions.reductions import reduce
from calc.mathematics.autodiff.ir import argument, place
from calc.mathematics.autodiff.scalar import where
from calc.mathematics.autodiff.sizes import quotient
from calc.mathematics.autodiff.views import NodeView, of_node

x, y, z = argument(0), argument(1), argument(2)
_HALF = sp.Rational(1, 2)


def _read(call: OperatorCall, view: NodeView, places: list[sp.Expr]) -> NodeView:
    """Y[i, j, …] = X[places]."""
    coordinates = tuple(ir.Index(p) for p in places)
    return of_node(call.equations, call.equations.add(ir.Gather(full(call, view), coordinates), call.shape()))


def _before(call: OperatorCall, view: NodeView) -> list[sp.Expr]:
    """How far each axis is padded in front: the sizes are given from the last axis on."""
    pairs = call.sizes("padding")
    paddings = [sp.Integer(0)] * len(view.axes)
    for i in range(len(pairs) // 2):
        paddings[-1 - i] = pairs[2 * i]
    return paddings


@decomposition("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")
def reflected(call: OperatorCall) -> NodeView:
    """Reflection padding: a position beyond an end reads the one as far inside."""
    view = call.tensor("self")
    shape, out = view.shape, call.shape()
    last = [s - 1 for s in shape]
    moved = [place(i) - p for i, p in enumerate(_before(call, view))]
    places = [place(i) if shape[i] == out[i] else last[i] - sp.Abs(last[i] - sp.Abs(m)) for i, m in enumerate(moved)]
    return _read(call, view, places)


@decomposition("replication_pad1d", "replication_pad2d", "replication_pad3d")
def replicated(call: OperatorCall) -> NodeView:
    """Replication padding: a position beyond an end reads that end."""
    view = call.tensor("self")
    shape, out = view.shape, call.shape()
    places = []
    for i, p in enumerate(_before(call, view)):
        moved = place(i) - p
        clipped = sp.Piecewise((0, moved < 0), (shape[i] - 1, moved > shape[i] - 1), (moved, True))
        places.append(place(i) if shape[i] == out[i] else clipped)
    return _read(call, view, places)


@decomposition("_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d")
def nearest_exact(call: OperatorCall) -> NodeView:
    """Place ⌊(i + ½) n/m⌋ of n where there are m."""
    view = call.tensor("self")
    shape, out = view.shape, call.shape()
    places = [place(i) if shape[i] == out[i] else sp.floor((place(i) + _HALF) * shape[i] / out[i]) for i in range(len(out))]
    return _read(call, view, places)


@decomposition("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d")
def linear(call: OperatorCall) -> NodeView:
    """Along each axis of places the two nearest, each by how near it is: Σ_j max(0, 1 - |s(i) - j|) X[j]."""
    view = call.tensor("self")
    out = call.shape()
    corners = bool(call.raw("align_corners", False))
    for axis in range(2, len(out)):
        view = _along(call, view, axis, out[axis], corners)
    return view


def _along(call: OperatorCall, view: NodeView, axis: int, length: sp.Expr, corners: bool) -> NodeView:
    have = view.shape[axis]
    if have == length:
        return view
    at, of = positions(call, length), positions(call, have)
    after = len(view.axes) - axis - 1
    source = x * (have - 1) / (length - 1) if corners else (x + _HALF) * have / length - _HALF
    clipped = sp.Piecewise((0, source < 0), (have - 1, source > have - 1), (source, True))
    sources = call.pointwise(clipped, (at,), integral=False)
    distance = sp.Abs(x - y)
    weight = where(distance < 1, 1 - distance, 0)
    rows = NodeView(sources.node, (*sources.axes, (), *(() for _ in range(after))))
    columns = NodeView(of.node, (*of.axes, *(() for _ in range(after))))
    weights = call.pointwise(weight, (rows, columns), integral=False)
    spread = NodeView(view.node, (*view.axes[:axis], (), *view.axes[axis:]))
    return reduce(call, call.pointwise(x * y, (weights, spread)), (axis + 1,))


@decomposition("channel_shuffle", "native_channel_shuffle")
def channel_shuffle(call: OperatorCall) -> NodeView:
    """Channels (g, c) as (c, g)."""
    view = call.tensor("self")
    groups = call.sizes("groups")[0]
    inside = quotient(view.shape[1], groups)
    if inside is None:
        raise call.refusal("its channels are not divisible into groups")
    split = call.views.reshaped(view, (view.shape[0], groups, inside, *view.shape[2:]))
    turned = NodeView(split.node, (split.axes[0], split.axes[2], split.axes[1], *split.axes[3:]))
    return call.views.reshaped(turned, view.shape)
