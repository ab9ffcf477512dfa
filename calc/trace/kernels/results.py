"""Results of operators whose own fake kernels need plain numbers for sizes or allocate another amount than the real ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from calc.errors import TraceError
from calc.platform.torch_private import corresponding_complex_dtype, suggest_memory_format
from calc.trace.kernels import fourier
from calc.trace.kernels.matmul import scaled_mm, scaled_mm_v2
from calc.trace.values import sequence_lengths


def _columns(
    x: torch.Tensor, kernel: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]
) -> torch.Tensor:
    """``im2col``: (…, C, H, W) → (…, C·kernel elements, positions)."""
    sizes = zip(x.shape[-2:], kernel, dilation, padding, stride, strict=True)
    positions = [_floor(size + 2 * p - d * (k - 1) - 1, s) + 1 for size, k, d, p, s in sizes]
    return x.new_empty((*x.shape[:-3], x.shape[-3] * math.prod(kernel), math.prod(positions)))


def _floor(size: Any, stride: int) -> Any:
    return size if stride == 1 else size // stride


def _image(x: torch.Tensor, output_size: Sequence[Any], kernel: Sequence[int], *_: Any) -> torch.Tensor:
    """``col2im``: sums the columns back into images, the adjoint of ``im2col``. The real kernel begins with a storage of the columns' size,
    and never shrinks it."""
    shape = (*x.shape[:-2], x.shape[-2] // math.prod(kernel), *output_size)
    return _in_storage(x, x.numel(), shape) if x.numel() > math.prod(shape) else x.new_empty(shape)


def _in_storage(like: torch.Tensor, elements: Any, shape: Sequence[Any]) -> torch.Tensor:
    """A tensor of ``shape`` at the beginning of a storage with ``elements`` elements."""
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    return like.new_empty((elements,)).as_strided(shape, strides)


def _bags(*args: Any, **kwargs: Any) -> Any:
    """``_embedding_bag``, with or without a gradient. The storage of ``offset2bag`` has one element more than there are indices, and that
    of ``bag_size`` as many as ``offsets``, including the last offset."""
    y, bags, sizes, largest = torch.ops.aten._embedding_bag.default(*args, **kwargs)
    if bags.shape[0] != 0:
        bags = _in_storage(bags, bags.shape[0] + 1, bags.shape)
    return y, bags, _in_storage(sizes, args[2].shape[0], sizes.shape), largest


def _bags_alone(*args: Any, **kwargs: Any) -> Any:
    """``_embedding_bag_forward_only``, which allocates outputs that only a backward needs with as many elements as ``offsets``."""
    y, bags, sizes, largest = _bags(*args, **kwargs)
    given = {**dict(zip(_BAG_ARGUMENTS, args, strict=False)), **kwargs}
    if given.get("mode", 0) == 0 and given.get("include_last_offset", False):
        sizes, largest = (sizes.new_empty(given["offsets"].shape) for _ in range(2))
    return y, bags, sizes, largest


def _least_squares(a: torch.Tensor, b: torch.Tensor, rcond: Any = None, *, driver: str | None = None) -> Any:
    """``linalg_lstsq`` with the default driver on CPUs: no residuals and no singular values (torch has no fake kernel)."""
    if driver not in (None, "gelsy"):
        raise TraceError(f"torch.linalg.lstsq(driver={driver!r}) has no fake kernel in torch: use driver='gelsy'")
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])  # type: ignore[no-untyped-call]  # untyped in torch
    rows = torch.sym_max(a.shape[-2], a.shape[-1])  # type: ignore[no-untyped-call]  # the solution overwrites the right-hand side
    solution = _columns_first(b.new_empty((*batch, rows, b.shape[-1])))[..., : a.shape[-1], :]
    return solution, b.new_empty((0,)), a.new_empty(batch, dtype=torch.int64), b.new_empty((0,))


_BAG_ARGUMENTS = [a.name for a in torch.ops.aten._embedding_bag_forward_only.default._schema.arguments]


def _resized(x: torch.Tensor, output_size: Sequence[Any], *_: Any) -> torch.Tensor:
    return _laid_out(x, (*x.shape[:2], *output_size))


def _resized_back(dy: torch.Tensor, output_size: Sequence[Any], input_size: Sequence[Any], *_: Any) -> torch.Tensor:
    return _laid_out(dy, input_size)


def _laid_out(like: torch.Tensor, shape: Sequence[Any]) -> torch.Tensor:
    """An empty tensor of ``shape`` in the memory format of ``like``: interpolation preserves it."""
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=suggest_memory_format(like))


def _as_wide_as_both(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.new_empty(torch.broadcast_shapes(x.shape, y.shape))  # type: ignore[no-untyped-call]  # untyped in torch


def _complex(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a.new_empty(_as_wide_as_both(a, b).shape, dtype=corresponding_complex_dtype(a.dtype))


def _grid(theta: torch.Tensor, size: Sequence[Any], _: bool) -> torch.Tensor:
    """``affine_grid_generator``: (N, H, W, 2), or (N, D, H, W, 3), one point per pixel of an image of that size."""
    return theta.new_empty((size[0], *size[2:], len(size) - 2))


def _window(length: Any, periodic: bool = True, *_: Any, dtype: torch.dtype | None = None, **__: Any) -> torch.Tensor:
    """A window. A periodic window is a symmetric one with one element more, without its last element."""
    return torch.empty((length + 1 if periodic else length,), dtype=dtype)[:length]


def _padded(x: torch.Tensor, pad: Sequence[Any], *_: Any) -> torch.Tensor:
    """``constant_pad_nd``. With negative padding only, the remaining part is copied with its strides."""
    shape = list(x.shape)
    for i in range(len(pad) // 2):
        shape[-1 - i] = shape[-1 - i] + pad[2 * i] + pad[2 * i + 1]
    if all(p <= 0 for p in pad):
        return x.as_strided(shape, x.stride()).clone()
    return _laid_out(x, shape)


def _blocks(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """``block_diag`` of matrices."""
    return tensors[0].new_empty((sum(t.shape[0] for t in tensors), sum(t.shape[1] for t in tensors)))


def _columns_first(b: torch.Tensor) -> torch.Tensor:
    """A tensor like ``b`` in column-major order, as LAPACK returns it."""
    return b.mT.new_empty(b.mT.shape).mT


def _summed(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    a1: Sequence[int],
    b1: Sequence[int],
    c1: Sequence[int],
    sums: Sequence[int],
    _: int = 1,
) -> torch.Tensor:
    """``_trilinear``: each tensor is expanded by its missing axes; the product is summed over ``sums``."""
    shapes = []
    for tensor, axes in ((a, a1), (b, b1), (c, c1)):
        for axis in axes:
            tensor = tensor.unsqueeze(axis)
        shapes.append(tensor.shape)
    remaining = [sizes for i, sizes in enumerate(zip(*shapes, strict=True)) if i not in sums]
    return a.new_empty([next((s for s in sizes if not (isinstance(s, int) and s == 1)), 1) for sizes in remaining])


def _conjugate(x: Any) -> torch.Tensor:
    """The conjugate as a view, which the next operator copies. A Python number is first converted to a tensor."""
    tensor = x if isinstance(x, torch.Tensor) else torch.empty((), dtype=torch.complex128)
    conjugate: torch.Tensor = torch.ops.aten._conj.default(tensor)
    return conjugate


_MARGINS = (torch.ops.aten.multi_margin_loss_backward.default, torch.ops.aten.multilabel_margin_loss_backward.default)


def _interpolations(ending: str) -> list[Any]:
    """All interpolation operators whose name ends in ``ending``."""
    kinds = [f"{kind}{n}d" for kind in ("upsample_nearest", "_upsample_nearest_exact") for n in (1, 2, 3)]
    kinds += ["upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d"]
    return [getattr(torch.ops.aten, kind + ending).default for kind in kinds]


def _whole_storage(x: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    """Scatters a part into a copy of ``x``: the real kernels copy the whole storage that ``x`` is a view of, unless ``x`` repeats
    elements."""
    if any(isinstance(stride, int) and stride == 0 for stride in x.stride()):
        return x.new_empty(x.shape)
    elements = x.untyped_storage().nbytes() // x.element_size()
    return x.new_empty((elements,)).as_strided(x.shape, x.stride(), x.storage_offset())


def _alike(tensors: Sequence[torch.Tensor], *_: Any, **__: Any) -> list[torch.Tensor]:
    return [torch.empty_like(t) for t in tensors]


def _nothing(*_: Any, **__: Any) -> None:
    """An in-place operator without a result."""


def _on_lists(ending: str) -> list[Any]:
    """The foreach operators of optimizers on lists of floating-point tensors."""
    names = "add sub mul div pow addcdiv addcmul lerp maximum minimum clamp_min clamp_max abs neg exp sqrt rsqrt reciprocal sign"
    names += " acos asin atan ceil cos cosh erf erfc expm1 floor frac lgamma log log10 log1p log2 round sigmoid sin sinh tan tanh trunc"
    packets = [getattr(torch.ops.aten, f"_foreach_{name}{ending}") for name in names.split()]
    return [getattr(packet, name) for packet in packets for name in packet.overloads() if "out" not in name]


def _one_truth(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty((), dtype=torch.bool)


def _pooled(x: torch.Tensor, kernel: Sequence[int], output_size: Sequence[Any], _: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """``fractional_max_pool3d``: the largest element of each window, and its position."""
    y = x.new_empty((*x.shape[: -len(kernel)], *output_size))
    return y, y.new_empty(y.shape, dtype=torch.int64)


def _normalized(v: torch.Tensor, g: torch.Tensor, dim: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """``_weight_norm_interface``. Every element of a vector is a slice of its own; torch's fake kernel reduces the whole vector."""
    weight, norm = torch.ops.aten._weight_norm_interface.default(v, g, dim)
    return weight, norm.new_empty(v.shape) if v.dim() == 1 else norm


