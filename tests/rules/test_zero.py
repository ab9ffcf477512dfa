"""Every rule where a size is 0 or 1, against the measuring side's own count of a real call at that size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

import calc.rules.families  # noqa: F401  # importing it fills the registry
from calc.rules.registry import REGISTRY, Cost, Operator, Registry, cost_of, term
from calc.rules.shapes import reductions, split
from tests.rules.cases import CASES
from tests.rules.mutate import with_rule
from tests.rules.operators import Case, Observed, derived, observe

# Torch itself ends the process, or reads memory that is not its own, for some calls of these without elements.
CRASHES = frozenset(
    [
        "_scaled_dot_product_flash_attention_for_cpu.default",
        "_scaled_dot_product_flash_attention_for_cpu_backward.default",
        "_native_multi_head_attention.default",
        "_transformer_encoder_layer_fwd.default",
        "_adaptive_avg_pool2d_backward.default",
        "_adaptive_avg_pool3d_backward.default",
        "adaptive_max_pool2d_backward.default",
        "adaptive_max_pool3d_backward.default",
        "_pdist_backward.default",
        "native_layer_norm_backward.default",
        "native_batch_norm_backward.default",
        "native_group_norm_backward.default",
        "_ctc_loss_backward.default",
        "_ctc_loss_backward.Tensor",
        "segment_reduce.default",
        "_segment_reduce_backward.default",
        "_weight_norm_interface.default",
        "_weight_norm_interface_backward.default",
        "_embedding_bag.default",
        "_embedding_bag_forward_only.default",
        "_embedding_bag_backward.default",
        "_embedding_bag_per_sample_weights_backward.default",
        "nll_loss_backward.default",
        "nll_loss2d_backward.default",
    ]
)
# Those whose rules take one from a size.
REDUCING = [
    "sum.default",
    "sum.dim_IntList",
    "prod.default",
    "prod.dim_int",
    "mean.default",
    "mean.dim",
    "var.correction",
    "std.correction",
    "var_mean.correction",
    "logsumexp.default",
    "linalg_vector_norm.default",
    "cumsum.default",
    "cumprod.default",
    "logcumsumexp.default",
    "norm.ScalarOpt_dim",
    "dist.default",
    "nansum.default",
    "count_nonzero.default",
    "trace.default",
    "_softmax.default",
    "_safe_softmax.default",
    "_softmax_backward_data.default",
    "_log_softmax.default",
    "_log_softmax_backward_data.default",
    "native_layer_norm.default",
    "_fused_rms_norm.default",
    "_fused_rms_norm_backward.default",
    "native_batch_norm.default",
    "native_group_norm.default",
    "mse_loss.default",
    "smooth_l1_loss.default",
    "huber_loss.default",
    "binary_cross_entropy.default",
    "binary_cross_entropy_with_logits.default",
    "nll_loss_forward.default",
    "nll_loss2d_forward.default",
    "soft_margin_loss.default",
    "multi_margin_loss.default",
    "multilabel_margin_loss_forward.default",
    "_cdist_forward.default",
    "_euclidean_dist.default",
    "_linalg_det.default",
    "_linalg_slogdet.default",
    "convolution_backward.default",
    "_foreach_norm.Scalar",
    "_scaled_dot_product_flash_attention.default",
    "_scaled_dot_product_efficient_attention_backward.default",
]
OPERATORS = [op for op in sorted([*REGISTRY.rules, *REGISTRY.frees]) if op.removeprefix("aten.") not in CRASHES]


def _resized(value: Any, size: int, to: int) -> Any:
    """``value`` with ``to``, which is less, for every size that is ``size``."""
    match value:
        case torch.Tensor():
            return value[tuple(slice(to if s == size else s) for s in value.shape)].contiguous()
        case list() | tuple():
            return type(value)(_resized(part, size, to) for part in value)
        case int() if type(value) is int and value == size:
            return to
    return value


def _sizes(value: Any) -> set[int]:
    if isinstance(value, list | tuple):
        return set().union(*map(_sizes, value))
    return {*value.shape} if isinstance(value, torch.Tensor) else set()


def _calls(op: str, to: int) -> Iterator[tuple[Case, Observed]]:
    """The calls of ``op`` in which one size is ``to``, as far as torch takes them and the measuring side counts them."""
    for make in CASES[op]:
        case = make()
        for size in sorted(_sizes([*case.args, *case.kwargs.values()]) - {0, to}):
            args = [_resized(a, size, to) for a in case.args]
            given = replace(case, args=args, kwargs={n: _resized(v, size, to) for n, v in case.kwargs.items()}, matmul=None, causal=None)
            try:
                yield case, observe(op, given)
            except (RuntimeError, IndexError, ValueError, ZeroDivisionError, AssertionError):
                continue


def _differences(op: str, to: int = 0, registry: Registry = REGISTRY) -> tuple[int, list[str]]:
    """How many calls with a size of ``to`` were compared, and what does not agree."""
    calls, wrong = 0, []
    for case, seen in _calls(op, to):
        cost = cost_of(seen.operator, "", registry)
        counted, calls = derived(cost, seen), calls + 1
        below = [t.name for t in (*cost.matmul, *cost.elementwise) if t.count < 0]
        products = (seen.matmul if case.matmul is None else counted.matmul, seen.elementwise, seen.bytes_moved)
        if below or (counted.matmul, counted.elementwise, counted.bytes_moved) != products:
            wrong.append(f"{[v.shape for _, v in seen.operator.tensors()]}: {counted} is not {seen}, below 0: {below}")
    return calls, wrong


@pytest.mark.parametrize("op", [f"aten.{op}" for op in REDUCING])
def test_a_reduction_of_no_elements_costs_what_torch_counts(op: str) -> None:
    """With 0 in place of one size after another, products, elementwise work and bytes are those measured, and no term is below 0."""
    calls, wrong = _differences(op)

    assert [] == wrong
    assert calls or op in ("aten.trace.default",)


@pytest.mark.parametrize("op", [f"aten.{op}" for op in REDUCING])
def test_a_reduction_of_one_element_costs_what_torch_counts(op: str) -> None:
    """With 1 in place of one size after another: the norm of one element is its absolute value, say."""
    assert [] == _differences(op, to=1)[1]


@pytest.mark.slow
@pytest.mark.parametrize("op", [op for op in OPERATORS if op.removeprefix("aten.") not in REDUCING])
def test_every_other_operator_does(op: str) -> None:
    """All that torch runs without elements."""
    assert [] == _differences(op)[1]


def test_a_rule_that_is_wrong_at_0_alone_is_noticed() -> None:
    """A sum of n elements as n − 1 additions, of none too: right in every other call."""

    def wrong(op: Operator) -> Cost:
        kept, reduced = split(op.shape("self"), op.value("dim"))
        elements = 1
        for size in reduced:
            elements = elements * size
        return Cost(elementwise=(term("Σ x", *kept, elements - 1),))

    assert _differences("aten.sum.default", registry=with_rule(REGISTRY, "aten.sum.default", wrong))[1]


def test_n_elements_are_reduced_by_one_operation_less() -> None:
    """1 of 2, none of 1 and none of none."""
    assert [0, 0, 1, 6] == [reductions(n) for n in (0, 1, 2, 7)]
