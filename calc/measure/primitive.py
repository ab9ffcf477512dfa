"""One operator at one size, as a calibration times it, and random tensors for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Action = Callable[[], object]
Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Primitive:
    """An operator at one size. ``make`` allocates its tensors and returns the function to time, which runs it ``repeats`` times."""

    name: str
    dtype: str
    sizes: dict[str, int]
    flops: int
    bytes: int
    make: Callable[[], Action]
    repeats: int = 1


def random_of(shape: tuple[int, ...], device: str, dtype: torch.dtype = torch.float32) -> Tensor:
    """A tensor of normal values."""
    return torch.randn(shape, device=device).to(dtype)


def name_of(dtype: torch.dtype) -> str:
    """The name of a dtype without ``torch.``."""
    return str(dtype).removeprefix("torch.")
