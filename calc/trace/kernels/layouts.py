"""The strides of results of real CPU kernels, where torch's fake kernels return different ones.

They differ only for inputs that are transposed or channels-last; whether the next operator copies its input may depend on them. The test
suite compares the strides of every operator that has a rule: contiguous, transposed and channels-last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from calc.platform.torch_private import VERSION, suggest_memory_format

aten = torch.ops.aten

# The result is contiguous, whatever the input.
_PLAIN = frozenset(
    {
        aten.native_layer_norm_backward.default,
        aten._log_softmax_backward_data.default,
        aten._weight_norm_interface.default,
        aten.mse_loss_backward.default,
        aten.smooth_l1_loss_backward.default,
        aten.huber_loss_backward.default,
        aten.nll_loss2d_forward.default,
        aten.log_sigmoid_forward.default,
        aten.pow.Scalar,
        aten._transformer_encoder_layer_fwd.default,
        aten.multi_margin_loss_backward.default,
        aten.multilabel_margin_loss_backward.default,
        aten.upsample_nearest3d_backward.default,
        aten._upsample_nearest_exact3d_backward.default,
        aten.upsample_bicubic2d_backward.default,
        aten.rrelu_with_noise.default,
        aten.angle.default,
        aten.isin.Tensor_Tensor,
        aten.isin.Tensor_Scalar,
        aten.poisson.default,
        aten._standard_gamma.default,
        aten.normal.Tensor_Tensor,
        aten.normal.float_Tensor,
        aten.baddbmm.default,
    }
)
# The result has the layout that ``TensorIterator`` gives for all tensor arguments together.
_ITERATED = frozenset(
    {
        aten.logit_backward.default,
        aten.softshrink_backward.default,
        aten.hardshrink_backward.default,
        aten.hardswish_backward.default,
        aten.hardsigmoid_backward.default,
        aten.softplus_backward.default,
        aten.hardtanh_backward.default,
        aten.elu_backward.default,
        aten.copysign.Tensor,
        aten.complex.default,
        aten.polar.default,
        aten.floor_divide.default,
        aten.div.Tensor_mode,
        aten.native_dropout_backward.default,
    }
)
# The result has the layout of that argument.
_LIKE = {
    aten.binary_cross_entropy.default: 0,
    aten.binary_cross_entropy_backward.default: 1,
    aten.rrelu_with_noise_backward.default: 2,
    aten.hardtanh.default: 0,
}
# Of the tested versions, only 2.11 preserves the strides of a dense input, including those of axes of length 1.
_PRESERVE_DENSE_STRIDES = frozenset({aten.leaky_relu.default} if VERSION < (2, 12) else ())
# The result is channels-last where that argument is, and contiguous otherwise.
_LIKE_IMAGES = {
    aten.native_batch_norm.default: 0,
    aten.native_batch_norm_backward.default: 1,
    aten.max_unpool2d.default: 0,
    aten.channel_shuffle.default: 0,
    aten.pixel_shuffle.default: 0,
    aten.reflection_pad2d.default: 0,
    aten.replication_pad2d.default: 0,
    aten.reflection_pad2d_backward.default: 1,
    aten.replication_pad2d_backward.default: 1,
    aten.reflection_pad3d.default: 0,
    aten.reflection_pad3d_backward.default: 1,
    aten.replication_pad3d.default: 0,
    aten.replication_pad3d_backward.default: 1,
}

# Results after the first are statistics; torch's own decomposition returns them in the input's dtype.
_WITH_STATISTICS = (aten.native_batch_norm.default, aten.native_layer_norm.default, aten.native_group_norm.default)


def laid_out(func: Any, args: tuple[Any, ...], out: Any) -> Any:
    """The result of ``func`` in the layout of the real kernel's result."""
    if func in _CORRECTED:
        out = _CORRECTED[func](args, out)
    if func in _WITH_STATISTICS:
        out = (out[0], *_in_the_format_of_parameters(args, out[1:]))
    if func is aten.native_group_norm_backward.default and out[0] is not None:
        out = (out[0].to(args[1].dtype), *out[1:])  # torch's decomposition returns it in the weight's dtype
    if func in _PLAIN:
        # Where there are several results, the bias and weight gradients are contiguous as well; an empty tensor has no layout.
        return _each(out, lambda t: t.new_empty(t.shape))
    if func in _LIKE and out.dim():
        return _alike(args[_LIKE[func]])
    if func in _EMPTY_LIKE and args[0].dim() > 2 and any(map(_is_one, out.shape)):
        return _alike(args[0], out.dtype) if args[0].layout is out.layout else out
    if func in _PRESERVE_DENSE_STRIDES and out.dim():
        return _kept_where_dense(args[0])
    if func in _ITERATED or _of_an_iterator(func, out) or _widened(func, args, out):
        return _iterated(func, args, out)
    place = _LIKE_IMAGES.get(func)
    if place is None:
        return out
    form = suggest_memory_format(args[place])
    first, *rest = out if isinstance(out, tuple) else (out,)
    if isinstance(first, torch.Tensor):
        first = torch.empty(first.shape, dtype=first.dtype, device=first.device, memory_format=form)
    return (first, *rest) if isinstance(out, tuple) else first


