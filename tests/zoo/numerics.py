"""Rarer functions, losses, distances and linear algebra, each in a training step of its own."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from calc.dimensions import Dim
from calc.platform.torch_private import VERSION
from tests.zoo.exhibit import network, operators
from tests.zoo.operators import at_places, each_of, in_place, row, unlearned

aten = torch.ops.aten

# -- functions ----------------------------------------------------------------------------------------------------------------


def _extremes(w: Tensor) -> tuple[Tensor, ...]:
    """Torch 2.11 has no gradient of ``aminmax``."""
    return (*torch.aminmax(w, dim=1), *torch.aminmax(w)) if VERSION > (2, 11) else ()


operators(
    "rarer functions",
    *each_of("asinh atanh erfinv lgamma frac sinc deg2rad rad2deg logit"),
    lambda w: torch.acosh(w + 1),
    lambda w: torch.logit(w, 0.1),
    lambda w: torch.special.entr(w),
    lambda w: [torch.special.i0(w), torch.special.erfcx(w), torch.special.log_ndtr(w), torch.linalg.cross(w[:, :3], w[:, 1:4])],
    lambda w: [F.hardshrink(w), F.softshrink(w), F.threshold(w, 0.1, 0.2), F.threshold(w.clone(), 0.1, 0.2, inplace=True)],
    lambda w: [F.rrelu(w, training=True), w.nan_to_num(), w.clone().tril_(), w.clone().triu_()],
    lambda w: [torch.digamma(w + 1), torch.polygamma(1, w + 1), w.renorm(2, 0, 0.5), w.renorm(3, 1, 0.5)],
    lambda w: [torch.special.i0e(w), torch.special.i1e(w), torch.special.ndtri(w / 2 + 0.1)],
    *unlearned(*in_place("ceil floor")),
    *unlearned(*(getattr(torch.special, f) for f in ("bessel_j0", "bessel_j1", "spherical_bessel_j0"))),
    *unlearned(lambda w: [torch.round(w, decimals=1), torch.frexp(w)[0], torch.signbit(w) * w]),
)
operators(
    "samples with gradients",
    lambda w: [torch.distributions.Gamma(w + 1, w + 1, validate_args=False).rsample()],
    lambda w: [torch.distributions.Dirichlet(w + 1, validate_args=False).rsample()],
)
operators(
    "rarer functions of two",
    *(lambda w, v, f=f: f(w, v) for f in (torch.hypot, torch.logaddexp, torch.copysign, torch.fmax, torch.fmin, torch.special.xlog1py)),
    lambda w, v: w * torch.heaviside(v, v),
    lambda w, v: torch.ldexp(w, (4 * v).int()),
    lambda w, v: F.prelu(w, v),
    lambda w, v: torch.polar(w, w.detach()).abs(),
    lambda w, v: torch.logaddexp2(w, v),
    *unlearned(*(getattr(torch, f) for f in ("igamma", "igammac", "nextafter")), torch.special.zeta),
    lambda w, v: torch.complex(w, w.detach()).abs(),
    *unlearned(lambda w, v: torch.complex(w, w).angle()),
    inputs=row,
    dims={"m": 5, "n": 7},
)
operators(
    "rarer truth values",
    lambda w, a, b: [torch.bitwise_left_shift(a.int(), b.int()) * w, torch.bitwise_right_shift(a.int(), b.int()) * w],
    lambda w, a, b: [a.any((0, 1)) * w, a.all((0, 1)) * w, torch.count_nonzero(a, 1) * w.sum(1), torch.count_nonzero(a, (0, 1)) * w],
    lambda w, a, b: [a.clone().bitwise_and_(b), a.clone().bitwise_or_(b), a.clone().logical_not_(), torch.isposinf(w), torch.isneginf(w)],
    inputs=lambda s: (torch.rand(s.m, s.n) < 0.5, torch.rand(s.m, s.n) < 0.5),
    dims={"m": 5, "n": 7},
)
operators(
    "rarer sums",
    lambda w: [
        w.logcumsumexp(1),
        w.cummax(1)[0],
        w.cummin(0)[0],
        w.norm(dim=1),
        w.norm(2, 0, keepdim=True),
        w.nansum(),
        torch.dist(w, 2 * w),
    ],
    lambda w: [*torch.std_mean(w, 1), *_extremes(w)],
    lambda w: [w.median(), w.median(1)[0], w.kthvalue(2, 1)[0], w.mode(1)[0], w * torch.count_nonzero(w)],
    lambda w: [w.nanmedian(), w.nanmedian(1)[0]],
)
operators("traces", lambda w: torch.trace(w), w="m m", dims={"m": 5}, other={"m": 13})
operators(
    "rarer order",
    lambda w, v: [w * torch.bucketize(v, v), w * torch.searchsorted(v, v)],
    lambda w, v: w * torch.isin(v, v),
    inputs=row,
    dims={"m": 5, "n": 7},
)
operators(
    "rarer copies",
    lambda w: [torch.diagonal_scatter(w[:3, :3], w[0, :3]), torch.diag_embed(w), w.rot90()],
    lambda w: [w * torch.eye(w.shape[1])[0], w * torch.eye(*w.shape)],
    lambda w: w[torch.tril_indices(3, 3)[0]] + w[torch.triu_indices(3, 3)[1]],
    *unlearned(
        lambda w: torch.block_diag(w, w), lambda w: torch.div(w, w[:1], out=torch.empty_like(w)), lambda w: w.set_(torch.ones_like(w))
    ),
)
operators(
    "rarer random numbers",
    lambda w: w * torch.normal(0.0, 1.0, (w.shape[1],)),
    *unlearned(
        lambda w: torch.normal(w, 1.0),
        lambda w: torch.normal(1.0, w),
        lambda w: torch.distributions.Normal(w, w + 1, validate_args=False).sample(),
        lambda w: torch.randint_like(w, 2, 7),
        lambda w: [w.geometric_(0.25), w.cauchy_(), w.log_normal_()],
        torch.bernoulli,
        torch.poisson,
        lambda w: torch._standard_gamma(w.t()).view(-1),
        torch._sample_dirichlet,
        lambda w: w[:, :2] * torch.multinomial(w, 2),
        lambda w: torch.randint_like(w, 7),
        lambda w: torch.bernoulli(w, 0.25),
    ),
)
at_places(
    "rarer places",
    lambda s: (torch.randint(s.m, (s.k, s.n)), torch.rand(s.k, s.n)),
    lambda w, i, x: [w.take(i), w.put(i, x), w.put(i, x, accumulate=True)],
    lambda w, i, x: [w.scatter_reduce(0, i, x, kind) for kind in ("sum", "amax", "mean")],
    lambda w, i, x: [w.clone().scatter_reduce_(0, i, x, kind) for kind in ("sum", "amax", "mean")],
    *unlearned(lambda w, i, x: w.scatter(0, i, x, reduce="add"), lambda w, i, x: w.scatter(0, i, 2.0, reduce="multiply")),
    *unlearned(lambda w, i, x: w.scatter_(0, i, x, reduce="add"), lambda w, i, x: w.scatter_(0, i, 2.0, reduce="multiply")),
    lambda w, i, x: w.index_fill(0, i[0], torch.zeros(())),
    lambda w, i, x: w.clone().index_fill_(0, i[0], torch.zeros(())),
)
operators(
    "products in place",
    *unlearned(lambda w: (w @ w.T).addmm_(w, w.T), lambda w: w[0].clone().addmv_(w.T, w[:, 0])),
    *unlearned(lambda w: (w @ w.T)[None].baddbmm_(w[None], w.T[None]), lambda w: (w @ w.T).addbmm_(w[None], w.T[None])),
)
operators("functions in place", *unlearned(lambda w: w.erf_(), lambda w: w.expm1_(), lambda w: w.cumsum_(0), lambda w: w.atan2_(w + 1)))
operators(
    "segments",
    *(lambda w, i, k=kind: torch.segment_reduce(w, k, lengths=i, unsafe=True) for kind in ("sum", "mean", "max", "min", "prod")),
    inputs=lambda s: (torch.full((s.k,), s.m // s.k),),
    dims={"k": 3, "m": Dim(6, multiple_of="k"), "n": 7},
    other={"k": 5, "m": 20, "n": 11},
)
operators(
    "masks",
    lambda w, a: [
        torch.masked_scatter(w, a, 2 * w),
        torch.index_put(w, (a,), torch.zeros(())),
        w.clone().index_put_((a,), torch.zeros(())),
    ],
    inputs=lambda s: (torch.rand(s.m, s.n) < 0.5,),
    dims={"m": 5, "n": 7},
)
operators(
    "repeated rows",
    lambda w, i: w.repeat_interleave(i, 0, output_size=w.shape[0] * 2),
    inputs=lambda s: (torch.full((s.m,), 2),),
    dims={"m": 5, "n": 7},
)

# -- Fourier transforms -------------------------------------------------------------------------------------------------------


class SpectralMixing(nn.Module):
    """Tokens and features mixed by a transform over both, in place of attention."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.up = nn.Linear(n.d, n.d)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.fft.fft2(self.up(x), norm="ortho").real + torch.fft.ifft(torch.fft.fft(x * self.up(x)), dim=1).real
        return x * torch.fft.fftfreq(x.shape[2]) + y * torch.fft.rfftfreq(x.shape[2])[:1]


