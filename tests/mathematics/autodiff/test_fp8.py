"""Matmuls in fp8: equations over the real numbers where the module has a backward of its own or needs none, else what torch says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from calc import Spec, gradients
from calc.errors import UnknownOperatorError
from calc.mathematics.gradients import check
from tests.mathematics.autodiff import test_converter
from tests.mathematics.autodiff.test_converter import Parts

_FP8, _LARGEST = torch.float8_e4m3fn, 448


def scaled(x: Tensor, *axes: int) -> tuple[Tensor, Tensor]:
    """Numbers in fp8 and their scale: one for all, or one for each row."""
    scale = x.abs().amax(*axes, keepdim=bool(axes)).float() / _LARGEST
    return (x / scale).clamp(-_LARGEST, _LARGEST).to(_FP8), scale


def by_tensor(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    (a, of_a), (b, of_b) = scaled(x), scaled(w)
    return torch._scaled_mm(a, b.t(), of_a, of_b, out_dtype=torch.bfloat16).float(), a, of_a


def by_row(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    (a, of_a), (b, of_b) = scaled(x, 1), scaled(w, 1)
    return torch._scaled_mm(a, b.t(), of_a, of_b.t(), bias=of_b[:, 0].bfloat16(), out_dtype=torch.bfloat16).float(), a, of_a


def with_functional(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    (a, of_a), (b, of_b), kind = scaled(x), scaled(w), F.ScalingType.TensorWise
    return F.scaled_mm(a, b.t(), of_a, kind, of_b, kind, output_dtype=torch.bfloat16).float(), a, of_a


def spec_of(function: Callable[[Tensor, Tensor], Tensor]) -> Spec:
    """The loss of ``function`` of the product of an input and a parameter, and of that parameter."""

    class Two(Parts):
        def forward(self, x: Tensor) -> Tensor:
            return function(x @ self.w, self.w)

    return replace(test_converter.spec_of(None), build=lambda n: Two(n.d, None))


def function_of(forward: Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]], factor: float = 1.0) -> Any:
    """x wᵀ in fp8, whose backward is that of a product in fp32; times ``factor``."""

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
            result, a, of_a = forward(x, w)
            ctx.save_for_backward(a, of_a, w)
            return result

        @staticmethod
        def backward(ctx: Any, *dy: Tensor) -> tuple[Tensor, Tensor]:
            a, of_a, w = ctx.saved_tensors
            return factor * dy[0] @ w, factor * dy[0].t() @ (a.float() * of_a)

    return lambda x, w: Product.apply(x, w)


@pytest.mark.parametrize("forward", [by_tensor, pytest.param(with_functional, marks=pytest.mark.slow)])
def test_gradients_of_an_fp8_layer_are_those_that_its_own_backward_has_without_rounding(forward: Any) -> None:
    """Over the real numbers scales cancel, those of the largest element too; another backward than that of the product does not hold."""
    spec, other = spec_of(function_of(forward)), spec_of(function_of(forward, factor=1.5))

    assert "Product at (model) is a custom autograd function" in gradients(spec).notes[0]
    assert all(trial.ok for trial in check(gradients(spec), spec).trials)
    assert not any(trial.ok for trial in check(gradients(other), other).trials)


def test_scales_of_rows_and_a_bias_are_part_of_the_equation() -> None:
    """A matmul of fp8 that no parameter comes before: its product in float64."""
    spec = spec_of(lambda y, w: y * by_row(y.detach(), w.detach())[0])

    assert all(trial.ok for trial in check(gradients(spec), spec).trials)


def test_a_backward_that_computes_what_nothing_needs_is_told_apart() -> None:
    """The gradient of the input: 2·B·d² FLOP, which equations leave out and the step executes."""

    class First(Parts):
        def forward(self, x: Tensor) -> Tensor:
            actual: Tensor = function_of(by_tensor)(x, self.w)
            return actual

    spec = Spec(
        name="first",
        dims={"B": 4, "d": 5},
        build=lambda n: First(n.d, None),
        inputs=lambda n: (torch.randn(n.B, n.d),),
        loss=lambda m, x: (m(x) ** 2).mean(),
    )
    backward = check(gradients(spec), spec, {"B": 4, "d": 5}).flops[1]

    assert (backward.equations, backward.executed) == (2 * 4 * 5 * 5, 2 * 2 * 4 * 5 * 5)
    assert backward.because == "the backward of Product computes the gradient of an input too, which nothing needs"


def test_an_fp8_matmul_that_autograd_would_differentiate_is_refused_as_torch_refuses_it() -> None:
    def plain(y: Tensor, w: Tensor) -> Tensor:
        return by_tensor(y, w)[0]

    with pytest.raises(RuntimeError, match="derivative for aten::_scaled_mm is not implemented"):
        plain(torch.randn(16, 16, requires_grad=True), torch.randn(16, 16)).sum().backward()
    says = (
        r"^torch has no derivative of aten\._scaled_mm\.default at \(model\): multiply in fp8 within a torch\.autograd\.Function, whose"
        r" backward you write$"
    )
    with pytest.raises(UnknownOperatorError, match=says):
        gradients(spec_of(plain))
