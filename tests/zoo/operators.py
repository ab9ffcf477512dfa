"""Operators that ordinary networks execute rarely or never, each in a training step of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._decomp import decomposition_table

from calc.dimensions import Dim
from tests.zoo.exhibit import Function, operators

aten = torch.ops.aten


def each_of(names: str) -> list[Function]:
    """``torch.NAME(w)`` for every name."""
    return [getattr(torch, name) for name in names.split()]


def in_place(names: str) -> list[Function]:
    """``w.NAME_()`` of a copy, for every name."""
    return [lambda w, name=name: getattr(w.clone(), f"{name}_")() for name in names.split()]


def unlearned(*functions: Function) -> list[Function]:
    """The functions applied to the weight's values alone: where torch has no gradient, or one that looks at values."""
    return [lambda w, *inputs, f=f: f(w.detach().clone(), *inputs) for f in functions]


def row(s: Any) -> tuple[Tensor, ...]:
    return (torch.rand(s.n),)


# -- pointwise ----------------------------------------------------------------------------------------------------------------

operators("exponentials", *each_of("exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal abs neg erf erfc sigmoid"))
operators("angles", *each_of("sin cos tan asin acos atan sinh cosh tanh"), lambda w: torch.atan2(w, w[:1]))
operators("exponentials in place", *in_place("exp log sqrt rsqrt reciprocal abs neg sigmoid sin cos tanh"))
operators(
    "arithmetic",
    lambda w, v: w * v,
    lambda w, v: w / v,
    lambda w, v: torch.add(w, v, alpha=3),
    lambda w, v: torch.sub(w, v, alpha=3),
    lambda w, v: torch.rsub(w, v, alpha=3),
    lambda w, v: torch.remainder(w, v),
    lambda w, v: torch.fmod(w, v),
    lambda w, v: w**v,
    lambda w, v: torch.xlogy(w, v),
    lambda w, v: torch.view_as_real(torch.polar(w, v.expand_as(w))),
    lambda w, v: torch.div(w, v, rounding_mode="trunc"),
    lambda w, v: torch.div(w, v, rounding_mode="floor"),
    *unlearned(lambda w, v: torch.floor_divide(w, v)),
    inputs=row,
    dims={"m": 5, "n": 7},
)
operators(
    "arithmetic in place",
    lambda w, v: w.clone().add_(v, alpha=3),
    lambda w, v: w.clone().sub_(v, alpha=3),
    lambda w, v: w.clone().mul_(v),
    lambda w, v: w.clone().div_(v),
    inputs=row,
    dims={"m": 5, "n": 7},
)
operators(
    "arithmetic with numbers",
    lambda w: aten.add.Scalar(w, 3.0),
    lambda w: aten.sub.Scalar(w, 3.0),
    lambda w: aten.rsub.Scalar(w, 3.0, 2.0),
    lambda w: aten.mul.Scalar(w, 3.0),
    lambda w: aten.div.Scalar(w, 3.0),
    lambda w: aten.div.Scalar_mode(w, 3.0, rounding_mode="floor"),
    lambda w: aten.div.Scalar_mode(w, 3.0, rounding_mode="trunc"),
    lambda w: aten.remainder.Scalar(w, 3.0),
    lambda w: aten.fmod.Scalar(w, 3.0),
    lambda w: 3.0**w,
    *(lambda w, p=p: w**p for p in (0.5, 1, 2, 3)),
)
operators(
    "arithmetic with numbers in place",
    lambda w: aten.add_.Scalar(w.clone(), 3.0),
    lambda w: aten.sub_.Scalar(w.clone(), 3.0),
    lambda w: aten.mul_.Scalar(w.clone(), 3.0),
    lambda w: aten.div_.Scalar(w.clone(), 3.0),
    lambda w: w.clone().remainder_(3.0),
    *(lambda w, p=p: w.clone().pow_(p) for p in (0.5, 2, 3)),
)
operators(
    "whole numbers",
    lambda w, i: i // 2,
    lambda w, i: i % 3,
    lambda w, i: torch.div(i, i + 1, rounding_mode="trunc"),
    inputs=lambda s: (torch.arange(s.k),),
)
UPDATES: list[Function] = [
    lambda w, a, b: torch.addcmul(w, a, b, value=0.5),
    lambda w, a, b: torch.addcdiv(w, a, b, value=0.5),
    lambda w, a, b: w.clone().addcmul_(a, b, value=0.5),
    lambda w, a, b: w.clone().addcdiv_(a, b, value=0.5),
    lambda w, a, b: torch.lerp(w, a, 0.25),
    lambda w, a, b: torch.lerp(w, a, b),
    lambda w, a, b: w.clone().lerp_(a, 0.25),
    lambda w, a, b: w.clone().lerp_(a, b),
]
operators("updates", *UPDATES, inputs=lambda s: (torch.rand(s.m, s.n), torch.rand(s.m, s.n)), dims={"m": 5, "n": 7})
operators(
    "updates, broadcast",
    *UPDATES,
    inputs=lambda s: (torch.rand(s.n), torch.rand(s.m, 1)),
    dims={"m": 5, "n": 7},
)

