"""Operations on a real tensor: shape, strides and offset of each result, and whether it shares its operand's storage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from calc.errors import MeasurementError

_LARGEST = 2**28


@dataclass(frozen=True, slots=True)
class TorchLayout:
    """The layout of a tensor. ``shared``: it shares its operand's storage; ``refused``: torch's error if the operation failed."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: str
    nbytes: int
    shared: bool
    refused: str = ""


def run(shape: Sequence[int], dtype: str, calls: Sequence[tuple[str, tuple[Any, ...]]]) -> list[TorchLayout]:
    """Layouts of a new tensor and of each call's result, applied in order until one fails; ``[]`` takes indices, ``to`` a dtype's name."""
    count = 1
    for size in shape:
        count *= size
    if count > _LARGEST:
        raise MeasurementError(f"a tensor of {count:,} elements is too large for a quick run: check at smaller sizes")
    x = torch.zeros(tuple(shape), dtype=getattr(torch, dtype))
    layouts = [_real(x, x)]
    for name, arguments in calls:
        try:
            result = _made(x, name, arguments)
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            layouts.append(TorchLayout((), (), 0, "", 0, False, str(error).splitlines()[0]))
            break
        if result.numel() > _LARGEST and result.untyped_storage().nbytes() > _LARGEST:
            raise MeasurementError(f"a tensor of {result.numel():,} elements is too large for a quick run: check at smaller sizes")
        layouts.append(_real(result, x))
        x = result
    return layouts


def _made(x: Tensor, name: str, arguments: tuple[Any, ...]) -> Tensor:
    if name == "[]":
        return x[arguments]
    if name == "to":
        return x.to(getattr(torch, arguments[0]))
    result: Tensor = getattr(x, name)(*arguments)
    return result


def _real(result: Tensor, of: Tensor) -> TorchLayout:
    storage = result.untyped_storage()
    shared = storage.data_ptr() == of.untyped_storage().data_ptr()
    dtype = str(result.dtype).removeprefix("torch.")
    return TorchLayout(tuple(result.shape), tuple(result.stride()), int(result.storage_offset()), dtype, storage.nbytes(), shared)
