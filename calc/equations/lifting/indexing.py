"""Reading and writing by positions: embeddings, gather and scatter, index tensors, sorting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy as sp

from calc.equations import ir
from calc.equations.ir import Index, Operand, Pick, argument, place
from calc.equations.lift import Call, lifting
from calc.equations.lifting.creation import positions
from calc.equations.scalar import where
from calc.equations.views import Part, View

x, y = argument(0), argument(1)


def _nonnegative(call: Call, index: View, size: sp.Expr) -> View:
    """Positions counted from the end where they are negative."""
    if index.node in call.lifter.below or isinstance(call.equations[index.node].op, ir.Iota | ir.Best | ir.Order):
        return index
    return call.pointwise(where(x < 0, x + size, x), (index,), whole=True)


@lifting("embedding")
def embedding(call: Call) -> View:
    """Y[…, d] = W[I[…], d]. A row for padding is a constant: torch gives it no gradient."""
    weight, index = call.views.plain(call.tensor("weight")), call.views.dense(call.tensor("indices"))
    padding = call.integer("padding_idx", -1)
    if padding >= 0 and call.lifter.active(weight.node):
        weight = _held(call, weight, padding)
    rank = len(call.equations[index.node].shape)
    shape = (*call.equations[index.node].shape, weight.shape[1])
    coordinates = (Pick(Operand(index.node, tuple(range(rank)))), Index(place(rank)))
    node = call.equations.add(ir.Gather(weight.node, coordinates), shape)
    return View(node, (*index.axes, (Part(rank, weight.shape[1]),)))


def _held(call: Call, weight: View, row: int) -> View:
    held = call.equations.add(ir.Hold(weight.node, "the row for padding has no gradient"), call.equations[weight.node].shape)
    rows = positions(call, weight.shape[0])
    expr = where(sp.Eq(argument(2), row), y, x)
    return call.pointwise(expr, (weight, View(held, weight.axes), View(rows.node, (*rows.axes, ()))), whole=False)


@lifting("index_select")
def index_select(call: Call) -> View:
    """Y[…, i, …] = X[…, I[i], …]."""
    view, index = call.views.plain(call.tensor("self")), call.tensor("index")
    axis = call.axis(view, "dim", 0)
    return _by_index(call, view, axis, call.views.plain(index if index.axes else View(index.node, ((),))))


def _by_index(call: Call, view: View, axis: int, index: View) -> View:
    """Positions of one axis by a tensor of one axis."""
    if not view.axes[axis]:
        return view
    at = view.axes[axis][0].axis
    shape = call.equations[view.node].shape
    if not index.axes[0]:
        picks = Pick(Operand(index.node, ()))
        coordinates: list[Index | Pick] = [picks if i == at else Index(place(i - (i > at))) for i in range(len(shape))]
        node = call.equations.add(ir.Gather(view.node, tuple(coordinates)), (*shape[:at], *shape[at + 1 :]))
        moved = tuple(tuple(Part(p.axis - (p.axis > at), p.size) for p in a if p.axis is not None) for a in view.axes)
        return View(node, (*moved[:axis], (), *moved[axis + 1 :]))
    length = index.shape[0]
    coordinates = [Pick(Operand(index.node, (i,))) if i == at else Index(place(i)) for i in range(len(shape))]
    node = call.equations.add(ir.Gather(view.node, tuple(coordinates)), (*shape[:at], length, *shape[at + 1 :]))
    return View(node, (*view.axes[:axis], (Part(at, length),), *view.axes[axis + 1 :]))


def taken(call: Call, view: View, axis: int, index: View, drop: bool = False) -> View:
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
    made = View(node, index.axes)
    return View(node, tuple(a for i, a in enumerate(made.axes) if i != axis)) if drop else made


@lifting("gather", "take_along_dim")
def gather(call: Call) -> View:
    view = call.tensor("self")
    index = call.tensor("index" if call.has("index") else "indices")
    return taken(call, view, call.axis(view), index)


def _scattered(call: Call, view: View, axis: int, index: View, source: View) -> View:
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
    return View(node, _numbered(view))


def _numbered(view: View) -> tuple[tuple[Part, ...], ...]:
    axes, at = [], 0
    for i, axis in enumerate(view.axes):
        axes.append((Part(at, view.shape[i]),) if axis else ())
        at += bool(axis)
    return tuple(axes)


def _like(call: Call, source: View, index: View) -> View:
    """The source over the places of the index, of which it may have more, or be one number."""
    from calc.equations.lifting.shapes import expanded, narrowed

    if not source.axes:
        return expanded(call, source, index.shape)
    for i, size in enumerate(index.shape):
        source = narrowed(call, source, i, sp.Integer(0), size)
    return source


@lifting("scatter_add")
def scatter_add(call: Call) -> View:
    """X plus the source at the positions."""
    view = call.tensor("self")
    found = _scattered(call, view, call.axis(view), call.tensor("index"), call.tensor("src"))
    return call.pointwise(x + y, (view, found))


@lifting("scatter")
def scatter(call: Call) -> View:
    """X with the source in the place of what stood at the positions, which are assumed to differ."""
    if call.has("reduce"):
        raise call.refusal("it reduces while it scatters")
    view, index = call.tensor("self"), call.tensor("index")
    source = call.tensor("src" if call.has("src") else "value")
    axis = call.axis(view)
    found = _scattered(call, view, axis, index, source)
    there = _scattered(call, view, axis, index, View(call.equations.map(sp.Integer(1), (), ()), ()))
    return call.pointwise(where(argument(2) > 0, y / argument(2), x), (view, found, there))


@lifting("index_add")
def index_add(call: Call) -> View:
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
    sized = View(view.node, tuple(a if source.axes[i] else () for i, a in enumerate(view.axes)))
    return call.pointwise(x + call.number("alpha", 1) * y, (view, View(node, _numbered(sized))))


@lifting("index", "_unsafe_index")
def index(call: Call) -> View:
    """Y[…] = X[I[…], …], the index tensors broadcast against each other."""
    view = call.views.plain(call.tensor("self"))
    given = [None if v is None else call.as_view(v) for v in call.raw("indices")]
    if any(v is not None and call.lifter.program.values[r.value].dtype in ("bool", "uint8") for v, r in zip(given, call.raw("indices"), strict=True) if r is not None):
        raise call.refusal("a mask chooses how many elements there are")
    shared, views, coordinates, axes = _indexed(call, view, given)
    shape = tuple(p.size for a in axes for p in a)
    return View(call.equations.add(ir.Gather(view.node, tuple(coordinates)), shape, whole=call.equations[view.node].whole), axes)


def _indexed(call: Call, view: View, given: Sequence[View | None]) -> tuple[int, list[View], list[Index | Pick], tuple[tuple[Part, ...], ...]]:
    """Coordinates of an indexing, and the axes of what it gives: those of the indices where they stand together, else in front."""
    chosen = [i for i, v in enumerate(given) if v is not None]
    rank = max(len(v.axes) for v in given if v is not None)
    together = _broadcast(call, [v for v in given if v is not None], rank)
    at = chosen[0] if chosen == list(range(chosen[0], chosen[-1] + 1)) else 0
    before = [i for i in range(len(view.axes)) if i not in chosen and (i < at or chosen[0] == at > i)]
    before = [i for i in before if i < at]
    after = [i for i in range(len(view.axes)) if i not in chosen and i not in before]
    label = 0
    axes: list[tuple[Part, ...]] = []
    labels: dict[int, int] = {}
    for i in before:
        if view.axes[i]:
            labels[i] = label
            axes.append((Part(label, view.shape[i]),))
            label += 1
        else:
            axes.append(())
    first = label
    model = together[0]
    for j in range(rank):
        sizes = next((v.axes[j] for v in together if v.axes[j]), ())
        axes.append((Part(label, sizes[0].size),) if sizes else ())
        label += bool(sizes)
    for i in after:
        if view.axes[i]:
            labels[i] = label
            axes.append((Part(label, view.shape[i]),))
            label += 1
        else:
            axes.append(())
    coordinates: list[Index | Pick] = [Index(sp.Integer(0))] * len(call.equations[view.node].shape)
    indices = iter(together)
    shared_labels, n = {}, 0
    for j in range(rank):
        if any(v.axes[j] for v in together):
            shared_labels[j] = first + n
            n += 1
    for i, axis in enumerate(view.axes):
        own = next(indices) if i in chosen else None
        if not axis:
            continue
        place_of = axis[0].axis
        assert place_of is not None
        if own is None:
            coordinates[place_of] = Index(place(labels[i]))
        else:
            own = _nonnegative(call, own, view.shape[i])
            ordered = {a[0].axis: shared_labels[j] for j, a in enumerate(own.axes) if a and a[0].axis is not None}
            coordinates[place_of] = Pick(Operand(own.node, tuple(ordered[k] for k in range(len(ordered)))))
    return first, [model], coordinates, tuple(axes)


def _broadcast(call: Call, views: Sequence[View], rank: int) -> list[View]:
    """The index tensors with as many axes each, every one of one part."""
    padded = [View(v.node, (*(() for _ in range(rank - len(v.axes))), *v.axes)) for v in views]
    return [call.views.plain(v) for v in padded]


@lifting("index_put", "_index_put_impl", "_unsafe_index_put")
def index_put(call: Call) -> View:
    """X with values at the positions, added where ``accumulate``; a mask chooses element by element."""
    view, value = call.tensor("self"), call.tensor("values")
    raw = call.raw("indices")
    given = [None if v is None else call.as_view(v) for v in raw]
    if len(given) == 1 and call.lifter.program.values[raw[0].value].dtype == "bool" and not value.axes:
        mask = given[0]
        assert mask is not None
        spread = View(mask.node, (*mask.axes, *(() for _ in view.axes[len(mask.axes) :])))
        return call.pointwise(where(sp.Ne(argument(2), 0), y, x), (view, value, spread))
    if any(r is not None and call.lifter.program.values[r.value].dtype == "bool" for r in raw):
        raise call.refusal("a mask chooses where as many values go")
    target = call.views.plain(view)
    _, _, coordinates, axes = _indexed(call, target, given)
    from calc.equations.lifting.shapes import expanded

    shape = tuple(p.size for a in axes for p in a)
    whole = tuple(call.views.equations[target.node].shape)
    found = []
    for source in (value, View(call.equations.map(sp.Integer(1), (), ()), ())):
        spread = call.views.plain(expanded(call, source, _shape(axes)))
        node = spread.node
        assert call.equations[node].shape == shape
        found.append(View(call.equations.add(ir.Scatter(node, tuple(coordinates)), whole), target.axes))
    if call.raw("accumulate", False):
        return call.pointwise(x + y, (view, found[0]))
    return call.pointwise(where(argument(2) > 0, y / argument(2), x), (view, *found))


def _shape(axes: Sequence[tuple[Part, ...]]) -> tuple[sp.Expr, ...]:
    return tuple(a[0].size if a else sp.Integer(1) for a in axes)


@lifting("masked_scatter", "masked_select", "nonzero")
def masked_scatter(call: Call) -> View:
    raise call.refusal("data decide which element goes where")


# -- in order --------------------------------------------------------------------------------------------------------------


def _ordered(call: Call, view: View, axis: int, descending: bool) -> tuple[View, View]:
    """The elements in order along an axis, and where they stood."""
    view = call.views.plain(view)
    at = view.axes[axis][0].axis
    assert at is not None
    shape = call.equations[view.node].shape
    order = View(call.equations.add(ir.Order(view.node, at, descending), shape, whole=True), view.axes)
    return taken(call, view, axis, order), order


@lifting("sort")
def sort(call: Call) -> list[View]:
    view = call.tensor("self")
    return list(_ordered(call, view, call.axis(view), bool(call.raw("descending", False))))


@lifting("argsort")
def argsort(call: Call) -> View:
    view = call.tensor("self")
    return _ordered(call, view, call.axis(view), bool(call.raw("descending", False)))[1]


@lifting("topk")
def topk(call: Call) -> list[View]:
    """The k largest (smallest), in order, and where they stood."""
    from calc.equations.lifting.shapes import narrowed

    view = call.tensor("self")
    axis = call.axis(view)
    _, order = _ordered(call, view, axis, bool(call.raw("largest", True)))
    first = narrowed(call, order, axis, sp.Integer(0), call.shape()[axis])
    return [taken(call, view, axis, first), first]


@lifting("one_hot")
def one_hot(call: Call) -> View:
    view = call.views.dense(call.tensor("self"))
    size = call.shape()[-1]
    rank = len(call.equations[view.node].shape)
    node = call.equations.add(ir.Delta(Operand(view.node, tuple(range(rank)))), (*call.equations[view.node].shape, size), whole=True)
    return View(node, (*view.axes, (Part(rank, size),)))


@lifting("select_scatter", "slice_scatter")
def put_back(call: Call) -> Any:
    """A part of the tensor replaced."""
    view, source = call.views.plain(call.tensor("self")), call.tensor("src")
    axis = call.axis(view, "dim", 0)
    at = positions(call, view.shape[axis])
    along = View(at.node, (*(() for _ in view.axes[:axis]), *at.axes, *(() for _ in view.axes[axis + 1 :])))
    if ".select" in call.instruction.name or "select_scatter" in call.instruction.name:
        index = call.integer("index")
        where_ = sp.Integer(index) if index >= 0 else view.shape[axis] + index
        spread = View(source.node, (*source.axes[:axis], (), *source.axes[axis:]))
        return call.pointwise(where(sp.Eq(argument(2), where_), y, x), (view, spread, along))
    raise call.refusal("it puts a stretch back")
