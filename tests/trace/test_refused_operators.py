"""Operators of torch that no trace takes are refused by name, with what runs instead."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention

from calc.errors import TraceError, UnknownOperatorError
from tests.trace.modules import function, spec
from tests.trace.refused import assert_names_line, refusal


def test_an_operator_without_rule_is_refused_with_its_module_path() -> None:
    """A singular value decomposition has no rule; it is named with its module."""
    error = refusal(function(torch.linalg.svdvals))

    assert isinstance(error, UnknownOperatorError)
    assert str(error).startswith("no cost rule for operator aten._linalg_svd.default at (model), inputs: A (")
    assert "@calc.rules.rule('aten._linalg_svd.default', …)" in str(error)
    assert "calc.rules.free('aten._linalg_svd.default', because=…)" in str(error)


def test_a_sparse_gradient_is_refused() -> None:
    """It holds as many rows as are looked up, and a row that is looked up twice may stand in it twice or once."""
    dims = {"B": 3, "V": 7, "d": 5}
    error = refusal(
        spec(lambda n: nn.Embedding(n.V, n.d, sparse=True), dims=dims, inputs=lambda n: (torch.randint(n.V, (n.B,)),)), optimizer="sgd"
    )

    assert isinstance(error, TraceError)
    assert "a sparse tensor is used in the backward" in str(error)
    assert str(error).endswith("so it has no closed form; use dense ones (sparse=False)")


def flexible(x: Tensor) -> Tensor:
    q = x.expand(1, 1, *x.shape)
    return flex_attention(q, q, q, score_mod=lambda score, b, h, i, j: score + i)


def test_a_higher_order_operator_is_refused_by_name() -> None:
    """It calls functions of its own for each element."""
    error = refusal(function(flexible), mode="infer")

    assert isinstance(error, TraceError)
    assert_names_line(error, flexible, offset=2)
    assert "runs the higher-order operator flex_attention at " in str(error)


def by_vjp(x: Tensor) -> Tensor:
    return torch.func.grad(lambda y: (y * y).sum())(x) + x


def by_jvp(x: Tensor) -> Tensor:
    return torch.func.jvp(torch.sin, (x,), (x,))[1] + x


def by_dual_numbers(x: Tensor) -> Tensor:
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, x)
    return x + dual


@pytest.mark.parametrize(("of", "offset"), [(by_vjp, 1), (by_jvp, 1), (by_dual_numbers, 2)])
def test_a_derivative_that_is_no_graph_of_autograd_is_refused(of: Callable[[Tensor], Tensor], offset: int) -> None:
    """What ``torch.func`` saves is not reported, and tangents may have no storage; a gradient with its graph can be counted."""
    error = refusal(function(of))

    assert isinstance(error, TraceError)
    assert_names_line(error, of, offset=offset)
    assert "take the " in str(error)
    assert "with torch.autograd.grad" in str(error)


def gathered(x: Tensor) -> Tensor:
    torch.distributed.all_reduce(x)
    return x


def test_a_step_of_several_processes_is_refused() -> None:
    """A wrapper such as DDP, too, raises in torch.distributed."""
    error = refusal(function(gathered))

    assert isinstance(error, TraceError)
    assert_names_line(error, gathered, offset=1)
    assert str(error).endswith("without torch.distributed and its wrappers (DDP, FSDP), and see napkin shard for a step on several devices")


# -- fp8 ---------------------------------------------------------------------------------------------------------------------


def by_blocks(x: Tensor) -> Tensor:
    a, scales = x.to(torch.float8_e4m3fn), x[:, :2].contiguous()
    return torch._scaled_mm(a, a.t(), scales, scales.t(), out_dtype=torch.bfloat16)


def in_bf16(x: Tensor) -> Tensor:
    a, scale = x.bfloat16(), x.mean()
    return torch._scaled_mm(a, a.t(), scale, scale, out_dtype=torch.bfloat16)


@pytest.mark.parametrize(
    ("of", "says"),
    [
        (by_blocks, "give one scale for each operand, or one for each row and one for each column of the result, of shapes (rows, 1) and "),
        (in_bf16, "multiplies torch.bfloat16 by torch.bfloat16 with scales, and torch on a CPU takes float8: cast both to "),
    ],
)
def test_an_fp8_matmul_that_no_cpu_runs_is_refused(of: Callable[[Tensor], Tensor], says: str) -> None:
    """Its line is named, with what runs instead."""
    error = refusal(function(of))

    assert isinstance(error, TraceError)
    assert_names_line(error, of, offset=2)
    assert says in str(error)
