"""Views: the program's tensors in terms of the axes of equations.

A program reshapes (B, T, d) to (B·T, d) and back, transposes, repeats: none of these computes anything. A ``NodeView`` has the node and,
for each axis of the program's tensor, the node's axes that it consists of, in order. An axis of size 1 has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sympy as sp

from calc.errors import NapkinError
from calc.mathematics.autodiff import ir
from calc.mathematics.autodiff.ir import Equations, Operand
from calc.mathematics.autodiff.sizes import product, quotient, value_of


@dataclass(frozen=True, slots=True)
class AxisFactor:
    """One factor of an axis: axis ``axis`` of the node, or a repetition (``None``)."""

    axis: int | None
    size: sp.Expr


Axis = tuple[AxisFactor, ...]


@dataclass(frozen=True, slots=True)
class NodeView:
    """``axes`` of a tensor. Each axis of the node occurs in them exactly once."""

    node: int
    axes: tuple[Axis, ...]

    @property
    def shape(self) -> tuple[sp.Expr, ...]:
        return tuple(product(p.size for p in axis) for axis in self.axes)

    @property
    def parts(self) -> list[AxisFactor]:
        return [part for axis in self.axes for part in axis]


class ViewError(NapkinError):
    """A tensor cannot be viewed in a shape without a rearrangement that equations cannot express."""


def of_node(equations: Equations, node: int) -> NodeView:
    """The view of a node itself, without its axes of size 1."""
    shape = equations[node].shape
    if any(s == 1 for s in shape):
        long_axes = [i for i, s in enumerate(shape) if s != 1]
        coordinates = tuple(ir.Index(ir.place(long_axes.index(i)) if i in long_axes else sp.Integer(0)) for i in range(len(shape)))
        dropped = equations.add(ir.Gather(node, coordinates), tuple(shape[i] for i in long_axes), name=equations[node].name)
        return NodeView(dropped, tuple((AxisFactor(long_axes.index(i), s),) if s != 1 else () for i, s in enumerate(shape)))
    return NodeView(node, tuple((AxisFactor(i, s),) for i, s in enumerate(shape)))


class Views:
    """Changes views; adds rearrangements to ``equations`` where needed."""

    def __init__(self, equations: Equations, hints: Mapping[str, int]) -> None:
        self.equations = equations
        self._hints = hints

    def hint(self, size: sp.Expr) -> int:
        return value_of(size, self._hints)

    # -- one axis -----------------------------------------------------------------------------------------------------

    def split_part(self, view: NodeView, part: AxisFactor, sizes: Sequence[sp.Expr]) -> tuple[NodeView, tuple[AxisFactor, ...]]:
        """The view with one of its factors split, and the new factors."""
        if part.axis is None:
            return self._with(view, part, pieces := tuple(AxisFactor(None, s) for s in sizes)), pieces
        at, added = part.axis, len(sizes) - 1
        shape = self.equations[view.node].shape
        node = self.equations.add(
            ir.Split(view.node, at, len(sizes)), (*shape[:at], *sizes, *shape[at + 1 :]), name=self.equations[view.node].name
        )
        moved = NodeView(node, tuple(tuple(_moved(p, at, added) for p in axis) for axis in view.axes))
        pieces = tuple(AxisFactor(at + j, s) for j, s in enumerate(sizes))
        return self._with(moved, part, pieces), pieces

    def _with(self, view: NodeView, part: AxisFactor, pieces: tuple[AxisFactor, ...]) -> NodeView:
        """The view with ``part`` (the first equal one) replaced by ``pieces``."""
        replaced = False
        axes = []
        for axis in view.axes:
            parts: list[AxisFactor] = []
            for p in axis:
                if not replaced and p == part:
                    parts += pieces
                    replaced = True
                else:
                    parts.append(p)
            axes.append(tuple(parts))
        return NodeView(view.node, tuple(axes))

    def merged(self, view: NodeView, index: int) -> NodeView:
        """The view with axis ``index`` as one factor; repetitions among several factors are materialized."""
        axis = view.axes[index]
        if len(axis) <= 1:
            return view
        if all(p.axis is None for p in axis):
            return NodeView(view.node, (*view.axes[:index], (AxisFactor(None, view.shape[index]),), *view.axes[index + 1 :]))
        view = self.dense(view, index)
        axis = view.axes[index]
        order = [p.axis for p in view.parts if p.axis is not None]
        first = order.index(next(p.axis for p in axis if p.axis is not None))
        shape = self.equations[view.node].shape
        node = view.node
        if order != sorted(order):
            node = self.equations.map(ir.argument(0), (Operand(node, _inverse(order)),), tuple(shape[i] for i in order))
        sizes = self.equations[node].shape
        merged_node = self.equations.add(
            ir.Merge(node, first, len(axis)),
            (*sizes[:first], product(sizes[first : first + len(axis)]), *sizes[first + len(axis) :]),
            name=self.equations[view.node].name,
        )
        return self._numbered(merged_node, [axis if i != index else None for i, axis in enumerate(view.axes)])

    def _numbered(self, node: int, axes: Sequence[Axis | None]) -> NodeView:
        """A view of ``node``, whose axes are in the order of the parts; ``None`` is an axis that is now one factor."""
        shape = self.equations[node].shape
        numbered: list[Axis] = []
        at = 0
        for axis in axes:
            if axis is None:
                numbered.append((AxisFactor(at, shape[at]),))
                at += 1
                continue
            parts: list[AxisFactor] = []
            for p in axis:
                parts.append(p if p.axis is None else AxisFactor(at, p.size))
                at += p.axis is not None
            numbered.append(tuple(parts))
        return NodeView(node, tuple(numbered))

    def dense(self, view: NodeView, only: int | None = None) -> NodeView:
        """The view with its repetitions materialized: those of the axis ``only``, or all."""
        loose = [(i, p) for i, axis in enumerate(view.axes) for p in axis if p.axis is None and only in (None, i)]
        if not loose:
            return view
        shape = self.equations[view.node].shape
        node = self.equations.map(ir.argument(0), (self.equations.same(view.node),), (*shape, *(p.size for _, p in loose)))
        numbers = iter(range(len(shape), len(shape) + len(loose)))
        axes = tuple(
            tuple(AxisFactor(next(numbers), p.size) if p.axis is None and only in (None, i) else p for p in axis)
            for i, axis in enumerate(view.axes)
        )
        return NodeView(node, axes)

    def plain(self, view: NodeView) -> NodeView:
        """The view with at most one factor per axis, without repetitions and with the node's axes in order, like the program's tensor."""
        view = self.dense(view)
        for index in range(len(view.axes)):
            view = self.merged(view, index)
        order = [p.axis for p in view.parts if p.axis is not None]
        if order != sorted(order):
            shape = self.equations[view.node].shape
            sizes = tuple(shape[i] for i in order)
            node = self.equations.map(ir.argument(0), (Operand(view.node, _inverse(order)),), sizes)
            return self._numbered(node, list(view.axes))
        return view

    # -- shapes -------------------------------------------------------------------------------------------------------

    def reshaped(self, view: NodeView, shape: Sequence[sp.Expr]) -> NodeView:
        """The same elements in row-major order, in another shape."""
        waiting = list(view.parts)
        axes: list[Axis] = []
        for size in shape:
            axis: list[AxisFactor] = []
            remaining = size
            while remaining != 1:
                if not waiting:
                    raise ViewError("a reshape to more elements than the tensor has")
                part = waiting.pop(0)
                smaller = quotient(remaining, part.size) if self.hint(part.size) <= self.hint(remaining) else None
                if smaller is not None:
                    axis.append(part)
                    remaining = smaller
                    continue
                cofactor = quotient(part.size, remaining)
                if cofactor is None:
                    return self._reshaped_flat(view, shape)
                view, (first, second) = self.split_part(view, part, (remaining, cofactor))
                added = 1 if part.axis is not None else 0
                axis = [_moved(p, part.axis, added) for p in axis]
                axes = [tuple(_moved(p, part.axis, added) for p in axis_) for axis_ in axes]
                waiting = [second, *(_moved(p, part.axis, added) for p in waiting)]
                axis.append(first)
                remaining = sp.Integer(1)
            axes.append(tuple(axis))
        return NodeView(view.node, tuple(axes))

    def _reshaped_flat(self, view: NodeView, shape: Sequence[sp.Expr]) -> NodeView:
        """A reshape through one flat axis, for sizes that do not divide each other factor by factor."""
        flat = self.merged(NodeView(view.node, (tuple(view.parts),)), 0)
        if len(flat.axes[0]) == 1 and flat.axes[0][0].axis is not None:
            part = flat.axes[0][0]
            split, parts = self.split_part(flat, part, [s for s in shape if s != 1])
            waiting = list(parts)
            return NodeView(split.node, tuple(() if s == 1 else (waiting.pop(0),) for s in shape))
        raise ViewError("a reshape of a tensor that is repeated along several axes")

    # -- several tensors ----------------------------------------------------------------------------------------------

    def aligned(self, views: Sequence[NodeView], axes: Sequence[int | None]) -> list[NodeView]:
        """The views with the same factors along one axis: ``axes`` says which it is of each (``None``: it has none)."""
        views = list(views)
        for _ in range(8):
            present = [(i, v.axes[a]) for i, (v, a) in enumerate(zip(views, axes, strict=True)) if a is not None and v.axes[a]]
            if not present or all(_sizes(axis) == _sizes(present[0][1]) for _, axis in present):
                return views
            finest = max((axis for _, axis in present), key=len)
            if any(p.axis is None for p in finest) or any(len(axis) == 1 and axis[0].axis is None for _, axis in present):
                refined = self._refined(views, axes, finest)
                if refined is not None:
                    views = refined
                    continue
            views = [v if a is None else self.merged(v, a) for v, a in zip(views, axes, strict=True)]
        raise ViewError("axes that consist of different factors in each tensor")

    def _refined(self, views: Sequence[NodeView], axes: Sequence[int | None], finest: Axis) -> list[NodeView] | None:
        """The views with that axis split as ``finest`` is, where it is a single factor."""
        refined = []
        for view, at in zip(views, axes, strict=True):
            if at is None or not view.axes[at] or _sizes(view.axes[at]) == _sizes(finest):
                refined.append(view)
            elif len(view.axes[at]) == 1:
                refined.append(self.split_part_at(view, at, _sizes(finest)))
            else:
                return None
        return refined

    def split_part_at(self, view: NodeView, at: int, sizes: Sequence[sp.Expr]) -> NodeView:
        """The view with axis ``at``, a single factor, split in several."""
        part = view.axes[at][0]
        if part.axis is None:
            return NodeView(view.node, (*view.axes[:at], tuple(AxisFactor(None, s) for s in sizes), *view.axes[at + 1 :]))
        split, parts = self.split_part(view, part, sizes)
        return NodeView(split.node, (*split.axes[:at], parts, *split.axes[at + 1 :]))


def _moved(part: AxisFactor, at: int | None, added: int) -> AxisFactor:
    if part.axis is None or at is None or part.axis <= at:
        return part
    return AxisFactor(part.axis + added, part.size)


def _sizes(axis: Axis) -> tuple[sp.Expr, ...]:
    return tuple(p.size for p in axis)


def _inverse(order: Sequence[int]) -> tuple[int, ...]:
    """The inverse of a permutation of the node's axes."""
    return tuple(list(order).index(i) for i in range(len(order)))
