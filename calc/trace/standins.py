"""Torch functions that take plain numbers where a model may give a size: recorded as themselves, with the size symbolic."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import torch
from torch import nn

from calc.trace.disguise import replaced
from calc.trace.recurrent import cell_by_cell

aten = torch.ops.aten
_SMALL = 1024
_INTERPOLATIONS: dict[tuple[str, int], Any] = {
    ("nearest", 1): aten.upsample_nearest1d.default,
    ("nearest", 2): aten.upsample_nearest2d.default,
    ("nearest", 3): aten.upsample_nearest3d.default,
    ("nearest-exact", 1): aten._upsample_nearest_exact1d.default,
    ("nearest-exact", 2): aten._upsample_nearest_exact2d.default,
    ("nearest-exact", 3): aten._upsample_nearest_exact3d.default,
    ("linear", 1): aten.upsample_linear1d.default,
    ("bilinear", 2): aten.upsample_bilinear2d.default,
    ("bicubic", 2): aten.upsample_bicubic2d.default,
    ("trilinear", 3): aten.upsample_trilinear3d.default,
}


@contextlib.contextmanager
def standing_in(called: Callable[[str, dict[str, Any]], Any], within: Callable[[str], Any]) -> Iterator[None]:
    """Context in which ``torch.histc`` counts into a symbolic number of bins, and ``interpolate`` scales a symbolic size.
    ``called(name, arguments)`` is a context in which the next operator is recorded under another name, ``within(part)`` one that
    stands for a part of the running module."""
    original = torch.histc

    def histc(input: torch.Tensor, bins: Any = 100, min: float = 0, max: float = 0, *, out: Any = None) -> torch.Tensor:
        if not isinstance(bins, torch.SymInt):
            return original(input, bins, min, max, out=out)
        with called("aten.histc.default", {"self": input, "bins": bins, "min": min, "max": max}):
            return torch.empty((bins,), dtype=input.dtype, device=input.device)

    interpolate = functools.partial(_interpolate, nn.functional.interpolate)
    with (
        replaced(torch, histc=histc, max_pool1d=functools.partial(_max_pool1d, torch.max_pool1d)),
        replaced(torch.Tensor, histc=histc),
        replaced(nn.functional, interpolate=interpolate),
        cell_by_cell(within),
    ):
        yield


def _max_pool1d(original: Callable[..., torch.Tensor], input: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """With a gradient torch keeps the positions, by the very operators of ``max_pool1d_with_indices``."""
    if not any(isinstance(size, torch.SymInt) for size in input.shape):
        return original(input, *args, **kwargs)
    result: torch.Tensor = torch.max_pool1d_with_indices(input, *args, **kwargs)[0]
    return result


def _interpolate(
    original: Callable[..., torch.Tensor],
    input: torch.Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> torch.Tensor:
    """The operator that torch would run: its own way there takes plain numbers. A scale of 2 or 0.5 is exact, one of 0.1 is not."""
    scaled = (
        _scaled(input.shape[2:], scale_factor) if size is None else size if isinstance(size, list | tuple) else (size,) * (input.dim() - 2)
    )
    operator = _INTERPOLATIONS.get((mode, input.dim() - 2))
    if scaled is None or operator is None or antialias or not any(isinstance(s, torch.SymInt) for s in (*input.shape, *scaled)):
        return original(input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)
    result: torch.Tensor = operator(input, scaled) if "nearest" in mode else operator(input, scaled, bool(align_corners))
    return result


def _scaled(sizes: Sequence[Any], scale_factor: Any) -> list[Any] | None:
    """The sizes times their factors, rounded down; nothing where a factor is no small fraction."""
    factors = scale_factor if isinstance(scale_factor, list | tuple) else (scale_factor,) * len(sizes)
    exact = [Fraction(f) for f in factors]
    if any(f.denominator > _SMALL for f in exact):
        return None
    pairs = zip(sizes, exact, strict=True)
    return [s * f.numerator // f.denominator if f.denominator > 1 else s * f.numerator for s, f in pairs]
