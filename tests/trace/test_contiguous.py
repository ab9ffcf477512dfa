"""Forms of results on contiguous tensors that need no fake kernel: they are those of real kernels, and evaluate no guard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from calc.trace.kernels import contiguous
from calc.trace.symbolic_sizes import SizeEnv

aten = torch.ops.aten
Call = tuple[Any, Callable[[Tensor], tuple[Any, ...]]]


def _with_itself(x: Tensor) -> tuple[Any, ...]:
    return x, x


def _targets(x: Tensor) -> Tensor:
    return torch.zeros((x.shape[0],), dtype=torch.int64)


UNARY = ("neg", "sqrt", "rsqrt", "exp", "cos", "sin", "tanh", "sigmoid", "silu", "gelu", "relu")
CALLS: list[Call] = [
    *((getattr(aten, name).Tensor, _with_itself) for name in ("add", "sub", "mul", "div")),
    *((getattr(aten, name).Scalar, lambda x: (x, 3)) for name in ("add", "mul", "div")),
    (aten.mul.Tensor, lambda x: (x, 0.5)),
    (aten.pow.Tensor_Scalar, lambda x: (x, 2)),
    *((getattr(aten, name).default, lambda x: (x,)) for name in UNARY),
    *((getattr(aten, f"{name}_backward").default, _with_itself) for name in ("silu", "gelu")),
    *((getattr(aten, name).default, lambda x: (x, -1, False)) for name in ("_log_softmax", "_softmax")),
    *((getattr(aten, f"{n}_backward_data").default, lambda x: (x, x, -1, x.dtype)) for n in ("_log_softmax", "_softmax")),
    (aten.nll_loss_forward.default, lambda x: (x, _targets(x), None, 1, -100)),
    (aten.nll_loss_backward.default, lambda x: (x.sum(), x, _targets(x), None, 2, -100, x.sum())),
    *((view.default, lambda x: (x, [-1, x.shape[-1]])) for view in (aten.view, aten._unsafe_view)),
    (aten.view.default, lambda x: (x, [1, *x.shape, 1])),
    (aten.view.default, lambda x: (x, [x.shape[0] * x.shape[1]])),
]
SHAPES = [(5, 7), (1, 7), (5, 1), (1, 1)]


@pytest.fixture
def symbols() -> Iterator[tuple[SizeEnv, dict[str, Any]]]:
    env = SizeEnv({"B": 11, "T": 13})
    with FakeTensorMode(shape_env=env, allow_non_fake_inputs=True):
        yield env, env.symbols


def _form(x: Tensor) -> tuple[Any, ...]:
    return tuple(x.shape), tuple(x.stride()), x.dtype, x.storage_offset()


def _each(out: Any) -> tuple[Tensor, ...]:
    return (out,) if isinstance(out, Tensor) else tuple(out)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_forms_are_those_of_real_kernels(dtype: torch.dtype) -> None:
    """Every operator of the tables, also where axes have length 1."""
    met = set()
    for func, arguments in CALLS:
        for shape in SHAPES:
            real = func(*arguments(torch.ones(shape, dtype=dtype)))
            with FakeTensorMode():
                given = contiguous.forms(func, arguments(torch.ones(shape, dtype=dtype)), {})
            assert given is not None
            assert [form[:4] for form in given] == [_form(x) for x in _each(real)], (func, shape)
            met.add(id(func))

    tables = (contiguous._ELEMENTWISE, contiguous._VIEWS, contiguous._SOFTMAX, contiguous._SOFTMAX_BACKWARD)
    assert met == frozenset().union(*tables) | {contiguous._LOSS, contiguous._LOSS_BACKWARD}


def test_symbolic_forms_are_the_same_and_evaluate_no_guard(symbols: tuple[SizeEnv, dict[str, Any]]) -> None:
    env, sizes = symbols
    for func, arguments in CALLS:
        args = arguments(torch.ones((sizes["B"], sizes["T"])))
        before = len(env.answers)
        given = contiguous.forms(func, args, {})
        assert len(env.answers) == before
        assert given is not None
        at_hints = [(*(tuple(map(env.hint, part)) for part in form[:2]), *form[2:4]) for form in given]
        with torch.utils._python_dispatch._disable_current_modes():
            assert at_hints == [_form(x) for x in _each(func(*arguments(torch.ones((11, 13)))))], func


def test_other_tensors_are_left_to_torch(symbols: tuple[SizeEnv, dict[str, Any]]) -> None:
    """Transposed, broadcast, of two dtypes, of a size that may be 0, with an option, and a view that does not fit."""
    B, T = (symbols[1][name] for name in "BT")
    x = torch.ones((B, T))
    refused = [
        (aten.neg.default, (x.t(),)),
        (aten.mul.Tensor, (x, torch.ones((T,)))),
        (aten.mul.Tensor, (x, torch.ones((B, T), dtype=torch.float64))),
        (aten.neg.default, (torch.ones((B, T - 1)),)),
        (aten.view.default, (x, [B, T + 1])),
        (aten.view.default, (x, [-1, 2])),
        (aten.sum.default, (x,)),
        (aten.nll_loss_forward.default, (x, _targets(x), None, 0, -100)),
    ]

    assert [contiguous.forms(func, args, {}) for func, args in refused] == [None] * len(refused)
    assert contiguous.forms(aten.add.Tensor, (x, x), {"alpha": 2}) is None
