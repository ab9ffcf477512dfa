"""At least one real call for every operator that has a rule or is free. Sizes are distinct primes, so none hides another."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import flop_counter

from tests.rules import cases_decided, cases_images, cases_numerics, cases_updates  # noqa: F401  # each adds its calls
from tests.rules.calls import CASES as CASES
from tests.rules.calls import add, bits, call, ints, on_meta, r, spread
from tests.rules.operators import Case

# -- matrix products ----------

add("mm.default", lambda: call(r(2, 3), r(3, 5)), lambda: call(r(3, 2).t(), r(1, 5).expand(3, 5)))
add("bmm.default", lambda: call(r(2, 3, 5), r(2, 5, 7)), lambda: call(spread(3, 5), r(2, 5, 7)))
add(
    "addmm.default",
    lambda: call(r(5), r(2, 3), r(3, 5)),
    lambda: call(r(5), r(2, 3), r(3, 5), beta=0.5, alpha=2),
    lambda: call(r(2, 5), r(2, 3), r(3, 5), beta=0),
)
add(
    "baddbmm.default",
    lambda: call(r(7, 2, 5), r(7, 2, 3), r(7, 3, 5)),
    lambda: call(r(2, 5), r(7, 2, 3), r(7, 3, 5), beta=0.5, alpha=2),
    lambda: call(r(7, 2, 5), r(7, 2, 3), r(7, 3, 5), beta=0),
)
add("mv.default", lambda: Case((r(3, 5), r(5)), matmul=2 * 3 * 5))
add("dot.default", lambda: Case((r(5), r(5)), matmul=2 * 5))


def _grouped() -> Case:
    """11 rows of 16 columns, in two groups, each with a 16 x 24 matrix: 2*11*16*24 = 8448."""
    ends = torch.tensor([4, 11], dtype=torch.int32)
    return Case((r(11, 16, dtype=torch.bfloat16), r(2, 16, 24, dtype=torch.bfloat16), ends), matmul=2 * 11 * 16 * 24)


def _grouped_gradient() -> Case:
    """The gradient of two 16 x 24 matrices from 8 rows in two groups: 2*16*8*24 = 6144."""
    ends = torch.tensor([3, 8], dtype=torch.int32)
    return Case((r(8, 16, dtype=torch.bfloat16).t(), r(8, 24, dtype=torch.bfloat16), ends), matmul=2 * 16 * 8 * 24)


def _grouped_columns() -> Case:
    """Two 24 x 16 matrices, each by its group of 8 columns of 16: 2*24*16*8 = 6144."""
    ends = torch.tensor([3, 8], dtype=torch.int32)
    return Case((r(2, 24, 16, dtype=torch.bfloat16), r(16, 8, dtype=torch.bfloat16), ends), matmul=2 * 24 * 16 * 8)


add("_grouped_mm.default", _grouped, _grouped_gradient, _grouped_columns)

# -- convolutions: a (2, 6, 7, 11) image, 10 kernels of 3 x 5, padding 1 x 2: the result is (2, 10, 7, 11) ----------

add(
    "convolution.default",
    lambda: call(r(2, 6, 7, 11), r(10, 6, 3, 5), r(10), [1, 1], [1, 2], [1, 1], False, [0, 0], 1),
    lambda: call(r(2, 6, 7, 11), r(10, 3, 3, 5), None, [1, 1], [1, 2], [1, 1], False, [0, 0], 2),
    lambda: call(r(2, 6, 7), r(6, 5, 3), r(10), [2], [0], [1], True, [0], 2),
)


def _convolution_backward(mask: list[bool], products: int, groups: int = 1) -> Case:
    """Each product is 2 * batch 2 * positions 7*11 * kernel elements 10*(6/groups)*3*5."""
    weight = r(10, 6 // groups, 3, 5)
    args = (r(2, 10, 7, 11), r(2, 6, 7, 11), weight, [10], [1, 1], [1, 2], [1, 1], False, [0, 0], groups, mask)
    return Case(args, matmul=products * 2 * 2 * 7 * 11 * weight.numel())


add(
    "convolution_backward.default",
    lambda: _convolution_backward([True, True, True], 2),
    lambda: _convolution_backward([False, True, True], 1),
    lambda: _convolution_backward([True, False, False], 1, groups=2),
    # Transposed: kernel elements 6*5*3 applied at the 7 positions of the input.
    lambda: Case(
        (r(2, 10, 15), r(2, 6, 7), r(6, 5, 3), [10], [2], [0], [1], True, [0], 2, [True, True, True]), matmul=2 * 2 * 2 * 7 * 6 * 5 * 3
    ),
)

# -- attention: B = 2, h = 6 query heads, T = 5 queries, S = 7 keys, k = 11, v = 13 ----------


def _heads(g: int, v: int = 11, device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return r(2, 6, 5, 11, device=device), r(2, g, 7, 11, device=device), r(2, g, 7, v, device=device)


def _products(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> int:
    return int(flop_counter.sdpa_flop_count(q.shape, k.shape, v.shape))


def _five_products(out: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> int:
    return int(flop_counter.sdpa_backward_flop_count(out.shape, q.shape, k.shape, v.shape))


QK = 2 * 2 * 6 * 5 * 7 * 11


def _flash_cpu(g: int = 6, causal: bool = False, **kwargs: Any) -> Case:
    q, k, v = _heads(g)
    return Case((q, k, v, 0.0, causal), kwargs, matmul=_products(q, k, v), causal=(5, 7) if causal else None)


def _flash_cpu_backward(g: int = 6, causal: bool = False, **kwargs: Any) -> Case:
    q, k, v = _heads(g)
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, **kwargs)
    case = (torch.rand_like(out), q, k, v, out, lse, 0.0, causal)
    return Case(case, kwargs, _five_products(out, q, k, v), QK, (5, 7) if causal else None)


add(
    "_scaled_dot_product_flash_attention_for_cpu.default",
    _flash_cpu,
    lambda: _flash_cpu(2, causal=True),
    lambda: _flash_cpu(attn_mask=r(2, 6, 5, 7)),
)
add(
    "_scaled_dot_product_flash_attention_for_cpu_backward.default",
    _flash_cpu_backward,
    lambda: _flash_cpu_backward(2, causal=True),
    lambda: _flash_cpu_backward(attn_mask=r(2, 6, 5, 7)),
)


def _saved(q: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return on_meta(*q.shape[:-1], v.shape[-1]), on_meta(*q.shape[:-1])


def _counter() -> torch.Tensor:
    return torch.empty((), dtype=torch.int64, device="meta")


def _fused(*more: Any, g: int = 6, v: int = 11, causal: bool = False) -> Case:
    q, k, value = _heads(g, v, device="meta")
    return Case((q, k, value, *more), matmul=_products(q, k, value), causal=(5, 7) if causal else None)


add("_scaled_dot_product_flash_attention.default", lambda: _fused(0.0, False), lambda: _fused(0.25, True, causal=True))
add(
    "_scaled_dot_product_efficient_attention.default",
    lambda: _fused(None, True, 0.0, False, v=13),
    lambda: _fused(on_meta(2, 6, 5, 7), True, 0.25, True, causal=True),
)
add(
    "_scaled_dot_product_cudnn_attention.default",
    lambda: _fused(None, True, 0.0, False),
    lambda: _fused(on_meta(2, 6, 5, 7), True, 0.25, True, causal=True),
)


def _backward(order: str, dropout: float = 0.0, causal: bool = False, g: int = 6, v: int = 11, bias: bool = False) -> Case:
    """Arguments by letter: o output, l log-sum-exp, p random state, b bias, c cumulative lengths, d dropout, m mask, i causal."""
    q, k, value = _heads(g, v, device="meta")
    out, lse = _saved(q, value)
    mask = on_meta(2, 6, 5, 7) if bias else torch.empty(0, device="meta")
    letters: dict[str, tuple[Any, ...]] = {
        "o": (out,), "l": (lse,), "p": (_counter(), _counter()), "b": (mask,), "c": (None, None, 5, 7),
        "e": (_counter(), _counter(), 5, 7), "d": (dropout,), "m": ([True, True, True, False],), "i": (causal,),
    }  # fmt: skip
    args = (torch.empty_like(out), q, k, value, *(a for letter in order for a in letters[letter]))
    return Case(args, matmul=_five_products(out, q, k, value), recompute=QK, causal=(5, 7) if causal else None)


add(
    "_scaled_dot_product_flash_attention_backward.default",
    lambda: _backward("oledip"),
    lambda: _backward("oledip", 0.25, True, g=2),
)
add(
    "_scaled_dot_product_efficient_attention_backward.default",
    lambda: _backward("bolpdmi", v=13),
    lambda: _backward("bolpdmi", 0.25, True, bias=True, g=2),
)
add(
    "_scaled_dot_product_cudnn_attention_backward.default",
    lambda: _backward("olpbedi"),
    lambda: _backward("olpbedi", 0.25, True, bias=True, g=2),
)

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

# -- softmax ----------

add("_softmax.default _log_softmax.default", lambda: call(r(2, 3, 5), 1, False), lambda: call(r(2, 3, 5, dtype=torch.bfloat16), -1, False))
add("_safe_softmax.default", lambda: call(r(2, 3, 5), 1))
add("_softmax_backward_data.default _log_softmax_backward_data.default", lambda: call(r(2, 3, 5), r(2, 3, 5), 1, torch.float32))

# -- normalisation ----------

add(
    "native_layer_norm.default",
    lambda: call(r(2, 3, 5), [5], r(5), r(5), 1e-5),
    lambda: call(r(2, 3, 5), [3, 5], None, None, 1e-5),
    lambda: call(r(2, 3, 5), [5], r(5), None, 1e-5),
)


def _layer_norm_backward(weight: bool, bias: bool, mask: list[bool]) -> Case:
    statistics = (r(2, 3, 1), r(2, 3, 1))
    return call(r(2, 3, 5), r(2, 3, 5), [5], *statistics, r(5) if weight else None, r(5) if bias else None, mask)


add(
    "native_layer_norm_backward.default",
    lambda: _layer_norm_backward(True, True, [True, True, True]),
    lambda: _layer_norm_backward(True, True, [False, True, True]),
    lambda: _layer_norm_backward(True, False, [True, True, False]),
    lambda: _layer_norm_backward(False, False, [True, False, False]),
    lambda: call(r(3, 5), r(3, 5), [3, 5], r(1, 1), r(1, 1), r(3, 5), r(3, 5), [True, True, True]),
)
# On CPU autograd takes RMS normalisation apart; the whole operator runs elsewhere.
add(
    "_fused_rms_norm.default",
    lambda: call(on_meta(2, 3, 5), [5], on_meta(5), 1e-5),
    lambda: call(on_meta(2, 3, 5), [3, 5], None, 1e-5),
)


def _rms_norm_backward(weight: bool, mask: list[bool]) -> Case:
    return call(on_meta(2, 3, 5), on_meta(2, 3, 5), [5], on_meta(2, 3, 1), on_meta(5) if weight else None, mask)


add(
    "_fused_rms_norm_backward.default",
    lambda: _rms_norm_backward(True, [True, True]),
    lambda: _rms_norm_backward(True, [False, True]),
    lambda: _rms_norm_backward(False, [True, False]),
    lambda: call(on_meta(3, 5), on_meta(3, 5), [3, 5], on_meta(1, 1), on_meta(3, 5), [True, True]),
)
add(
    "native_batch_norm.default",
    lambda: call(r(2, 3, 5, 7), r(3), r(3), r(3), r(3), True, 0.1, 1e-5),
    lambda: call(r(2, 3, 5, 7), None, None, None, None, True, 0.1, 1e-5),
    lambda: call(r(2, 3, 5, 7), r(3), r(3), r(3), r(3), False, 0.1, 1e-5),
)


def _batch_norm_backward(train: bool, weight: bool, mask: list[bool]) -> Case:
    # Out of training torch keeps no statistics of the batch on CPU.
    saved = (r(3), r(3)) if train else (r(0), r(0))
    return call(r(2, 3, 5, 7), r(2, 3, 5, 7), r(3) if weight else None, r(3), r(3), *saved, train, 1e-5, mask)


add(
    "native_batch_norm_backward.default",
    lambda: _batch_norm_backward(True, True, [True, True, True]),
    lambda: _batch_norm_backward(False, True, [True, True, True]),
    lambda: _batch_norm_backward(True, False, [True, False, False]),
)
add(
    "native_group_norm.default",
    lambda: call(r(2, 6, 5, 7), r(6), r(6), 2, 6, 35, 3, 1e-5),
    lambda: call(r(2, 6, 5, 7), None, None, 2, 6, 35, 3, 1e-5),
)


def _group_norm_backward(weight: bool, mask: list[bool]) -> Case:
    return call(r(2, 6, 5, 7), r(2, 6, 5, 7), r(2, 3), r(2, 3), r(6) if weight else None, 2, 6, 35, 3, mask)


add(
    "native_group_norm_backward.default",
    lambda: _group_norm_backward(True, [True, True, True]),
    lambda: _group_norm_backward(False, [True, False, False]),
    lambda: _group_norm_backward(True, [False, True, True]),
)

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
add("scatter.src scatter_.src scatter_add.default scatter_add_.default", lambda: call(r(7, 5), 0, ints(7, 3, 2), r(11, 5)))
add("scatter.value scatter_.value", lambda: call(r(7, 5), 0, ints(7, 3, 2), 1.0))

# -- losses ----------

for _kind in (0, 1, 2):
    _grad = (5, 7) if _kind == 0 else ()
    add("mse_loss.default smooth_l1_loss.default huber_loss.default", lambda k=_kind: call(r(5, 7), r(5, 7), k))
    add("mse_loss_backward.default", lambda k=_kind, g=_grad: call(r(*g), r(5, 7), r(5, 7), k))
    add("smooth_l1_loss_backward.default huber_loss_backward.default", lambda k=_kind, g=_grad: call(r(*g), r(5, 7), r(5, 7), k, 0.5))
    for _weight in (None, (5, 7)):
        _of = lambda w=_weight: None if w is None else r(*w)  # noqa: E731  # bound to this turn of the loop
        add("binary_cross_entropy.default", lambda k=_kind, w=_of: call(torch.rand(5, 7), torch.rand(5, 7), w(), k))
        add(
            "binary_cross_entropy_backward.default",
            lambda k=_kind, g=_grad, w=_of: call(r(*g), torch.rand(5, 7), torch.rand(5, 7), w(), k),
        )
        add("binary_cross_entropy_with_logits.default", lambda k=_kind, w=_of: call(r(5, 7), r(5, 7), w(), None, k))
        add("binary_cross_entropy_with_logits.default", lambda k=_kind, w=_of: call(r(5, 7), r(5, 7), w(), r(7), k))
    for _weight in (None, (7,)):
        _of = lambda w=_weight: None if w is None else r(*w)  # noqa: E731  # bound to this turn of the loop
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
add("argmax.default argmin.default sort.default", lambda: call(r(3, 5), 1))
add("sort.stable", lambda: call(r(3, 5), stable=True, dim=1))
add("histc.default", lambda: call(r(11), 7, 0, 6))
add("topk.default", lambda: call(r(3, 5), 2))
add("searchsorted.Tensor", lambda: call(torch.arange(11), torch.arange(7), right=True, out_int32=True))

# -- copies ----------

add("clone.default", lambda: call(r(3, 5)), lambda: call(spread(3, 5)))
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
add("t.default t_.default alias.default detach.default lift_fresh.default squeeze.default", lambda: call(r(3, 5)))
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

# -- torch's fast path for encoder layers ----------


def _attended(heads: int, **options: Any) -> Case:
    """7 positions of 6 for each of 2 sequences attend to themselves: 2*2*7*6*(3*6) + 2*2*2*7*7*6 + 2*2*7*6*6 = 6384."""
    x = r(2, 7, 6)
    return Case((x, x, x, 6, heads, r(18, 6), r(18), r(6, 6), r(6)), options, matmul=6384)


def _encoded(gelu: bool, norm_first: bool) -> Case:
    """The same, and a feed-forward of 11: 6384 + 2*2*2*7*6*11 = 10080."""
    norms, ffn = (r(6), r(6), r(6), r(6)), (r(11, 6), r(11), r(6, 11), r(6))
    return Case((r(2, 7, 6), 6, 2, r(18, 6), r(18), r(6, 6), r(6), gelu, norm_first, 1e-5, *norms, *ffn), matmul=10080)


add(
    "_native_multi_head_attention.default",
    lambda: _attended(2, need_weights=False),
    lambda: _attended(3),
    lambda: _attended(3, average_attn_weights=False),
)
add(
    "_transformer_encoder_layer_fwd.default",
    lambda: _encoded(gelu=False, norm_first=False),
    lambda: _encoded(gelu=True, norm_first=True),
)
