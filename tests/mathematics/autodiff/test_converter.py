"""From a forward to equations: views cost nothing, what is written over is followed, what is unknown is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import calc
from calc import Spec
from calc.errors import BadInputError, UnknownOperatorError
from calc.mathematics.autodiff import ir
from calc.mathematics.gradients import _sizes, trial
from calc.options import Options


def holds(spec: Spec) -> bool:
    equations = calc.gradients(spec)
    return all(trial(equations, spec, _sizes(equations.program, spec, seed, {}), Options(), seed).ok for seed in range(2))


class Parts(nn.Module):
    """A parameter and a function of it and the input."""

    def __init__(self, d: Any, function: Any) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(d, d))
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        actual: Tensor = self.function(x @ self.w)
        return actual


def spec_of(function: Any) -> Spec:
    return Spec(
        name="parts",
        dims={"B": 4, "d": 5},
        build=lambda n: Parts(n.d, function),
        inputs=lambda n: (torch.randn(n.B, n.d),),
        loss=lambda m, x: (m(x) ** 2).mean(),
    )


def test_views_of_rows_are_no_equation() -> None:
    """A linear layer over (B, T, d) runs on (B·T, d): its equation has B and T."""
    spec = Spec(
        name="rows",
        dims={"B": 2, "T": 3, "d": 5, "f": 7},
        build=lambda n: nn.Linear(n.d, n.f),
        inputs=lambda n: (torch.randn(n.B, n.T, n.d),),
        loss=lambda m, x: m(x).mean(),
    )
    nodes = [n for n in calc.gradients(spec).equations.nodes if isinstance(n.op, ir.Contract)]

    assert ["B", "T", "f"] == [str(s) for s in nodes[0].shape]
    assert not [n for n in calc.gradients(spec).equations.nodes if isinstance(n.op, ir.Split | ir.Merge)]


class Positions(nn.Module):
    """A parameter with an axis of size 1, as position embeddings have."""

    def __init__(self, d: Any) -> None:
        super().__init__()
        self.positions = nn.Parameter(torch.randn(1, d))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.positions


def test_a_parameter_without_its_axes_of_size_1_is_the_parameter() -> None:
    """A view that drops them has no name and no equation of its own, so the gradient that is shown is that of the parameter."""
    spec = Spec(
        name="positions",
        dims={"B": 2, "d": 5},
        build=lambda n: nn.Sequential(Positions(n.d)),
        inputs=lambda n: (torch.randn(n.B, n.d),),
        loss=lambda m, x: m(x).mean(),
    )

    assert {"0.positions"} == {name for name in calc.gradients(spec).names.of.values() if "positions" in name}


def test_a_tensor_written_over_through_a_view_of_a_view_changes() -> None:
    """y[:, 1:].t()[0] *= 2 changes column 1 of y, also as seen through a view made before."""

    def over(y: Tensor) -> Tensor:
        y = y * 1
        seen = y.t()
        y[:, 1:].t()[0].mul_(2)
        y.add_(1)
        return seen

    assert holds(spec_of(over))


def test_what_is_detached_is_a_constant() -> None:
    """No gradient flows through detach and no_grad."""

    def partly(y: Tensor) -> Tensor:
        with torch.no_grad():
            scale = y.abs().mean()
        return y * y.detach() + scale * y

    assert holds(spec_of(partly))


def test_gradients_that_cancel_agree_however_they_are_rounded() -> None:
    """The sum of a normalized row is nought whatever the weights are: what is left of its gradient is rounding, in both."""
    s = spec_of(lambda y: F.layer_norm(y, (y.shape[1],)).sum(1) + 1)
    equations = calc.gradients(s)
    t = trial(equations, s, {"B": 4, "d": 5}, Options(), 0)

    assert t.ok
    assert (t.scale, t.kinks) == (1e-3, 0)


def test_a_hand_written_backward_is_noted_and_compared() -> None:
    """The equations are those of its forward; a backward of its own that is another fails the comparison."""

    class Through(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.round() + 0 * x

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Tensor:
            return gradients[0]

    spec = spec_of(lambda y: Through.apply(y))

    assert "a custom autograd function" in calc.gradients(spec).notes[0]
    assert not holds(spec)


def test_an_operator_without_an_equation_is_refused_by_name_and_module_path() -> None:
    """With the way out."""
    with pytest.raises(
        UnknownOperatorError, match=r"^there is no equation for aten\.linalg_inv_ex\.default at \(model\).*: rewrite it with"
    ):
        calc.gradients(spec_of(lambda y: torch.linalg.inv(y.t() @ y)))


def test_noise_is_what_the_run_draws() -> None:
    """Dropout inside attention: the same mask in the equations."""
    assert holds(spec_of(lambda y: F.scaled_dot_product_attention(y[None, None], y[None, None], y[None, None], dropout_p=0.3)))


@pytest.mark.parametrize("option", [{"mode": "infer"}, {"precision": "bf16"}])
def test_options_that_equations_do_not_have_are_refused(option: dict[str, str]) -> None:
    """In one line."""
    with pytest.raises(BadInputError):
        calc.gradients(spec_of(torch.relu), **option)


def test_an_unknown_parameter_is_refused() -> None:
    """Naming those that there are."""
    with pytest.raises(BadInputError, match=r"^unknown parameter 'v': use one of w$"):
        calc.gradients(spec_of(torch.relu)).parameter("v")