class LongConvolution(nn.Module):
    """A filter as long as the sequence, applied by transforms of twice its length: over the last axis, or where it is."""

    def __init__(self, n: Any, last: bool) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.rand(n.d, n.T))
        self.up = nn.Linear(n.d, n.d)
        self.last = last

    def forward(self, x: Tensor) -> Tensor:
        twice = 2 * x.shape[1]
        kernel = torch.fft.rfft(self.kernel, n=twice)
        if self.last:
            signal = torch.fft.rfft(self.up(x).transpose(1, 2), n=twice)
            return torch.fft.irfft(signal * kernel, n=twice)[..., : x.shape[1]].transpose(1, 2)
        signal = torch.fft.rfft(self.up(x), n=twice, dim=1)
        return torch.fft.irfft(signal * kernel.t(), n=twice, dim=1, norm="forward")[:, : x.shape[1]]


class SpectralFilter(nn.Module):
    """Every frequency of an image multiplied by a weight of its own."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(n.p, n.q // 2 + 1, n.d, 2))
        self.up = nn.Linear(n.d, n.d)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.fft.rfft2(self.up(x), dim=(1, 2), norm="ortho") * torch.view_as_complex(self.weight)
        return torch.fft.irfft2(y, s=x.shape[1:3], dim=(1, 2), norm="ortho")


def tokens(n: Any) -> tuple[Tensor, ...]:
    return (torch.rand(n.B, n.T, n.d),)


network("spectral mixing", {"B": 3, "T": 7, "d": 5}, SpectralMixing, tokens, {"B": 2, "T": 11, "d": 17})
for last in (True, False):
    network(
        f"long convolution over the {'last' if last else 'middle'} axis",
        {"B": 3, "T": 7, "d": 5},
        lambda n, last=last: LongConvolution(n, last),
        tokens,
        {"B": 2, "T": 17, "d": 13},
    )
network(
    "spectral filter",
    {"B": 3, "p": 7, "q": 11, "d": 5},
    SpectralFilter,
    lambda n: (torch.rand(n.B, n.p, n.q, n.d),),
    {"B": 2, "p": 6, "q": 17, "d": 13},
)


class ComplexWeights(nn.Module):
    """A spectrum multiplied by complex weights, turned by angles and by numbers of Python's."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(n.d, n.m, dtype=torch.complex64))
        self.bias = nn.Parameter(torch.rand(n.m, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.fft.fft(x) @ self.weight + self.bias
        y = y * torch.polar(y.real, y.imag) * torch.complex(y.imag.mT.contiguous().mT, y.real) * 1j
        turned = torch.view_as_real(y * self.bias.conj()).tanh() + (x[..., :1, None] * (2 + 1j)).abs()
        return turned + torch.linalg.vector_norm(y) + y.sum(1, keepdim=True).real[..., None]


network("complex weights", {"B": 3, "T": 7, "d": 5, "m": 11}, ComplexWeights, tokens, {"B": 2, "T": 11, "d": 17, "m": 13})

# -- weights made of weights --------------------------------------------------------------------------------------------------

ROWS = {"B": 3, "n": 5, "m": 7}
OTHER_ROWS = {"B": 11, "n": 13, "m": 2}
CHANNELS, OTHER_CHANNELS = {**ROWS, "T": 11}, {**OTHER_ROWS, "T": 17}


def rows(n: Any) -> tuple[Tensor, ...]:
    return (torch.rand(n.B, n.n),)


def signals(n: Any) -> tuple[Tensor, ...]:
    return (torch.rand(n.B, n.n, n.T),)


def _weight_norm(module: nn.Module, dim: int = 0) -> nn.Module:
    """Torch's older weight norm, which recomputes the weight in a hook before each forward."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # deprecated, and in most speech models
        return nn.utils.weight_norm(module, dim=dim)


network("weight norm", ROWS, lambda n: nn.utils.parametrizations.weight_norm(nn.Linear(n.n, n.m)), rows, OTHER_ROWS)
network("weight norm of a vector", ROWS, lambda n: nn.utils.parametrizations.weight_norm(nn.Linear(n.n, n.m), "bias"), rows, OTHER_ROWS)
network("weight norm by hooks", ROWS, lambda n: _weight_norm(nn.Linear(n.n, n.m)), rows, OTHER_ROWS)
network("weight norm by hooks, of the inner axis", CHANNELS, lambda n: _weight_norm(nn.Conv1d(n.n, n.m, 3), 1), signals, OTHER_CHANNELS)
network("spectral norm", ROWS, lambda n: nn.utils.parametrizations.spectral_norm(nn.Linear(n.n, n.m)), rows, OTHER_ROWS)
network("spectral norm by hooks", ROWS, lambda n: nn.utils.spectral_norm(nn.Linear(n.n, n.m)), rows, OTHER_ROWS)
network(
    "prelu",
    ROWS,
    lambda n: nn.Sequential(nn.Linear(n.n, n.m), nn.PReLU(), nn.RReLU(), nn.Hardshrink(), nn.Softshrink(), nn.Tanhshrink(), nn.Softmin(1)),
    rows,
    OTHER_ROWS,
)

# -- bags of words ------------------------------------------------------------------------------------------------------------


class Bags(nn.Module):
    """Words that are added up, averaged or compared, in bags of T."""

    def __init__(self, n: Any, mode: str, weighted: bool = False) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(n.V, n.d, mode=mode)
        self.weights = nn.Parameter(torch.ones(n.T)) if weighted else None

    def forward(self, ids: Tensor) -> Tensor:
        weights = None if self.weights is None else self.weights.expand(ids.shape)
        return self.words(ids, per_sample_weights=weights)


BAG = {"B": 3, "T": 7, "V": 11, "d": 5}
for mode, weighted in (("sum", False), ("sum", True), ("mean", False), ("max", False)):
    network(
        f"bags of words, {mode}{', weighted' if weighted else ''}",
        BAG,
        lambda n, m=mode, w=weighted: Bags(n, m, w),
        lambda n: (torch.randint(n.V, (n.B, n.T)),),
        {"B": 2, "T": 5, "V": 13, "d": 3},
    )
network(
    "bags of words with an end",
    {"B": 3, "V": 11, "d": 5},
    lambda n: nn.EmbeddingBag(n.V, n.d, mode="sum", include_last_offset=True),
    lambda n: (torch.randint(n.V, (2 * n.B,)), torch.arange(n.B + 1) * 2),
    {"B": 2, "V": 13, "d": 7},
)
# The kernel for tables whose rows lie side by side notes no bags; this one does.
network(
    "bags of words of a table that is turned, weighted",
    {"B": 3, "V": 11, "d": 5},
    lambda n: nn.Linear(n.V, n.d, bias=False),
    lambda n: (torch.randint(n.V, (2 * n.B,)), torch.arange(n.B) * 2, torch.rand(2 * n.B)),
    {"B": 2, "V": 13, "d": 7},
    lambda module, ids, starts, x: F.embedding_bag(
        ids, module.weight.t(), starts, mode="sum", per_sample_weights=x * module.weight.mean()
    ).sum(),
)
operators(
    "bags without a gradient",
    *(lambda w, i, o, v, m=mode: aten._embedding_bag_forward_only(w.detach(), i, o, False, m)[0] for mode in range(3)),
    lambda w, i, o, v: aten._embedding_bag_forward_only(w.detach(), i, o, False, 0, False, v)[0],
    inputs=lambda s: (torch.randint(s.m, (2 * s.k,)), torch.arange(s.k) * 2, torch.rand(2 * s.k)),
    dims={"m": 5, "n": 7, "k": 3},
    other={"m": 13, "n": 17, "k": 11},
)

# -- losses -------------------------------------------------------------------------------------------------------------------

Loss = Callable[..., Tensor]
LOSSES: dict[str, Loss] = {
    "soft margin": lambda p, y, r: F.soft_margin_loss(p, 2 * y - 1, reduction=r),
    "several soft margins": lambda p, y, r: F.multilabel_soft_margin_loss(p, y, reduction=r),
    "hinge": lambda p, y, r: F.hinge_embedding_loss(p, 2 * y - 1, reduction=r),
    "ranking": lambda p, y, r: F.margin_ranking_loss(p, y, torch.ones_like(y), 0.1, reduction=r),
    "cosine": lambda p, y, r: F.cosine_embedding_loss(p, y, torch.ones_like(y[:, 0]), reduction=r),
    "triplet": lambda p, y, r: F.triplet_margin_loss(p, y, 1 - y, reduction=r),
    "triplet, swapped": lambda p, y, r: F.triplet_margin_loss(p, y, 1 - y, swap=True, reduction=r),
    "poisson": lambda p, y, r: F.poisson_nll_loss(p, y, reduction=r) + F.poisson_nll_loss(p, y, full=True, reduction=r),
    "divergence": lambda p, y, r: F.kl_div(p, y.log_softmax(1), log_target=True, reduction=r),
    "soft classes": lambda p, y, r: F.cross_entropy(p, y, reduction=r),
    "angles": lambda p, y, r: F.cosine_similarity(p, y) + F.pairwise_distance(p, y) + F.normalize(p).sum(1),
}


def prediction(loss: Loss) -> Any:
    return lambda module, x, y: torch.stack([loss(module(x), y, reduction).sum() for reduction in ("mean", "sum", "none")]).sum()


for name, loss in LOSSES.items():
    network(
        f"loss, {name}",
        ROWS,
        lambda n: nn.Linear(n.n, n.m),
        lambda n: (torch.rand(n.B, n.n), torch.rand(n.B, n.m)),
        OTHER_ROWS,
        prediction(loss),
    )
Paths = Callable[[Tensor, Tensor], tuple[Any, Any]]
# Steps and labels of each row: all that there are, or numbers.
LENGTHS: dict[str, Paths] = {
    "all of them": lambda x, y: (torch.full((x.shape[1],), x.shape[0]), torch.full((y.shape[0],), y.shape[1])),
    "in lists": lambda x, y: ([17, 17, 15], [4, 3, 4]),
}


def labelled(lengths: Paths) -> Any:
    """The loss of paths with each reduction, over the logarithms of probabilities."""

    def loss(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        scores, kept = module(x).log_softmax(2), ((False, "mean"), (True, "sum"), (False, "none"))
        return torch.stack([F.ctc_loss(scores, y, *lengths(x, y), reduction=r, zero_infinity=zero).sum() for zero, r in kept]).sum()

    return loss


for name, lengths in LENGTHS.items():
    listed = name == "in lists"
    network(
        f"loss of paths, {name}",
        {"C": 13, "d": 7} if listed else {"T": 17, "B": 3, "S": 4, "C": 13, "d": 7},
        lambda n: nn.Linear(n.d, n.C),
        lambda n, s=listed: (torch.rand(17 if s else n.T, 3 if s else n.B, n.d), torch.randint(1, n.C, (3 if s else n.B, 4 if s else n.S))),
        {"C": 5, "d": 3} if listed else {"T": 23, "B": 2, "S": 5, "C": 7, "d": 3},
        labelled(lengths),
    )
CLASS_LOSSES: dict[str, Loss] = {
    "margins": lambda p, t, r: F.multi_margin_loss(p, t[:, 0], reduction=r),
    "margins, weighted": lambda p, t, r: F.multi_margin_loss(p, t[:, 0], p=2, weight=p[0].detach(), reduction=r),
    "several margins": lambda p, t, r: F.multilabel_margin_loss(p, t, reduction=r),
}
for name, loss in CLASS_LOSSES.items():
    network(
        f"loss, {name}",
        ROWS,
        lambda n: nn.Linear(n.n, n.m),
        lambda n: (torch.rand(n.B, n.n), torch.randint(n.m, (n.B, n.m))),
        OTHER_ROWS,
        prediction(loss),
    )

# -- distances ----------------------------------------------------------------------------------------------------------------


def other_rows(s: Any) -> tuple[Tensor, ...]:
    return (torch.rand(s.k, s.n),)


operators(
    "distances",
    *(lambda w, v, p=p: torch.cdist(w, v, p) for p in (1.0, 2.0, 3.0)),
    lambda w, v: torch.cdist(w, v, compute_mode="use_mm_for_euclid_dist"),
    *(lambda w, v, p=p: F.pdist(w, p) for p in (1.0, 2.0, 3.0)),
    inputs=other_rows,
)

# Torch takes another way where there are more than 25 rows.
for rows_, more in ((7, 11), (31, 37)):
    operators(
        f"distances of {rows_} rows",
        lambda w, x: torch.cdist(x @ w, x),
        w="d d",
        inputs=tokens,
        dims={"B": 3, "T": rows_, "d": 5},
        other={"B": 2, "T": more, "d": 13},
    )

# -- products and systems of equations ----------------------------------------------------------------------------------------

operators(
    "rarer products",
    lambda w, v: torch.addmv(w[:, 0], w, v[0], beta=0.5, alpha=2),
    lambda w, v: torch.addbmm(w, w[None] @ v.t() @ v, torch.eye(w.shape[1])[None], beta=0.5, alpha=2),
    lambda w, v: [torch.addr(w, w[:, 0], v[0]), torch.outer(w[:, 0], v[0]), torch.vdot(w[0], v[0]), torch.inner(w, v)],
    lambda w, v: [
        torch.einsum("mn,kn->mk", w, v),
        torch.einsum("mn,mn->m", w, w),
        torch.einsum("mn,kn->mkn", w, v),
        torch.tensordot(w, v.t(), 1),
    ],
    inputs=other_rows,
)
network(
    "bilinear layer",
    {"B": 3, "n": 5, "m": 7, "f": 11},
    lambda n: nn.Bilinear(n.n, n.m, n.f),
    lambda n: (torch.rand(n.B, n.n), torch.rand(n.B, n.m)),
    {"B": 2, "n": 7, "m": 3, "f": 5},
)


def dominant(w: Tensor) -> Tensor:
    """A matrix that has an inverse."""
    return w + 20 * torch.eye(w.shape[-1])


SQUARE = {"w": "m m", "dims": {"m": 5, "k": 3}, "other": {"m": 13, "k": 2}}


def right(s: Any) -> tuple[Tensor, ...]:
    return (torch.rand(s.m, s.k),)


operators(
    "triangular systems",
    lambda w, b: torch.linalg.solve_triangular(dominant(w).tril(), b, upper=False),
    lambda w, b: torch.linalg.solve_triangular(dominant(w).tril(), b.t(), upper=False, left=False, unitriangular=True),
    inputs=right,
    **SQUARE,
)
operators("inverses", lambda w, b: torch.linalg.inv(dominant(w)), lambda w, b: torch.linalg.inv(dominant(w)) @ b, inputs=right, **SQUARE)
operators("systems of equations", lambda w, b: torch.linalg.solve(dominant(w), b), inputs=right, **SQUARE)
operators(
    "determinants", lambda w, b: torch.linalg.det(dominant(w)), lambda w, b: torch.linalg.slogdet(dominant(w))[1], inputs=right, **SQUARE
)
operators(
    "orthogonal factors",
    lambda w, b: torch.linalg.qr(dominant(w)),
    lambda w, b: torch.linalg.qr(b @ b.t() @ w)[1],
    *unlearned(lambda w, b: [torch.linalg.qr(b)[0], torch.linalg.qr(b.t())[1], torch.linalg.qr(b, "r")[1]]),
    inputs=right,
    **SQUARE,
)
operators(
    "roots of matrices",
    lambda w, b: torch.linalg.cholesky(dominant(w + w.t())),
    *unlearned(lambda w, b: torch.cholesky_solve(b, dominant(w).tril())),
    inputs=right,
    **SQUARE,
)
operators(
    "sequences of blocks",
    lambda w, x: torch.linalg.solve_triangular(torch.eye(w.shape[-1]) + (x @ x.mT).tril(-1), x, upper=False, unitriangular=True),
    w="m m",
    inputs=lambda s: (torch.rand(s.B, s.m, s.k),),
    dims={"B": 2, "m": Dim(6, multiple_of=2), "k": 5},
    other={"B": 3, "m": 14, "k": 11},
)