RESULTS: dict[Any, Callable[..., Any]] = {
    torch.ops.aten._weight_norm_interface.default: _normalized,
    torch.ops.aten._is_all_true.default: _one_truth,
    torch.ops.aten._is_any_true.default: _one_truth,
    **fourier.RESULTS,
    torch.ops.aten._scaled_mm.default: scaled_mm,
    torch.ops.aten._scaled_mm_v2.default: scaled_mm_v2,
    torch.ops.aten._conj.default: _conjugate,
    torch.ops.aten.linalg_lstsq.default: _least_squares,
    torch.ops.aten.im2col.default: _columns,
    torch.ops.aten.col2im.default: _image,
    torch.ops.aten._embedding_bag.default: _bags,
    torch.ops.aten._embedding_bag_forward_only.default: _bags_alone,
    torch.ops.aten.block_diag.default: _blocks,
    torch.ops.aten.constant_pad_nd.default: _padded,
    torch.ops.aten.complex.default: _complex,
    torch.ops.aten.polar.default: _complex,
    torch.ops.aten.affine_grid_generator.default: _grid,
    **{
        getattr(getattr(torch.ops.aten, f"{name}_window"), overload): _window
        for name in ("hann", "hamming", "blackman")
        for overload in ("default", "periodic")
    },
    torch.ops.aten.masked_scatter.default: lambda x, mask, _: _as_wide_as_both(x, mask),
    torch.ops.aten._ctc_loss.default: sequence_lengths.ctc_loss_of_numbers,
    **dict.fromkeys(
        (torch.ops.aten._ctc_loss_backward.default, torch.ops.aten._ctc_loss_backward.Tensor),
        lambda _, log_probs, *__: log_probs.new_empty(log_probs.shape),
    ),
    **dict.fromkeys(
        (torch.ops.aten._sample_dirichlet.default, torch.ops.aten._dirichlet_grad.default, torch.ops.aten._standard_gamma_grad.default),
        lambda x, *_: x.new_empty(x.shape),
    ),
    torch.ops.aten.fractional_max_pool3d.default: _pooled,
    **dict.fromkeys(
        (torch.ops.aten.fractional_max_pool2d_backward.default, torch.ops.aten.fractional_max_pool3d_backward.default),
        lambda _, x, *__: x.new_empty(x.shape),
    ),
    torch.ops.aten.diagonal_copy.default: lambda x, *places, **named: x.new_empty(x.diagonal(*places, **named).shape),
    torch.ops.aten.trace.default: lambda x: x.new_empty(()),
    torch.ops.aten.addbmm.default: lambda x, a, b, **_: a.new_empty((a.shape[1], b.shape[2])),
    torch.ops.aten.cholesky_solve.default: lambda b, *_: _columns_first(b),
    torch.ops.aten._trilinear.default: _summed,
    **dict.fromkeys(
        (torch.ops.aten.softshrink_backward.default, torch.ops.aten.hardshrink_backward.default, *_MARGINS),
        lambda dy, x, *_: torch.empty_like(x),
    ),
    **dict.fromkeys(
        (torch.ops.aten.slice_scatter.default, torch.ops.aten.select_scatter.default, torch.ops.aten.diagonal_scatter.default),
        _whole_storage,
    ),
    **dict.fromkeys(_on_lists(""), _alike),
    **dict.fromkeys(_on_lists("_"), _nothing),
    torch.ops.aten._foreach_norm.Scalar: lambda tensors, *_, **__: [t.new_empty(()) for t in tensors],
    torch.ops.aten._fused_sgd_.default: _nothing,
    torch.ops.aten._fused_adagrad_.default: _nothing,
    **dict.fromkeys(_interpolations(""), _resized),
    **dict.fromkeys(_interpolations("_backward"), _resized_back),
}
