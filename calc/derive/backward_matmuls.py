"""What a matrix multiplication computes: x W in the forward; in the backward the gradient dW = xᵀ dy, or dx = dy Wᵀ.

The product of a forward matmul y = x W has two gradients. A matmul of the backward reads one of the two operands of the forward, at the
same module path: the one that reads x computes dW, the one that reads W computes dx. A recomputed x has another storage: where a module
has one matmul with a parameter, the gradient that does not read the parameter is dW. A parameter that is no layer's ``weight`` has its own
name in place of W, in the forward too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from calc.graph.step import RECOMPUTED, Op, StepTrace, Tensor

_OPERANDS = {
    "aten.mm.default": ("self", "mat2"),
    "aten.bmm.default": ("self", "mat2"),
    "aten.addmm.default": ("mat1", "mat2"),
    "aten.baddbmm.default": ("batch1", "batch2"),
}


class ForwardMatmul(NamedTuple):
    """Storages of the two operands of a matmul, the name of the right one, whether that is a parameter, the operator's index, and the sizes
    of its result in any order."""

    left: int
    right: int
    name: str
    is_parameter: bool
    operator: int
    result: tuple[str, ...]


ForwardMatmuls = Mapping[tuple[int, str], tuple[ForwardMatmul, ...]]


def forward_matmuls(trace: StepTrace) -> ForwardMatmuls:
    """The matmuls of the forward, recomputed ones included, by step and module path."""
    names = {tensor.storage: name.rpartition(".")[2] for name, tensor in reversed(trace.parameters)}
    matmuls: dict[tuple[int, str], tuple[ForwardMatmul, ...]] = {}
    for op in trace.ops:
        if (op.phase == "forward" or op.node == RECOMPUTED) and len(operands := _operands(op)) == 2:
            left, right = (operand.storage for operand in operands)
            name = names.get(right, "weight")
            key = (op.step, op.module_path)
            label = "W" if name == "weight" else name
            matmul = ForwardMatmul(left, right, label, right in names, op.index, _sizes(op.outputs[0]))
            matmuls[key] = (*matmuls.get(key, ()), matmul)
    return matmuls


def gradient_of(op: Op, forward: ForwardMatmuls) -> str:
    """The gradient that a matmul of the backward computes, as an equation; empty if that is not certain."""
    own, matmuls = tuple(operand.storage for operand in _operands(op)), forward.get((op.step, op.module_path), ())
    gradients = {*_gradients(own, matmuls)} if own else set()
    if own and not gradients and len({matmul.right for matmul in matmuls}) == 1 and matmuls[0].is_parameter:
        return f"d{matmuls[0].name} = xᵀ dy"
    return gradients.pop() if len(gradients) == 1 else ""


def product_of(op: Op, forward: ForwardMatmuls) -> str:
    """A matmul of the forward by the parameter's own name, ``x w1``; empty for a layer's ``weight``, and where it has no parameter."""
    matmuls = forward.get((op.step, op.module_path), ())
    own = (matmul for matmul in matmuls if matmul.operator == op.index and matmul.is_parameter and matmul.name != "W")
    return next((f"x {matmul.name}" for matmul in own), "")


def _gradients(own: tuple[int, ...], matmuls: Iterable[ForwardMatmul]) -> Iterable[str]:
    for matmul in matmuls:
        if (matmul.left in own) != (matmul.right in own):
            yield f"d{matmul.name} = xᵀ dy" if matmul.left in own else f"dx = dy {matmul.name}ᵀ"


def differentiated(op: Op, forward: ForwardMatmuls) -> Iterator[ForwardMatmul]:
    """The matmuls of the forward of which ``op`` may compute a gradient: it reads one of their operands, and beside it a tensor of the
    sizes of their result. Queries, keys and values may share one storage, so that the operand alone does not tell."""
    operands = _operands(op)
    pairs = [*zip(operands, reversed(operands), strict=True)]
    for matmul in forward.get((op.step, op.module_path), ()):
        if any(read.storage in (matmul.left, matmul.right) and _sizes(beside) == matmul.result for read, beside in pairs):
            yield matmul


def _operands(op: Op) -> tuple[Tensor, ...]:
    """The two operands of a matmul; empty for other operators."""
    arguments = dict(op.args)
    operands = [arguments[name] for name in _OPERANDS.get(op.name, ())]
    return tuple(operand for operand in operands if isinstance(operand, Tensor))


def _sizes(tensor: Tensor) -> tuple[str, ...]:
    """The sizes of a tensor, in an order that a transpose keeps."""
    return tuple(sorted(map(str, tensor.shape)))
