"""At least one real call for every operator that has a rule or is free. Sizes are distinct primes, so none hides another."""

from __future__ import annotations

import torch

from tests.rules import (  # noqa: F401  # each adds its calls
    cases_attention,
    cases_decided,
    cases_images,
    cases_in_place,
    cases_normalization,
    cases_numerics,
    cases_products,
    cases_updates,
)
from tests.rules.calls import CASES as CASES
from tests.rules.calls import add, bits, call, ints, on_meta, r, spread
from tests.rules.operators import Case

# -- reductions ----------

add("sum.default prod.default mean.default amax.default amin.default max.default min.default", lambda: call(r(2, 3, 5)))
add("sum.default", lambda: call(r(5, 1).expand(5, 7)))
add("sum.dim_IntList", lambda: call(r(2, 3, 5), [0, -1], True), lambda: call(r(2, 3, 5), [1]), lambda: call(r(2, 3, 5), None))
add("mean.dim", lambda: call(r(2, 3, 5), [-1], True), lambda: call(r(2, 3, 5), [0, 2]))
add("amax.default amin.default", lambda: call(r(2, 3, 5), [1]))
add("max.dim min.dim prod.dim_int", lambda: call(r(2, 3, 5), 1))
add("var.correction std.correction var_mean.correction", lambda: call(r(2, 3, 5), [1]), lambda: call(r(2, 3, 5), correction=1))
add("logsumexp.default", lambda: call(r(2, 3, 5), [1]), lambda: call(r(2, 3, 5), [0, -1], True))
add(
    "linalg_vector_norm.default",
    lambda: call(r(2, 3, 5)),
    lambda: call(r(2, 3, 5), 2, [1]),
    lambda: call(r(2, 3, 5), 1, [1]),
    lambda: call(r(2, 3, 5), 3.0, [1]),
    lambda: call(r(2, 3, 5), float("inf"), [1]),
    lambda: call(r(2, 3, 5), 0, [1]),
    lambda: call(r(1, 1)),
)
add("cumsum.default cumprod.default", lambda: call(r(2, 3, 5), 1), lambda: call(ints(5, 2, 7), -1))

# -- embeddings and indexing ----------

add("embedding.default", lambda: call(r(7, 5), ints(7, 2, 3)), lambda: call(r(7, 5), ints(7, 1, 3).expand(2, 3)))
add(
    "embedding_dense_backward.default",
    lambda: call(r(2, 3, 5), ints(7, 2, 3), 7, -1, False),
    lambda: call(r(2, 3, 5), ints(7, 2, 3), 7, -1, True),
)
add(
    "index.Tensor _unsafe_index.Tensor",
    lambda: call(r(7, 5, 3), [ints(7, 2, 11)]),
    lambda: call(r(7, 5, 3), [None, ints(5, 2), ints(3, 1)]),
)
add("index_select.default", lambda: call(r(7, 5), 0, ints(7, 3)))
add("gather.default", lambda: call(r(7, 5), 1, ints(5, 3, 2)))
add(
    "index_put.default _unsafe_index_put.default index_put_.default",
    lambda: call(r(7, 5, 3), [ints(7, 2, 11)], r(2, 11, 5, 3)),
    lambda: call(r(7, 5, 3), [ints(7, 2, 11)], r(5, 3), True),
    lambda: call(r(7, 5, 3), [None, ints(5, 2), ints(3, 1)], r(7, 2), True),
)
add(
    "index_add.default index_add_.default",
    lambda: call(r(7, 5), 0, ints(7, 3), r(3, 5)),
    lambda: call(r(7, 5), 0, ints(7, 3), r(3, 5), alpha=2),
)
add("index_copy.default index_copy_.default", lambda: call(r(7, 5), 0, torch.tensor([1, 4, 2]), r(3, 5)))
add("index_fill.int_Scalar index_fill_.int_Scalar", lambda: call(r(7, 5), 0, ints(7, 3), 0.0))
add("index_fill_.int_Tensor", lambda: call(r(7, 5), 0, ints(7, 3), r()))
add("scatter.src scatter_.src scatter_add.default scatter_add_.default", lambda: call(r(7, 5), 0, ints(7, 3, 2), r(11, 5)))
add("scatter.value scatter_.value", lambda: call(r(7, 5), 0, ints(7, 3, 2), 1.0))

# -- losses ----------

