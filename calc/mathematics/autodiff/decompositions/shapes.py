"""Views and rearrangements: most compute nothing and need no equation; slices, concatenations and paddings do."""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from calc.mathematics.autodiff import ir
from calc.mathematics.autodiff.call import OperatorCall, decomposition, size_of
from calc.mathematics.autodiff.ir import place
from calc.mathematics.autodiff.sizes import number
from calc.mathematics.autodiff.views import AxisFactor, NodeView


@decomposition("view", "_unsafe_view", "reshape", "_reshape_alias", "flatten", "unflatten")
def view(call: OperatorCall) -> NodeView:
    return call.views.reshaped(call.tensor("self"), call.shape())


@decomposition("view.dtype")
def reinterpreted(call: OperatorCall) -> NodeView:
    raise call.refusal("it reinterprets bits as another dtype")


def permuted(view: NodeView, order: Sequence[int]) -> NodeView:
    return NodeView(view.node, tuple(view.axes[i] for i in order))


@decomposition("t", "numpy_T", "adjoint", "mT", "matrix_H")
def transposed(call: OperatorCall) -> NodeView:
    view = call.tensor("self")
    order = list(range(len(view.axes)))
    return permuted(view, [*order[:-2], *reversed(order[-2:])])


@decomposition("transpose", "swapaxes", "swapdims")
def swapped(call: OperatorCall) -> NodeView:
    view = call.tensor("self")
    first, second = call.axis(view, "dim0"), call.axis(view, "dim1")
    order = list(range(len(view.axes)))
    if order:
        order[first], order[second] = order[second], order[first]
    return permuted(view, order)


@decomposition("permute")
def permute(call: OperatorCall) -> NodeView:
    view = call.tensor("self")
    return permuted(view, [d % len(view.axes) for d in call.raw("dims")])


@decomposition("unsqueeze")
def unsqueeze(call: OperatorCall) -> NodeView:
    view = call.tensor("self")
    at = call.integer("dim") % (len(view.axes) + 1)
    return NodeView(view.node, (*view.axes[:at], (), *view.axes[at:]))


@decomposition("squeeze")
def squeeze(call: OperatorCall) -> NodeView:
    view = call.tensor("self")
    dims = call.raw("dim")
    chosen = range(len(view.axes)) if dims is None else [d % len(view.axes) for d in ((dims,) if isinstance(dims, int) else dims)]
    return NodeView(view.node, tuple(axis for i, axis in enumerate(view.axes) if i not in chosen or view.shape[i] != 1))


def expanded(view: NodeView, shape: Sequence[sp.Expr]) -> NodeView:
    """The view repeated along axes of size 1 and along new ones in front."""
    lead = len(shape) - len(view.axes)
    axes = []
    for i, size in enumerate(shape):
        axis = view.axes[i - lead] if i >= lead else ()
        axes.append(axis if axis or size == 1 else (AxisFactor(None, size),))
    return NodeView(view.node, tuple(axes))


@decomposition("expand", "expand_as", "broadcast_to", "expand_copy")
def expand(call: OperatorCall) -> NodeView:
    return expanded(call.tensor("self"), call.shape())


@decomposition("detach", "detach_copy")
def detach(call: OperatorCall) -> NodeView:
    """A constant to the chain rule, where it depends on a parameter at all."""
    view = call.tensor("self")
    if not call.converter.active(view.node):
        return view
    return NodeView(call.equations.add(ir.Hold(view.node, "detach in the model"), call.equations[view.node].shape), view.axes)


# -- parts -----------------------------------------------------------------------------------------------------------------


def narrowed(call: OperatorCall, view: NodeView, axis: int, start: sp.Expr, length: sp.Expr, step: int = 1) -> NodeView:
    """Positions start, start + step, … of an axis."""
    if view.shape[axis] == length and step == 1:
        return view
    view = call.views.merged(view, axis)
    parts = view.axes[axis]
    if not parts or parts[0].axis is None:
        factors: tuple[AxisFactor, ...] = () if length == 1 else (AxisFactor(None, length),)
        return NodeView(view.node, (*view.axes[:axis], factors, *view.axes[axis + 1 :]))
    at = parts[0].axis
    shape = call.equations[view.node].shape
    if length == 1:
        return _selected(call, view, axis, start, keep=True)
    places = tuple(ir.Index(sp.expand(place(i) * step + start) if i == at else place(i)) for i in range(len(shape)))
    node = call.equations.add(
        ir.Gather(view.node, places), (*shape[:at], length, *shape[at + 1 :]), integral=call.equations[view.node].integral
    )
    return NodeView(node, (*view.axes[:axis], (AxisFactor(at, length),), *view.axes[axis + 1 :]))


