"""Writing by positions: scatter in its forms, and index_put."""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from calc.mathematics.autodiff import ir
from calc.mathematics.autodiff.call import OperatorCall, decomposition
from calc.mathematics.autodiff.decompositions.indexing import indexed
from calc.mathematics.autodiff.decompositions.shapes import expanded, narrowed
from calc.mathematics.autodiff.ir import Index, Operand, Pick, argument, place
from calc.mathematics.autodiff.scalar import where
from calc.mathematics.autodiff.views import AxisFactor, NodeView

x, y = argument(0), argument(1)


def _scattered(call: OperatorCall, view: NodeView, axis: int, index: NodeView, source: NodeView) -> NodeView:
    """Zeros of the view's shape with the source added at the positions."""
    index = call.views.plain(index)
    source = call.views.plain(_like(call, source, index))
    labels = {a: i for i, a in enumerate(i for i, axes in enumerate(index.axes) if axes)}
    coordinates: list[Index | Pick] = []
    shape = []
    for i, axes in enumerate(view.axes):
        if axes:
            pick = Pick(Operand(index.node, tuple(range(len(labels)))))
            coordinates.append(pick if i == axis else Index(place(labels[i]) if i in labels else sp.Integer(0)))
            shape.append(view.shape[i])
    node = call.equations.add(ir.Scatter(source.node, tuple(coordinates)), tuple(shape))
    return NodeView(node, _numbered(view))


def _numbered(view: NodeView) -> tuple[tuple[AxisFactor, ...], ...]:
    axes, at = [], 0
    for i, axis in enumerate(view.axes):
        axes.append((AxisFactor(at, view.shape[i]),) if axis else ())
        at += bool(axis)
    return tuple(axes)


def _like(call: OperatorCall, source: NodeView, index: NodeView) -> NodeView:
    """The source over the places of the index, of which it may have more, or be one number."""
    if not source.axes:
        return expanded(source, index.shape)
    for i, size in enumerate(index.shape):
        source = narrowed(call, source, i, sp.Integer(0), size)
    return source


@decomposition("scatter_add")
def scatter_add(call: OperatorCall) -> NodeView:
    """X plus the source at the positions."""
    view = call.tensor("self")
    scattered = _scattered(call, view, call.axis(view), call.tensor("index"), call.tensor("src"))
    return call.pointwise(x + y, (view, scattered))


@decomposition("scatter")
def scatter(call: OperatorCall) -> NodeView:
    """X with the source in the place of what stood at the positions, which are assumed to differ."""
    if call.has("reduce"):
        raise call.refusal("it reduces while it scatters")
    view, index = call.tensor("self"), call.tensor("index")
    source = call.tensor("src" if call.has("src") else "value")
    axis = call.axis(view)
    scattered = _scattered(call, view, axis, index, source)
    count = _scattered(call, view, axis, index, NodeView(call.equations.map(sp.Integer(1), (), ()), ()))
    return call.pointwise(where(argument(2) > 0, y / argument(2), x), (view, scattered, count))


@decomposition("index_copy")
def index_copy(call: OperatorCall) -> NodeView:
    """X with row i of the source in the place of row I[i]."""
    view, axis = call.tensor("self"), call.axis(call.tensor("self"), "dim", 0)
    index = call.tensor("index")
    rows = NodeView(index.node, (*(() for _ in view.axes[:axis]), *index.axes, *(() for _ in view.axes[axis + 1 :])))
    shape = tuple(index.shape[0] if i == axis else s for i, s in enumerate(view.shape))
    spread = expanded(rows, shape)
    scattered = _scattered(call, view, axis, spread, call.tensor("source"))
    count = _scattered(call, view, axis, spread, NodeView(call.equations.map(sp.Integer(1), (), ()), ()))
    return call.pointwise(where(argument(2) > 0, y / argument(2), x), (view, scattered, count))


@decomposition("index_fill")
def index_fill(call: OperatorCall) -> NodeView:
    """X with one number in the rows I."""
    view, axis = call.tensor("self"), call.axis(call.tensor("self"), "dim", 0)
    index = call.tensor("index")
    rows = NodeView(index.node, (*(() for _ in view.axes[:axis]), *index.axes, *(() for _ in view.axes[axis + 1 :])))
    shape = tuple(index.shape[0] if i == axis else s for i, s in enumerate(view.shape))
    count = _scattered(call, view, axis, expanded(rows, shape), NodeView(call.equations.map(sp.Integer(1), (), ()), ()))
    return call.pointwise(where(argument(2) > 0, y, x), (view, call.tensor("value"), count))


@decomposition("index_add")
def index_add(call: OperatorCall) -> NodeView:
    """X[…, I[i], …] + α source[…, i, …]."""
    view, index = call.tensor("self"), call.views.plain(call.tensor("index"))
    source = call.views.plain(call.tensor("source"))
    axis = call.axis(view)
    coordinates = tuple(
        Pick(Operand(index.node, (p[0].axis,))) if i == axis else Index(place(p[0].axis))  # type: ignore[arg-type]  # plain: one part each
        for i, p in enumerate(source.axes)
        if p
    )
    shape = tuple(view.shape[i] for i, p in enumerate(source.axes) if p)
    node = call.equations.add(ir.Scatter(source.node, coordinates), shape)
    sized = NodeView(view.node, tuple(a if source.axes[i] else () for i, a in enumerate(view.axes)))
    return call.pointwise(x + call.number("alpha", 1) * y, (view, NodeView(node, _numbered(sized))))


@decomposition("index_put", "_index_put_impl", "_unsafe_index_put")
def index_put(call: OperatorCall) -> NodeView:
    """X with values at the positions, added where ``accumulate``; a mask chooses element by element."""
    view, value = call.tensor("self"), call.tensor("values")
    raw = call.raw("indices")
    indices = [None if v is None else call.as_view(v) for v in raw]
    if len(indices) == 1 and call.converter.program.values[raw[0].value].dtype == "bool" and not value.axes:
        mask = indices[0]
        assert mask is not None
        spread = NodeView(mask.node, (*mask.axes, *(() for _ in view.axes[len(mask.axes) :])))
        return call.pointwise(where(sp.Ne(argument(2), 0), y, x), (view, value, spread))
    if any(r is not None and call.converter.program.values[r.value].dtype == "bool" for r in raw):
        raise call.refusal("a mask selects the positions of a data-dependent number of values")
    target = call.views.plain(view)
    coordinates, axes = indexed(call, target, indices)
    shape = tuple(p.size for a in axes for p in a)
    full_shape = tuple(call.equations[target.node].shape)
    scattered = []
    for source in (value, NodeView(call.equations.map(sp.Integer(1), (), ()), ())):
        spread = call.views.plain(expanded(source, _shape(axes)))
        node = spread.node
        assert call.equations[node].shape == shape
        scattered.append(NodeView(call.equations.add(ir.Scatter(node, tuple(coordinates)), full_shape), target.axes))
    if call.raw("accumulate", False):
        return call.pointwise(x + y, (view, scattered[0]))
    return call.pointwise(where(argument(2) > 0, y / argument(2), x), (view, *scattered))


def _shape(axes: Sequence[tuple[AxisFactor, ...]]) -> tuple[sp.Expr, ...]:
    return tuple(a[0].size if a else sp.Integer(1) for a in axes)


@decomposition("masked_scatter", "masked_select", "nonzero")
def masked_scatter(call: OperatorCall) -> NodeView:
    raise call.refusal("the positions are data-dependent")