for _kind in (0, 1, 2):
    _grad = (5, 7) if _kind == 0 else ()
    add("mse_loss.default smooth_l1_loss.default huber_loss.default", lambda k=_kind: call(r(5, 7), r(5, 7), k))
    add("mse_loss_backward.default", lambda k=_kind, g=_grad: call(r(*g), r(5, 7), r(5, 7), k))
    add("smooth_l1_loss_backward.default huber_loss_backward.default", lambda k=_kind, g=_grad: call(r(*g), r(5, 7), r(5, 7), k, 0.5))
    for _weight in (None, (5, 7)):
        _of = lambda w=_weight: None if w is None else r(*w)  # noqa: E731  # bound to this iteration of the loop
        add("binary_cross_entropy.default", lambda k=_kind, w=_of: call(torch.rand(5, 7), torch.rand(5, 7), w(), k))
        add(
            "binary_cross_entropy_backward.default",
            lambda k=_kind, g=_grad, w=_of: call(r(*g), torch.rand(5, 7), torch.rand(5, 7), w(), k),
        )
        add("binary_cross_entropy_with_logits.default", lambda k=_kind, w=_of: call(r(5, 7), r(5, 7), w(), None, k))
        add("binary_cross_entropy_with_logits.default", lambda k=_kind, w=_of: call(r(5, 7), r(5, 7), w(), r(7), k))
    for _weight in (None, (7,)):
        _of = lambda w=_weight: None if w is None else r(*w)  # noqa: E731  # bound to this iteration of the loop
        add("nll_loss_forward.default", lambda k=_kind, w=_of: call(r(5, 7), ints(7, 5), w(), k, -100))
        add("nll_loss2d_forward.default", lambda k=_kind, w=_of: call(r(2, 7, 3, 5), ints(7, 2, 3, 5), w(), k, -100))
        add(
            "nll_loss_backward.default",
            lambda k=_kind, w=_of: call(r(5) if k == 0 else r(), r(5, 7), ints(7, 5), w(), k, -100, r()),
        )
        add(
            "nll_loss2d_backward.default",
            lambda k=_kind, w=_of: call(r(2, 3, 5) if k == 0 else r(), r(2, 7, 3, 5), ints(7, 2, 3, 5), w(), k, -100, r()),
        )

# -- pooling: windows of 2 x 3 over (2, 3, 8, 12) give (2, 3, 4, 4) ----------

add("max_pool2d_with_indices.default avg_pool2d.default", lambda: call(r(2, 3, 8, 12), [2, 3]), lambda: call(r(2, 3, 8, 12), [3], [2], [1]))


def _max_pool_backward() -> Case:
    x = r(2, 3, 8, 12)
    y, positions = torch.ops.aten.max_pool2d_with_indices(x, [2, 3])
    return call(torch.rand_like(y), x, [2, 3], [2, 3], [0, 0], [1, 1], False, positions)


add("max_pool2d_with_indices_backward.default", _max_pool_backward)
add("avg_pool2d_backward.default", lambda: call(r(2, 3, 4, 4), r(2, 3, 8, 12), [2, 3], [2, 3], [0, 0], False, True, None))

# -- pointwise ----------

