"""Real calls of rarer functions, reductions, losses, distances and linear algebra."""

from __future__ import annotations

import torch

from tests.rules.calls import add, bits, call, ints, r
from tests.rules.operators import Case

aten = torch.ops.aten

# -- pointwise ----------

add(
    "asinh.default lgamma.default digamma.default frac.default sinc.default deg2rad.default rad2deg.default special_entr.default"
    " hardshrink.default softshrink.default nan_to_num.default ceil_.default floor_.default isposinf.default"
    " isneginf.default",
    lambda: call(r(2, 3, 5)),
)
add(
    "special_i0e.default special_i1e.default special_bessel_j0.default special_bessel_j1.default special_spherical_bessel_j0.default"
    " signbit.default frexp.Tensor",
    lambda: call(r(2, 3, 5)),
)
add("special_ndtri.default", lambda: call(torch.rand(2, 3, 5)))
add("round.decimals", lambda: call(r(2, 3, 5), decimals=1))
add("polygamma.default", lambda: call(1, r(2, 3, 5)))
add("igamma.default igammac.default special_zeta.default logaddexp2.default nextafter.default", lambda: call(r(2, 3, 5), r(5) + 1))
add("polygamma_.default", lambda: call(r(3, 5), 1))
add("special_zeta.other_scalar", lambda: call(r(3, 5), 2.0))
add("special_zeta.self_scalar", lambda: call(2.0, r(3, 5)))
add("bitwise_left_shift.Tensor_Scalar bitwise_right_shift.Tensor_Scalar", lambda: call(ints(7, 3, 5), 2))
add("bitwise_left_shift.Scalar_Tensor bitwise_right_shift.Scalar_Tensor", lambda: call(7, ints(3, 5)))
add("bitwise_left_shift_.Tensor_Scalar bitwise_right_shift_.Tensor_Scalar", lambda: call(ints(7, 3, 5), 2))
add("_standard_gamma_grad.default", lambda: call(r(3, 5), r(3, 5)))
add("_dirichlet_grad.default", lambda: call(torch.rand(3, 5), r(3, 5), r(3, 5) + 2))
add("bitwise_left_shift.Tensor bitwise_right_shift.Tensor", lambda: call(ints(7, 3, 5), ints(3, 5)))
add("i0.default special_i1.default special_erfcx.default special_log_ndtr.default", lambda: call(r(2, 3, 5)))
add("acosh.default", lambda: call(r(2, 3, 5) + 1))
add("atanh.default erfinv.default", lambda: call(torch.rand(2, 3, 5)))
add("logit.default", lambda: call(torch.rand(2, 3, 5)), lambda: call(torch.rand(2, 3, 5), 0.1))
add("logit_backward.default", lambda: call(r(2, 3, 5), torch.rand(2, 3, 5)))
add(
    "hypot.default logaddexp.default copysign.Tensor fmax.default fmin.default special_xlog1py.default heaviside.default",
    lambda: call(r(2, 3, 5), r(5)),
)
add("ldexp.Tensor", lambda: call(r(2, 3, 5), ints(5, 5)))
add("complex.default", lambda: call(r(3, 5), r(3, 5)))
add("angle.default", lambda: call(torch.complex(r(3, 5), r(3, 5))))
add("_prelu_kernel.default", lambda: call(r(2, 3, 5) - 1, r(1, 3, 1)))
add("_prelu_kernel_backward.default", lambda: call(r(2, 3, 5), r(2, 3, 5) - 1, r(1, 3, 1)))
add("softshrink_backward.default hardshrink_backward.default", lambda: call(r(3, 5), r(3, 5), 0.5))
add("threshold.default threshold_.default", lambda: call(r(3, 5), 1.0, 0.0))
add("rrelu_with_noise.default", lambda: call(r(3, 5), torch.empty(3, 5), 0.1, 0.3, True))
add("rrelu_with_noise_backward.default", lambda: call(r(3, 5), r(3, 5), r(3, 5), 0.1, 0.3, True, False))

add("is_same_size.default", lambda: call(r(3, 5), r(3, 5)))

# -- lengths of sequences ----------

add(
    "_pack_padded_sequence.default",
    lambda: call(r(3, 7, 5), torch.tensor([7, 5, 5]), True),
    lambda: call(r(7, 2, 5), torch.tensor([6, 2]), False),
)


