"""The matrix multiplication of fp8 on fake tensors. Torch's own fake kernel requires sizes that a GPU requires, multiples of 16; the
real one on a CPU takes every size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from calc.errors import TraceError
from calc.trace.source_lines import user_line


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
