"""Names of tensors that have no usual one, from what they are taken from or what they are for: q of what ``q_proj`` returns, q_1 of
its first half, ``gate`` and ``up`` of a gated layer, ``top`` of the order that a router sorts by, ``picked`` of the rows read there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import sympy as sp

from calc.graph.step import LOSS, TOP, bare_name
from calc.mathematics.autodiff import ir
from calc.mathematics.autodiff.ir import Equations, Node, argument, place

HIDDEN, OUTPUT, INPUT = "H", "Y", "x"
_TOP = ("", TOP, LOSS)


def _is_over_last_axis(node: Node, operand: ir.Operand) -> bool:
    """Whether a reduction is over the last axis of its operand alone: over features, not over places or positions."""
    return [axis for axis, label in enumerate(operand.at) if label >= len(node.shape)] == [len(operand.at) - 1]


class MadeFrom:
    """Names by the equations themselves. ``readers`` of each tensor, ``called``: the names so far, without module paths, by node."""

    def __init__(
        self, equations: Equations, readers: Mapping[int, Sequence[Node]], called: Mapping[int, str], activations: Collection[str]
    ) -> None:
        self._equations, self._readers, self._called, self._activations = equations, readers, called, activations

    def name(self, node: Node, letter: str) -> str:
        """The name of a tensor without its module path; ``letter``: the usual one of its operator."""
        part = self._of_parts(node)
        if part or letter != HIDDEN:
            return part or letter
        if self._is_output(node):
            return OUTPUT
        if self._is_averaged_loss(node):
            return "losses"
        match node.op:
            case ir.Reduce("max" | "mean" as kind, operand):
                return kind if _is_over_last_axis(node, operand) else "pooled"
            case ir.Split() | ir.Merge():
                return self._of_view(node)
            case ir.Gather(_, coordinates, None) if all(isinstance(c, ir.Index) for c in coordinates):
                return self._of_slice(node)
            case ir.Gather(source, coordinates, _) if any(isinstance(c, ir.Pick) for c in coordinates):
                return self._of_pick(self._equations[source], coordinates)
            case ir.Gather():
                return "padded"
            case ir.Concatenate(parts) if rotated := self._of_halves(parts):
                return f"{rotated}_rotated"
            case ir.Map(expr, (operand,)) if expr == -argument(0) and self._called.get(operand.node):
                return f"minus_{self._called[operand.node]}"
            case ir.Order():
                return "order"
            case ir.Scatter():
                return "summed"
            case ir.Reduce("sum", operand) if node.integral or self._is_choice(operand.node):
                return "group" if self._is_place(node) else "count"
            case ir.Map() if self._is_choice(node.index):
                return "mask"
            case ir.Map() if node.integral:
                return "index"
            case ir.Map() if self._is_gated(node):
                return "gated"
            case ir.Map(expr, (left, right)) if expr == argument(0) * argument(1):
                return "weighted" if any(self._is_share(operand.node) for operand in (left, right)) else HIDDEN
        return HIDDEN

    def told_apart(self, node: Node, name: str) -> str:
        """Another name of a tensor of which there is one of this ``name`` before: by what it is taken from, ``picked_x``, or by what its
        equation does, ``top_flat``; the name itself where neither is known."""
        match node.op:
            case ir.Order() | ir.Gather():
                source = self._equations[ir.sources(node.op)[0]]
                of = source.op.name.rpartition(".")[2] if isinstance(source.op, ir.Leaf) else self._called.get(source.index, "")
                return f"{name}_{of}" if of and of not in name else name
            case ir.Merge():
                return f"{name}_flat"
            case ir.Split():
                return f"{name}_split"
            case ir.Map(expr) if name == "index" and expr.is_Piecewise:
                return f"{name}_wrapped"
            case ir.Map() if self._is_output(node):
                return OUTPUT
            case ir.Reduce(kind, _):
                return f"{name}_{kind}"
            case ir.Contract() if parameter := self._read_parameter(node):
                return f"{name}_{parameter}"
            case ir.Map() if module := self._activated(node):
                return f"{name}_{module}"
        return name

    def _read_parameter(self, node: Node) -> str:
        """The name of the one parameter of which a product reads a part, such as the matrices of the chosen experts; else empty."""
        sources = [self._equations[index] for index in ir.sources(node.op)]
        parts = [self._equations[source.op.source].op for source in sources if isinstance(source.op, ir.Gather)]
        leaves = [op.name for op in parts if isinstance(op, ir.Leaf) and op.role == "parameter"]
        return leaves[0].rpartition(".")[2] if len(leaves) == 1 else ""

    def _activated(self, node: Node) -> str:
        """The module whose result an activation outside that module takes; empty where there is none."""
        sources = [self._equations[index] for index in ir.sources(node.op)]
        paths = {source.module_path for source in sources if _is_inside(source.module_path, node.module_path)}
        return paths.pop().rpartition(".")[2] if len(paths) == 1 and self._is_activation(node) else ""

    def _is_place(self, node: Node) -> bool:
        """Whether a tensor says where others are read."""
        readers = (reader.op for reader in self._readers.get(node.index, ()))
        return any(isinstance(op, ir.Gather) and ir.Pick in map(type, op.coordinates) and op.source != node.index for op in readers)

    def _is_averaged_loss(self, node: Node) -> bool:
        """Whether a tensor has what the loss function sums or averages to one number."""
        readers = self._readers.get(node.index, ())
        return (
            node.module_path == LOSS and bool(readers) and all(isinstance(reader.op, ir.Reduce) and not reader.shape for reader in readers)
        )

    def _is_output(self, node: Node) -> bool:
        """Whether all that reads a tensor is outside the module that computes it."""
        paths = [reader.module_path for reader in self._readers.get(node.index, ())]
        path = node.module_path
        return path not in _TOP and bool(paths) and not any(p == path or _is_inside(p, path) for p in paths)

    def _of_parts(self, node: Node) -> str:
        """``Q_1`` of the first of the parts that Q is put together from; empty for other tensors."""
        readers = self._readers.get(node.index, ())
        whole = readers[0] if len(readers) == 1 else None
        if whole is None or not whole.name or not isinstance(whole.op, ir.Concatenate):
            return ""
        return f"{whole.name}_{whole.op.parts.index(node.index) + 1}"

    def _is_choice(self, index: int) -> bool:
        """Whether a tensor is one of two numbers, as a comparison is 1 or 0."""
        op = self._equations[index].op
        return isinstance(op, ir.Map) and bool(op.expr.is_Piecewise) and all(value.is_number for value, _ in op.expr.args)

    def _is_share(self, index: int) -> bool:
        """Whether a tensor has the shares of a softmax, in whatever order."""
        node = self._equations[index]
        while isinstance(node.op, ir.Gather | ir.Split | ir.Merge | ir.Hold):
            node = self._equations[ir.sources(node.op)[0]]
        return node.name == "P"

    def _of_view(self, node: Node) -> str:
        source = self._source(node)
        called = self._called.get(source.index, "")
        if _is_inside(source.module_path, node.module_path):
            return _first_word(source.module_path.rpartition(".")[2])
        if source.module_path != node.module_path and called == OUTPUT:
            return INPUT
        return called or HIDDEN

    def _of_slice(self, node: Node) -> str:
        readers, source, whole = self._readers.get(node.index, ()), self._source(node), self._of_view(node)
        if isinstance(source.op, ir.Order):
            return "top"
        if _selected(node) and whole != HIDDEN:
            return f"{whole}_{_selected(node)}"
        if any(self._is_activation(reader) for reader in readers):
            return "gate"
        if any(self._is_gated(reader) for reader in readers):
            return "up"
        named = [reader.name for reader in readers if isinstance(reader.op, ir.Split | ir.Merge)]
        if len(readers) == len(named) == 1 and named[0]:
            return named[0].lower()
        slices = [reader.index for reader in self._readers.get(source.index, ()) if _is_part(reader)]
        return f"{whole}_{slices.index(node.index) + 1}" if len(slices) > 1 and whole != HIDDEN and node.index in slices else whole

    def _of_halves(self, parts: Sequence[int]) -> str:
        """The name of the tensor whose slices, one of them with the other sign, are put together again: q of [−q_2; q_1]."""
        signed = [self._signed(part) for part in parts]
        slices = [part for part, _ in signed if isinstance(part.op, ir.Gather) and _is_part(part)]
        of_one = len(slices) == len(parts) and len({ir.sources(part.op)[0] for part in slices}) == 1
        whole = self._of_view(slices[0]) if of_one and {sign for _, sign in signed} == {1, -1} else HIDDEN
        return "" if whole == HIDDEN else whole

    def _signed(self, index: int) -> tuple[Node, int]:
        """The tensor that another one is a view of, or the negative of, and the sign."""
        node, sign = self._equations[index], 1
        while isinstance(node.op, ir.Hold) or (isinstance(node.op, ir.Map) and node.op.expr in (argument(0), -argument(0))):
            sign = -sign if isinstance(node.op, ir.Map) and node.op.expr == -argument(0) else sign
            node = self._equations[ir.sources(node.op)[0]]
        return node, sign

    def _of_pick(self, source: Node, coordinates: Sequence[ir.Index | ir.Pick]) -> str:
        if isinstance(source.op, ir.Leaf) and source.op.role == "parameter":
            return "W"
        orders = (self._equations[c.operand.node].op for c in coordinates if isinstance(c, ir.Pick))
        return "sorted" if any(isinstance(op, ir.Order) and op.source == source.index for op in orders) else "picked"

    def _source(self, node: Node) -> Node:
        """The tensor that a view is taken from, without copies of it between."""
        source = self._equations[ir.sources(node.op)[0]]
        while isinstance(source.op, ir.Hold) or (isinstance(source.op, ir.Map) and source.op.expr == argument(0)):
            source = self._equations[ir.sources(source.op)[0]]
        return source

    def _is_activation(self, node: Node) -> bool:
        return bare_name(node.operator).rstrip("_") in self._activations

    def _is_gated(self, node: Node) -> bool:
        """An activation times another tensor."""
        op = node.op
        if not isinstance(op, ir.Map) or len(op.operands) != 2 or op.expr != argument(0) * argument(1):
            return False
        return any(self._is_activation(self._equations[operand.node]) for operand in op.operands)


def is_factor(node: Node, readers: Sequence[Node]) -> bool:
    """Whether a tensor is a product or a multiple that one equation of its module reads: it is written there."""
    op = node.op
    if len(readers) != 1 or node.name or not isinstance(op, ir.Map) or not isinstance(readers[0].op, ir.Map):
        return False
    reader = readers[0]
    product = op.expr.is_Mul or op.expr.is_Pow
    return reader.module_path == node.module_path and bool(product) and not op.expr.atoms(sp.Function, sp.Piecewise)


def _is_part(node: Node) -> bool:
    """A slice along one axis: every other axis whole and in order."""
    if not isinstance(node.op, ir.Gather) or node.op.fill is not None:
        return False
    shifts = [c.expr - place(i) for i, c in enumerate(node.op.coordinates) if isinstance(c, ir.Index)]
    return len(shifts) == len(node.shape) == len(node.op.coordinates) and sum(s != 0 for s in shifts) <= 1


def _selected(node: Node) -> int:
    """The place, from 1 on, of the one element of an axis that a slice takes, all other axes whole: 2 for P[b,1]; else 0."""
    if not isinstance(node.op, ir.Gather) or node.op.fill is not None:
        return 0
    at = [c.expr for c in node.op.coordinates if isinstance(c, ir.Index)]
    numbers = [int(expr) for expr in at if expr.is_Integer]
    others = [expr for expr in at if not expr.is_Integer]
    whole = len(at) == len(node.op.coordinates) and others == [place(i) for i in range(len(others))]
    return numbers[0] + 1 if len(numbers) == 1 and whole else 0


def _is_inside(path: str, module_path: str) -> bool:
    """Whether a module is inside another one."""
    return path not in _TOP and (module_path in _TOP or path.startswith(f"{module_path}."))


def _first_word(segment: str) -> str:
    """``q`` of ``q_proj``; a word that is not one letter stays as it is."""
    first, _, rest = segment.partition("_")
    return first if rest and len(first) == 1 else segment