def _paths(of: type, flat: bool = False, zero_infinity: bool = False) -> Case:
    """Three rows of 11 steps, 13 letters and at most 4 of them in a label."""
    letters, labels = [4, 2, 3], torch.randint(1, 13, (9,) if flat else (3, 4))
    return call(r(11, 3, 13).log_softmax(2), labels, of([11, 9, 10]), of(letters), 0, zero_infinity)


def _paths_back(of: type, zero_infinity: bool = False) -> Case:
    scores, labels, *lengths = _paths(of).args
    loss, log_alpha = aten._ctc_loss(scores, labels, *lengths)
    return call(r(3), scores, labels, *lengths[:2], loss, log_alpha, 0, zero_infinity)


add("_ctc_loss.default", lambda: _paths(list), lambda: _paths(list, flat=True), lambda: _paths(list, zero_infinity=True))
add("_ctc_loss.Tensor", lambda: _paths(torch.tensor), lambda: _paths(torch.tensor, flat=True))
add("_ctc_loss_backward.default", lambda: _paths_back(list), lambda: _paths_back(list, zero_infinity=True))
add("_ctc_loss_backward.Tensor", lambda: _paths_back(torch.tensor))

# -- Fourier transforms: lines of 5, 6, 7 and 8 ----------


def _c(*shape: int) -> torch.Tensor:
    return torch.complex(r(*shape), r(*shape))


add(
    "_fft_c2c.default",
    lambda: call(_c(3, 6, 5), [1], 0, True),
    lambda: call(_c(3, 6, 5), [2], 1, False),
    lambda: call(_c(3, 7, 8), [2, 1], 2, True),
    lambda: call(_c(3, 2, 7, 5), [0, 3], 0, True),
)
add(
    "_fft_r2c.default",
    lambda: call(r(3, 7, 6), [2], 0, True),
    lambda: call(r(3, 7, 5), [1], 0, False),
    lambda: call(r(3, 7, 6), [1], 2, True),
    lambda: call(r(3, 7, 8), [2, 1], 1, True),
    lambda: call(r(3, 2, 7, 5), [0, 3], 0, True),
)
add(
    "_fft_c2r.default",
    lambda: call(_c(3, 7, 4), [2], 0, 6),
    lambda: call(_c(3, 7, 4), [2], 2, 7),
    lambda: call(_c(3, 5, 7), [1], 2, 8),
    lambda: call(_c(3, 5, 7), [2, 1], 1, 8),
)

add("fft_fftfreq.default fft_rfftfreq.default", lambda: call(7), lambda: call(8, 0.5))

add("linalg_vector_norm.default", lambda: call(_c(3, 5)), lambda: call(_c(3, 5), 3, [1]))
add("mean.default", lambda: call(_c(3, 5)))
add("mean.dim", lambda: call(_c(2, 3, 5), [1]), lambda: call(_c(2, 3, 5), [0, 2], True))

# -- reductions and order ----------

add("logcumsumexp.default", lambda: call(r(2, 3, 5), 1))
add("cummax.default cummin.default", lambda: call(r(3, 5), 1))
add(
    "norm.ScalarOpt_dim",
    lambda: call(r(2, 3, 5), 2, [1]),
    lambda: call(r(2, 3, 5), 2, [0, 2], True),
    lambda: call(r(2, 3, 5), 3, [1]),
    lambda: call(r(2, 3, 5), 1, [1]),
    lambda: call(r(2, 1, 5), 2, [1]),
)
add(
    "dist.default",
    lambda: call(r(2, 3, 5), r(2, 3, 5)),
    lambda: call(r(3, 1), r(2, 1, 5)),
    lambda: call(r(2, 3, 5), r(2, 3, 5), 1),
    lambda: call(r(1), r(1)),
)
add("aminmax.default", lambda: call(r(2, 3, 5), dim=1), lambda: call(r(2, 3, 5)))
add("nansum.default count_nonzero.default nanmedian.default", lambda: call(r(2, 3, 5)))
add("count_nonzero.dim_IntList", lambda: call(r(2, 3, 5), [1]), lambda: call(r(2, 3, 5), [0, -1]))
add("nanmedian.dim", lambda: call(r(2, 3, 5), 1))
add("renorm.default", *(lambda p=p, dim=dim: call(r(2, 3, 5), p, dim, 0.5) for p, dim in ((2, 0), (1.0, 1), (3.0, -1))))
add("std_mean.correction", lambda: call(r(2, 3, 5), [1]))
add("trace.default", lambda: call(r(5, 5)))
add("kthvalue.default", lambda: call(r(3, 5), 2))
add("median.default mode.default", lambda: call(r(3, 5)))
add("median.dim", lambda: call(r(3, 5), 1))
add("bucketize.Tensor", lambda: call(r(3, 5), r(7).sort()[0]))
add("isin.Tensor_Tensor", lambda: call(r(3, 5), r(7)))
add("tril_.default triu_.default", lambda: call(r(3, 5)))
add("bitwise_and_.Tensor bitwise_or_.Tensor", lambda: call(bits(3, 5), bits(3, 5)))
add("logical_not_.default", lambda: call(bits(3, 5)))

