"""Calls of softmax and of normalizations."""

from __future__ import annotations

import torch

from tests.rules.calls import add, call, on_meta, r
from tests.rules.operators import Case

# -- softmax ----------

add("_softmax.default _log_softmax.default", lambda: call(r(2, 3, 5), 1, False), lambda: call(r(2, 3, 5, dtype=torch.bfloat16), -1, False))
add("_safe_softmax.default", lambda: call(r(2, 3, 5), 1))
add("_softmax_backward_data.default _log_softmax_backward_data.default", lambda: call(r(2, 3, 5), r(2, 3, 5), 1, torch.float32))

# -- normalization ----------

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
# On CPU autograd takes RMS normalization apart; the whole operator runs elsewhere.
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
