"""What a matrix multiplication computes: x W in the forward; in the backward the gradient dW = xᵀ dy, or dx = dy Wᵀ.

A matmul y = a b of the forward has two gradients, da = dy bᵀ and db = aᵀ dy. A matmul of the backward reads one of the two operands of the
forward, at the same module path: the one that reads a computes db, the one that reads b computes da. Autograd may compute the transpose of
a gradient, dbᵀ = dyᵀ a; the places of the operands tell which. An operand is a parameter by its own name (W for a layer's ``weight``), or
its transpose, as in a linear layer y = x Wᵀ, whose matmul dW = dyᵀ x is the transpose of the operand's gradient. A recomputed x has another
storage: where a module has one matmul with a parameter, the gradient that does not read the parameter is dW.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from calc.graph.step import RECOMPUTED, Op, StepTrace, Tensor

_OPERANDS: Mapping[str, tuple[str, ...]] = {
    "aten.mm.default": ("self", "mat2"),
    "aten.bmm.default": ("self", "mat2"),
    "aten._grouped_mm.default": ("self", "mat2"),
    "aten.addmm.default": ("mat1", "mat2"),
    "aten.baddbmm.default": ("batch1", "batch2"),
}
_CAST = "aten._to_copy.default"
_SAME_AXES = frozenset(("aten.detach.default", "aten.alias.default", "aten.expand.default"))


class MatmulName(NamedTuple):
    """What a matmul computes as a text, empty if that is not certain; ``gradient`` is ``dx`` or ``dw`` if it is one. ``of_parameter``: an
    operand of the matmul of the forward is a parameter."""

    text: str = ""
    gradient: str = ""
    of_parameter: bool = False


class MatmulOperand(NamedTuple):
    """An operand of a matmul: its storage, and the name of the tensor that it is, or of which it is the transpose. ``is_weight``: its
    gradient is dW, as of a parameter or of the second of two alike."""

    storage: int
    name: str
    is_parameter: bool = False
    is_transposed: bool = False
    is_weight: bool = False

    def written(self, *, transposed: bool = False) -> str:
        """The operand, or its transpose: ``Wᵀ``."""
        return f"{self.name}ᵀ" if self.is_transposed != transposed else self.name

    @property
    def gradient(self) -> str:
        """Which of the two gradients of a matmul is that of the operand."""
        return "dw" if self.is_weight else "dx"


class ForwardMatmul(NamedTuple):
    """The two operands of a matmul, the operator's index, and the sizes of its result in any order."""

    left: MatmulOperand
    right: MatmulOperand
    operator: int
    result: tuple[str, ...]

    @property
    def product(self) -> str:
        return f"{self.left.written()} {self.right.written()}"

    @property
    def parameter(self) -> MatmulOperand | None:
        """The operand that is a parameter, where only one is."""
        parameters = [operand for operand in (self.left, self.right) if operand.is_parameter]
        return parameters[0] if len(parameters) == 1 else None

    def gradient(self, of: MatmulOperand, *, transposed: bool) -> str:
        """The gradient of an operand, or its transpose, as an equation."""
        if of is self.right:
            product = f"dyᵀ {self.left.written()}" if transposed else f"{self.left.written(transposed=True)} dy"
        else:
            product = f"{self.right.written()} dyᵀ" if transposed else f"dy {self.right.written(transposed=True)}"
        return f"d{of.written(transposed=transposed)} = {product}"


ForwardMatmuls = Mapping[tuple[int, str], tuple[ForwardMatmul, ...]]


def forward_matmuls(trace: StepTrace) -> ForwardMatmuls:
    """The matmuls of the forward, recomputed ones included, by step and module path."""
    parameters = _Parameters({tensor.storage: (name.rpartition(".")[2], tensor) for name, tensor in reversed(trace.parameters)})
    matmuls: dict[tuple[int, str], tuple[ForwardMatmul, ...]] = {}
    for op in trace.ops:
        if op.phase == "forward" or op.node == RECOMPUTED:
            if len(operands := _operands(op)) == 2:
                left, right = _named(*(parameters.operand(op, operand) for operand in operands))
                matmul = ForwardMatmul(left, right, op.index, _sizes(op.outputs[0]))
                matmuls[op.step, op.module_path] = (*matmuls.get((op.step, op.module_path), ()), matmul)
            parameters.follow(op)
    return matmuls