# -- activations --------------------------------------------------------------------------------------------------------------

operators(
    "activations in place",
    *(
        lambda w, f=f: f(w.clone(), inplace=True)
        for f in (F.silu, F.mish, F.hardswish, F.hardsigmoid, F.leaky_relu, F.elu, F.celu, F.relu, F.hardtanh, F.relu6)
    ),
    lambda w: F.celu(w.clone(), 0.5, inplace=True),
    lambda w: aten.gelu_(w.clone()),
    lambda w: aten.gelu_(w.clone(), approximate="tanh"),
)
operators(
    "activations with scales",
    lambda w: F.softplus(w, 3.0),
    lambda w: F.softplus(w, 1.0),
    lambda w: F.celu(w, 0.5),
    lambda w: F.elu(w, 0.5),
    lambda w: F.gelu(w, approximate="tanh"),
    lambda w: F.glu(w, 0),
    dims={"m": Dim(6, multiple_of=2), "n": 5},
    other={"m": 22, "n": 13},
)
operators("random numbers", lambda w: torch.native_dropout(w, 0.25, True)[0], lambda w: F.dropout(w, 0.25), lambda w: F.gumbel_softmax(w))

# -- reductions and scans -----------------------------------------------------------------------------------------------------

operators(
    "sums and means",
    *each_of("sum mean var std amax amin max min"),
    lambda w: w.sum(0),
    lambda w: w.mean(1),
    lambda w: w.var(0),
    lambda w: w.std(1),
    lambda w: torch.var_mean(w, 0),
    lambda w: torch.logsumexp(w, 1),
    lambda w: w.amax(0),
    lambda w: w.amin(1),
    lambda w: w.max(1),
    lambda w: w.min(0),
    *unlearned(lambda w: w.prod(), lambda w: w.prod(1)),
)
operators("norms of vectors", *(lambda w, p=p: torch.linalg.vector_norm(w, p, 1) for p in (2, 1, 3, float("inf"), 0)), lambda w: w.norm())
operators("scans", lambda w: w.cumsum(1), *unlearned(lambda w: w.cumprod(0)))
operators("softmax", lambda w: F.softmax(w, 0), lambda w: F.log_softmax(w, 1), lambda w: aten._safe_softmax(w, 1))

# -- products -----------------------------------------------------------------------------------------------------------------


def columns(s: Any) -> tuple[Tensor, ...]:
    return torch.rand(s.k, s.n), torch.rand(s.k, s.m)


