"""Reading and writing by positions: embeddings, gather and scatter, index tensors, sorting."""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from calc.mathematics.autodiff import ir
from calc.mathematics.autodiff.call import OperatorCall, decomposition
from calc.mathematics.autodiff.decompositions.creation import positions
from calc.mathematics.autodiff.decompositions.shapes import narrowed
from calc.mathematics.autodiff.ir import Index, Operand, Pick, argument, place
from calc.mathematics.autodiff.scalar import where
from calc.mathematics.autodiff.views import AxisFactor, NodeView

x, y = argument(0), argument(1)


def _nonnegative(call: OperatorCall, index: NodeView, size: sp.Expr) -> NodeView:
    """Positions counted from the end where they are negative."""
    if index.node in call.converter.below or isinstance(call.equations[index.node].op, ir.Iota | ir.Best | ir.Order):
        return index
    return call.pointwise(where(x < 0, x + size, x), (index,), integral=True)


@decomposition("embedding")
def embedding(call: OperatorCall) -> NodeView:
    """Y[…, d] = W[I[…], d]. A row for padding is a constant: torch gives it no gradient."""
    weight, index = call.views.plain(call.tensor("weight")), call.views.dense(call.tensor("indices"))
    padding = call.integer("padding_idx", -1)
    if call.raw("scale_grad_by_freq", False):
        raise call.refusal("its gradient is divided by how often a row is read (scale_grad_by_freq), which is not a derivative")
    if padding >= 0 and call.converter.active(weight.node):
        weight = _without_padding_gradient(call, weight, padding)
    rank = len(call.equations[index.node].shape)
    read: tuple[Index | Pick, ...] = (Pick(Operand(index.node, tuple(range(rank)))), Index(place(rank)))
    # An axis of one is none of the node's.
    rows, columns = ((coordinate,) if axis else () for coordinate, axis in zip(read, weight.axes, strict=True))
    width = tuple(AxisFactor(rank, weight.shape[1]) for _ in columns)
    shape = (*call.equations[index.node].shape, *(factor.size for factor in width))
    return NodeView(call.equations.add(ir.Gather(weight.node, (*rows, *columns)), shape), (*index.axes, width))


def _without_padding_gradient(call: OperatorCall, weight: NodeView, row: int) -> NodeView:
    constant = call.equations.add(ir.Hold(weight.node, "the row for padding has no gradient"), call.equations[weight.node].shape)
    rows = positions(call, weight.shape[0])
    expr = where(sp.Eq(argument(2), row), y, x)
    return call.pointwise(expr, (weight, NodeView(constant, weight.axes), NodeView(rows.node, (*rows.axes, ()))), integral=False)


@decomposition("index_select")
def index_select(call: OperatorCall) -> NodeView:
    """Y[…, i, …] = X[…, I[i], …]."""
    view, index = call.views.plain(call.tensor("self")), call.tensor("index")
    axis = call.axis(view, "dim", 0)
    return _by_index(call, view, axis, call.views.plain(index if index.axes else NodeView(index.node, ((),))))


def _by_index(call: OperatorCall, view: NodeView, axis: int, index: NodeView) -> NodeView:
    """Positions of one axis by a tensor of one axis."""
    if not view.axes[axis]:
        return view
    at = view.axes[axis][0].axis
    assert at is not None
    shape = call.equations[view.node].shape
    if not index.axes[0]:
        picks = Pick(Operand(index.node, ()))
        coordinates: list[Index | Pick] = [picks if i == at else Index(place(i - (i > at))) for i in range(len(shape))]
        node = call.equations.add(ir.Gather(view.node, tuple(coordinates)), (*shape[:at], *shape[at + 1 :]))
        moved = tuple(tuple(AxisFactor(p.axis - (p.axis > at), p.size) for p in a if p.axis is not None) for a in view.axes)
        return NodeView(node, (*moved[:axis], (), *moved[axis + 1 :]))
    length = index.shape[0]
    coordinates = [Pick(Operand(index.node, (i,))) if i == at else Index(place(i)) for i in range(len(shape))]
    node = call.equations.add(ir.Gather(view.node, tuple(coordinates)), (*shape[:at], length, *shape[at + 1 :]))
    return NodeView(node, (*view.axes[:axis], (AxisFactor(at, length),), *view.axes[axis + 1 :]))


