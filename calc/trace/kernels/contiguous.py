"""Results of operators on contiguous tensors whose form follows from the shapes alone: elementwise operators on equal shapes, and views.

Torch's fake kernels find it by dozens of comparisons of sizes, which takes milliseconds for symbols and leaves guards on which nothing
depends. Real kernels return a contiguous result here at all sizes. The test suite compares every answer with torch's own fake kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sympy as sp
import torch

from calc.platform.torch_private import FakeTensor
from calc.trace.symbolic_sizes import SizeEnv

aten = torch.ops.aten

Form = tuple[tuple[Any, ...], tuple[Any, ...], torch.dtype, Any, int | None]  # of ``result_cache``: shape, strides, dtype, offset, viewed

# Elementwise in all tensor arguments; a number may stand for the second.
_ELEMENTWISE = frozenset(
    id(operator)
    for operator in (
        aten.add.Tensor,
        aten.sub.Tensor,
        aten.mul.Tensor,
        aten.div.Tensor,
        aten.add.Scalar,
        aten.mul.Scalar,
        aten.div.Scalar,
        aten.pow.Tensor_Scalar,
        aten.neg.default,
        aten.sqrt.default,
        aten.rsqrt.default,
        aten.exp.default,
        aten.cos.default,
        aten.sin.default,
        aten.tanh.default,
        aten.sigmoid.default,
        aten.silu.default,
        aten.silu_backward.default,
        aten.gelu.default,
        aten.gelu_backward.default,
        aten.relu.default,
    )
)
_VIEWS = frozenset(map(id, (aten.view.default, aten._unsafe_view.default)))
# (input, axis, whether it is in half precision): as large as the input.
_SOFTMAX = frozenset(map(id, (aten._log_softmax.default, aten._softmax.default)))
_SOFTMAX_BACKWARD = frozenset(map(id, (aten._log_softmax_backward_data.default, aten._softmax_backward_data.default)))
_LOSS, _LOSS_BACKWARD = id(aten.nll_loss_forward.default), id(aten.nll_loss_backward.default)
_FLOATING = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def forms(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Form, ...] | None:
    """The form of each result; None where it does not follow from the shapes of contiguous tensors."""
    first, operator = args[0], id(func)
    if kwargs or type(first) is not FakeTensor or not first.dim() or first.dtype not in _FLOATING or not _is_contiguous(first):
        return _of_integers(operator, args) if not kwargs else None
    if operator in _VIEWS:
        return _viewed(first, args[1])
    if operator in _ELEMENTWISE:
        return _dense(first) if all(_is_like(argument, first) for argument in args[1:]) else None
    if operator in _SOFTMAX:
        return _dense(first) if not args[2] else None
    if operator in _SOFTMAX_BACKWARD:
        return _dense(first) if _is_like(args[1], first) and args[3] is first.dtype else None
    if operator == _LOSS and first.dim() == 2 and args[3]:
        return (_scalar(first.dtype), _scalar(first.dtype))
    return None


def _of_integers(operator: int, args: tuple[Any, ...]) -> tuple[Form, ...] | None:
    """The form of a view of integers, or of the gradient of a loss that is one number."""
    first = args[0]
    if operator in _VIEWS and type(first) is FakeTensor and first.dim() and not first.dtype.is_complex and _is_contiguous(first):
        return _viewed(first, args[1])
    if operator == _LOSS_BACKWARD and args[4] and args[1].dim() == 2 and args[1].dtype is args[0].dtype and _is_contiguous(args[1]):
        return _dense(args[1])
    return None


def _is_like(argument: Any, first: torch.Tensor) -> bool:
    """Whether ``other`` is a number, or a contiguous tensor of the same shape and dtype."""
    if not isinstance(argument, torch.Tensor):
        return isinstance(argument, int | float | str | torch.SymInt | torch.SymFloat)
    alike = type(argument) is FakeTensor and argument.dtype is first.dtype and argument.dim() == first.dim()
    return alike and _keys(argument.shape) == _keys(first.shape) and _is_contiguous(argument)


def _is_contiguous(x: torch.Tensor) -> bool:
    """Whether the strides are those of a new tensor at all sizes. Evaluates no guard."""
    return all(map(_is_product, x.shape)) and _keys(x.stride()) == _keys(_strides(x.shape))


def _strides(shape: Sequence[Any]) -> tuple[Any, ...]:
    strides: list[Any] = [1]
    for size in reversed(shape[1:]):
        strides.append(size * strides[-1])
    return tuple(reversed(strides))


def _keys(sizes: Sequence[Any]) -> list[Any]:
    return [size if type(size) is int else size.node._expr for size in sizes]


def _is_product(size: Any) -> bool:
    """Whether a size is at least 1 at all sizes because it is a product of symbols and positive numbers."""
    if type(size) is int:
        return size > 0
    return all(map(_is_positive, sp.Mul.make_args(size.node._expr)))


def _is_positive(factor: sp.Expr) -> bool:
    """Whether a factor is a positive number, or a symbol to a positive power."""
    if factor.is_Integer:
        return bool(factor > 0)
    base, power = factor.as_base_exp()
    return bool(base.is_Symbol and power.is_Integer and power > 0)


def _dense(x: torch.Tensor) -> tuple[Form, ...]:
    return ((tuple(x.shape), tuple(x.stride()), x.dtype, 0, None),)


def _scalar(dtype: torch.dtype) -> Form:
    return (), (), dtype, 0, None


def _viewed(x: torch.Tensor, size: Sequence[Any]) -> tuple[Form, ...] | None:
    """The form of a contiguous tensor in another shape; an axis of -1 has the remaining elements."""
    elements, sizes_given, rest = _product(x.shape), _product([n for n in size if not _is_rest(n)]), sum(map(_is_rest, size))
    if rest > 1 or not all(_is_rest(n) or _is_product(n) for n in size):
        return None
    left = elements / sizes_given
    symbolic: list[Any] = [n for n in x.shape if isinstance(n, torch.SymInt)]
    env = symbolic[0].node.shape_env if symbolic else None
    shape = [_size(left, env) if _is_rest(n) else n for n in size]
    if any(n is None or not _is_product(n) for n in shape) or (not rest and left != 1):
        return None
    return ((tuple(shape), _strides(shape), x.dtype, x.storage_offset(), 0),)


def _is_rest(size: Any) -> bool:
    return type(size) is int and size == -1


def _product(sizes: Sequence[Any]) -> sp.Expr:
    return sp.Mul(*_keys(sizes))


def _size(expr: sp.Expr, env: Any) -> Any:
    """An expression as a size; None where it is a quotient."""
    if expr.is_Integer:
        return int(expr)
    if not isinstance(env, SizeEnv) or not expr.is_polynomial(*expr.free_symbols) or expr.as_coeff_Mul()[0].q != 1:
        return None
    return env.create_symintnode(expr, hint=env.at_hints(expr))