def _batch_norm_gradients(args: tuple[Any, ...], out: tuple[Any, ...]) -> tuple[Any, ...]:
    """The gradients without that of the input if it is not requested; torch's decomposition always returns it."""
    return out if args[-1][0] else (None, *out[1:])


def _convolution_gradients(args: tuple[Any, ...], out: tuple[Any, ...]) -> tuple[Any, ...]:
    """The gradients with that of the weight wherever that of the bias is requested, as the real kernel computes both together."""
    _, of_weight, of_bias = args[-1]
    return (out[0], torch.empty_like(args[2]), out[2]) if of_bias and not of_weight else out


def _dropped(args: tuple[Any, ...], _: Any) -> tuple[Any, ...]:
    """The result of dropout and its mask. For an expanded input, torch's fake kernel keeps the strides of the input."""
    left, mask = _alike(args[0]), _alike(args[0], torch.bool)
    multiplied = aten.mul.Tensor
    return (_iterated(multiplied, (args[0], mask), left) if _of_an_iterator(multiplied, left) else left), mask


def _viewed(args: tuple[Any, ...], out: torch.Tensor) -> torch.Tensor:
    """The view with the strides of ATen's ``computeStride``: that of an axis of length 1 follows from the axis to its right, while the fake
    kernel keeps the previous one."""
    if args[0].dim() == 0 or not any(map(_is_one, out.shape)):
        return out
    strides = [*out.stride()]
    for i in reversed(range(out.dim())):
        if _is_one(out.shape[i]):
            strides[i] = strides[i + 1] * out.shape[i + 1] if i + 1 < out.dim() else args[0].stride(-1)
    return out.as_strided(out.shape, strides)


# Results that real kernels return although they are not requested, or that differ from those of the fake kernels.
_CORRECTED: dict[Any, Callable[[tuple[Any, ...], Any], Any]] = {
    aten.native_batch_norm_backward.default: _batch_norm_gradients,
    aten.convolution_backward.default: _convolution_gradients,
    aten.native_dropout.default: _dropped,
    aten.view.default: _viewed,
    aten._unsafe_view.default: _viewed,
}


# -- axes of length 1 ------------------------------------------------------------------------------------------------------
#
# Their strides move nothing, but an image counts as channels-last by the strides of all its axes, and the next operator copies
# its input or not accordingly.


def _is_one(size: Any) -> bool:
    return type(size) is int and size == 1


def _of_an_iterator(func: Any, out: Any) -> bool:
    """Whether ``TensorIterator`` lays out this result, and an axis of length 1 may have another stride than in the fake kernel."""
    by_element = torch.Tag.pointwise in func.tags or func in _SWAPPED
    if not by_element or func in _COPIED or func in _EMPTY_LIKE or func._schema.is_mutable or not isinstance(out, torch.Tensor):
        return False
    return out.dim() > 2 and any(map(_is_one, out.shape))


# Elementwise, but their result is a copy of the first argument, written in place.
_COPIED = frozenset({aten.clone.default, aten._to_copy.default, aten.masked_fill.Scalar, aten.masked_fill.Tensor, aten.copy.default})
_EMPTY_LIKE = frozenset(getattr(aten, f"{name}_like").default for name in ("empty", "zeros", "ones", "full", "rand", "randn"))
# These pass their second operand first.
_SWAPPED = frozenset({aten.rsub.Tensor, aten.rsub.Scalar, aten.threshold_backward.default})
# Other operators with a scalar argument convert it to a tensor, which does not have the result's shape.
_WITH_A_NUMBER = frozenset({aten.lerp.Scalar, aten.pow.Tensor_Scalar})


