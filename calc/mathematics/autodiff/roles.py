"""What a tensor is by its equation: a mean of squares, its reciprocal root, a normalized tensor, the table of a cosine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sympy as sp

from calc.mathematics.autodiff import ir
from calc.mathematics.autodiff.ir import Equations, Node, argument

_X, _Y = argument(0), argument(1)
_RECIPROCAL_ROOT = -sp.Rational(1, 2)
_TABLES = {sp.cos: "cos", sp.sin: "sin"}


class Roles:
    """Roles of the tensors of a forward, whose ``readers`` are its equations."""

    def __init__(self, equations: Equations, readers: Mapping[int, Sequence[Node]]) -> None:
        self._equations = equations
        self._readers = readers
        self._names: dict[int, str] = {}

    def name(self, node: Node) -> str:
        """The usual name of a tensor; empty where there is none."""
        if node.index not in self._names:
            self._names[node.index] = self._name(node)
        return self._names[node.index]

    def _name(self, node: Node) -> str:
        op = node.op
        if self._is_angle(node):
            return "θ"
        if isinstance(op, ir.Reduce):
            return self._of_mean(node) if op.kind == "mean" else ""
        if not isinstance(op, ir.Map):
            return ""
        if len(op.operands) == 1:
            return _table(node) or self._of_function(node, op)
        if self._is_centered(node):
            return "xc"
        return self._of_product(node, op)

    def is_shifted(self, node: Node) -> bool:
        """A mean of squares plus a number, which only its reciprocal root reads."""
        readers = self._readers.get(node.index, ())
        return self._shift(node) is not None and len(readers) == 1 and self._is_rate(readers[0])

    def _of_function(self, node: Node, op: ir.Map) -> str:
        if op.expr == _X**2:
            moments = {self._of_mean(reader) for reader in self._readers.get(node.index, ())}
            return "xc²" if "var" in moments else "x²" if "ms" in moments else ""
        return "rstd" if self._moment(op) else ""

    def _of_mean(self, node: Node) -> str:
        squared, readers = self._squared(node), self._readers.get(node.index, ())
        if squared is not None:
            read = any(self._is_rate(reader) or self.is_shifted(reader) for reader in readers)
            return "" if not read else "var" if self._is_centered(squared) else "ms"
        return "μ" if any(self._is_centered(reader) and reader.module_path == node.module_path for reader in readers) else ""

    def _of_product(self, node: Node, op: ir.Map) -> str:
        if op.expr != sp.Mul(*(argument(i) for i in range(len(op.operands)))):
            return ""
        factors = [self._source(operand.node) for operand in op.operands]
        rates = [f for f in factors if self._is_rate(f) and f.module_path == node.module_path]
        if rates:
            return "Y" if any(isinstance(f.op, ir.Leaf) and f.op.role == "parameter" for f in factors) else "x̂"
        return "Y" if any(f.module_path == node.module_path and self.name(f) == "x̂" for f in factors) else ""

    def _source(self, index: int) -> Node:
        """The tensor that a node is a copy or a cast of."""
        node = self._equations[index]
        while isinstance(node.op, ir.Hold) or (isinstance(node.op, ir.Map) and node.op.expr == _X and len(node.op.operands) == 1):
            node = self._equations[ir.sources(node.op)[0]]
        return node

    def _is_rate(self, node: Node) -> bool:
        return isinstance(node.op, ir.Map) and len(node.op.operands) == 1 and self._moment(node.op)

    def _moment(self, op: ir.Map) -> bool:
        """Whether a Map is the reciprocal root of a mean of squares, with or without a number added to it."""
        if not op.expr.is_Pow or op.expr.exp != _RECIPROCAL_ROOT or not (op.expr.base - _X).is_number:
            return False
        source = self._source(op.operands[0].node)
        return self._squared(self._shift(source) or source) is not None

    def _shift(self, node: Node) -> Node | None:
        """The mean of squares that a node is, but for a number added to it."""
        if not isinstance(node.op, ir.Map) or len(node.op.operands) != 1 or not (node.op.expr - _X).is_number or node.op.expr == _X:
            return None
        source = self._source(node.op.operands[0].node)
        return source if self._squared(source) is not None else None

    def _squared(self, node: Node) -> Node | None:
        """What a node is the mean of the squares of."""
        if not isinstance(node.op, ir.Reduce) or node.op.kind != "mean":
            return None
        square = self._source(node.op.operand.node).op
        is_square = isinstance(square, ir.Map) and square.expr == _X**2 and len(square.operands) == 1
        return self._source(ir.sources(square)[0]) if is_square else None

    def _is_centered(self, node: Node) -> bool:
        """A tensor minus its mean."""
        op = node.op
        if not isinstance(op, ir.Map) or len(op.operands) != 2 or op.expr not in (_X - _Y, _Y - _X):
            return False
        whole, mean = (self._source(op.operands[i].node) for i in ((0, 1) if op.expr == _X - _Y else (1, 0)))
        return isinstance(mean.op, ir.Reduce) and mean.op.kind == "mean" and self._source(mean.op.operand.node) == whole

    def _is_angle(self, node: Node) -> bool:
        """A tensor that only a cosine and a sine read."""
        readers = self._readers.get(node.index, ())
        return {_table(reader) for reader in readers} == {"cos", "sin"} and not isinstance(node.op, ir.Leaf)


def _table(node: Node) -> str:
    """``cos`` or ``sin`` where a node is that of another."""
    expr = node.op.expr if isinstance(node.op, ir.Map) else None
    return _TABLES[type(expr)] if isinstance(expr, sp.cos | sp.sin) and expr.args[0] == _X else ""