def _selected(call: OperatorCall, view: NodeView, axis: int, where: sp.Expr, keep: bool = False) -> NodeView:
    """Position ``where`` of an axis that is one part; the axis stays with size 1 where ``keep``."""
    parts = view.axes[axis]
    reduced_axis: tuple[tuple[AxisFactor, ...], ...] = ((),) if keep else ()
    if not parts or parts[0].axis is None:
        return NodeView(view.node, (*view.axes[:axis], *reduced_axis, *view.axes[axis + 1 :]))
    at = parts[0].axis
    shape = call.equations[view.node].shape
    places = tuple(ir.Index(where if i == at else place(i - (i > at))) for i in range(len(shape)))
    node = call.equations.add(ir.Gather(view.node, places), (*shape[:at], *shape[at + 1 :]), integral=call.equations[view.node].integral)
    axes = tuple(tuple(AxisFactor(p.axis - (p.axis > at), p.size) if p.axis is not None else p for p in parts_) for parts_ in view.axes)
    return NodeView(node, (*axes[:axis], *reduced_axis, *axes[axis + 1 :]))


@decomposition("select")
def select(call: OperatorCall) -> NodeView:
    view = call.tensor("self")
    axis = call.axis(view, "dim", 0)
    return _selected(call, call.views.merged(view, axis), axis, _position(call.raw("index"), view.shape[axis]))


def _position(value: object, size: sp.Expr) -> sp.Expr:
    """A position, counted from the end where it is negative."""
    at = size_of(value)
    return sp.expand(at + size) if isinstance(value, int) and value < 0 else at


@decomposition("slice")
def sliced(call: OperatorCall) -> NodeView:
    view = call.tensor("self")
    axis = call.axis(view, "dim", 0)
    start = call.raw("start")
    first = sp.Integer(0) if start is None else _position(start, view.shape[axis])
    if call.views.hint(first) < 0:
        first = first + view.shape[axis] if call.views.hint(first + view.shape[axis]) >= 0 else sp.Integer(0)
    return narrowed(call, view, axis, sp.expand(first), call.shape()[axis], call.integer("step", 1))


@decomposition("narrow")
def narrow(call: OperatorCall) -> NodeView:
    view = call.tensor("self")
    axis = call.axis(view, "dim", 0)
    return narrowed(call, view, axis, _position(call.raw("start"), view.shape[axis]), call.shape()[axis])


@decomposition(
    "split",
    "split_with_sizes",
    "chunk",
    "tensor_split",
    "split_copy",
    "split_with_sizes_copy",
    "unsafe_split",
    "unsafe_split_with_sizes",
    "unsafe_chunk",
)
def split(call: OperatorCall) -> list[NodeView | None]:
    view = call.tensor("self")
    axis = call.axis(view, "dim", 0)
    pieces: list[NodeView | None] = []
    start = sp.Integer(0)
    for output in range(len(call.instruction.outputs)):
        length = call.shape(output)[axis]
        pieces.append(narrowed(call, view, axis, sp.expand(start), length))
        start += length
    return pieces


@decomposition("unbind", "unbind_copy")
def unbind(call: OperatorCall) -> list[NodeView | None]:
    view = call.tensor("self")
    axis = call.axis(view, "dim", 0)
    view = call.views.merged(view, axis)
    return [_selected(call, view, axis, sp.Integer(i)) for i in range(len(call.instruction.outputs))]


@decomposition("repeat")
def repeat(call: OperatorCall) -> NodeView:
    """The tensor repeated along each axis, end to end."""
    view = call.tensor("self")
    times = call.sizes("repeats")
    view = NodeView(view.node, (*(() for _ in range(len(times) - len(view.axes))), *view.axes))
    return NodeView(view.node, tuple((AxisFactor(None, n), *axis) if n != 1 else axis for n, axis in zip(times, view.axes, strict=True)))