# -- segments: 2 and 5 of 7 rows ----------


def _segments(kind: str) -> Case:
    return call(r(7, 5), kind, lengths=torch.tensor([2, 5]), unsafe=True)


def _segments_backward(kind: str) -> Case:
    return call(r(2, 5), r(2, 5), r(7, 5), kind, lengths=torch.tensor([2, 5]))


add("segment_reduce.default", *(lambda k=k: _segments(k) for k in ("sum", "mean", "max", "min", "prod")))
add("_segment_reduce_backward.default", *(lambda k=k: _segments_backward(k) for k in ("sum", "mean", "max", "min", "prod")))

# -- copies and new tensors ----------

add("diagonal_scatter.default", lambda: call(r(3, 5), r(3)))
add("diag_embed.default", lambda: call(r(3, 5)))
add("rot90.default", lambda: call(r(3, 5)))
add("block_diag.default", lambda: call([r(3, 5), r(2, 7)]))
add("repeat_interleave.Tensor", lambda: call(torch.tensor([2, 3, 2]), output_size=7))
add("div.out", lambda: call(r(3, 5), r(5), out=r(3, 5)))
add("set_.source_Tensor", lambda: call(r(3, 5), r(3, 5)))
add("set_.source_Storage_storage_offset", lambda: call(r(3, 5), r(3, 5).untyped_storage(), 0, [5], [1]))
add("eye.default", lambda: call(5))
add("eye.m", lambda: call(3, 5))
add("tril_indices.default triu_indices.default", lambda: call(3, 5))
add("normal.float_float", lambda: call(0.0, 1.0, [3, 5]))
add("normal.Tensor_float", lambda: call(r(3, 5), 1.0))
add("normal.float_Tensor", lambda: call(1.0, r(3, 5)))
add("normal.Tensor_Tensor", lambda: call(r(3, 5), r(3, 5)))
add("randint_like.low_dtype", lambda: call(r(3, 5), 2, 7))
add("geometric_.default", lambda: call(r(3, 5), 0.25))
add("cauchy_.default log_normal_.default", lambda: call(r(3, 5)))
add("bernoulli.default", lambda: call(torch.rand(3, 5)))
add("bernoulli.p", lambda: call(r(3, 5), 0.25))
add("poisson.default", lambda: call(r(3, 5)))
add("_sample_dirichlet.default _standard_gamma.default", lambda: call(r(3, 5)))
add("multinomial.default", lambda: call(r(3, 5), 2))
add("randint_like.default", lambda: call(r(3, 5), 7))

# -- places ----------

add("take.default", lambda: call(r(3, 5), ints(15, 7)))
add("put.default", lambda: call(r(3, 5), ints(15, 7), r(7)), lambda: call(r(3, 5), ints(15, 7), r(7), True))
add("index_fill.int_Tensor", lambda: call(r(7, 5), 0, ints(7, 3), r()))
add("masked_scatter.default", lambda: call(r(3, 5), bits(3, 5), r(15)))
add("masked_scatter_backward.default", lambda: call(r(3, 5), bits(3, 5), [17]))
add("scatter_reduce.two scatter_reduce_.two", *(lambda k=k: call(r(7, 5), 0, ints(7, 3, 2), r(11, 5), k) for k in ("sum", "amax", "mean")))
add("scatter.reduce scatter_.reduce", lambda: call(r(7, 5), 0, ints(7, 3, 2), r(11, 5), reduce="add"))
add("scatter.value_reduce scatter_.value_reduce", lambda: call(r(7, 5), 0, ints(7, 3, 2), 2.0, reduce="multiply"))
add("index_put.default index_put_.default", lambda: call(r(7, 5), [torch.rand(7, 5) < 0.5], r()))

