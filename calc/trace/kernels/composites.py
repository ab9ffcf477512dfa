"""Composite operators that torch's C++ decomposes with plain numbers, decomposed here with symbolic sizes while a step is traced.

Each replaces one C++ function and runs the same operators in the same order.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from calc.platform.operator_names import OperatorNames
from calc.platform.torch_private import no_modes
from calc.trace.kernels.double_backward import double_backward

aten = torch.ops.aten


def _grid_backward(grad: torch.Tensor, size: Sequence[Any], align_corners: bool) -> torch.Tensor:
    """``affine_grid_generator_backward`` (aten/src/ATen/native/AffineGridGenerator.cpp): multiplies the base grid by the gradient of the
    grid.

    Shapes: grad (N, H, W, 2) → (N, 2, 3); with a depth (N, D, H, W, 3) → (N, 3, 4).
    """
    count, *places = (size[0], *size[2:])
    axes = len(places)
    base = grad.new_empty((count, *places, axes + 1))
    for i, steps in enumerate(reversed(places)):
        base.select(-1, i).copy_(_along(_from_minus_one(grad, steps, align_corners), i))  # freed here, as in C++
    base.select(-1, axes).fill_(1)
    points = 1
    for place in places:
        points = points * place
    theta = base.view(count, points, axes + 1).transpose(1, 2).bmm(grad.reshape(count, points, axes))
    return theta.transpose(1, 2)


def _along(line: torch.Tensor, axes_after: int) -> torch.Tensor:
    for _ in range(axes_after):
        line = line.unsqueeze_(-1)
    return line


def _from_minus_one(like: torch.Tensor, steps: Any, align_corners: bool) -> torch.Tensor:
    if steps <= 1:
        return torch.zeros((), dtype=like.dtype)
    line = torch.linspace(-1, 1, steps, dtype=like.dtype)
    return line if align_corners else line * (steps - 1) / steps


def _fill_diagonal(x: torch.Tensor, value: Any, wrap: bool = False) -> torch.Tensor:
    """``fill_diagonal_`` (aten/src/ATen/native/Fill.cpp): fills one line of elements, and with ``wrap`` that of the rows below a square."""
    height, width, *_ = x.shape
    line, step = torch.sym_min(height, width), (sum(x.stride()),)  # type: ignore[no-untyped-call]  # untyped in torch
    x.as_strided((line,), step, x.storage_offset()).fill_(value)
    if wrap and x.dim() == 2 and height > width + 1:
        below = (x.numel() + width) // (width + 1) - line
        x.as_strided((below,), step, x.storage_offset() + x.stride(0) * (width + 1)).fill_(value)
    return x


def _kron(left_operand: torch.Tensor, right_operand: torch.Tensor) -> torch.Tensor:
    """``kron`` (aten/src/ATen/native/LinearAlgebra.cpp): the axes of both operands are interleaved, then multiplied."""
    axes = max(left_operand.dim(), right_operand.dim())
    first, second = ([*[1] * (axes - x.dim()), *x.shape] for x in (left_operand, right_operand))
    left = aten._unsafe_view(left_operand, [size for a in first for size in (a, 1)])
    right = aten._unsafe_view(right_operand, [size for b in second for size in (1, b)])
    result: torch.Tensor = aten._unsafe_view(left * right, [a * b for a, b in zip(first, second, strict=True)])
    return result


def _norm_except_dim(v: torch.Tensor, pow: int = 2, dim: int = 0) -> torch.Tensor:
    """``norm_except_dim`` (aten/src/ATen/native/WeightNorm.cpp): the norms of the slices along ``dim``, as ``weight_norm`` starts from."""
    if dim == -1:
        norm: torch.Tensor = aten.norm(v, pow)
        return norm
    last = v.dim() - 1
    if dim not in (0, last):
        return _norm_except_dim(v.transpose(0, dim), pow).transpose(0, dim)
    sizes: list[Any] = [1] * v.dim()
    sizes[dim] = v.shape[dim]
    rows = (v.shape[0], -1) if dim == 0 else (-1, v.shape[last])
    norms: torch.Tensor = aten.norm(v.contiguous().view(rows), pow, [0 if dim else 1])
    return norms.view(sizes)


def _take_along(x: torch.Tensor, indices: torch.Tensor, dim: int | None = None) -> torch.Tensor:
    """``take_along_dim`` (aten/src/ATen/native/TensorAdvancedIndexing.cpp): broadcasts all axes but ``dim``, then gathers."""
    if dim is None:
        return x.view(-1).gather(0, indices.view(-1))
    dim %= x.dim()
    source, places = list(x.shape), list(indices.shape)
    whole = torch.broadcast_shapes([*source[:dim], 1, *source[dim + 1 :]], [*places[:dim], 1, *places[dim + 1 :]])  # type: ignore[no-untyped-call]  # untyped in torch
    rows, columns = ([*whole[:dim], size, *whole[dim + 1 :]] for size in (places[dim], source[dim]))
    source_, places_ = x.broadcast_to(columns), indices.broadcast_to(rows)
    return source_.gather(dim, places_.remainder(x.shape[dim]) if _wraps() else places_)


@functools.cache
def _wraps() -> bool:
    """Whether ``take_along_dim`` of this torch version accepts negative indices; some releases do not."""
    with no_modes(), OperatorNames() as seen:
        torch.take_along_dim(torch.zeros(2), torch.zeros(1, dtype=torch.int64), 0)
    return "aten.remainder.Scalar" in seen.names


def _stft(
    x: torch.Tensor,
    n_fft: Any,
    hop_length: Any = None,
    win_length: Any = None,
    window: torch.Tensor | None = None,
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> torch.Tensor:
    """``stft`` (aten/src/ATen/native/SpectralOps.cpp): overlapping frames, multiplied by the window, Fourier transformed.

    Shapes: x (B, N) or (N) → (B, frequencies, frames), with a last axis of (real, imaginary) pairs unless complex results are requested.
    """
    hop, width = n_fft // 4 if hop_length is None else hop_length, n_fft if win_length is None else win_length
    rows = x.unsqueeze(0) if x.dim() == 1 else x
    if width < n_fft:
        whole = torch.zeros((n_fft,), dtype=x.dtype if window is None else window.dtype)
        part = whole.narrow(0, (n_fft - width) // 2, width)
        part.fill_(1) if window is None else part.copy_(window)
        window = whole
    frames = 1 + (rows.shape[1] - (width if align_to_window else n_fft)) // hop
    rows = rows.as_strided((rows.shape[0], frames, n_fft), (rows.stride(0), hop * rows.stride(1), rows.stride(1)))
    rows = rows if window is None else rows.mul(window)
    norm = _BY_ROOT if normalized else _NO_NORM
    if rows.is_complex():
        out = aten._fft_c2c(rows, [rows.dim() - 1], norm, True)
    else:
        out = aten._fft_r2c(rows, [rows.dim() - 1], norm, True if onesided is None else onesided)
    out.transpose_(1, 2)
    if x.dim() == 1:
        out.squeeze_(0)
    result: torch.Tensor = out if return_complex else torch.view_as_real(out)
    return result


_NO_NORM, _BY_ROOT = 0, 1

_KERNELS: dict[str, Callable[..., Any]] = {
    "_convolution_double_backward": double_backward,
    "affine_grid_generator_backward": _grid_backward,
    "fill_diagonal_": _fill_diagonal,
    "kron": _kron,
    "norm_except_dim": _norm_except_dim,
    "stft": _stft,
    "take_along_dim": _take_along,
}


@contextlib.contextmanager
def of_symbols() -> Iterator[None]:
    """Context in which these operators run on symbolic sizes."""
    _wraps()  # calls torch's own function, before the override is installed
    library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]  # untyped in torch
    for name, kernel in _KERNELS.items():
        library.impl(name, kernel, "AutogradCPU")  # type: ignore[no-untyped-call]  # as above
    try:
        yield
    finally:
        library._destroy()  # type: ignore[no-untyped-call]  # as above
