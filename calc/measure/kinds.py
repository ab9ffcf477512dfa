"""Classifies operators by name for the measurement: arithmetic, reduction, or no arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from calc.platform.torch_private import OpOverload

Args = Mapping[str, Any]
Count = Callable[[Args, Any], int]


class UncountableError(Exception):
    """An operator without a known kind that cannot be decomposed. The message names it."""


# -- kinds of operators, by name without overload and without the underscore of in-place ---------------------------------


def names(text: str) -> frozenset[str]:
    """The set of whitespace-separated operator names."""
    return frozenset(text.split())


ARITHMETIC_PRIMS = names(
    "abs acos acosh asin asinh atan atanh cos cosh bessel_i0 bessel_i0e bessel_i1 bessel_i1e bessel_j0 bessel_j1 cbrt digamma"
    " erf erf_inv erfc erfcx exp expm1 exp2 lgamma log log1p log2 log10 ndtri neg reciprocal sin sinh spherical_bessel_j0 sqrt"
    " tan tanh add atan2 div fmod gcd hypot igamma igammac mul pow remainder rsqrt sub zeta"
)
REDUCTION_PRIMS = names("amax amin prod sum xor_sum var")
FREE_PRIMS = names(
    # Comparisons and selections.
    "eq ge gt le lt ne isfinite signbit sign maximum minimum fmax fmin where maximum_value minimum_value"
    " bitwise_not bitwise_and bitwise_or bitwise_xor shift_left shift_right_arithmetic shift_right_logical"
    # Casts, rounding, parts of a complex number.
    " convert_element_type device_put item ceil floor round trunc frexp nextafter conj conj_physical real imag"
    # Copies, views, factories, random numbers.
    " as_strided broadcast_in_dim collapse_view expand_dims slice split_dim squeeze transpose view_of view_element_type"
    " as_strided_scatter collapse cat reshape rev clone copy_strided copy_to resize fill empty_strided empty_permuted"
    " scalar_tensor iota normal _uniform_helper uniform"
)

FREE = names(
    # Comparisons, selections, logic, order.
    "eq ge gt le lt ne isnan isinf isfinite isneginf isposinf signbit sign sgn maximum minimum fmax fmin where masked_fill"
    " all any equal logical_and logical_or logical_xor logical_not bitwise_and bitwise_or bitwise_xor bitwise_not"
    " bitwise_left_shift bitwise_right_shift argmax argmin sort topk histc kthvalue median nonzero _unique2 searchsorted"
    " unique_consecutive bincount bucketize isin heaviside tril triu masked_select cummax cummin is_same_size _local_scalar_dense mode"
    " nanmedian softshrink_backward hardshrink_backward threshold nan_to_num _is_all_true _is_any_true _linalg_check_errors"
    # Casts and rounding.
    " _to_copy ceil floor round trunc conj_physical"
    # Copies and moves.
    " clone copy _copy_from constant_pad_nd cat stack flip roll repeat repeat_interleave index index_select gather take"
    " embedding index_copy index_fill scatter slice_backward select_backward diagonal_backward slice_scatter select_scatter"
    " diagonal_scatter as_strided_scatter reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d"
    " replication_pad2d replication_pad3d _unsafe_index pixel_shuffle pixel_unshuffle channel_shuffle im2col resize"
    " upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d"
    " _upsample_nearest_exact3d max_unpool2d max_unpool3d masked_scatter masked_scatter_backward rot90 block_diag diag_embed"
    " _pack_padded_sequence"
    # Views that the schema does not mark as views.
    " _unsafe_view unsafe_split unsafe_chunk _reshape_alias lift lift_fresh set resize_as"
    # Factories and random numbers.
    " empty empty_like empty_strided new_empty new_empty_strided empty_permuted zeros zeros_like new_zeros zero ones ones_like"
    " new_ones full full_like new_full fill scalar_tensor arange linspace eye tril_indices triu_indices"
    " hann_window hamming_window blackman_window"
    " rand rand_like randn randn_like randint randint_like randperm bernoulli uniform normal random exponential log_normal"
    " geometric cauchy multinomial poisson _sample_dirichlet _standard_gamma"
    " _efficientzerotensor"
    # Matrix multiplications: all their arithmetic is matmul FLOPs.
    " mm bmm mv dot vdot _grouped_mm"
)


IGNORED_NAMESPACES = names("prim profiler")


def base_name(func: OpOverload) -> str:
    """``aten::add_`` → ``add``: the operator's name without namespace, and without the underscore of in-place."""
    name = func._schema.name.split("::")[1]
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def bind(func: OpOverload, args: Sequence[Any], kwargs: Args) -> dict[str, Any]:
    """Arguments of a call by their schema names; those left at their default are absent."""
    names = [a.name for a in func._schema.arguments]
    return {**dict(zip(names, args, strict=False)), **kwargs}


def is_view(func: OpOverload) -> bool:
    """Whether an operator returns a view, or changes only the view in place (``t_``)."""
    return bool(func.is_view) or torch.Tag.inplace_view in func.tags


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Every tensor in nested tuples, lists and dictionaries."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)


def results(outputs: Any) -> int:
    """Elements of the first result tensor (the FLOPs of a one-operation pointwise operator); 0 without one."""
    return next((int(t.numel()) for t in tensors_in(outputs)), 0)


def reduced(elements: int, results: int) -> int:
    """FLOPs of a reduction of ``elements`` to ``results`` elements."""
    return max(elements - results, 0)


def as_meta(tensor: Tensor) -> Tensor:
    """A meta tensor with the same shape, strides and dtype."""
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta")