def _named(left: MatmulOperand, right: MatmulOperand) -> tuple[MatmulOperand, MatmulOperand]:
    """The operands with names: x beside a parameter, x and W where neither is one, or both have one name."""
    if left.name == right.name:
        return MatmulOperand(left.storage, "x", left.is_parameter), MatmulOperand(right.storage, "W", right.is_parameter, is_weight=True)
    return left._replace(name=left.name or "x"), right._replace(name=right.name or "x")


@dataclass
class _Parameters:
    """The parameters by storage, each with its name, and how the forward last viewed each one: where, with which shape and, if that can be
    told, whether transposed."""

    named: dict[int, tuple[str, Tensor]]
    views: dict[int, tuple[tuple[int, str, str], tuple[object, ...], bool | None]] = field(default_factory=dict)

    def operand(self, op: Op, tensor: Tensor) -> MatmulOperand:
        """An operand of a matmul. One of which it is unknown whether it is transposed has no name of its own: W is the operand itself."""
        if tensor.storage not in self.named:
            return MatmulOperand(tensor.storage, "")
        name, _ = self.named[tensor.storage]
        transposed = self._is_transposed(op, tensor)
        own = "W" if name == "weight" or transposed is None else name
        return MatmulOperand(tensor.storage, own, is_parameter=True, is_transposed=bool(transposed), is_weight=True)

    def _is_transposed(self, op: Op, tensor: Tensor) -> bool | None:
        """Whether ``tensor`` is a transposed parameter, by its sizes; where those are equal, by the view that made it."""
        own = self.named[tensor.storage][1]
        sizes = own.shape[-2:]
        if len(own.shape) != len(tensor.shape) or len(sizes) < 2:
            return None
        if sizes != sizes[::-1]:
            return {sizes: False, sizes[::-1]: True}.get(tensor.shape[-2:])
        where, shape, transposed = self.views.get(tensor.storage, (_place(op), tensor.shape, False))
        return (transposed if shape == tensor.shape else None) if where == _place(op) else False

    def follow(self, op: Op) -> None:
        """Note the casts and the views of parameters. A view that an operator has read may not be what the next one reads."""
        inputs = [value for _, value in op.args if isinstance(value, Tensor) and value.storage in self.named]
        if op.name == _CAST and inputs:
            self.named |= {out.storage: self.named[inputs[0].storage] for out in op.outputs}
            return
        for tensor in inputs:
            viewed = next((out for out in op.outputs if out.storage == tensor.storage), None)
            turned = self._is_transposed(op, tensor)
            shape, transposed = (tensor.shape, None) if viewed is None else (viewed.shape, _turned(op, turned))
            if viewed is not None or tensor.storage in self.views:
                self.views[tensor.storage] = _place(op), shape, transposed


def _turned(op: Op, transposed: bool | None) -> bool | None:
    """Whether the result of a view is transposed, if its argument is."""
    if transposed is None or op.name in _SAME_AXES:
        return transposed
    return not transposed if _swaps_last_two(op) else None


def _swaps_last_two(op: Op) -> bool:
    arguments, rank = dict(op.args), len(op.outputs[0].shape)
    match op.name:
        case "aten.t.default":
            return True
        case "aten.transpose.int":
            return {arguments["dim0"] % rank, arguments["dim1"] % rank} == {rank - 2, rank - 1}
        case "aten.permute.default":
            return [d % rank for d in arguments["dims"]] == [*range(rank - 2), rank - 1, rank - 2]
    return False


def _place(op: Op) -> tuple[int, str, str]:
    return op.step, op.node, op.module_path