add(
    "abs.default abs_.default neg.default neg_.default reciprocal.default reciprocal_.default exp.default exp_.default exp2.default"
    " expm1.default log.default log_.default log2.default log10.default log1p.default sqrt.default sqrt_.default rsqrt.default"
    " rsqrt_.default sin.default sin_.default cos.default cos_.default tan.default asin.default acos.default atan.default sinh.default"
    " cosh.default tanh.default tanh_.default erf.default erfc.default sigmoid.default sigmoid_.default silu.default silu_.default"
    " mish.default mish_.default hardswish.default hardswish_.default hardsigmoid.default hardsigmoid_.default leaky_relu.default"
    " leaky_relu_.default elu.default elu_.default log_sigmoid_forward.default gelu.default gelu_.default softplus.default"
    " celu.default celu_.default relu.default relu_.default sign.default sgn.default isnan.default isinf.default floor.default"
    " ceil.default round.default trunc.default hardtanh.default hardtanh_.default",
    lambda: call(r(2, 3, 5)),
)
add("gelu.default gelu_.default", lambda: call(r(2, 3, 5), approximate="tanh"))
add("softplus.default", lambda: call(r(2, 3, 5), 2.0))
add("celu.default celu_.default", lambda: call(r(2, 3, 5), 2.0))
add(
    "sigmoid_backward.default tanh_backward.default silu_backward.default mish_backward.default hardswish_backward.default"
    " hardsigmoid_backward.default gelu_backward.default",
    lambda: call(r(2, 3, 5), r(2, 3, 5)),
)
add("gelu_backward.default", lambda: call(r(2, 3, 5), r(2, 3, 5), approximate="tanh"))
add("leaky_relu_backward.default", lambda: call(r(2, 3, 5), r(2, 3, 5), 0.01, False))
add("softplus_backward.default", lambda: call(r(2, 3, 5), r(2, 3, 5), 1.0, 20.0))
add("threshold_backward.default", lambda: call(r(2, 3, 5), r(2, 3, 5), 0.0))
add("hardtanh_backward.default", lambda: call(r(2, 3, 5), r(2, 3, 5), -1.0, 1.0))
add(
    "elu_backward.default",
    lambda: call(r(2, 3, 5), 1.0, 1.0, 1.0, False, r(2, 3, 5)),
    lambda: call(r(2, 3, 5), 1.0, 1.0, 1.0, True, r(2, 3, 5)),
)
add(
    "log_sigmoid_backward.default",
    lambda: call(r(2, 3, 5), r(2, 3, 5), r(2, 3, 5)),
    lambda: call(on_meta(2, 3, 5), on_meta(2, 3, 5), torch.empty(0, device="meta")),
)
add("glu.default", lambda: call(r(2, 3, 10), -1))
add("glu_backward.default", lambda: call(r(2, 3, 5), r(2, 3, 10), -1))
add("native_dropout.default", lambda: call(r(2, 3, 5), 0.25, True), lambda: call(r(2, 3, 5), 0.25, False))
add("native_dropout_backward.default", lambda: call(r(2, 3, 5), bits(2, 3, 5), 1.25))
add(
    "add.Tensor sub.Tensor rsub.Tensor",
    lambda: call(r(2, 3, 5), r(5), alpha=2),
    lambda: call(r(2, 3, 5), r(5), alpha=1.0),
    lambda: call(r(5), spread(3, 5)),
)
add("add_.Tensor sub_.Tensor", lambda: call(r(2, 3, 5), r(5), alpha=2), lambda: call(r(2, 3, 5), r(5)))
add(
    "add.Scalar sub.Scalar rsub.Scalar add_.Scalar sub_.Scalar mul.Scalar div.Scalar mul_.Scalar div_.Scalar"
    " remainder.Scalar remainder_.Scalar fmod.Scalar",
    lambda: call(r(2, 3, 5), 3.0),
)
add("rsub.Scalar", lambda: call(r(2, 3, 5), 3.0, 2.0))
add("add.Tensor mul.Tensor", lambda: call(r(2, 3, 5), 3.0), lambda: call(ints(5, 2, 3), 3))
add(
    "mul.Tensor div.Tensor remainder.Tensor fmod.Tensor atan2.default pow.Tensor_Tensor xlogy.Tensor maximum.default minimum.default",
    lambda: call(r(2, 3, 5), r(5)),
    lambda: call(spread(3, 5), r(2, 1, 5)),
)
add("mul_.Tensor div_.Tensor", lambda: call(r(2, 3, 5), r(5)))
add("pow.Scalar", lambda: call(3.0, r(2, 3, 5)))
add("polar.default", lambda: call(r(2, 3), r(2, 3)))
add("pow.Tensor_Scalar pow_.Scalar", *(lambda p=p: call(r(2, 3, 5), p) for p in (2, 3.0, 0.5, 1.0)))
add("floor_divide.default", lambda: call(r(2, 3, 5), r(5)), lambda: call(ints(9, 2, 3), 2))
add(
    "div.Tensor_mode",
    lambda: call(r(2, 3, 5), r(5), rounding_mode="floor"),
    lambda: call(r(2, 3, 5), r(5), rounding_mode="trunc"),
    lambda: call(r(2, 3, 5), r(5), rounding_mode=None),
)
add("div.Scalar_mode", lambda: call(ints(9, 2, 3), 2, rounding_mode="floor"), lambda: call(r(2, 3), 2.0, rounding_mode="trunc"))

# -- updates ----------

add("addcmul.default addcmul_.default addcdiv.default addcdiv_.default", lambda: call(r(2, 3, 5), r(2, 3, 5), r(2, 3, 5), value=0.5))
add("addcmul.default addcdiv.default", lambda: call(r(2, 3, 5), r(5), r(3, 1)))
add("lerp.Scalar lerp_.Scalar", lambda: call(r(2, 3, 5), r(2, 3, 5), 0.1))
add("lerp.Tensor lerp_.Tensor", lambda: call(r(2, 3, 5), r(2, 3, 5), r()), lambda: call(r(2, 3, 5), r(2, 3, 5), r(5)))

