"""Operators that torch's own code takes apart by plain numbers, taken apart here by symbolic ones for the time of a recording.

Each stands for a function in C++ and runs the same operators in the same order.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from calc.trace.double import double_backward


def _grid_backward(grad: torch.Tensor, size: Sequence[Any], align_corners: bool) -> torch.Tensor:
    """``affine_grid_generator_backward`` (aten/src/ATen/native/AffineGridGenerator.cpp): the points of a grid meet their gradients.

    Shapes: grad (N, H, W, 2) → (N, 2, 3); with a depth (N, D, H, W, 3) → (N, 3, 4).
    """
    count, *places = (size[0], *size[2:])
    axes = len(places)
    base = grad.new_empty((count, *places, axes + 1))
    for i, steps in enumerate(reversed(places)):
        line = _from_minus_one(grad, steps, align_corners)
        for _ in range(i):
            line = line.unsqueeze_(-1)
        base.select(-1, i).copy_(line)
    base.select(-1, axes).fill_(1)
    points = 1
    for place in places:
        points = points * place
    theta = base.view(count, points, axes + 1).transpose(1, 2).bmm(grad.reshape(count, points, axes))
    return theta.transpose(1, 2)


def _from_minus_one(like: torch.Tensor, steps: Any, align_corners: bool) -> torch.Tensor:
    if steps <= 1:
        return torch.zeros((), dtype=like.dtype)
    line = torch.linspace(-1, 1, steps, dtype=like.dtype)
    return line if align_corners else line * (steps - 1) / steps


_KERNELS: dict[str, Callable[..., Any]] = {
    "_convolution_double_backward": double_backward,
    "affine_grid_generator_backward": _grid_backward,
}


@contextlib.contextmanager
def of_symbols() -> Iterator[None]:
    """Context in which these operators run on symbolic sizes."""
    library = torch.library.Library("aten", "IMPL")
    for name, kernel in _KERNELS.items():
        library.impl(name, kernel, "AutogradCPU")
    try:
        yield
    finally:
        library._destroy()
