"""Reference decompositions that differ between torch versions, here as torch 2.13 has them, and one that is not what the kernel does.

The kernels are the same in every version, so the counts must be too:

- ``silu_backward``, ``log_sigmoid_backward``: before 2.13 the first expanded its sigmoid (``1/y`` of a tensor also multiplies by 1),
  and the second recomputed the buffer that the forward on a CPU saves;
- ``frac``: before 2.13 it was computed from the sign and the absolute value;
- ``native_batch_norm`` in evaluation: after 2.13 ``1 / sqrt`` is one ``rsqrt``;
- ``native_group_norm_backward``: after 2.13 a product and a difference are one ``addcmul``, which also multiplies by 1.

``_weight_norm_interface`` of a vector: to the kernel every element is a slice of its own, and the decomposition reduces the whole vector.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from calc.platform.torch_private import decomposition_table

_BATCH_NORM = torch.ops.aten.native_batch_norm.default
_WEIGHT_NORM = torch.ops.aten._weight_norm_interface.default


def _silu_backward(grad_output: Tensor, self: Tensor) -> Tensor:
    sigmoid = torch.sigmoid(self)
    return grad_output * sigmoid * (1 + self * (1 - sigmoid))


def _log_sigmoid_backward(grad_output: Tensor, self: Tensor, buffer: Tensor) -> Tensor:
    z = buffer if buffer.numel() else torch.exp(-torch.abs(self))
    below = self < 0
    return grad_output * (torch.where(below, 1, 0) - torch.where(below, 1, -1) * (z / (1 + z)))


def _batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    if training or running_mean is None or running_var is None:
        return decomposition_table[_BATCH_NORM](input, weight, bias, running_mean, running_var, training, momentum, eps)
    ones = (1,) * (input.dim() - 2)
    mean, invstd = running_mean.view(-1, *ones), (1 / torch.sqrt(running_var + eps)).view(-1, *ones)
    output = (input - mean) * invstd
    output = output if weight is None else output * weight.view(-1, *ones)
    output = output if bias is None else output + bias.view(-1, *ones)
    return output.to(input.dtype), input.new_zeros(0), input.new_zeros(0)


def _group_norm_backward(
    grad_output: Tensor,
    input: Tensor,
    mean: Tensor,
    rstd: Tensor,
    gamma: Tensor | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    cpg = C // group
    ds = torch.mul(grad_output, input).reshape(N, C, HxW).sum(dim=[2])
    db = grad_output.reshape(N, C, HxW).sum(dim=[2])
    d_input = d_gamma = d_bias = None
    if output_mask[0]:
        s = 1.0 / (HxW * cpg)
        ds_val, db_val = (x if gamma is None else torch.mul(x, gamma.unsqueeze(0)) for x in (ds, db))
        ds_val, db_val = (x.reshape(N, group, cpg).sum(2) for x in (ds_val, db_val))
        scale = rstd.new_ones((1, group, cpg)) if gamma is None else gamma.reshape(1, group, cpg)
        c1 = torch.mul(rstd.unsqueeze(-1), scale)
        c2 = (db_val * mean - ds_val) * rstd * rstd * rstd * s
        c3 = -c2 * mean - db_val * rstd * s
        parts = torch.mul(grad_output.reshape(N, group, cpg, HxW), c1.unsqueeze(-1))
        d_input = parts + torch.mul(input.reshape(N, group, cpg, HxW), c2[..., None, None]) + c3[..., None, None]
        d_input = d_input.reshape(input.shape).to(input.dtype)
    if output_mask[1]:
        shared = (ds.view(N, group, cpg) - db.view(N, group, cpg) * mean.unsqueeze(-1)) * rstd.unsqueeze(-1)
        d_gamma = shared.sum(dim=[0]).reshape(C)
    if output_mask[2]:
        d_bias = db.sum(dim=[0])
    return d_input, d_gamma, d_bias


def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> tuple[Tensor, Tensor]:
    of_slices: Callable[..., tuple[Tensor, Tensor]] = decomposition_table[_WEIGHT_NORM]
    if v.dim() > 1:
        return of_slices(v, g, dim)
    weight, norm = of_slices(v[:, None], g[:, None])
    return weight[:, 0], norm[:, 0]


def _frac(self: Tensor) -> Tensor:
    return self - torch.trunc(self)


REPLACEMENTS: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.frac.default: _frac,
    torch.ops.aten.silu_backward.default: _silu_backward,
    torch.ops.aten.log_sigmoid_backward.default: _log_sigmoid_backward,
    _BATCH_NORM: _batch_norm,
    _WEIGHT_NORM: _weight_norm,
    torch.ops.aten.native_group_norm_backward.default: _group_norm_backward,
}


# -- torch's fast path for encoder layers -----------------------------------------------------------------------------
# Reference decompositions of torch's fast path for encoder layers, written with torch's public functions: torch has none for these fused
# operators, so these are run and counted instead.
#
# A mask only selects scores, without arithmetic, so none is passed.


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
