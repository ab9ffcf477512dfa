"""Fused attention: one operator for softmax(query keyᵀ · scale + mask) value, and one for its backward.

Matmuls are counted in full, whatever the mask; a declared causal mask is reported beside them. Each query head has its own matmuls, even if
heads share a key head. Elementwise work is that of the mathematical formulation, with N = scores (batch x query heads x query length x key
length, in full) and R = rows of scores: forward N scalings, N additions of a floating mask, and a softmax; backward the softmax's backward,
N scalings, and the addition of the gradients of heads that share keys. The log-sum-exp that the kernel saves and the exponentials that its
backward recomputes are not counted. Dropout is 2 N each way.
"""

from __future__ import annotations

from calc.rules.registry import Cost, Factor, Operator, Term, rule, term
from calc.rules.shapes import each, optional, reductions

FORWARD = "two matmuls; one multiply-add = 2 FLOP"
BACKWARD = "FlashAttention-2 (arXiv:2307.08691), algorithm 2: five matmuls, of which the first recomputes one of the forward"
IN_FULL = "every pair of a query and a key counts, masked or not"
OPERANDS = "query (batch, heads, queries, width), key (batch, key heads, keys, width), value (batch, key heads, keys, value width)"
FORMULATION = "the mathematical formulation, operation by operation"


@rule(
    "aten._scaled_dot_product_flash_attention_for_cpu.default",
    "aten._scaled_dot_product_flash_attention.default",
    "aten._scaled_dot_product_efficient_attention.default",
    "aten._scaled_dot_product_cudnn_attention.default",
    statement="O = softmax(query keyᵀ · scale + mask) value",
    source=FORWARD,
    elementwise=FORMULATION,
    convention=IN_FULL,
    shapes=f"{OPERANDS} → O (batch, heads, queries, value width), log-sum-exp (batch, heads, queries).",
)
def attention(op: Operator) -> Cost:
    *batch, queries, width = op.shape("query")
    keys, out_width = op.shape("key")[-2], op.shape("value")[-1]
    scores, rows = (*batch, queries, keys), (*batch, queries)
    mask = (each("+ mask", scores),) if _has_floating_mask(op) else ()
    return Cost(
        matmul=(
            term("query keyᵀ", 2, *batch, queries, keys, width, attention="scores"),
            term("probs value", 2, *batch, queries, keys, out_width, attention="mix"),
        ),
        elementwise=(
            each("scores = query keyᵀ · scale", scores),
            *mask,
            term("max scores", *rows, reductions(keys)),
            each("scores − max scores", scores),
            each("exp", scores),
            term("Σ exp", *rows, reductions(keys)),
            each("probs = exp / Σ exp", scores),
            *_dropout(op, scores),
        ),
        causal=_causal(op, queries, keys),
    )


@rule(
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default",
    "aten._scaled_dot_product_flash_attention_backward.default",
    "aten._scaled_dot_product_efficient_attention_backward.default",
    "aten._scaled_dot_product_cudnn_attention_backward.default",
    statement="dvalue = probsᵀ dO, dprobs = dO valueᵀ, dscores = probs (dprobs − Σ probs dprobs) · scale, dquery = dscores key,"
    " dkey = dscoresᵀ query, with probs recomputed from query keyᵀ",
    source=BACKWARD,
    elementwise=FORMULATION,
    convention=IN_FULL,
    shapes=f"dO (batch, heads, queries, value width), {OPERANDS} → dquery, dkey, dvalue as query, key, value.",
)
def attention_backward(op: Operator) -> Cost:
    *batch, queries, width = op.shape("query")
    keys, out_width = op.shape("key")[-2], op.shape("value")[-1]
    scores, rows = (*batch, queries, keys), (*batch, queries)
    scores_product = term("recomputed query keyᵀ", 2, *scores, width, attention="scores")
    return Cost(
        matmul=(
            scores_product,
            term("dprobs = dO valueᵀ", 2, *scores, out_width, attention="mix"),
            term("dvalue = probsᵀ dO", 2, *scores, out_width, attention="mix"),
            term("dquery = dscores key", 2, *scores, width, attention="scores"),
            term("dkey = dscoresᵀ query", 2, *scores, width, attention="scores"),
        ),
        elementwise=(
            each("probs dprobs", scores),
            term("Σ probs dprobs", *rows, reductions(keys)),
            each("probs Σ probs dprobs", scores),
            each("probs dprobs − probs Σ probs dprobs", scores),
            each("dscores = … · scale", scores),
            *_shared_heads(op),
            *_dropout(op, scores),
        ),
        recompute=(scores_product,),
        causal=_causal(op, queries, keys),
    )


def _causal(op: Operator, queries: Factor, keys: Factor) -> tuple[Factor, Factor] | None:
    return (queries, keys) if op.value("is_causal", False) else None


def _has_floating_mask(op: Operator) -> bool:
    """Whether the mask is floating, so it is added; a boolean mask only selects."""
    mask = optional(op, "attn_mask") or optional(op, "attn_bias")
    return mask is not None and mask.dtype != "bool"


def _dropout(op: Operator, scores: tuple[Factor, ...]) -> tuple[Term, ...]:
    return (each("· dropout mask", scores), each("/ (1 − p)", scores)) if op.value("dropout_p", 0.0) else ()


def _shared_heads(op: Operator) -> tuple[Term, ...]:
    """Additions of dkey and dvalue over the query heads that share a key head."""
    query_heads, key_heads = op.shape("query")[-3], op.shape("key")[-3]
    if query_heads == key_heads:
        return ()
    extra = query_heads - key_heads
    return tuple(
        term(f"{name} added over the heads that share it", *batch, extra, keys, width)
        for name, (*batch, _, keys, width) in (("dkey", op.shape("key")), ("dvalue", op.shape("value")))
    )
