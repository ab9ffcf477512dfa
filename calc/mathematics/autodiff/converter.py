"""Converts a program to equations: decomposes every operator into primitives by its name.

An in-place write updates every view of the same storage. An operator without a decomposition is refused.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import sympy as sp

from calc.errors import NapkinError, UnknownOperatorError
from calc.graph.forward import Instruction, Program, Ref
from calc.graph.step import bare_name
from calc.mathematics.autodiff import ir
from calc.mathematics.autodiff.call import DECOMPOSITIONS, Decomposition, DecompositionResult, OperatorCall, decomposition_of
from calc.mathematics.autodiff.ir import Equations, Operand, argument
from calc.mathematics.autodiff.reverse import pulled
from calc.mathematics.autodiff.scalar import truth, where
from calc.mathematics.autodiff.sizes import size
from calc.mathematics.autodiff.views import AxisFactor, NodeView, Views, of_node

# View operators from the owner of a storage, each with the index of the result that continues the chain.
Chain = tuple[tuple[int, int], ...]

_NO_GRADIENT = "no_grad in the model"


class Converter:
    """Converts one program. ``views`` of values follow in-place writes."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.equations = Equations()
        self.views = Views(self.equations, {**program.fixed, **program.hints})
        self.leaves: dict[int, int] = {}  # value → node, of the leaves
        self.below: dict[int, sp.Expr] = {}  # node → exclusive upper bound of its integers
        self.notes: list[str] = []
        self._views: dict[int, NodeView] = {}
        self._chain: dict[int, tuple[int, Chain]] = {}  # value → owner of its storage, and the view operators from there
        self._stamp: dict[int, int] = {}
        self._writes: dict[int, int] = {}
        self._active: list[bool] = []

    def run(self) -> int:
        """Convert everything. Returns the node of the result."""
        for leaf in self.program.leaves:
            self._leaf(leaf.value, leaf.role, leaf.name, leaf.data, leaf.below)
        indices = self._needed()
        self._by_hand = self._hand_written()
        for instruction in self.program.instructions:
            if instruction.index in indices:
                self._instruction(instruction)
        self.equations.run = None
        return self.view(self.program.result).node

    def _leaf(self, value: int, role: str, name: str, data: Any, below: int | str | None) -> None:
        shape = tuple(size(s) for s in self.program.values[value].shape)
        integral = not self.program.values[value].dtype.startswith(("float", "bfloat"))
        op = ir.Literal(tuple(_flat(data))) if role == "literal" else ir.Leaf(role, name)
        node = self.equations.add(op, shape, name=name, integral=integral)
        self.leaves[value] = node
        self._set(value, of_node(self.equations, node))
        if below is not None:
            self.below[self._views[value].node] = size(below)

    def _hand_written(self) -> set[int]:
        """Instructions that run without gradients but contribute to a result with one: the forward of a custom autograd function."""
        indices: set[int] = set()
        graded: set[int] = set()
        for instruction in reversed(self.program.instructions):
            if instruction.graded or instruction.mutates:
                continue
            if any(o in graded or self.program.values[o].requires_grad for o in instruction.outputs):
                indices.add(instruction.index)
                graded |= set(_refs(instruction.args))
        return indices

    def _needed(self) -> set[int]:
        """Instructions that the result depends on; skips autograd's own copies and tensors that it does not use."""
        values = {self.program.result}
        storages = {self.program.values[self.program.result].storage}
        indices = set()
        for instruction in reversed(self.program.instructions):
            written = bool(instruction.mutates) and any(self.program.values[o].storage in storages for o in instruction.outputs)
            if written or values & set(instruction.outputs):
                indices.add(instruction.index)
                refs = list(_refs(instruction.args))
                values |= set(refs)
                storages |= {self.program.values[r].storage for r in refs}
        return indices

    def _instruction(self, instruction: Instruction) -> None:
        function = decomposition_of(instruction.name)
        if function is None:
            raise UnknownOperatorError(_unknown(instruction))
        self.equations.module_path, self.equations.operator = instruction.module_path, instruction.name
        self.equations.run = instruction.index
        result = self._decomposed(function, instruction)
        views = [result] if isinstance(result, NodeView) else list(result)
        for position, (output, view) in enumerate(zip(instruction.outputs, views, strict=False)):
            if view is not None:
                self._result(instruction, position, output, view)

    def _decomposed(self, function: Decomposition, instruction: Instruction) -> DecompositionResult:
        """The result of a decomposition; unsupported arguments raise an error with the location."""
        try:
            return function(OperatorCall(self, instruction))
        except UnknownOperatorError:
            raise
        except (NapkinError, AssertionError, IndexError, KeyError, StopIteration, TypeError, ValueError) as error:
            why = str(error).partition("\n")[0] or "its arguments are of an unknown kind"
            raise UnknownOperatorError(f"{instruction.name} at {instruction.module_path} has no equation in this form: {why}") from error

    def _result(self, instruction: Instruction, position: int, output: int, view: NodeView) -> None:
        values = self.program.values
        if self.by_hand(instruction) and self.active(view.node):
            self._note(
                f"{instruction.function or 'a function'} at {instruction.module_path} is a custom autograd function:"
                " these are the gradients of its forward, which a check compares with those of its backward"
            )
        elif not instruction.graded and instruction.mutates and self.active(view.node):
            view = self._shifted(view, self.view(_refs(instruction.args)[0]))
        elif not instruction.graded and self.active(view.node):
            view = NodeView(self.equations.add(ir.Hold(view.node, _NO_GRADIENT), self.equations[view.node].shape), view.axes)
        source = next((r for r in _refs(instruction.args) if values[r].storage == values[output].storage), None)
        if instruction.mutates and source is not None:
            self._write(output, source, view)
        elif source is not None and source in self._chain:
            owner, chain = self._chain[source]
            self._set(output, view, owner, (*chain, (instruction.index, position)))
        else:
            self._set(output, view)

    def by_hand(self, instruction: Instruction) -> bool:
        """Whether an instruction is part of the forward of a custom autograd function."""
        return bool(instruction.function) or instruction.index in self._by_hand

    def _shifted(self, new: NodeView, old: NodeView) -> NodeView:
        """A value overwritten without gradients: the new value with the old gradient."""
        constants = [NodeView(self.equations.add(ir.Hold(v.node, _NO_GRADIENT), self.equations[v.node].shape), v.axes) for v in (new, old)]
        return self.pointwise(argument(0) + (argument(1) - argument(2)), (old, *constants), integral=False)

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    def active(self, node: int) -> bool:
        """Whether a node depends on a parameter."""
        for added in self.equations.nodes[len(self._active) :]:
            leaf = isinstance(added.op, ir.Leaf) and added.op.role == "parameter"
            opaque = isinstance(added.op, ir.Hold) or added.integral
            self._active.append(leaf or (not opaque and any(self._active[s] for s in ir.sources(added.op))))
        return self._active[node]

    # -- values and what is written over ------------------------------------------------------------------------------

    def _set(self, value: int, view: NodeView, owner: int | None = None, chain: Chain = ()) -> None:
        owner = value if owner is None else owner
        self._views[value] = view
        self._chain[value] = (owner, chain)
        self._stamp[value] = self._writes.get(owner, 0)

    def view(self, value: int) -> NodeView:
        """The current value as a view of a node."""
        if value not in self._views:
            producer = next((i for i in self.program.instructions if value in i.outputs), None)
            operator = f"{producer.name} at {producer.module_path}" if producer is not None else "an operator"
            raise UnknownOperatorError(f"a result of {operator} is used that equations cannot express")
        owner, chain = self._chain[value]
        if self._stamp[value] < self._writes.get(owner, 0):
            self._set(value, self._replayed(self._views[owner], chain), owner, chain)
        return self._views[value]

    def _replayed(self, view: NodeView, chain: Chain) -> NodeView:
        """``view`` of a storage through a chain of view operators."""
        for index, position in chain:
            instruction = self.program.instructions[index]
            function = decomposition_of(instruction.name)
            assert function is not None
            result = function(OperatorCall(self, instruction, {_refs(instruction.args)[0]: view}))
            output = result if isinstance(result, NodeView) else result[position]
            assert output is not None
            view = output
        return view

    def _write(self, output: int, source: int, view: NodeView) -> None:
        """Write ``view`` over ``source``; every other view of that storage sees it."""
        owner, chain = self._chain[source]
        if chain:
            old = self.views.plain(self.view(owner))
            part = self.views.plain(self._replayed(old, chain))
            new = self.views.plain(view)
            ones = self.equations.map(sp.Integer(1), (), self.equations[part.node].shape)
            back = pulled(self.equations, old.node, part.node, new.node)
            count = pulled(self.equations, old.node, part.node, ones)
            a, b, c = argument(0), argument(1), argument(2)
            operands = tuple(self.equations.same(n) for n in (back, old.node, count))
            content = self.equations.map(where(sp.Gt(c, 0), a, b), operands, self.equations[old.node].shape)
            view_of_all = NodeView(content, old.axes)
        else:
            view_of_all = view
        self._writes[owner] = self._writes.get(owner, 0) + 1
        self._views[owner], self._stamp[owner] = view_of_all, self._writes[owner]
        self._set(output, view, owner, chain)

    # -- element by element -------------------------------------------------------------------------------------------

    def pointwise(self, expr: sp.Expr, views: Sequence[NodeView], **about: Any) -> NodeView:
        """``expr`` of the views, broadcast as in torch."""
        rank = max((len(v.axes) for v in views), default=0)
        views = list(views)
        axes = []
        for j in range(rank):
            places = [j - rank + len(v.axes) if j - rank + len(v.axes) >= 0 else None for v in views]
            views = self.views.aligned(views, places)
        labels: dict[tuple[int, int], int] = {}
        ats: list[dict[int, int]] = [{} for _ in views]
        shape: list[sp.Expr] = []
        for j in range(rank):
            mine = [(ats[i], v.axes[j - rank + len(v.axes)]) for i, v in enumerate(views) if j - rank + len(v.axes) >= 0]
            model = next((axis for _, axis in mine if axis), ())
            parts = []
            for n, part in enumerate(model):
                present = [(at, axis[n].axis) for at, axis in mine if axis and axis[n].axis is not None]
                if present:
                    labels[j, n] = len(shape)
                    shape.append(part.size)
                    for at, axis_number in present:
                        at[axis_number] = labels[j, n]  # type: ignore[index]  # none is None
                parts.append(AxisFactor(labels.get((j, n)), part.size))
            axes.append(tuple(parts))
        operands = tuple(Operand(v.node, tuple(at[i] for i in range(len(at)))) for v, at in zip(views, ats, strict=True))
        integral = about.pop("integral", not any(not self.equations[v.node].integral for v in views) and bool(views))
        node = self.equations.map(expr, operands, tuple(shape), integral=integral, **about)
        return NodeView(node, tuple(axes))

    def truth(self, condition: Any, views: Sequence[NodeView]) -> NodeView:
        return self.pointwise(truth(condition), views, integral=True)


def _refs(value: Any) -> list[int]:
    if isinstance(value, Ref):
        return [value.value]
    if isinstance(value, tuple | list):
        return [r for v in value for r in _refs(v)]
    return []


def _flat(data: Any) -> list[float]:
    return [x for part in data for x in _flat(part)] if isinstance(data, list) else [float(data)]


def _unknown(instruction: Instruction) -> str:
    name = bare_name(instruction.name)
    near = difflib.get_close_matches(name, DECOMPOSITIONS, n=2)
    hint = f" (there are equations for {' and '.join(near)})" if near else ""
    return (
        f"there is no equation for {instruction.name} at {instruction.module_path}{hint}: rewrite it with operators that have one,"
        " or add a decomposition to calc/mathematics/autodiff/decompositions"
    )
