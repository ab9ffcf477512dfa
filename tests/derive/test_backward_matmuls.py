"""Matmuls of the backward are named by the gradient that they compute."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import calc
from calc.derive.result import Derivation
from calc.symbolic.expression import Labelled, Sum


def _labels(derivation: Derivation, phase: str = "backward") -> list[str]:
    """The labels of the matmuls of a pass, in order."""
    steps = [s for s in derivation.steps if s.quantity == f"flops.{phase}.matmul" and s.operators]
    terms = [t for s in steps for t in (s.before.terms if isinstance(s.before, Sum) else (s.before,))]
    return [t.text for t in terms if isinstance(t, Labelled)]


def test_a_parameter_has_its_own_name() -> None:
    """dw2 = yᵀ dy2, dy = dy2 w2ᵀ, dw1 = x0ᵀ dy, each with the product whose x and y it has; the input needs no gradient."""
    derivation = calc.derive(calc.load("two-layer"))
    of = "of y = x w2"

    assert ["mm: x w1", "mm: x w2"] == _labels(derivation, "forward")
    assert [f"mm: dw2 = xᵀ dy {of}", f"mm: dx = dy w2ᵀ {of}", "mm: dw1 = xᵀ dy of y = x w1"] == _labels(derivation)


def test_a_linear_layer_multiplies_by_its_transposed_weight() -> None:
    """y = x Wᵀ has dW = dyᵀ x, (f, B) times (B, d), and dx = dy W; the first layer's input needs none."""
    labels = _labels(calc.derive(calc.load("mlp")))

    assert ["addmm: x Wᵀ"] * 2 == _labels(calc.derive(calc.load("mlp")), "forward")
    assert ["mm: dx = dy W", "mm: dW = dyᵀ x", "mm: dW = dyᵀ x"] == labels


@pytest.mark.parametrize("checkpointing", ["none", pytest.param("block", marks=pytest.mark.slow)])
def test_every_matmul_of_gpt2_has_a_name(checkpointing: str) -> None:
    """What is recomputed is the forward's own product."""
    labels = _labels(calc.derive(calc.load("gpt2"), checkpointing=checkpointing))

    assert labels.count("mm: dW = dyᵀ x") == labels.count("mm: dx = dy W") == 5


class CalledX(nn.Module):
    """A weight with the name that data have."""

    def __init__(self, d: Any) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.randn(d, 11))

    def forward(self, data: Tensor) -> Tensor:
        return data @ self.x


def test_the_gradient_of_a_weight_is_one_whatever_its_name() -> None:
    """The only matmul of the backward; the input needs no gradient."""
    spec = calc.Spec(
        name="called-x",
        dims={"B": 5, "d": 7},
        build=lambda n: CalledX(n.d),
        inputs=lambda n: (torch.randn(n.B, n.d),),
        loss=lambda model, x: model(x).sum(),
    )
    parts = calc.derive(spec, optimizer="sgd", cache=False)["flops.backward.matmul"].parts

    assert ["dw"] == [addend.label.gradient for part in parts for addend in part.addends]


class Square(nn.Module):
    """Square weights, whose sizes do not tell how they are used: as they are, transposed, from the left, and by a view used twice."""

    def __init__(self, d: Any) -> None:
        super().__init__()
        for name in ("plain", "turned", "left", "twice"):
            setattr(self, name, nn.Parameter(torch.randn(d, d)))

    def forward(self, x: Tensor) -> Tensor:
        x = (x @ self.plain).relu() @ self.turned.T
        x = (self.left @ x.relu().T).T
        view = self.twice.T
        return (x @ view).relu() @ view


def test_views_tell_whether_a_square_weight_is_transposed() -> None:
    """A view that was read before may be another one: then W is the operand as it is, which is true of any."""
    spec = calc.Spec(
        name="square",
        dims={"B": 5, "d": 7},
        build=lambda n: Square(n.d),
        inputs=lambda n: (torch.randn(n.B, n.d),),
        loss=lambda model, x: model(x).sum(),
    )
    derivation = calc.derive(spec, optimizer="sgd", cache=False)
    gradients = {label.partition(": ")[2] for label in _labels(derivation)}

    assert {"x plain", "x turnedᵀ", "left x", "x twiceᵀ", "x W"} == {label.partition(": ")[2] for label in _labels(derivation, "forward")}
    assert {"dplain = xᵀ dy of y = x plain", "dturned = dyᵀ x of y = x turnedᵀ", "dleft = dy xᵀ of y = left x"} < gradients


def test_a_cast_weight_has_its_name() -> None:
    """Under autocast the matmul reads a copy of the weight in bf16."""
    labels = _labels(calc.derive(calc.load("mlp"), precision="bf16-autocast"))

    assert ["mm: dx = dy W", "mm: dW = dyᵀ x", "mm: dW = dyᵀ x"] == labels