# -- comparisons and selections ----------

add("eq.Scalar ne.Scalar lt.Scalar le.Scalar gt.Scalar ge.Scalar clamp_min.default clamp_max.default", lambda: call(r(2, 3, 5), 1.0))
add("eq.Tensor ne.Tensor lt.Tensor le.Tensor gt.Tensor ge.Tensor", lambda: call(r(2, 3, 5), r(5)))
add("clamp_min_.default clamp_max_.default", lambda: call(r(2, 3, 5), 1.0))
add("clamp.default clamp_.default", lambda: call(r(2, 3, 5), 0.7, 1.2))
add("clamp.Tensor", lambda: call(r(2, 3, 5), r(5), r(5)))
add("clamp_min.Tensor clamp_max.Tensor clamp_min_.Tensor clamp_max_.Tensor", lambda: call(r(2, 3, 5), r(5)))
add("maximum.out minimum.out", lambda: call(r(2, 3, 5), r(2, 3, 5), out=r(2, 3, 5)))
add("where.self", lambda: call(bits(3, 5), r(2, 3, 5), r()))
add("masked_fill.Scalar masked_fill_.Scalar", lambda: call(r(2, 3, 5), bits(3, 5), 0.0))
add("masked_fill.Tensor masked_fill_.Tensor", lambda: call(r(2, 3, 5), bits(3, 5), r()))
add("tril.default triu.default", lambda: call(r(3, 5)))
add(
    "logical_and.default logical_or.default logical_xor.default logical_and_.default logical_or_.default bitwise_and.Tensor"
    " bitwise_or.Tensor bitwise_xor.Tensor",
    lambda: call(bits(3, 5), bits(3, 5)),
)
add("logical_not.default bitwise_not.default all.default any.default _is_all_true.default _is_any_true.default", lambda: call(bits(3, 5)))
add("all.dim any.dim", lambda: call(bits(3, 5), 1))
add("equal.default", lambda: call(r(3, 5), r(3, 5)))
add("all.dims any.dims", lambda: call(bits(2, 3, 5), [0, 2]))
add("argmax.default argmin.default sort.default", lambda: call(r(3, 5), 1))
add("sort.stable", lambda: call(r(3, 5), stable=True, dim=1))
add("histc.default", lambda: call(r(11), 7, 0, 6))
add("topk.default", lambda: call(r(3, 5), 2))
add("searchsorted.Tensor", lambda: call(torch.arange(11), torch.arange(7), right=True, out_int32=True))

# -- copies ----------

add("clone.default", lambda: call(r(3, 5)), lambda: call(spread(3, 5)))
add("alias_copy.default t_copy.default", lambda: call(r(3, 5)))
add("diagonal_copy.default squeeze_copy.default unbind_copy.int", lambda: call(r(1, 3, 5)))
add("as_strided_copy.default", lambda: call(r(3, 5), [2, 2], [5, 1]))
add("expand_copy.default", lambda: call(r(1, 5), [3, 5]))
add("narrow_copy.default", lambda: call(r(3, 5), 1, 2, 2))
add("permute_copy.default", lambda: call(r(2, 3, 5), [2, 0, 1]))
add("split_with_sizes_copy.default", lambda: call(r(2, 5), [2, 3], 1))
add("squeeze_copy.dim unsqueeze_copy.default", lambda: call(r(1, 5), 0))
add("transpose_copy.int", lambda: call(r(2, 3, 5), 0, 2))
add("unfold_copy.default", lambda: call(r(3, 5), 1, 3, 1))
add("view_copy.default", lambda: call(r(3, 5), [15]))
add("_to_copy.default", lambda: call(r(3, 5), dtype=torch.bfloat16))
add("cat.default", lambda: call([r(3, 5), r(2, 5)], 0))
add("stack.default", lambda: call([r(3, 5), r(3, 5)], 0))
add(
    "constant_pad_nd.default",
    lambda: call(r(3, 5), [1, 2], 0.0),
    lambda: call(r(3, 5), [-1, 0, 0, -1]),
    lambda: call(r(2, 3, 5, 7), [-1, 2, 0, 1]),
    lambda: call(r(2, 3, 5, 7).select(3, 0), [0, 0, 0, -1]),
)
add("flip.default", lambda: call(r(3, 5), [0]))
add("roll.default", lambda: call(r(3, 5), [1], [0]))
add("repeat.default", lambda: call(r(3, 5), [2, 2]))
add("slice_backward.default", lambda: call(r(2, 5), [7, 5], 0, 3, 5, 1))
add("select_backward.default", lambda: call(r(5), [7, 5], 0, 3))
add("diagonal_backward.default", lambda: call(r(3), [3, 5], 0, 0, 1))
add("slice_scatter.default", lambda: call(r(7, 5), r(2, 5), 0, 3, 5))
add("select_scatter.default", lambda: call(r(7, 5), r(5), 0, 3))
add("_local_scalar_dense.default", lambda: call(r()))
add("copy_.default", lambda: call(r(2, 3, 5), r(3, 5, dtype=torch.float64)))
add("unfold_backward.default", lambda: call(r(3, 4, 2), [3, 5], 1, 2, 1))

