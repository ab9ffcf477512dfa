"""Names of the tensors of a forward, from module path and symbol; and which of them are written inside another equation."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

import sympy as sp

from calc.graph.step import LOSS as LOSS_PATH
from calc.graph.step import TOP, bare_name
from calc.mathematics.autodiff import ir
from calc.mathematics.autodiff.inputs import integer_names
from calc.mathematics.autodiff.ir import Equations, Node, argument, place
from calc.mathematics.autodiff.made_from import HIDDEN, MadeFrom, is_factor
from calc.mathematics.autodiff.roles import Roles

LOSS = "ℒ"  # L is a number of layers
_TOP = ("", TOP, LOSS_PATH)
_ACTIVATIONS = frozenset(
    """relu relu6 gelu silu mish elu selu celu leaky_relu prelu _prelu_kernel tanh sigmoid softplus hardtanh hardswish hardsigmoid softsign
    log_sigmoid_forward hardshrink softshrink threshold glu""".split()  # noqa: SIM905  # names of operators
)
_LAYER = re.compile(r"^((?:[^.]+\.)*?\d+)(?:\.|$)")


class NodeNames:
    """Names of the nodes below ``forward``; ``inline`` nodes are written inside another equation, ``through`` nodes are views of another
    tensor (transposed or detached). With ``every_step`` only numbers are inline. A tensor that would be called like one of the ``sizes``
    has a number: H1 where H is the height of an image."""

    def __init__(self, equations: Equations, forward: int, loss: int | None, sizes: Collection[str], every_step: bool = False) -> None:
        self.of: dict[int, str] = {}
        self.inline: set[int] = set()
        self.through: set[int] = set()
        self._called: dict[int, str] = {}
        readers = readers_of(equations, forward)
        roles = Roles(equations, readers)
        made_from = MadeFrom(equations, readers, self._called, _ACTIVATIONS)
        counts: dict[str, int] = {}
        inputs = {**_input_names(equations, forward, readers), **({} if loss is None else {loss: LOSS})}
        for node in equations.nodes[:forward]:
            if self._is_through(node):
                self.through.add(node.index)
                self._called[node.index] = self._called.get(ir.sources(node.op)[0], "")
            elif _is_number(node) or (not every_step and self._is_inside(equations, node, readers, roles)):
                self.inline.add(node.index)
            else:
                prefix, name = ("", inputs[node.index]) if node.index in inputs else _written(node, roles, made_from)
                self._called[node.index] = name
                if prefix + name in counts and not isinstance(node.op, ir.Leaf):
                    name = made_from.told_apart(node, name)
                written = prefix + name
                counts[written] = counts.get(written, 0) + 1
                alone = counts[written] == 1 and written not in sizes
                self.of[node.index] = written if alone else f"{written}{counts[written]}"

    def _is_inside(self, equations: Equations, node: Node, readers: Mapping[int, list[Node]], roles: Roles) -> bool:
        mine = readers.get(node.index, [])
        named = node.name or roles.name(node)
        return (
            _is_inline(node, mine)
            or _is_squeezed(equations, node)
            or (not node.name and roles.is_shifted(node))
            or (not named and _letter(node) == HIDDEN and is_factor(node, mine))
        )

    def _is_through(self, node: Node) -> bool:
        op = node.op
        if isinstance(op, ir.Hold):
            return True
        return isinstance(op, ir.Map) and op.expr == argument(0) and len(op.operands) == 1


def layer_of(module_path: str) -> str:
    """The path of the repeated layer that contains a module path; empty if none."""
    match = _LAYER.match(module_path)
    return match[1] if match else ""


def readers_of(equations: Equations, forward: int) -> dict[int, list[Node]]:
    """The nodes below ``forward`` that read each node."""
    readers: dict[int, list[Node]] = {}
    for node in equations.nodes[:forward]:
        for source in ir.sources(node.op):
            readers.setdefault(source, []).append(node)
    return readers


def _is_number(node: Node) -> bool:
    """A constant, or positions."""
    return isinstance(node.op, ir.Iota) or (isinstance(node.op, ir.Map) and not node.op.operands)


def _is_inline(node: Node, readers: list[Node]) -> bool:
    """A step within one operator that nothing else reads: the product in X W + b; constants; positions."""
    if len(readers) != 1 or node.name or isinstance(node.op, ir.Leaf):
        return False
    (reader,) = readers
    same = reader.operator == node.operator and reader.module_path == node.module_path
    return same and isinstance(node.op, ir.Contract | ir.Map | ir.Reduce) and isinstance(reader.op, ir.Map | ir.Reduce)


def _is_squeezed(equations: Equations, node: Node) -> bool:
    """A parameter without its axes of size 1: written as the parameter, whose gradient would have two equations otherwise."""
    if not isinstance(node.op, ir.Gather) or not isinstance(equations[node.op.source].op, ir.Leaf) or node.op.fill is not None:
        return False
    axes = iter(range(len(node.shape)))
    sizes = equations[node.op.source].shape
    return all(c == ir.Index(sp.Integer(0) if s == 1 else place(next(axes, -1))) for c, s in zip(node.op.coordinates, sizes, strict=True))


def _written(node: Node, roles: Roles, made_from: MadeFrom) -> tuple[str, str]:
    """The module path in front of a name, with its point, and the name; a leaf's name has its owner in it."""
    if isinstance(node.op, ir.Leaf):
        return "", _of_leaf(node.op, len(node.shape))
    prefix = "" if node.module_path in _TOP else f"{node.module_path}."
    return prefix, node.name or roles.name(node) or made_from.name(node, _letter(node))


def _of_leaf(leaf: ir.Leaf, axes: int) -> str:
    if leaf.role == "random":
        return "noise"
    owner, _, last = leaf.name.rpartition(".")
    letter = {"weight": "W" if axes > 1 else "w", "bias": "b"}.get(last, last)
    if owner:
        return f"{owner}.{letter}"
    return letter if letter.isupper() else last  # b alone is an index


def _letter(node: Node) -> str:
    operator = bare_name(node.operator).rstrip("_")
    if operator in _ACTIVATIONS:
        return "A"
    if operator == "embedding":
        return "X"
    match node.op:
        case ir.Contract():
            return "Y"
        case ir.Map(expr, operands):
            bias = operator in ("addmm", "baddbmm", "convolution", "native_layer_norm", "native_batch_norm", "native_group_norm")
            plain = len(operands) > 1 and expr == sp.Add(*(argument(i) for i in range(len(operands))))
            return "Y" if bias else "X" if plain else HIDDEN
    return HIDDEN


def _input_names(equations: Equations, forward: int, readers: Mapping[int, Sequence[Node]]) -> Mapping[int, str]:
    """x, or x0, x1, … for several; integers by what reads them."""
    inputs = [n for n in equations.nodes[:forward] if isinstance(n.op, ir.Leaf) and n.op.role == "input"]
    real, integral = ([n.index for n in inputs if n.integral == integral] for integral in (False, True))
    names = {index: "x" if len(real) == 1 else f"x{i}" for i, index in enumerate(real)}
    literals = [n.index for n in equations.nodes[:forward] if isinstance(n.op, ir.Literal)]
    return {**names, **integer_names(equations, readers, integral), **dict.fromkeys(literals, "numbers")}
