"""Torch's fast path for encoder layers in evaluation: one operator for self-attention with its projections, one for a whole layer.

Their kernels run the matmuls of the modules they replace, and are counted so. Attention is the mathematical formulation: query scaled
before the matmul (B·T·d), a softmax over all scores, masked positions counted in full (a mask selects, it adds nothing).
"""

from __future__ import annotations

from calc.rules.attention import FORMULATION, IN_FULL
from calc.rules.normalization import layer_norm
from calc.rules.pointwise import gelu
from calc.rules.registry import Cost, Factor, Operator, Term, View, rule, term
from calc.rules.shapes import each, reductions

KERNEL = "aten/src/ATen/native/transformers"


@rule(
    "aten._native_multi_head_attention.default",
    statement="O = softmax(query keyᵀ · scale) value Wₒ + bₒ, with query, key, value = x W + b",
    source=f"{KERNEL}/attention.cpp, native_multi_head_attention_cpu; one multiply-add = 2 FLOP",
    elementwise=FORMULATION,
    convention=IN_FULL,
    shapes="x of query (batch, queries, width), x of key and value (batch, keys, width) → O (batch, queries, width), weights"
    " (batch, queries, keys), or (batch, heads, queries, keys) where not averaged.",
)
def multi_head_attention(op: Operator) -> Cost:
    heads = op.value("num_head")
    matmul, elementwise = _attention(op.tensor("query"), op.tensor("key"), heads)
    return Cost(matmul=matmul, elementwise=(*elementwise, *_average(op, heads)))


@rule(
    "aten._transformer_encoder_layer_fwd.default",
    statement="x + attention, normalized, and x + W₂ φ(W₁ x + b₁) + b₂, normalized; each norm before its part where norm_first",
    source=f"{KERNEL}/transformer.cpp, transformer_encoder_layer_forward; one multiply-add = 2 FLOP",
    elementwise=FORMULATION,
    convention=IN_FULL,
    shapes="src (batch, tokens, width), W₁ (inner width, width), W₂ (width, inner width) → (batch, tokens, width).",
)
def encoder_layer(op: Operator) -> Cost:
    x, wide = op.tensor("src"), op.shape("ffn_weight_1")[0]
    *rows, width = x.shape
    inner = (*rows, wide)
    matmul, elementwise = _attention(x, x, op.value("num_heads"))
    return Cost(
        matmul=(*matmul, term("x W₁", 2, *rows, width, wide), term("φ W₂", 2, *rows, wide, width)),
        elementwise=(
            *elementwise,
            each("x + attention", x.shape),
            each("+ b₁", inner),
            *_activation(op, inner, x.dtype),
            each("+ b₂", x.shape),
            each("x + feed-forward", x.shape),
            *_norm(op, x, 1),
            *_norm(op, x, 2),
        ),
    )


def _attention(query: View, key: View, heads: Factor) -> tuple[tuple[Term, ...], tuple[Term, ...]]:
    """(matmul terms, elementwise terms) of attention with its projections."""
    batch, queries, width = query.shape
    keys = key.shape[1]
    rows = (batch, heads, queries)
    scores = (*rows, keys)
    matmul = (
        term("x Wq", 2, batch, queries, width, width),
        term("x [Wk Wv]", 2, batch, keys, width, 2 * width),
        term("query keyᵀ", 2, batch, queries, keys, width, attention="scores"),
        term("probs value", 2, batch, queries, keys, width, attention="mix"),
        term("O Wₒ", 2, batch, queries, width, width),
    )
    elementwise = (
        each("+ bq", query.shape),
        term("+ [bk bv]", batch, keys, 2 * width),
        each("query · scale", query.shape),
        term("max scores", *rows, reductions(keys)),
        each("scores − max scores", scores),
        each("exp", scores),
        term("Σ exp", *rows, reductions(keys)),
        each("probs = exp / Σ exp", scores),
        each("+ bₒ", query.shape),
    )
    return matmul, elementwise


def _average(op: Operator, heads: Factor) -> tuple[Term, ...]:
    """The mean of the weights over heads, unless ``need_weights`` or ``average_attn_weights`` is False."""
    if not op.value("need_weights", True) or not op.value("average_attn_weights", True):
        return ()
    batch, queries, keys = op.outputs[1].shape
    return term("Σ probs over heads", batch, queries, keys, reductions(heads)), term("/ h", batch, queries, keys)


def _activation(op: Operator, inner: tuple[Factor, ...], dtype: str) -> tuple[Term, ...]:
    """Terms of GELU without approximation; none for a ReLU, which only selects."""
    if not op.value("use_gelu"):
        return ()
    x = View(inner, dtype, 0)
    return tuple(term(f"GELU: {t.name}", *t.factors) for t in gelu(Operator("aten.gelu.default", {"self": x}, (x,))).elementwise)


def _norm(op: Operator, x: View, number: int) -> tuple[Term, ...]:
    weights = {"weight": op.tensor(f"norm_weight_{number}"), "bias": op.tensor(f"norm_bias_{number}")}
    norm = Operator("aten.native_layer_norm.default", {"input": x, "normalized_shape": x.shape[-1:], **weights}, (x,))
    return tuple(term(f"norm {number}: {t.name}", *t.factors) for t in layer_norm(norm).elementwise)