# -- creation ----------

add("empty.memory_format zeros.default ones.default rand.default randn.default", lambda: call([3, 5]))
add("empty_strided.default", lambda: call([3, 5], [5, 1]))
add("empty_permuted.default", lambda: call([3, 5], [0, 1]))
add("full.default", lambda: call([3, 5], 2.0))
add("scalar_tensor.default", lambda: call(2.0))
add("arange.default", lambda: call(7))
add("arange.start", lambda: call(2, 7))
add("arange.start_step", lambda: call(2, 11, 3))
add("linspace.default", lambda: call(0.0, 1.0, 7))
add("hann_window.default hamming_window.default blackman_window.default", lambda: call(7))
add("hann_window.periodic hamming_window.periodic blackman_window.periodic", lambda: call(7, False))
add("randint.default", lambda: call(7, [3, 5]))
add("randint.low", lambda: call(2, 7, [3, 5]))
add("randperm.default", lambda: call(7))
add("empty_like.default zeros_like.default ones_like.default rand_like.default randn_like.default", lambda: call(r(3, 5)))
add("full_like.default", lambda: call(r(3, 5), 2.0))
add("new_empty.default new_zeros.default new_ones.default", lambda: call(r(3, 5), [2, 7]))
add("new_full.default", lambda: call(r(3, 5), [2, 7], 2.0))
add("new_empty_strided.default", lambda: call(r(3, 5), [2, 7], [7, 1]))
add("zero_.default uniform_.default normal_.default bernoulli_.float exponential_.default", lambda: call(r(3, 5)))
add("fill_.Scalar", lambda: call(r(3, 5), 2.0))
add("fill_.Tensor", lambda: call(r(3, 5), r()))
add("bernoulli_.Tensor", lambda: call(r(3, 5), torch.rand(3, 5)))

# -- views ----------

add("view.default _unsafe_view.default", lambda: call(r(3, 10), [6, 5]))
add("_reshape_alias.default as_strided.default as_strided_.default", lambda: call(r(3, 10), [6, 5], [5, 1]))
add("view.dtype", lambda: call(r(3, 5), torch.int32))
add("t.default t_.default alias.default detach.default detach_.default lift_fresh.default squeeze.default", lambda: call(r(3, 5)))
add("transpose.int transpose_.default", lambda: call(r(3, 5), 0, 1))
add("permute.default", lambda: call(r(3, 5, 7), [2, 0, 1]))
add("unsqueeze.default unsqueeze_.default", lambda: call(r(3, 5), 0))
add("squeeze.dim squeeze_.dim", lambda: call(r(3, 1, 5), 1))
add("squeeze.dims squeeze_.dims", lambda: call(r(3, 1, 5, 1), [1, 3]))
add("view_as_complex.default", lambda: call(r(3, 5, 2)))
add("view_as_real.default _conj.default", lambda: call(torch.complex(r(3, 5), r(3, 5))))
add("slice.Tensor", lambda: call(r(7, 5), 0, 2, 5))
add("select.int", lambda: call(r(7, 5), 0, 2))
add("diagonal.default", lambda: call(r(3, 5)))
add("unfold.default", lambda: call(r(3, 5), 1, 2, 1))
add("split.Tensor unsafe_split.Tensor", lambda: call(r(6, 5), 2))
add("split_with_sizes.default unsafe_split_with_sizes.default", lambda: call(r(7, 5), [2, 5]))
add("unbind.int", lambda: call(r(3, 5), 0))
add("expand.default", lambda: call(r(1, 5), [3, 5]))