operators(
    "products",
    lambda w, v, u: u @ w,
    lambda w, v, u: w @ v[0],
    lambda w, v, u: w[0] @ v[0],
    lambda w, v, u: torch.addmm(v, u, w, beta=0.5, alpha=2),
    lambda w, v, u: torch.addmm(v[0], u, w),
    lambda w, v, u: torch.addmm(v[0], u, w, beta=0),
    lambda w, v, u: torch.baddbmm(v[None], u[None], w[None], beta=0.5, alpha=2),
    lambda w, v, u: torch.bmm(u[None], w[None]),
    inputs=columns,
)
operators("products, broadcast", lambda w, v, u: torch.baddbmm(v[0], u[None], w[None]), inputs=columns)


def by_expert(w: Tensor, x: Tensor) -> Tensor:
    """As many rows for each expert, each row times the matrix of its expert; the only format that tracing knows is bfloat16."""
    experts = w.shape[0]
    ends = torch.arange(1, experts + 1, dtype=torch.int32) * (x.shape[0] // experts)
    return torch._grouped_mm(x.bfloat16(), w.bfloat16(), ends).square()


operators(
    "grouped products",
    by_expert,
    w="E m n",
    inputs=lambda s: (torch.rand(s.E * s.r, s.m),),
    dims={"E": 3, "r": Dim(8, multiple_of=8), "m": Dim(16, multiple_of=8), "n": Dim(24, multiple_of=8)},
    other={"E": 2, "r": 40, "m": 24, "n": 16},
    unmeasured=frozenset(("parameters.active",)),  # no router says how many groups a row is in
)


def fp8_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """(x in e4m3, one scale for each row)."""
    scale = x.abs().amax(1, keepdim=True) / 448
    return (x / scale).to(torch.float8_e4m3fn), scale


class ScaledProduct(torch.autograd.Function):
    """x wᵀ multiplied in fp8, which has no derivative in torch; its gradients are those of fp32."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        (a, of_x), (b, of_w) = fp8_rows(x), fp8_rows(w)
        ctx.save_for_backward(a, of_x, w)
        rows = torch._scaled_mm(a, b.t(), of_x, of_w.t(), bias=of_w[:, 0], out_dtype=torch.bfloat16)
        kind = F.ScalingType.TensorWise
        once = F.scaled_mm(a, b.t(), of_x[0], kind, of_w[0], kind, bias=of_w[:, 0], output_dtype=torch.bfloat16)
        narrow = torch._scaled_mm(a, b.t(), of_x[0], of_w[0], scale_result=of_w[0])
        return rows.float() + once.float() + narrow.float()

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        a, of_x, w = ctx.saved_tensors
        return dy @ w, dy.t() @ (a.float() * of_x)


operators("scaled products", lambda w, x: ScaledProduct.apply(x, w), inputs=lambda s: (torch.rand(s.k, s.n),))


class FusedNorm(torch.autograd.Function):
    """RMS normalization in one operator each way. A CPU takes the first apart and lacks the second: it is lent torch's reference."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        with torch._C._AutoDispatchBelowAutograd():
            y, rstd = aten._fused_rms_norm(x, [weight.shape[0]], weight, 1e-5)
        ctx.save_for_backward(x, weight, rstd)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, weight, rstd = ctx.saved_tensors
        return aten._fused_rms_norm_backward(gradient, x, [weight.shape[0]], rstd, weight, [True, True])


LENT = torch.library.Library("aten", "IMPL")  # it holds as long as it is referenced
LENT.impl("_fused_rms_norm_backward", decomposition_table[aten._fused_rms_norm_backward.default], "CPU")

# The operator takes plain numbers for the sizes that it normalizes.
operators(
    "fused rms norm",
    lambda w, v: FusedNorm.apply(w[:, None] * v, v),
    w="m",
    inputs=lambda s: (torch.rand(7),),
    dims={"m": 5},
    other={"m": 13},
)

# -- places -------------------------------------------------------------------------------------------------------------------

PLACES = {"m": 5, "n": 7, "k": 3}
OTHER_PLACES = {"m": 13, "n": 17, "k": 11}


def positions(s: Any) -> tuple[Tensor, ...]:
    return (torch.randint(s.m, (s.k,)),)


def table_positions(s: Any) -> tuple[Tensor, ...]:
    return torch.randint(s.m, (s.k, s.n)), torch.rand(s.k, s.n)


def at_places(name: str, inputs: Callable[[Any], tuple[Tensor, ...]], *functions: Function) -> None:
    operators(name, *functions, inputs=inputs, dims=PLACES, other=OTHER_PLACES)


at_places(
    "taking by index",
    positions,
    lambda w, i: w[i],
    lambda w, i: w[:, i],
    lambda w, i: w.index_select(0, i),
    lambda w, i: w.gather(0, i[:, None].expand(-1, w.shape[1])),
    lambda w, i: w[i, i],
    lambda w, i: aten._unsafe_index(w, [i]),
    lambda w, i: aten._unsafe_index(w, [i, i]),
)
at_places(
    "putting by index",
    lambda s: (*positions(s), torch.rand(s.k, s.n)),
    lambda w, i, x: torch.index_put(w, (i,), x),
    lambda w, i, x: torch.index_put(w, (i,), x, accumulate=True),
    lambda w, i, x: aten._unsafe_index_put(w, [i], x, True),
    lambda w, i, x: w.clone().index_put_((i,), x),
    lambda w, i, x: w.clone().index_put_((i,), x, accumulate=True),
    lambda w, i, x: w.clone().index_put_((i, i), x[:, 0], accumulate=True),
    lambda w, i, x: w.index_add(0, i, x, alpha=2),
    lambda w, i, x: w.clone().index_add_(0, i, x),
    lambda w, i, x: w.clone().index_add_(0, i, x, alpha=2),
    lambda w, i, x: w.index_copy(0, i, x),
    lambda w, i, x: w.clone().index_copy_(0, i, x),
    lambda w, i, x: w.index_fill(0, i, 2.0),
    lambda w, i, x: w.clone().index_fill_(0, i, 2.0),
)
at_places(
    "scattering",
    table_positions,
    lambda w, i, x: w.scatter(0, i, x),
    lambda w, i, x: w.scatter(0, i, 2.0),
    lambda w, i, x: w.scatter_add(0, i, x),
    lambda w, i, x: w.clone().scatter_(0, i, x),
    lambda w, i, x: w.clone().scatter_(0, i, 2.0),
    lambda w, i, x: w.clone().scatter_add_(0, i, x),
)
operators(
    "beginnings",
    lambda w: w[:4],
    dims={"m": 5, "n": 7},
)
operators("element types", lambda w: w.to(torch.promote_types(w.dtype, torch.bfloat16)) * 2)
operators("windows", lambda w: w.unfold(1, 3, 2), lambda w: w.unfold(0, 2, 1))

# -- new tensors --------------------------------------------------------------------------------------------------------------

operators(
    "constants like another",
    *(lambda w, f=f: w * f(w) for f in (torch.zeros_like, torch.ones_like, torch.rand_like, torch.randn_like, torch.empty_like)),
    lambda w: w * torch.full_like(w, 2.0),
    lambda w: w * w.new_zeros(w.shape[1]),
    lambda w: w * w.new_ones(w.shape[1]),
    lambda w: w * w.new_full((w.shape[1],), 2.0),
    lambda w: w * w.new_empty(w.shape[1]),
    lambda w: w * w.new_empty_strided((w.shape[1],), (1,)),
)
operators(
    "fills",
    lambda w: w * torch.empty_like(w).fill_(2.0),
    lambda w: w * torch.empty_like(w).fill_(torch.ones(())),
    lambda w: w * torch.empty_like(w).zero_(),
    lambda w: w * torch.empty_like(w).uniform_(),
    lambda w: w * torch.empty_like(w).normal_(),
    lambda w: w * torch.empty_like(w).bernoulli_(0.25),
    lambda w: w * torch.empty_like(w).bernoulli_(torch.full_like(w, 0.25)),
    lambda w: w * torch.empty_like(w).exponential_(),
    lambda w: w * torch.empty_like(w).copy_(torch.ones(())),
)
operators(
    "results given",
    *unlearned(
        lambda w: torch.maximum(w, w[:1], out=torch.empty_like(w)),
        lambda w: torch.minimum(w, w[:1], out=torch.empty_like(w)),
        lambda w: torch.add(w, w[:1], alpha=3, out=torch.empty(0)),
        lambda w: torch.exp(w, out=w),
        lambda w: torch.mul(w, 3, out=w.new_empty(2 * w.shape[0], w.shape[1])[: w.shape[0]]),
        lambda w: torch.mm(w.T, w, out=w.new_empty(w.shape[1], w.shape[1])),
        lambda w: torch.matmul(w.T, w, out=w.new_empty(w.shape[1], w.shape[1])),
        lambda w: torch.sum(w, 0, out=w.new_empty(w.shape[1])),
        lambda w: torch.max(w, 0, out=(w.new_empty(w.shape[1]), w.new_empty(w.shape[1], dtype=torch.int64)))[0],
        lambda w: torch.cat([w, w], out=w.new_empty(2 * w.shape[0], w.shape[1])),
    ),
)
operators(
    "factories",
    *(lambda w, f=f: w * f(w.shape[1]) for f in (torch.zeros, torch.ones, torch.rand, torch.randn, torch.empty)),
    lambda w: w * torch.full((w.shape[1],), 2.0),
    lambda w: w * aten.scalar_tensor(2.0),
    lambda w: w * torch.empty_strided((w.shape[1],), (1,)),
    lambda w: w * torch.empty_permuted((w.shape[1],), (0,)),
    lambda w: w * torch.arange(w.shape[1]),
    lambda w: w * torch.arange(1, w.shape[1] + 1),
    lambda w: w * torch.arange(0, 2 * w.shape[1], 2),
    lambda w: w * torch.arange(0, 1, 1 / w.shape[1]),
    lambda w: w[:, :1] * torch.arange(w.shape[1] / 2),
    lambda w: w * torch.linspace(0, 1, w.shape[1]),
    *(lambda w, f=f: w[0, :3] * (f(3) + f(3, False)) for f in (torch.hann_window, torch.hamming_window, torch.blackman_window)),
    lambda w: w * torch.randint(7, (w.shape[1],)),
    lambda w: w * torch.randint(2, 7, (w.shape[1],)),
    lambda w: w * torch.randperm(w.shape[1]),
)

# -- what is free -------------------------------------------------------------------------------------------------------------

operators(
    "comparisons",
    *(lambda w, v, f=f: f(w, v) for f in (torch.eq, torch.ne, torch.lt, torch.le, torch.gt, torch.ge)),
    *(lambda w, v, f=f: f(w, 0.5) for f in (torch.eq, torch.ne, torch.lt, torch.le, torch.gt, torch.ge)),
    lambda w, v: torch.maximum(w, v),
    lambda w, v: torch.minimum(w, v),
    lambda w, v: torch.where(w < v, w, v),
    lambda w, v: [torch.isnan(w), torch.isinf(w), torch.sign(w)],
    *unlearned(lambda w, v: torch.sgn(w)),
    inputs=row,
    dims={"m": 5, "n": 7},
)
operators(
    "bounds",
    lambda w, v: [w.clamp(0.2, 0.7), w.clamp_min(0.2), w.clamp_max(0.7)],
    lambda w, v: [w.clone().clamp_(0.2, 0.7), w.clone().clamp_min_(0.2), w.clone().clamp_max_(0.7)],
    lambda w, v: [torch.clamp(w, v, 2 * v), torch.clamp_min(w, v), torch.clamp_max(w, v)],
    lambda w, v: [w.clone().clamp_min_(v), w.clone().clamp_max_(v)],
    lambda w, v: [w.floor(), w.ceil(), w.round(), w.trunc()],
    lambda w, v: [w.tril(), w.triu()],
    inputs=row,
    dims={"m": 5, "n": 7},
)
operators(
    "truth values",
    lambda w, a, b: [
        a & b,
        a | b,
        a ^ b,
        ~a,
        torch.logical_and(a, b),
        torch.logical_or(a, b),
        torch.logical_xor(a, b),
        torch.logical_not(a),
    ],
    lambda w, a, b: [a.clone().logical_and_(b), a.clone().logical_or_(b), a.all(), a.any(), a.all(1), a.any(1)],
    lambda w, a, b: [torch._is_all_true(a), torch._is_any_true(a)],
    lambda w, a, b: [w.masked_fill(a, 0.0), w.masked_fill(a, torch.zeros(())), w.clone().masked_fill_(a, 0.0)],
    lambda w, a, b: w.clone().masked_fill_(a, torch.zeros(())),
    inputs=lambda s: (torch.rand(s.m, s.n) < 0.5, torch.rand(s.m, s.n) < 0.5),
    dims={"m": 5, "n": 7},
)
operators(
    "order",
    lambda w: [w.argmax(1), w.argmin(0), w.sort(1)[0], w.sort(dim=1, stable=True)[0], w.topk(2, 1)[0]],
    *unlearned(lambda w: torch.histc(w, 7, 0, 1)),
)
operators(
    "copies",
    lambda w: [torch.cat([w, w]), torch.stack([w, w]), F.pad(w, (1, 2)), w.flip(0), w.roll(1, 0), w.repeat(2, 2), w.double()],
    lambda w: [w[1:3], w[2], w.diagonal(), torch.slice_scatter(w, w[:-1], 0, 1), torch.select_scatter(w, w[1], 0, 2)],
)
operators(
    "copies of views",
    lambda w: [torch.alias_copy(w), torch.as_strided_copy(w, (2, 2), (1, 1)), torch.diagonal_copy(w), torch.t_copy(w)],
    lambda w: [torch.expand_copy(w, (2, *w.shape)), torch.narrow_copy(w, 0, 1, 2), torch.permute_copy(w, (1, 0))],
    lambda w: torch.view_copy(w, (w.numel(),)),
    lambda w: [torch.squeeze_copy(w[:1]), torch.squeeze_copy(w[:1], 0), torch.unsqueeze_copy(w, 0), torch.transpose_copy(w, 0, 1)],
    lambda w: [torch.unbind_copy(w)[0], torch.unfold_copy(w, 0, 2, 1), torch.split_with_sizes_copy(torch.cat([w, w]), [w.shape[0]] * 2)[1]],
)
PARTS = (torch.split_with_sizes, torch.unsafe_split_with_sizes)
operators(
    "views",
    lambda w: [w.t(), w.transpose(0, 1), w.permute(1, 0), w.unsqueeze(0), w.view(-1), w[:1].squeeze(), w[:1].squeeze(0)],
    lambda w: [w[:1].squeeze((0,)), w.expand(2, *w.shape), torch.stack([w, w]).unbind(0)[0], w.split(w.shape[0] - 1)],
    lambda w: [aten.alias(w), aten._reshape_alias(w, [w.numel()], [1]), aten._unsafe_view(w, [w.numel()]), w.unfold(0, 2, 1)],
    lambda w: [torch.unsafe_split(w, w.shape[0] - 1)[0], *(f(torch.cat([w, w]), [w.shape[0] - 1, w.shape[0] + 1])[0] for f in PARTS)],
    lambda w: torch.view_as_real(torch.view_as_complex(w[:, :2].contiguous())),
    *unlearned(lambda w: torch.view_as_complex(w[:, :2].contiguous()).conj()),
    *unlearned(lambda w: [w.as_strided((2, 2), (1, 1)), w.view(torch.int32), w.t_(), w.transpose_(0, 1), w.unsqueeze_(0), w.squeeze_(0)]),
    *unlearned(lambda w: w.unsqueeze_(0).squeeze_((0,))),
)
