"""Runs operators on fake tensors and returns the bytes that real CPU kernels allocate.

A fake kernel allocates what its result's shape implies. The real kernels listed here allocate another amount. The test suite compares the
storages of every operator that has a rule with those of the real kernel, so the list is complete for them.
"""

from __future__ import annotations

from typing import Any

import torch

from calc.errors import SpecializationError
from calc.platform.torch_private import decomposition_table
from calc.trace.kernels.layouts import laid_out
from calc.trace.kernels.matmul import grouped_mm
from calc.trace.kernels.results import RESULTS
from calc.trace.values.facts import written

_NO_REDUCTION = 0
_MEAN = 1
_BYTES_OF_HALF = 2

# These reduce their loss in the buffer of the elementwise losses: the scalar keeps that whole storage alive.
_REDUCE_IN_PLACE = frozenset(
    {
        torch.ops.aten.mse_loss.default,
        torch.ops.aten.binary_cross_entropy.default,
        torch.ops.aten.smooth_l1_loss.default,
        torch.ops.aten.soft_margin_loss.default,
    }
)


def run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of ``func`` on fake tensors. Where its own code requires plain numbers for sizes, torch's Python decomposition runs
    instead: it gives the same result, and the trace contains ``func`` either way."""
    _require_one_dtype(func, args)
    if _only_writes(func, args):
        return args[0]
    if func is torch.ops.aten._grouped_mm.default:
        return grouped_mm(*args, **kwargs)
    if func is torch.ops.aten.linalg_solve_triangular.default:
        return _solved(*args, **kwargs)
    if func is torch.ops.aten.where.self and args[0].dtype is torch.uint8:
        args = (args[0].bool(), *args[1:])  # the real kernel accepts uint8 masks, the fake one does not
    out = _in_own_format(func, args, _run(func, args, kwargs))
    explicit = kwargs.get("memory_format") not in (None, torch.preserve_format)
    return out if explicit else laid_out(func, args, out)


# Arguments that the real kernels take in one dtype only, as the fake ones do not ask.
_OF_ONE_DTYPE = {
    torch.ops.aten.mm.default: (0, 1),
    torch.ops.aten.addmm.default: (0, 1, 2),
    torch.ops.aten.mv.default: (0, 1),
    torch.ops.aten.addmv.default: (0, 1, 2),
}
# Weights of these may be in fp32 beside an input of fewer bits, and in no other dtype than the input's besides.
_NORMALIZATIONS = frozenset(
    {torch.ops.aten.native_layer_norm.default, torch.ops.aten.native_group_norm.default, torch.ops.aten.native_batch_norm.default}
)


def _require_one_dtype(func: Any, args: tuple[Any, ...]) -> None:
    """Raise what the real kernel raises where its arguments have several dtypes."""
    if func in _OF_ONE_DTYPE:
        dtypes = {args[place].dtype for place in _OF_ONE_DTYPE[func]}
        if len(dtypes) > 1:
            raise RuntimeError(f"{func}: the tensors must have the same dtype, but have {' and '.join(sorted(map(str, dtypes)))}")
    if func in _NORMALIZATIONS:
        of_input = args[0].dtype
        allowed = {of_input} | ({torch.float32} if of_input.itemsize == _BYTES_OF_HALF else set())
        if not {t.dtype for t in args[1:] if isinstance(t, torch.Tensor)} <= allowed:
            raise RuntimeError(f"{func}: mixed dtype: the parameters must be {of_input}")


# Their fake kernels return the promoted dtype of both arguments; the real ones return the dtype of this argument.
_IN_FORMAT_OF = {
    torch.ops.aten.mse_loss_backward.default: 1,
    torch.ops.aten.smooth_l1_loss_backward.default: 1,
    torch.ops.aten.huber_loss.default: 0,
    torch.ops.aten.soft_margin_loss.default: 0,
    torch.ops.aten.soft_margin_loss_backward.default: 1,
}


def _in_own_format(func: Any, args: tuple[Any, ...], out: Any) -> Any:
    """``out`` in the dtype that the real kernel returns, as where a loss in bf16 has a target in fp32."""
    place = _IN_FORMAT_OF.get(func)
    if place is None or out.dtype == args[place].dtype:
        return out
    return out.new_empty(out.shape, dtype=args[place].dtype)


def _run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if func in RESULTS:
        return RESULTS[func](*args, **kwargs)
    try:
        return func(*args, **kwargs)
    except (SpecializationError, RuntimeError) as error:
        wants_numbers = isinstance(error, SpecializationError) or "concrete integers" in str(error)
        if not wants_numbers:
            raise
        if [place for place, _ in written(func)] == [0] and isinstance(args[0], torch.Tensor):
            return args[0]  # an operator in place
        if func not in decomposition_table:
            raise
    return decomposition_table[func](*args, **kwargs)


def _solved(a: torch.Tensor, b: torch.Tensor, *, left: bool = True, **_: Any) -> torch.Tensor:
    """The solution X of A X = B in column-major order, as LAPACK returns it. Torch's fake kernel requires plain sizes."""
    *batch, rows, columns = (*a.shape[:-2], *b.shape[-2:])
    return b.new_empty((*batch, columns, rows)).transpose(-2, -1)


# In-place elementwise operators, whose result is the first argument: most operators of an optimizer.
_IN_PLACE = frozenset(
    {
        torch.ops.aten.add_.Tensor,
        torch.ops.aten.mul_.Tensor,
        torch.ops.aten.lerp_.Scalar,
        torch.ops.aten.addcmul_.default,
        torch.ops.aten.addcdiv_.default,
    }
)


def _only_writes(func: Any, args: tuple[Any, ...]) -> bool:
    """Whether ``func`` overwrites its first argument with tensors of the same shape, so that its result need not be inferred."""
    if func not in _IN_PLACE:
        return False
    others = [a for a in args[1:] if isinstance(a, torch.Tensor) and a.dim() > 0]
    return all(a.dim() == args[0].dim() and all(x == y for x, y in zip(a.shape, args[0].shape, strict=True)) for a in others)


def storage_bytes(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
    """Bytes of the storage of the result of ``func`` where they differ from what its shape implies, else ``None``."""
    if func not in _REDUCE_IN_PLACE:
        return None
    names = [a.name for a in func._schema.arguments]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    if given.get("reduction", _MEAN) == _NO_REDUCTION:
        return None
    return given["self"].numel() * out.element_size()
