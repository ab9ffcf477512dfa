"""The grouped matrix multiplication on fake tensors. Torch's own fake kernel takes bf16 only; the real ones take more dtypes."""

from __future__ import annotations

from typing import Any

import torch

_ALIGNMENT = 16  # bytes; torch's kernels require this alignment of rows (aten/src/ATen/native/GroupedMMUtils.h)


def grouped_mm(a: torch.Tensor, b: torch.Tensor, offs: torch.Tensor | None = None, bias: Any = None, out_dtype: Any = None) -> torch.Tensor:
    """Result of ``aten._grouped_mm``, with rows padded to the alignment, as in the real kernel.

    Shapes: (M, K) x (E, K, N) → (M, N); (M, K) x (K, N) → (E, M, N); (E, M, K) x (K, N) → (M, N); (E, M, K) x (E, K, N) → (E, M, N).
    """
    for matrix in (a, b):
        _require_aligned_rows(matrix)
    size: list[Any]
    if a.dim() == 2 and b.dim() == 2:
        assert offs is not None  # torch has checked this
        size = [offs.shape[0], a.shape[0], b.shape[1]]
    elif a.dim() == 2:
        size = [a.shape[0], b.shape[-1]]
    elif b.dim() == 2:
        size = [a.shape[1], b.shape[1]]
    else:
        size = [a.shape[0], a.shape[1], b.shape[-1]]
    dtype = out_dtype or a.dtype
    each = _ALIGNMENT // dtype.itemsize
    row = size[-1] if size[-1] % each == 0 else (size[-1] + each - 1) // each * each
    strides = [size[1] * row, row, 1] if len(size) == 3 else [row, 1]
    return torch.empty_strided(size, strides, dtype=dtype, device=a.device)


def _require_aligned_rows(matrix: torch.Tensor) -> None:
    each = _ALIGNMENT // matrix.element_size()
    last, before = matrix.stride(-1), matrix.stride(-2)
    stride = before if type(last) is int and last == 1 else last
    if stride % each != 0:
        raise RuntimeError(f"a row of a grouped matmul, {stride} elements of {matrix.element_size()} bytes, must be divisible by {each}")
