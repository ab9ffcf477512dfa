"""Reference decompositions of torch's fast path for encoder layers, written with torch's public functions: torch has none for
these fused operators, so these are run and counted instead.

A mask only selects scores, without arithmetic, so none is passed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


def multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> Any:
    """The attention's result. ``need_weights`` is always True: without it, the function would call a fused operator."""
    return F.multi_head_attention_forward(
        query.transpose(0, 1),
        key.transpose(0, 1),
        value.transpose(0, 1),
        embed_dim_to_check=embed_dim,
        num_heads=num_head,
        in_proj_weight=qkv_weight,
        in_proj_bias=qkv_bias,
        bias_k=None,
        bias_v=None,
        add_zero_attn=False,
        dropout_p=0.0,
        out_proj_weight=proj_weight,
        out_proj_bias=proj_bias,
        training=False,
        need_weights=True,
        average_attn_weights=need_weights and average_attn_weights,
    )


def encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    """The layer as ``nn.TransformerEncoderLayer`` writes it."""

    def attend(x: Tensor) -> Tensor:
        projections = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        result: Tensor = multi_head_attention(x, x, x, embed_dim, num_heads, *projections, need_weights=False)[0]
        return result.transpose(0, 1)

    def feed(x: Tensor) -> Tensor:
        inner = F.linear(x, ffn_weight_1, ffn_bias_1)
        return F.linear(F.gelu(inner) if use_gelu else F.relu(inner), ffn_weight_2, ffn_bias_2)

    def norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.layer_norm(x, (embed_dim,), weight, bias, eps)

    if norm_first:
        src = src + attend(norm(src, norm_weight_1, norm_bias_1))
        return src + feed(norm(src, norm_weight_2, norm_bias_2))
    src = norm(src + attend(src), norm_weight_1, norm_bias_1)
    return norm(src + feed(src), norm_weight_2, norm_bias_2)


FAST_PATH: dict[Any, Callable[..., Any]] = {
    torch.ops.aten._native_multi_head_attention.default: multi_head_attention,
    torch.ops.aten._transformer_encoder_layer_fwd.default: encoder_layer,
}