def taken(call: OperatorCall, view: NodeView, axis: int, index: NodeView, drop: bool = False) -> NodeView:
    """Y[…] = X[…, I[…], …]: along one axis by positions for each of the other places (``torch.gather``). ``index`` has the axes of
    the tensor; with ``drop`` its axis ``axis`` has size 1 and is dropped."""
    view, index = call.views.plain(view), call.views.plain(index)
    shape = call.equations[view.node].shape
    labels = {a: i for i, a in enumerate(i for i, axes in enumerate(index.axes) if axes)}
    coordinates: list[Index | Pick] = [Index(sp.Integer(0))] * len(shape)
    for i, axes in enumerate(view.axes):
        if axes:
            at = axes[0].axis
            assert at is not None
            pick = Pick(Operand(index.node, tuple(range(len(labels)))))
            coordinates[at] = pick if i == axis else Index(place(labels[i]) if i in labels else sp.Integer(0))
    sizes = call.equations[index.node].shape
    node = call.equations.add(ir.Gather(view.node, tuple(coordinates)), sizes)
    gathered = NodeView(node, index.axes)
    return NodeView(node, tuple(a for i, a in enumerate(gathered.axes) if i != axis)) if drop else gathered


@decomposition("take")
def take(call: OperatorCall) -> NodeView:
    """Elements by their place in the whole tensor, row after row."""
    view, index = call.tensor("self"), call.views.dense(call.tensor("index"))
    flat = call.views.merged(NodeView(view.node, (tuple(view.parts),)), 0)
    index = _nonnegative(call, index, flat.shape[0])
    shape = call.equations[index.node].shape
    pick = Pick(Operand(index.node, tuple(range(len(shape)))))
    return NodeView(call.equations.add(ir.Gather(flat.node, (pick,)), shape), index.axes)


@decomposition("gather", "take_along_dim")
def gather(call: OperatorCall) -> NodeView:
    view = call.tensor("self")
    index = call.tensor("index" if call.has("index") else "indices")
    return taken(call, view, call.axis(view), index)


@decomposition("index", "_unsafe_index")
def index(call: OperatorCall) -> NodeView:
    """Y[…] = X[I[…], …], the index tensors broadcast against each other."""
    view = call.views.plain(call.tensor("self"))
    indices = [None if v is None else call.as_view(v) for v in call.raw("indices")]
    if any(call.converter.program.values[r.value].dtype in ("bool", "uint8") for r in call.raw("indices") if r is not None):
        raise call.refusal("the size of the result is data-dependent: it counts the elements of a mask")
    coordinates, axes = indexed(call, view, indices)
    shape = tuple(p.size for a in axes for p in a)
    return NodeView(call.equations.add(ir.Gather(view.node, tuple(coordinates)), shape, integral=call.equations[view.node].integral), axes)