@decomposition("constant_pad_nd", "pad")
def padded(call: OperatorCall) -> NodeView:
    """Constant padding; a negative one crops."""
    view = call.views.plain(call.tensor("self"))
    pairs = call.sizes("pad")
    fill = call.number("value", 0)
    rank = len(view.axes)
    before = [sp.Integer(0)] * rank
    for i in range(len(pairs) // 2):
        before[rank - 1 - i] = pairs[2 * i]
    shape = call.shape()
    axes: list[tuple[AxisFactor, ...]] = []
    sizes: list[sp.Expr] = []
    places = [ir.Index(sp.Integer(0))] * len(call.equations[view.node].shape)
    for j, axis in enumerate(view.axes):
        changed = shape[j] != view.shape[j] or before[j] != 0
        if not axis and changed:
            raise call.refusal("it pads an axis of size 1")
        if axis:
            assert axis[0].axis is not None
            places[axis[0].axis] = ir.Index(sp.expand(place(len(sizes)) - before[j]))
            axes.append((AxisFactor(len(sizes), shape[j]),))
            sizes.append(shape[j])
        else:
            axes.append(())
    integral = call.equations[view.node].integral
    return NodeView(call.equations.add(ir.Gather(view.node, tuple(places), fill), tuple(sizes), integral=integral), tuple(axes))


@decomposition("flip")
def flip(call: OperatorCall) -> NodeView:
    view = call.views.plain(call.tensor("self"))
    chosen = {view.axes[d % len(view.axes)][0].axis for d in call.raw("dims") if view.axes[d % len(view.axes)]}
    shape = call.equations[view.node].shape
    places = tuple(ir.Index(shape[i] - 1 - place(i) if i in chosen else place(i)) for i in range(len(shape)))
    return NodeView(call.equations.add(ir.Gather(view.node, places), shape), view.axes)


@decomposition("roll")
def roll(call: OperatorCall) -> NodeView:
    view = call.tensor("self")
    dims = call.raw("dims") or ()
    dims = (dims,) if isinstance(dims, int) else dims
    before = view.axes
    view = call.views.plain(view) if dims else call.views.merged(NodeView(view.node, (tuple(view.parts),)), 0)
    shifts = [number(s) for s in (call.raw("shifts") if isinstance(call.raw("shifts"), tuple) else (call.raw("shifts"),))]
    by = {view.axes[d % len(view.axes)][0].axis: s for d, s in zip(dims or (0,), shifts, strict=True) if view.axes[d % len(view.axes)]}
    shape = call.equations[view.node].shape
    places = tuple(ir.Index(sp.Mod(place(i) - by[i], shape[i]) if i in by else place(i)) for i in range(len(shape)))
    rolled = NodeView(call.equations.add(ir.Gather(view.node, places), shape), view.axes)
    return rolled if dims else call.views.reshaped(rolled, NodeView(0, before).shape)


@decomposition("diagonal", "diagonal_copy")
def diagonal(call: OperatorCall) -> NodeView:
    """The elements whose two places differ by the offset; the new axis is the last."""
    view = call.views.plain(call.tensor("self"))
    rank = len(view.axes)
    first, second = (call.raw("dim1", 0) or 0) % rank, call.integer("dim2", 1) % rank
    offset = call.integer("offset", 0)
    others = [j for j in range(rank) if j not in (first, second)]
    if any(not axis for axis in view.axes):
        raise call.refusal("one of its axes has size 1")
    at = {j: view.axes[j][0].axis for j in range(rank)}
    length = call.shape()[-1]
    places: list[ir.Index] = [ir.Index(sp.Integer(0))] * rank
    for n, j in enumerate(others):
        places[at[j]] = ir.Index(place(n))  # type: ignore[index]  # every axis has one part here
    places[at[first]] = ir.Index(place(len(others)) + max(-offset, 0))  # type: ignore[index]  # as above
    places[at[second]] = ir.Index(place(len(others)) + max(offset, 0))  # type: ignore[index]  # as above
    shape = (*(view.shape[j] for j in others), length)
    node = call.equations.add(ir.Gather(view.node, tuple(places)), shape)
    return NodeView(node, tuple((AxisFactor(i, s),) for i, s in enumerate(shape)))


# -- several tensors as one: cat and stack ----------------------------------------------------------------------------


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
