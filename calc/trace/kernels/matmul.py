"""``matmul`` on symbolic sizes, for versions of torch that decompose it with plain numbers.

Before 2.12, ``matmul`` of more than two axes (a linear layer without bias) reads its sizes as numbers in C++, which loses products of
sizes (``h*k``). Torch's Python decomposition keeps the symbols and runs the same operators, except for the kind of one view.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from calc.errors import TraceError
from calc.platform.torch_private import VERSION, decompositions
from calc.trace.kernels.replacement import replaced
from calc.trace.source_lines import user_line

_KEEPS_SYMBOLS = (2, 12)


@contextlib.contextmanager
def by_symbols() -> Iterator[None]:
    """Context in which ``matmul`` is decomposed in symbolic sizes, whatever the version."""
    if VERSION >= _KEEPS_SYMBOLS:
        yield
        return
    with replaced({"matmul": decompositions.matmul}, "CompositeImplicitAutograd"):
        yield


# -- grouped matrix multiplication: torch's own fake kernel takes bf16 only, the real ones take more dtypes -----------


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


# -- the matrix multiplication of fp8 --------------------------------------------------------------------------------
# The matrix multiplication of fp8 on fake tensors. Torch's own fake kernel requires sizes that a GPU requires, multiples of 16; the real
# one on a CPU takes every size.


def scaled_mm(
    x: torch.Tensor,
    weight: torch.Tensor,
    of_x: torch.Tensor,
    of_weight: torch.Tensor,
    bias: Any = None,
    of_result: Any = None,
    out_dtype: torch.dtype | None = None,
    **_: Any,
) -> torch.Tensor:
    """Result of ``aten._scaled_mm``: (M, K) x (K, N) → (M, N)."""
    return _product(x, weight, (of_x,), (of_weight,), out_dtype)


def scaled_mm_v2(
    x: torch.Tensor,
    weight: torch.Tensor,
    of_x: Sequence[torch.Tensor],
    recipe_x: Any,
    swizzle_x: Any,
    of_weight: Sequence[torch.Tensor],
    recipe_weight: Any,
    swizzle_weight: Any,
    bias: Any,
    out_dtype: torch.dtype | None,
    *_: Any,
    **__: Any,
) -> torch.Tensor:
    """Result of ``aten._scaled_mm_v2``, which ``F.scaled_mm`` runs."""
    return _product(x, weight, of_x, of_weight, out_dtype)


def _product(
    x: torch.Tensor, weight: torch.Tensor, of_x: Sequence[torch.Tensor], of_weight: Sequence[torch.Tensor], dtype: torch.dtype | None
) -> torch.Tensor:
    rows, columns = x.shape[0], weight.shape[1]
    if not all(str(operand.dtype).startswith("torch.float8") for operand in (x, weight)):
        raise TraceError(
            f"{user_line()} multiplies {x.dtype} by {weight.dtype} with scales, and torch on a CPU takes float8:"
            " cast both to torch.float8_e4m3fn"
        )
    by_tensor = _single(of_x) and _single(of_weight)
    if not by_tensor and not (_shaped(of_x, (rows, 1)) and _shaped(of_weight, (1, columns))):
        raise TraceError(
            f"{user_line()} multiplies fp8 with scales that a CPU does not take: give one scale for each operand, or one for each row and"
            " one for each column of the result, of shapes (rows, 1) and (1, columns); only a GPU takes scales of blocks"
        )
    return x.new_empty((rows, columns), dtype=dtype or x.dtype)


def _single(scales: Sequence[torch.Tensor]) -> bool:
    return len(scales) == 1 and all(isinstance(size, int) and size == 1 for size in scales[0].shape)


def _shaped(scales: Sequence[torch.Tensor], shape: tuple[Any, Any]) -> bool:
    return len(scales) == 1 and len(scales[0].shape) == 2 and all(a == b for a, b in zip(scales[0].shape, shape, strict=True))