# -- weights ----------

add(
    "_weight_norm_interface.default",
    lambda: call(r(7, 5), r(7, 1)),
    lambda: call(r(7, 5, 3), r(1, 1, 3), 2),
    lambda: call(r(7, 1), r(7, 1)),
    lambda: call(r(7), r(7)),
)
add(
    "_weight_norm_interface_backward.default",
    lambda: call(r(7, 5), r(7, 5), r(7, 1), r(7, 1), 0),
    lambda: call(r(7), r(7), r(7), r(7), 0),
)

# -- bags: 7 indices in 3 bags, of 11 rows of 5 ----------


def _bag(mode: int, weights: bool = False) -> Case:
    given = r(7) if weights else None
    return call(r(11, 5), ints(11, 7), torch.tensor([0, 2, 3]), False, mode, False, given)


def _bag_backward(mode: int, weights: bool = False) -> Case:
    args = _bag(mode, weights).args
    out, offset2bag, bag_size, largest = aten._embedding_bag(*args)
    return call(torch.rand_like(out), args[1], args[2], offset2bag, bag_size, largest, 11, False, mode, False, args[6])


def _bag_with_end(mode: int, weights: bool = False) -> Case:
    given = r(7) if weights else None
    return call(r(11, 5), ints(11, 7), torch.tensor([0, 2, 3, 7]), False, mode, False, given, True)


BAGS = [(0, False), (0, True), (1, False), (2, False)]
add("_embedding_bag.default _embedding_bag_forward_only.default", *(lambda b=b: _bag(*b) for b in BAGS))
add("_embedding_bag.default _embedding_bag_forward_only.default", *(lambda b=b: _bag_with_end(*b) for b in BAGS))
add("_embedding_bag_backward.default", *(lambda b=b: _bag_backward(*b) for b in BAGS))
add(
    "_embedding_bag_per_sample_weights_backward.default",
    lambda: call(r(3, 5), r(11, 5), ints(11, 7), torch.tensor([0, 2, 3]), torch.tensor([0, 0, 1, 2, 2, 2, 2]), 0),
)

# -- losses by margins ----------

for _kind in (0, 1, 2):
    _of_rows = (5,) if _kind == 0 else ()
    add("soft_margin_loss.default", lambda k=_kind: call(r(5, 7), r(5, 7), k))
    add("soft_margin_loss_backward.default", lambda k=_kind: call(r(*((5, 7) if k == 0 else ())), r(5, 7), r(5, 7), k))
    for _p, _weight in ((1, False), (2, True)):
        _of = lambda w=_weight: r(7) if w else None  # noqa: E731  # binds the loop's weight
        add("multi_margin_loss.default", lambda k=_kind, p=_p, w=_of: call(r(5, 7), ints(7, 5), p, 1.0, w(), k))
        add(
            "multi_margin_loss_backward.default",
            lambda k=_kind, p=_p, w=_of, s=_of_rows: call(r(*s), r(5, 7), ints(7, 5), p, 1.0, w(), k),
        )
    add("multilabel_margin_loss_forward.default", lambda k=_kind: call(r(5, 7), ints(7, 5, 7), k))
    add(
        "multilabel_margin_loss_backward.default",
        lambda k=_kind, s=_of_rows: call(r(*s), r(5, 7), ints(7, 5, 7), k, bits(5, 7).float()),
    )

# -- distances: 3 rows and 7 rows of 5 ----------

