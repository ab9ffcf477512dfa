"""Results of operators whose own fake kernels want plain numbers for sizes, or allocate another amount than the real ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._prims_common import suggest_memory_format


def _columns(
    x: torch.Tensor, kernel: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]
) -> torch.Tensor:
    """``im2col``: a column for every position of the kernel."""
    sizes = zip(x.shape[-2:], kernel, dilation, padding, stride, strict=True)
    positions = [_floor(size + 2 * p - d * (k - 1) - 1, s) + 1 for size, k, d, p, s in sizes]
    return x.new_empty((*x.shape[:-3], x.shape[-3] * math.prod(kernel), math.prod(positions)))


def _floor(size: Any, stride: int) -> Any:
    return size if stride == 1 else size // stride


def _image(x: torch.Tensor, output_size: Sequence[Any], kernel: Sequence[int], *_: Any) -> torch.Tensor:
    """``col2im``: the columns put back. The real kernel begins with a storage of the columns' size, and never shrinks it."""
    shape = (*x.shape[:-2], x.shape[-2] // math.prod(kernel), *output_size)
    return _in_storage(x, x.numel(), shape) if x.numel() > math.prod(shape) else x.new_empty(shape)


def _in_storage(like: torch.Tensor, elements: Any, shape: Sequence[Any]) -> torch.Tensor:
    """A tensor of ``shape`` at the beginning of a storage of more elements."""
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    return like.new_empty((elements,)).as_strided(shape, strides)


def _bags(*args: Any, **kwargs: Any) -> Any:
    """``_embedding_bag``: which index is of which bag is counted in one place more than there are indices."""
    y, bags, *rest = torch.ops.aten._embedding_bag.default(*args, **kwargs)
    if bags.shape[0] != 0:
        bags = _in_storage(bags, bags.shape[0] + 1, bags.shape)
    return (y, bags, *rest)


def _resized(x: torch.Tensor, output_size: Sequence[Any], *_: Any) -> torch.Tensor:
    return _laid_out(x, (*x.shape[:2], *output_size))


def _resized_back(dy: torch.Tensor, output_size: Sequence[Any], input_size: Sequence[Any], *_: Any) -> torch.Tensor:
    return _laid_out(dy, input_size)


def _laid_out(like: torch.Tensor, shape: Sequence[Any]) -> torch.Tensor:
    """Interpolation keeps the order of channels and places in memory."""
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=suggest_memory_format(like))


def _interpolations(ending: str) -> list[Any]:
    """The operators of every kind of interpolation, those ending in ``ending``."""
    kinds = [f"{kind}{n}d" for kind in ("upsample_nearest", "_upsample_nearest_exact") for n in (1, 2, 3)]
    kinds += ["upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d"]
    return [getattr(torch.ops.aten, kind + ending).default for kind in kinds]


RESULTS: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.im2col.default: _columns,
    torch.ops.aten.col2im.default: _image,
    torch.ops.aten._embedding_bag.default: _bags,
    **dict.fromkeys(_interpolations(""), _resized),
    **dict.fromkeys(_interpolations("_backward"), _resized_back),
}
