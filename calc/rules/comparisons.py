"""Comparisons, selections, logic, order and rounding: no arithmetic, though every element is read and written."""

from __future__ import annotations

from calc.rules.registry import free

COMPARES = "compares or selects elements: no arithmetic"


def _aten(names: str) -> list[str]:
    return [f"aten.{name}" for name in names.split()]


free(
    *_aten("eq.Scalar eq.Tensor ne.Scalar ne.Tensor lt.Scalar lt.Tensor le.Scalar le.Tensor gt.Scalar gt.Tensor ge.Scalar ge.Tensor"),
    *_aten("isnan.default isinf.default sign.default sgn.default maximum.default minimum.default"),
    because=COMPARES,
    moves=True,
)
free(
    *_aten("where.self masked_fill.Scalar masked_fill.Tensor masked_fill_.Scalar masked_fill_.Tensor"),
    *_aten("tril.default triu.default"),
    because="selects elements: no arithmetic",
    moves=True,
)
free(
    *_aten("relu.default relu_.default threshold_backward.default hardtanh.default hardtanh_.default hardtanh_backward.default"),
    *_aten(
        "clamp.default clamp.Tensor clamp_.default clamp_min.default clamp_min_.default clamp_max.default clamp_max_.default"
        " clamp_min.Tensor clamp_min_.Tensor clamp_max.Tensor clamp_max_.Tensor"
    ),
    because="max(x, bound) and its gradient compare and select: no arithmetic",
    moves=True,
)
free(
    *_aten("logical_and.default logical_or.default logical_xor.default logical_not.default logical_and_.default logical_or_.default"),
    *_aten("bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor bitwise_not.default all.default all.dim any.default any.dim"),
    "aten._is_all_true.default",
    "aten._is_any_true.default",
    *_aten("equal.default all.dims any.dims bitwise_left_shift.Tensor bitwise_right_shift.Tensor signbit.default"),
    because="combines truth values: no arithmetic",
    moves=True,
)
free(
    *_aten("argmax.default argmin.default sort.default sort.stable topk.default histc.default searchsorted.Tensor"),
    *_aten("_unique2.default unique_consecutive.default bincount.default"),
    because="orders or sorts elements into bins by comparing them: no arithmetic",
    moves=True,
)
free("aten.is_same_size.default", because="compares shapes: no element is read")
free(*_aten("floor.default ceil.default round.default trunc.default"), because="rounds, which is a cast: no arithmetic", moves=True)


free(
    *_aten("cummax.default cummin.default kthvalue.default median.default median.dim nanmedian.default nanmedian.dim mode.default"),
    *_aten("bucketize.Tensor isin.Tensor_Tensor"),
    because="orders elements or finds their positions by comparing them: no arithmetic",
    moves=True,
)
free(*_aten("tril_.default triu_.default"), because="selects elements: no arithmetic", moves=True)
free(
    *_aten("bitwise_and_.Tensor bitwise_or_.Tensor logical_not_.default isposinf.default isneginf.default"),
    because="combines truth values: no arithmetic",
    moves=True,
)
