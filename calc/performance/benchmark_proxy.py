"""Benchmark proxies: the calibrated primitive whose time predicts an operator's, and the sizes that it depends on. Torch-free.

An operator that a calibration times is its own proxy. Others use the one with the same memory traffic; an operator in no list uses a sum of
two tensors, or in place a product with a number, and the prediction reports it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from calc.hardware.calibration import ATTENTION, ATTENTION_BACKWARD, CAUSAL, COPY, PRODUCT, TOUCHED
from calc.rules.registry import Operator

OUT_OF_PLACE, IN_PLACE = "aten.add", "aten.mul_"

_ALIKE: Mapping[str, str] = {
    "aten.sum": "sum prod cumsum norm linalg_vector_norm var var_mean std amax amin max min argmax argmin all any",
    "aten.mean": "avg_pool2d adaptive_avg_pool2d _adaptive_avg_pool2d mse_loss",
    COPY: "_to_copy",
    "aten.clone": "roll flip repeat constant_pad_nd im2col col2im",
    "aten.cat": "stack",
    OUT_OF_PLACE: "mul sub rsub maximum minimum where masked_fill eq ne lt le gt ge logical_and logical_or bitwise_and tril triu abs neg"
    " mse_loss_backward expand_copy",
    IN_PLACE: "add_ sub_ div_ masked_fill_ tril_ triu_ clamp_ neg_",
    "aten.div": "reciprocal remainder fmod",
    "aten.exp": "log log2 log1p expm1 exp2 rsqrt_ softplus",
    "aten.sqrt": "rsqrt",
    "aten.tanh": "erf sin cos tan atan asin acos sinh cosh mish elu celu selu polar",
    "aten.sigmoid": "hardsigmoid",
    "aten.relu": "relu6 leaky_relu hardtanh clamp clamp_min clamp_max hardswish",
    "aten.threshold_backward": "tanh_backward sigmoid_backward leaky_relu_backward hardtanh_backward hardswish_backward"
    " native_dropout_backward",
    "aten.native_dropout": "bernoulli_ bernoulli rand_like randn_like rand randn normal_ uniform_",
    "aten.native_layer_norm": "_fused_rms_norm native_group_norm",
    "aten.native_layer_norm_backward": "_fused_rms_norm_backward native_group_norm_backward",
    "aten.native_batch_norm": "_native_batch_norm_legit _native_batch_norm_legit_no_training cudnn_batch_norm _batch_norm_with_update",
    "aten.native_batch_norm_backward": "cudnn_batch_norm_backward batch_norm_backward",
    "aten.max_pool2d_with_indices": "max_pool3d_with_indices adaptive_max_pool2d",
    "aten.max_pool2d_with_indices_backward": "avg_pool2d_backward _adaptive_avg_pool2d_backward",
    "aten.embedding": "index index_select gather nll_loss_forward nll_loss2d_forward _local_scalar_dense",
    "aten.embedding_dense_backward": "index_put_ _index_put_impl_ index_add index_add_ scatter_add scatter_add_ scatter",
    TOUCHED: "fill_ fill zero_ zeros zeros_like ones ones_like full full_like new_zeros new_ones new_full scalar_tensor arange"
    " nll_loss_backward nll_loss2d_backward",
}  # fmt: skip
_TIMED_AS = {f"aten.{name}": primitive for primitive, names in _ALIKE.items() for name in names.split()}


@dataclass(frozen=True, slots=True)
class Stand:
    """The proxy of an operator, at ``sizes``; ``exact`` is false if it matches only in bytes or FLOPs."""

    primitive: str
    dtype: str
    sizes: Mapping[str, int]
    exact: bool = True


def base(name: str) -> str:
    """``aten.mm.default`` → ``aten.mm``; an operator on lists of tensors uses the name of its single-tensor form."""
    return ".".join(name.split(".")[:2]).replace("aten._foreach_", "aten.")


def as_product(operator: Operator, flops: int) -> Stand:
    """The matmul that an operator executes: m rows, n columns, inner size k; batch b.

    One that no calibration has counts as a cube with the same FLOPs.
    """
    name, dtype = base(operator.name), _dtype(operator)
    match name:
        case "aten.mm" | "aten._scaled_mm" | "aten._scaled_mm_v2":
            (m, k), (_, n) = operator.shape("self"), operator.shape("mat2")
        case "aten.addmm":
            (m, k), (_, n) = operator.shape("mat1"), operator.shape("mat2")
        case "aten.bmm" | "aten.baddbmm":
            first, second = ("self", "mat2") if name == "aten.bmm" else ("batch1", "batch2")
            (b, m, k), (_, _, n) = operator.shape(first), operator.shape(second)
            return Stand("aten.bmm", dtype, {"b": b, "m": m, "k": k, "n": n})
        case "aten.convolution" | "aten.convolution_backward":
            return _convolution(name, operator, dtype)
        case _ if "scaled_dot_product" in name:
            return _attention(name, operator, dtype)
        case _:
            side = max(1, round((flops / 2) ** (1 / 3)))
            return Stand(PRODUCT, dtype, {"m": side, "k": side, "n": side}, exact=False)
    return Stand(PRODUCT, dtype, {"m": m, "k": k, "n": n})


def _convolution(name: str, operator: Operator, dtype: str) -> Stand:
    """As the matmul of patches with the kernel."""
    outer, *patch = operator.shape("weight")
    if operator.value("transposed"):
        result = operator.shape("input")
    else:
        result = operator.shape("grad_output") if name.endswith("backward") else operator.out.shape
    positions = result[0] * math.prod(result[2:])
    return Stand(name, dtype, {"m": positions, "k": math.prod(patch), "n": outer, "side": max(patch[1:], default=1)})


def _attention(name: str, operator: Operator, dtype: str) -> Stand:
    *batch, queries, width = operator.shape("query")
    primitive = (ATTENTION_BACKWARD if "backward" in name else ATTENTION) + (CAUSAL if operator.value("is_causal", False) else "")
    return Stand(primitive, dtype, {"b": math.prod(batch), "m": queries, "k": width, "n": operator.shape("key")[-2]})


def by_bytes(operator: Operator, nbytes: int, calibrated: frozenset[str]) -> Stand:
    """The primitive with the same memory traffic as an operator; ``calibrated`` are those that a calibration has."""
    name, sizes = base(operator.name), {"bytes": nbytes}
    for candidate in (name, _TIMED_AS.get(name, ""), name.rstrip("_"), _TIMED_AS.get(name.rstrip("_"), "")):
        if candidate in calibrated:
            return Stand(candidate, _dtype(operator), sizes)
    return Stand(IN_PLACE if operator.mutates else OUT_OF_PLACE, _dtype(operator), sizes, exact=False)


def _dtype(operator: Operator) -> str:
    """The dtype of the first argument that is not an integer, else float32, in which everything is calibrated."""
    return next((view.dtype for _, view in operator.tensors() if "int" not in view.dtype and view.dtype != "bool"), "float32")
