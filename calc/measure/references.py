"""Reference decompositions that differ between torch versions, here as torch 2.13 has them.

The kernels are the same in every version, so the counts must be too:

- ``silu_backward``, ``log_sigmoid_backward``: before 2.13 the first expanded its sigmoid (``1/y`` of a tensor also multiplies by 1),
  and the second recomputed the buffer that the forward on a CPU saves;
- ``frac``: before 2.13 it was computed from the sign and the absolute value;
- ``native_batch_norm`` in evaluation: after 2.13 ``1 / sqrt`` is one ``rsqrt``;
- ``native_group_norm_backward``: after 2.13 a product and a difference are one ``addcmul``, which also multiplies by 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from calc.platform.torch_private import decomposition_table

_BATCH_NORM = torch.ops.aten.native_batch_norm.default


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


def _frac(self: Tensor) -> Tensor:
    return self - torch.trunc(self)


REPLACEMENTS: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.frac.default: _frac,
    torch.ops.aten.silu_backward.default: _silu_backward,
    torch.ops.aten.log_sigmoid_backward.default: _log_sigmoid_backward,
    _BATCH_NORM: _batch_norm,
    torch.ops.aten.native_group_norm_backward.default: _group_norm_backward,
}
