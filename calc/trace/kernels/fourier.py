"""Fourier transforms on fake tensors: the strides of their results, and the transform lengths.

Torch's own fake kernels need plain numbers for sizes. The real ones leave the transformed axes innermost, in their order in memory. Of a
real signal, only half of the spectrum is stored, so only the signal has the full length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from calc.platform.torch_private import corresponding_complex_dtype, corresponding_real_dtype

_C2C, _R2C, _C2R = torch.ops.aten._fft_c2c.default, torch.ops.aten._fft_r2c.default, torch.ops.aten._fft_c2r.default
TRANSFORMS = frozenset({_C2C, _R2C, _C2R})


def lengths(args: tuple[Any, ...], out: Tensor) -> list[Any]:
    """Transform length of each transformed axis, in the order in which the call names the axes."""
    signal = out if args[0].is_complex() and not out.is_complex() else args[0]
    return [signal.shape[axis] for axis in args[1]]


def complex_to_complex(x: Tensor, dim: Sequence[int], *_: Any) -> Tensor:
    """``_fft_c2c``."""
    return _result(x, x.shape, _outermost_first(x, dim), x.dtype)


def real_to_complex(x: Tensor, dim: Sequence[int], _: int, onesided: bool) -> Tensor:
    """``_fft_r2c``. The axis that may be halved (``onesided``) is transformed first, and is innermost."""
    shape = list(x.shape)
    if onesided:
        shape[dim[-1]] = shape[dim[-1]] // 2 + 1
    return _result(x, shape, [*_outermost_first(x, dim[:-1]), dim[-1]], corresponding_complex_dtype(x.dtype))


def complex_to_real(y: Tensor, dim: Sequence[int], _: int, last_dim_size: Any) -> Tensor:
    """``_fft_c2r``. The halved axis is transformed last; the other axes are transformed before it, into a separate tensor."""
    before = complex_to_complex(y, dim[:-1]) if len(dim) > 1 else y
    shape = list(y.shape)
    shape[dim[-1]] = last_dim_size
    return _result(before, shape, [dim[-1]], corresponding_real_dtype(y.dtype))


def _result(x: Tensor, shape: Sequence[Any], innermost: Sequence[int], dtype: torch.dtype) -> Tensor:
    """An empty tensor of ``shape`` whose axes have the memory order of those of ``x``, with the transformed axes innermost."""
    if not torch.backends.mkl.is_available():  # type: ignore[no-untyped-call]  # untyped in torch
        return x.new_empty(shape, dtype=dtype)
    order = [*_outermost_first(x, [axis for axis in range(x.dim()) if axis not in innermost]), *innermost]
    empty = x.new_empty([shape[axis] for axis in order], dtype=dtype)
    return empty.permute([order.index(axis) for axis in range(x.dim())])


def _outermost_first(x: Tensor, axes: Sequence[int]) -> list[int]:
    """Axes by decreasing stride. Where symbolic strides are already in that order, the comparisons hold at all sizes."""
    ordered: list[int] = []
    for axis in axes:
        place = len(ordered)
        while place and not x.stride(ordered[place - 1]) >= x.stride(axis):
            place -= 1
        ordered.insert(place, axis)
    return ordered


RESULTS: dict[Any, Callable[..., Any]] = {_C2C: complex_to_complex, _R2C: real_to_complex, _C2R: complex_to_real}
