"""Evaluates equations in numpy: every tensor is an array of float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import singledispatchmethod
from typing import Any

import numpy as np
import sympy as sp

from calc.errors import NapkinError
from calc.mathematics.autodiff import ir
from calc.mathematics.autodiff.ir import Equations, Node, Operand, place
from calc.mathematics.autodiff.scalar import function
from calc.mathematics.autodiff.sizes import value_of
from calc.symbolic.algebra import symbol

Array = Any  # np.ndarray of float64


class NumericRun:
    """Values of equations at ``sizes`` (of the basis symbols), from the ``leaves`` by (role, name)."""

    def __init__(self, equations: Equations, sizes: Mapping[str, int], leaves: Mapping[tuple[str, str], Array]) -> None:
        self._equations = equations
        self._sizes = sizes
        self._leaves = leaves
        self._arrays: dict[int, Array] = {}
        self._at = {s: sp.Integer(v) for s, v in _symbols(sizes)}

    def __call__(self, targets: Sequence[int]) -> list[Array]:
        """The values of those nodes."""
        for index in needed(self._equations, targets):
            if index not in self._arrays:
                node = self._equations[index]
                array = np.asarray(self._value(node.op, node), dtype=np.float64)
                shape = tuple(self._size(s) for s in node.shape)
                if array.shape != shape:
                    raise NapkinError(f"the equation of {node.name or node.operator or index} gives the shape {array.shape}, not {shape}")
                self._arrays[index] = array
        return [self._arrays[index] for index in targets]

    def _size(self, size: sp.Expr) -> int:
        return value_of(size, self._sizes)

    def _number(self, expr: sp.Expr) -> sp.Expr:
        return expr.xreplace(self._at)

    # -- labels -------------------------------------------------------------------------------------------------------

    def _spread(self, operand: Operand, rank: int) -> Array:
        """The operand with its axes in the order of the labels, and axes of size 1 for those it lacks."""
        array = self._arrays[operand.node]
        order = sorted(range(len(operand.at)), key=lambda i: operand.at[i])
        places = {operand.at[i]: array.shape[i] for i in order}
        return array.transpose(order).reshape([places.get(label, 1) for label in range(rank)])

    def _coordinates(self, picks: Sequence[ir.Index | ir.Pick], shape: Sequence[int]) -> list[Array]:
        """Each coordinate as integers that broadcast to ``shape``."""
        rank = len(shape)
        grids = {place(i): np.arange(n).reshape([-1 if j == i else 1 for j in range(rank)]) for i, n in enumerate(shape)}
        coordinates = []
        for coordinate in picks:
            if isinstance(coordinate, ir.Pick):
                coordinates.append(self._spread(coordinate.operand, rank).astype(np.int64))
                continue
            expr = self._number(coordinate.expr)
            symbols = sorted(expr.free_symbols, key=str)
            function: Callable[..., Any] = sp.lambdify(symbols, expr, modules=[{"floor": np.floor, "Mod": np.mod}, "numpy"])
            coordinates.append(np.asarray(function(*(grids[s] for s in symbols))).astype(np.int64))
        return coordinates

    # -- primitives ---------------------------------------------------------------------------------------------------

    @singledispatchmethod
    def _value(self, op: Any, node: Node) -> Array:
        raise NapkinError(f"no way to run {type(op).__name__}")

    @_value.register
    def _leaf(self, op: ir.Leaf, node: Node) -> Array:
        if (op.role, op.name) not in self._leaves:
            raise NapkinError(f"no values for the {op.role} {op.name!r}: random draws must be given")
        array = np.asarray(self._leaves[op.role, op.name], dtype=np.float64)
        return array.reshape([self._size(s) for s in node.shape])

    @_value.register
    def _literal(self, op: ir.Literal, node: Node) -> Array:
        return np.array(op.data, dtype=np.float64).reshape([self._size(s) for s in node.shape])

    @_value.register
    def _iota(self, op: ir.Iota, node: Node) -> Array:
        return np.arange(self._size(node.shape[0]), dtype=np.float64)

    @_value.register
    def _contract(self, op: ir.Contract, node: Node) -> Array:
        rank = len(node.shape)
        used = {label for operand in op.operands for label in operand.at}
        arguments: list[Any] = []
        for operand in op.operands:
            arguments += [self._arrays[operand.node], list(operand.at)]
        out = [label for label in range(rank) if label in used]
        contracted = np.einsum(*arguments, out, optimize=len(op.operands) > 1)
        for label in range(rank, rank + len(node.inner)):
            if label not in used:
                contracted = contracted * self._size(node.size(label))
        shape = [self._size(node.shape[label]) if label in used else 1 for label in range(rank)]
        return np.broadcast_to(np.reshape(contracted, shape), [self._size(s) for s in node.shape])

    @_value.register
    def _map(self, op: ir.Map, node: Node) -> Array:
        rank = len(node.shape)
        expr, operands = self._number(op.expr), [self._spread(o, rank) for o in op.operands]
        if expr.atoms(sp.And, sp.Or):  # numpy joins conditions of one shape only
            operands = list(np.broadcast_arrays(*operands))
        mapped = function(expr, len(op.operands))(*operands)
        return np.broadcast_to(mapped, [self._size(s) for s in node.shape])

    @_value.register
    def _reduce(self, op: ir.Reduce, node: Node) -> Array:
        rank = len(node.shape)
        array = self._spread(op.operand, rank + len(node.inner))
        inside = tuple(range(rank, rank + len(node.inner)))
        reduced = getattr(np, {"max": "amax", "min": "amin"}.get(op.kind, op.kind))(array, axis=inside)
        return np.broadcast_to(reduced, [self._size(s) for s in node.shape])

    @_value.register
    def _gather(self, op: ir.Gather, node: Node) -> Array:
        source = self._arrays[op.source]
        shape = [self._size(s) for s in node.shape]
        at = self._coordinates(op.coordinates, shape)
        if op.fill is None:
            return np.broadcast_to(source[tuple(at)], shape)
        inside = np.broadcast_to(_inside(at, source.shape), shape)
        clipped = tuple(np.clip(c, 0, n - 1) for c, n in zip(at, source.shape, strict=True))
        fill = float(function(self._number(op.fill), 0)())
        return np.where(inside, source[clipped], fill)

    @_value.register
    def _scatter(self, op: ir.Scatter, node: Node) -> Array:
        updates = self._arrays[op.updates]
        scattered = np.zeros([self._size(s) for s in node.shape])
        at = self._coordinates(op.coordinates, updates.shape)
        inside = np.broadcast_to(_inside(at, scattered.shape), updates.shape)
        spread = tuple(np.broadcast_to(c, updates.shape)[inside] for c in at)
        np.add.at(scattered, spread, updates[inside])
        return scattered

    @_value.register(ir.Split)
    @_value.register(ir.Merge)
    def _reshape(self, op: ir.Split | ir.Merge, node: Node) -> Array:
        return self._arrays[op.source].reshape([self._size(s) for s in node.shape])

    @_value.register
    def _concatenate(self, op: ir.Concatenate, node: Node) -> Array:
        return np.concatenate([self._arrays[part] for part in op.parts], axis=op.axis)

    @_value.register
    def _cumulate(self, op: ir.Cumulate, node: Node) -> Array:
        source = self._arrays[op.source]
        if not op.reverse:
            return np.cumsum(source, axis=op.axis)
        return np.flip(np.cumsum(np.flip(source, op.axis), axis=op.axis), op.axis)

    @_value.register
    def _order(self, op: ir.Order, node: Node) -> Array:
        source = self._arrays[op.source]
        return np.argsort(-source if op.descending else source, axis=op.axis, kind="stable")

    @_value.register
    def _best(self, op: ir.Best, node: Node) -> Array:
        array = self._spread(op.operand, len(node.shape) + 1)
        return (np.argmax if op.kind == "max" else np.argmin)(array, axis=-1)

    @_value.register
    def _delta(self, op: ir.Delta, node: Node) -> Array:
        index = self._spread(op.index, len(node.shape))
        return np.broadcast_to(index == np.arange(self._size(node.shape[-1])), [self._size(s) for s in node.shape])

    @_value.register
    def _hold(self, op: ir.Hold, node: Node) -> Array:
        return self._arrays[op.source]


def _inside(at: Sequence[Array], shape: Sequence[int]) -> Array:
    inside: Array = np.True_
    for coordinate, n in zip(at, shape, strict=True):
        inside = inside & (coordinate >= 0) & (coordinate < n)
    return inside


def needed(equations: Equations, targets: Sequence[int]) -> list[int]:
    """The nodes that ``targets`` depend on, in topological order."""
    indices: set[int] = set()
    waiting = list(targets)
    while waiting:
        index = waiting.pop()
        if index not in indices:
            indices.add(index)
            waiting += ir.sources(equations[index].op)
    return sorted(indices)


def _symbols(sizes: Mapping[str, int]) -> list[tuple[sp.Symbol, int]]:

    return [(symbol(name), value) for name, value in sizes.items()]