def indexed(
    call: OperatorCall, view: NodeView, index_views: Sequence[NodeView | None]
) -> tuple[list[Index | Pick], tuple[tuple[AxisFactor, ...], ...]]:
    """Coordinates of an indexing, and the axes of what it gives: those of the indices where they stand together, else in front."""
    chosen = [i for i, v in enumerate(index_views) if v is not None]
    rank = max(len(v.axes) for v in index_views if v is not None)
    together = _broadcast(call, [v for v in index_views if v is not None], rank)
    at = chosen[0] if chosen == list(range(chosen[0], chosen[-1] + 1)) else 0
    before = [i for i in range(len(view.axes)) if i not in chosen and i < at]
    after = [i for i in range(len(view.axes)) if i not in chosen and i not in before]
    shared = [next((v.axes[j][0].size for v in together if v.axes[j]), sp.Integer(1)) for j in range(rank)]
    sizes = [*(view.shape[i] for i in before), *shared, *(view.shape[i] for i in after)]
    labels = [sum(s != 1 for s in sizes[:n]) for n in range(len(sizes))]
    axes = tuple((AxisFactor(label, s),) if s != 1 else () for label, s in zip(labels, sizes, strict=True))
    own = dict(zip([*before, *after], [*labels[: len(before)], *labels[len(before) + rank :]], strict=True))
    coordinates: list[Index | Pick] = [Index(sp.Integer(0))] * len(call.equations[view.node].shape)
    indices = dict(zip(chosen, together, strict=True))
    for i, axis in enumerate(view.axes):
        if not axis or axis[0].axis is None:
            continue
        if i in own:
            coordinates[axis[0].axis] = Index(place(own[i]))
            continue
        index = _nonnegative(call, indices[i], view.shape[i])
        carried = {a[0].axis: labels[len(before) + j] for j, a in enumerate(index.axes) if a}
        coordinates[axis[0].axis] = Pick(Operand(index.node, tuple(carried[k] for k in range(len(carried)))))
    return coordinates, axes


def _broadcast(call: OperatorCall, views: Sequence[NodeView], rank: int) -> list[NodeView]:
    """The index tensors with as many axes each, every one of one part."""
    padded = [NodeView(v.node, (*(() for _ in range(rank - len(v.axes))), *v.axes)) for v in views]
    return [call.views.plain(v) for v in padded]


@decomposition("one_hot")
def one_hot(call: OperatorCall) -> NodeView:
    view = call.views.dense(call.tensor("self"))
    size = call.shape()[-1]
    rank = len(call.equations[view.node].shape)
    node = call.equations.add(ir.Delta(Operand(view.node, tuple(range(rank)))), (*call.equations[view.node].shape, size), integral=True)
    return NodeView(node, (*view.axes, (AxisFactor(rank, size),)))


@decomposition("select_scatter")
def select_scatter(call: OperatorCall) -> NodeView:
    """One position of an axis replaced."""
    view, source = call.views.plain(call.tensor("self")), call.tensor("src")
    axis, index = call.axis(view, "dim", 0), call.integer("index")
    at = sp.Integer(index) if index >= 0 else view.shape[axis] + index
    spread = NodeView(source.node, (*source.axes[:axis], (), *source.axes[axis:]))
    return call.pointwise(where(sp.Eq(argument(2), at), y, x), (view, spread, _along(call, view, axis)))


@decomposition("slice_scatter")
def slice_scatter(call: OperatorCall) -> NodeView:
    """A stretch of an axis replaced."""
    view, source = call.views.plain(call.tensor("self")), call.views.plain(call.tensor("src"))
    axis = call.axis(view, "dim", 0)
    start, length = call.raw("start") or 0, source.shape[axis]
    if call.integer("step", 1) != 1 or not isinstance(start, int) or not source.axes[axis]:
        raise call.refusal("its slice has a step, or a symbolic start")
    first = sp.Integer(start) if start >= 0 else view.shape[axis] + start
    moved = source.axes[axis][0].axis
    places = tuple(Index(place(i) - first if i == moved else place(i)) for i in range(len(call.equations[source.node].shape)))
    shape = tuple(view.shape[i] for i, a in enumerate(source.axes) if a)
    padded = NodeView(call.equations.add(ir.Gather(source.node, places, sp.Integer(0)), shape), source.axes)
    inside = sp.And(argument(2) >= first, argument(2) < first + length)
    return call.pointwise(where(inside, y, x), (view, padded, _along(call, view, axis)))


def _along(call: OperatorCall, view: NodeView, axis: int) -> NodeView:
    """The positions of one axis."""
    at = positions(call, view.shape[axis])
    return NodeView(at.node, (*(() for _ in view.axes[:axis]), *at.axes, *(() for _ in view.axes[axis + 1 :])))


# -- sorting and the largest few: an order is taken, and elements are read in it --------------------------------------


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
