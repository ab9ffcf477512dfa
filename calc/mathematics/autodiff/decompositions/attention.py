"""Scaled dot product attention in all its kernels: S = c Q Kᵀ (+ mask), P = softmax(S), Y = P V (Vaswani et al. 2017)."""

from __future__ import annotations

from typing import Any

import sympy as sp

from calc.mathematics.autodiff.call import OperatorCall, decomposition
from calc.mathematics.autodiff.decompositions.contractions import contract
from calc.mathematics.autodiff.decompositions.creation import positions
from calc.mathematics.autodiff.decompositions.softmax import softmax
from calc.mathematics.autodiff.ir import argument
from calc.mathematics.autodiff.scalar import where
from calc.mathematics.autodiff.sizes import INFINITY, quotient
from calc.mathematics.autodiff.views import AxisFactor, NodeView, ViewError

x, y, z = argument(0), argument(1), argument(2)


@decomposition(
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_fused_attention_overrideable",
    "_scaled_dot_product_attention_math",
    "_scaled_dot_product_attention_math_for_mps",
    "scaled_dot_product_attention",
)
def attention(call: OperatorCall) -> list[Any]:
    """The kernels differ in what they save and recompute, not in what they compute."""
    query, key, value = (call.tensor(name) for name in ("query", "key", "value"))
    scale = call.number("scale") if call.has("scale") else query.shape[-1] ** sp.Rational(-1, 2)
    for view, name in ((query, "Q"), (key, "K"), (value, "V")):
        call.equations.call(view.node, name)
    key, value = (_repeated(call, v, query) for v in (key, value))
    scores = contract(call, (query, key), ("bhsk", "bhtk"), "bhst", name="S")
    scores = call.pointwise(scale * x, (scores,), name="scaled")
    mask = next((name for name in ("attn_mask", "attn_bias") if call.has(name)), None)
    if mask is not None:
        scores = _masked(call, scores, call.tensor(mask))
    if call.raw("is_causal", False):
        scores = _causal(call, scores)
    probabilities = softmax(call, scores, len(scores.axes) - 1)
    rate = call.number("dropout_p", 0)
    if rate != 0:
        raise call.refusal("it draws its dropout mask inside the kernel; use the math backend (--attention math)")
    output = contract(call, (probabilities, value), ("bhst", "bhtk"), "bhsk", name="O")
    return [output, None, None, None, None, None, None, None, None]


def _repeated(call: OperatorCall, view: NodeView, query: NodeView) -> NodeView:
    """Keys and values with fewer heads (grouped-query attention): each head serves several consecutive query heads."""
    groups, heads = view.shape[1], query.shape[1]
    if groups == heads or not view.axes[1]:
        return view
    times = quotient(heads, groups)
    if times is None:
        raise ViewError(
            f"{call.instruction.name} at {call.instruction.module_path}: {heads} heads are not a multiple of {groups} key/value heads"
        )
    return NodeView(view.node, (view.axes[0], (*view.axes[1], AxisFactor(None, times)), *view.axes[2:]))


def _masked(call: OperatorCall, scores: NodeView, mask: NodeView) -> NodeView:
    if call.equations[mask.node].integral:
        return call.pointwise(where(sp.Ne(y, 0), x, -INFINITY), (scores, mask), name="masked")
    return call.pointwise(x + y, (scores, mask), name="masked")


def _causal(call: OperatorCall, scores: NodeView) -> NodeView:
    """-∞ where the key is later than the query."""
    rows, columns = (positions(call, s) for s in scores.shape[-2:])
    return call.pointwise(where(z <= y, x, -INFINITY), (scores, NodeView(rows.node, (*rows.axes, ())), columns), name="masked")