def gradient_of(op: Op, forward: ForwardMatmuls) -> MatmulName:
    """The gradient that a matmul of the backward computes, as an equation. Where a module has matmuls with
    several parameters, it says of which matmul the gradient is."""
    operands, matmuls = _operands(op), forward.get((op.step, op.module_path), ())
    gradients = {*_gradients(operands, matmuls)} if operands else set()
    if operands and not gradients and len({matmul.right.storage for matmul in matmuls}) == 1 and matmuls[0].right.is_parameter:
        of = matmuls[0].right
        return MatmulName(matmuls[0].gradient(of, transposed=_has_dy_left(operands, matmuls[0])), of.gradient, True)
    return gradients.pop() if len(gradients) == 1 else MatmulName()


def _has_dy_left(operands: tuple[Tensor, ...], matmul: ForwardMatmul) -> bool:
    """Whether the left of two operands has the sizes of the result; where both may, as in the gradient of the parameter itself."""
    left, right = (_sizes(operand) == matmul.result for operand in operands)
    return matmul.right.is_transposed if left == right else left


def product_of(op: Op, forward: ForwardMatmuls) -> MatmulName:
    """A matmul of the forward by the names of its operands, ``x w1`` or ``x Wᵀ``; empty where neither is a parameter."""
    matmuls = forward.get((op.step, op.module_path), ())
    product = next((matmul.product for matmul in matmuls if matmul.operator == op.index and matmul.parameter), "")
    return MatmulName(product, of_parameter=bool(product))


def operand_saved(op: Op, argument: str, forward: ForwardMatmuls) -> tuple[str, str]:
    """The name of an argument of a matmul of the forward, and the gradient that needs it; empty where the operator is none."""
    places = _OPERANDS.get(op.name, ())
    matmuls = forward.get((op.step, op.module_path), ()) if argument in places else ()
    for matmul in matmuls:
        if matmul.operator == op.index:
            read, of = (matmul.left, matmul.right) if argument == places[0] else (matmul.right, matmul.left)
            return read.name, matmul.gradient(of, transposed=of.is_transposed)
    return "", ""


def _gradients(operands: tuple[Tensor, ...], matmuls: Collection[ForwardMatmul]) -> Iterator[MatmulName]:
    own = [operand.storage for operand in operands]
    several = len({matmul.parameter.storage for matmul in matmuls if matmul.parameter}) > 1
    for matmul in matmuls:
        left, right = matmul.left, matmul.right
        if (left.storage in own) != (right.storage in own):
            of, transposed = (right, own[-1] == left.storage) if left.storage in own else (left, own.index(right.storage) == 0)
            note = f" of y = {matmul.product}" if several and matmul.parameter else ""
            yield MatmulName(f"{matmul.gradient(of, transposed=transposed)}{note}", of.gradient, matmul.parameter is not None)


def differentiated(op: Op, forward: ForwardMatmuls) -> Iterator[ForwardMatmul]:
    """The matmuls of the forward of which ``op`` may compute a gradient: it reads one of their operands, and beside it a tensor of the
    sizes of their result. Queries, keys and values may share one storage, so that the operand alone does not tell."""
    operands = _operands(op)
    pairs = [*zip(operands, reversed(operands), strict=True)]
    for matmul in forward.get((op.step, op.module_path), ()):
        storages = (matmul.left.storage, matmul.right.storage)
        if any(read.storage in storages and _sizes(beside) == matmul.result for read, beside in pairs):
            yield matmul


def _operands(op: Op) -> tuple[Tensor, ...]:
    """The two operands of a matmul; empty for other operators."""
    arguments = dict(op.args)
    operands = [arguments[name] for name in _OPERANDS.get(op.name, ())]
    return tuple(operand for operand in operands if isinstance(operand, Tensor))


def _sizes(tensor: Tensor) -> tuple[str, ...]:
    """The sizes of a tensor, in an order that a transpose keeps."""
    return tuple(sorted(map(str, tensor.shape)))