add("_cdist_forward.default", *(lambda p=p: call(r(2, 3, 5), r(2, 7, 5), p, None) for p in (1.0, 2.0, 3.0, float("inf"))))
add("_pdist_forward.default", *(lambda p=p: call(r(5, 7), p) for p in (1.0, 2.0, 3.0, float("inf"))), lambda: call(r(5, 7)))
add("_pdist_backward.default", *(lambda p=p: call(r(10), r(5, 7), p, r(10)) for p in (1.0, 2.0, 3.0)))
add("_cdist_backward.default", *(lambda p=p: call(r(2, 3, 7), r(2, 3, 5), r(2, 7, 5), p, r(2, 3, 7)) for p in (1.0, 2.0, 3.0)))
# One product of 3 x (5 + 2) and (5 + 2) x 7.
add("_euclidean_dist.default", lambda: Case((r(2, 3, 5), r(2, 7, 5)), matmul=2 * 2 * 3 * 7 * 7))

# -- products and systems of equations ----------

add("vdot.default", lambda: Case((r(5), r(5)), matmul=2 * 5))
add("addmv.default", lambda: Case((r(3), r(3, 5), r(5)), {"beta": 0.5, "alpha": 2}, matmul=2 * 3 * 5))
add("addbmm.default", lambda: Case((r(5), r(7, 2, 3), r(7, 3, 5)), {"beta": 0.5, "alpha": 2}, matmul=2 * 7 * 2 * 3 * 5))
add("linalg_cross.default", lambda: call(r(2, 3), r(2, 3)))
add("addr.default", lambda: call(r(3, 5), r(3), r(5)), lambda: call(r(5), r(3), r(5)), lambda: call(r(3, 5), r(3), r(5), beta=0))
# A bilinear layer: 2 rows, 3 outputs of 5 x 7 products.
add(
    "_trilinear.default",
    lambda: Case((r(2, 5), r(3, 5, 7), r(2, 7), [1, 3], [0], [1, 2], [2, 3]), matmul=2 * 2 * 3 * 5 * 7),
)


def _matrices(n: int = 5) -> torch.Tensor:
    return torch.rand(2, n, n) + n * torch.eye(n)


def _symmetric() -> torch.Tensor:
    return (_matrices() + _matrices().mT) / 2


# n = 5: n(n - 1) = 20 FLOP for a triangle and one right-hand side, n(n - 1)(2n - 1)/3 = 60 for L U, n(n² - 1)/3 = 40 for L Lᵀ.
add(
    "linalg_solve_triangular.default",
    lambda: Case((_matrices().tril(), r(2, 5, 3)), {"upper": False}, matmul=2 * 20 * 3),
    lambda: Case((_matrices().tril(), r(2, 3, 5)), {"upper": False, "left": False, "unitriangular": True}, matmul=2 * 20 * 3),
)
add("linalg_inv_ex.default", lambda: Case((_matrices(),), matmul=2 * (60 + 2 * 20 * 5)))
add("_linalg_solve_ex.default", lambda: Case((_matrices(), r(2, 5, 3)), matmul=2 * (60 + 2 * 20 * 3)))
add("_linalg_det.default", lambda: Case((_matrices(),), matmul=2 * 60))
add("_linalg_slogdet.default", lambda: Case((_matrices(),), matmul=2 * 60))
# 7 x 5: 4 times 7·4 + 6·3 + 5·2 + 4·1 for R and 7·5 + 6·4 + 5·3 + 4·2 + 3·1 for Q; 5 x 7: 5·6 + 4·5 + 3·4 + 2·3 + 1·2 and 5² + … + 1.
add(
    "linalg_qr.default",
    lambda: Case((r(2, 7, 5),), matmul=2 * 4 * (60 + 85)),
    lambda: Case((r(5, 7),), matmul=4 * (70 + 55)),
    lambda: Case((r(7, 5), "r"), matmul=4 * 60),
)
add("linalg_cholesky_ex.default", lambda: Case((_symmetric(),), matmul=2 * 40))
add("cholesky_solve.default", lambda: Case((r(2, 5, 3), _matrices().tril()), matmul=2 * 2 * 20 * 3))


def _lu_solve() -> Case:
    lu, exchanges = torch.linalg.lu_factor(_matrices())
    return Case((lu, exchanges, r(2, 5, 3)), matmul=2 * 2 * 20 * 3)


add("linalg_lu_solve.default", _lu_solve)
add("_linalg_check_errors.default", lambda: Case((torch.zeros(3, dtype=torch.int32), "linalg.inv"), {"is_matrix": False}))