def _alike(x: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """``empty_like`` of ATen, which preserves every stride of a dense tensor; the fake kernel normalizes the strides of a contiguous
    one."""
    if any(map(_is_one, x.shape)) and aten.is_non_overlapping_and_dense.default(x):
        return torch.empty_strided(x.shape, x.stride(), dtype=dtype or x.dtype, device=x.device)
    return torch.empty_like(x, dtype=dtype)


def _kept_where_dense(x: torch.Tensor) -> torch.Tensor:
    """``TensorIteratorBase::fast_set_up`` of ATen for one operand: contiguous or channels-last where it counts as such, else the operand's
    strides."""
    last = {4: (torch.channels_last,), 5: (torch.channels_last_3d,)}
    formats = (torch.contiguous_format, *last.get(x.dim(), ()))
    form = next((form for form in formats if x.is_contiguous(memory_format=form)), None)
    return _alike(x) if form is None else torch.empty(x.shape, dtype=x.dtype, memory_format=form)


def _iterated(func: Any, args: tuple[Any, ...], out: torch.Tensor) -> torch.Tensor:
    """``TensorIteratorBase`` of ATen: contiguous, channels-last, or the operands' strides where all operands agree, else strides in the
    order of the operands' strides."""
    operands = [a for a in args if isinstance(a, torch.Tensor)]
    operands = operands[::-1] if func in _SWAPPED else operands
    numbers = any(str(s.type) == "Tensor" and not isinstance(a, torch.Tensor) for s, a in zip(func._schema.arguments, args, strict=False))
    numbers = numbers or ("Scalar" in func._overloadname and func not in _WITH_A_NUMBER)
    shape = tuple(out.shape)
    alike = not numbers and all(a.dim() == len(shape) and list(map(_is_one, a.shape)) == list(map(_is_one, shape)) for a in operands)
    if alike and all(a.is_contiguous() for a in operands):
        return out.new_empty(shape)
    if alike and len(shape) == 4 and all(a.is_contiguous(memory_format=torch.channels_last) for a in operands):
        return torch.empty(shape, dtype=out.dtype, device=out.device, memory_format=torch.channels_last)
    if alike and all(aten.is_non_overlapping_and_dense.default(a) and a.stride() == operands[0].stride() for a in operands):
        return torch.empty_strided(shape, operands[0].stride(), dtype=out.dtype, device=out.device)
    order = _inner_first([_steps(a, shape) for a in operands], shape)
    if order == [*reversed(range(len(shape)))]:
        return out.new_empty(shape)
    strides: list[Any] = [0] * len(shape)
    step: Any = 1
    for axis in order:
        strides[axis], step = step, step * shape[axis]
    return torch.empty_strided(shape, strides, dtype=out.dtype, device=out.device)


def _steps(operand: torch.Tensor, shape: Sequence[Any]) -> list[Any]:
    """Strides of an operand in the result's axes, 0 where it is broadcast."""
    missing = len(shape) - operand.dim()
    own = zip(operand.shape, operand.stride(), shape[missing:], strict=True)
    return [0] * missing + [0 if _is_one(size) and not _is_one(wanted) else stride for size, stride, wanted in own]


def _inner_first(operands: Sequence[Sequence[Any]], shape: Sequence[Any]) -> list[int]:
    """The axes by increasing stride, by insertion sort as in ``reorder_dimensions``."""
    order = [*reversed(range(len(shape)))]
    for i in range(1, len(order)):
        at = i
        for before in range(i - 1, -1, -1):
            swapped = _swapped(operands, shape, order[before], order[at])
            if swapped > 0:
                order[before], order[at] = order[at], order[before]
                at = before
            elif swapped < 0:
                break
    return order


def _swapped(operands: Sequence[Sequence[Any]], shape: Sequence[Any], first: int, second: int) -> int:
    for steps in operands:
        a, b = steps[first], steps[second]
        if any(type(step) is int and step == 0 for step in (a, b)):
            continue
        if a < b:
            return -1
        if a > b or shape[first] > shape[second]:
            return 1
    return 0


def _widened(func: Any, args: tuple[Any, ...], out: Any) -> bool:
    """Whether torch's decomposition made a contiguous fp32 copy of an expanded bf16 or fp16 operand, and the layout followed the copy."""
    return (
        isinstance(out, torch.Tensor)
        and out.dtype in (torch.bfloat16, torch.float16)
        and torch.Tag.pointwise in func.tags
        and not func._schema.is_mutable
        and func is not aten.masked_fill.Scalar  # copies and fills in place
        and any(isinstance(a, torch.Tensor) and any(isinstance(stride, int) and stride == 0 for stride in a.stride()) for a in args)
    )


def _in_the_format_of_parameters(args: tuple[Any, ...], statistics: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The statistics saved by a norm: fp32 where its input is bf16 or fp16 and a parameter or running statistic is fp32."""
    full = any(isinstance(a, torch.Tensor) and a.dtype is torch.float32 for a in args[1:5])
    return [t.to(torch.float32) for t in statistics] if full and args[0].dtype in (torch.bfloat16, torch.float16) else list(statistics)


def _each(out: Any, make: Any) -> Any:
    if isinstance(out, tuple):
        return tuple(_each(part, make) for part in out)
    return make(out) if isinstance(out, torch.Tensor) else out
