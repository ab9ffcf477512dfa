"""Matmuls of the backward are named by the gradient that they compute."""

from __future__ import annotations

import pytest

import calc
from calc.derive.result import Derivation
from calc.symbolic.expression import Labelled, Sum


def _labels(derivation: Derivation) -> list[str]:
    """The labels of the backward's own matmuls, in order."""
    steps = [s for s in derivation.steps if s.quantity == "flops.backward.matmul" and s.operators]
    terms = [t for s in steps for t in (s.before.terms if isinstance(s.before, Sum) else (s.before,))]
    return [t.label for t in terms if isinstance(t, Labelled)]


def test_a_parameter_has_its_own_name() -> None:
    """dw2 = yᵀ dy2, dy = dy2 w2ᵀ, dw1 = x0ᵀ dy; the input needs no gradient."""
    assert ["mm: dw2 = xᵀ dy", "mm: dx = dy w2ᵀ", "mm: dw1 = xᵀ dy"] == _labels(calc.derive(calc.load("two-layer")))


def test_a_layer_has_a_gradient_of_its_weight_and_one_of_its_input() -> None:
    """The first layer's input needs none."""
    labels = _labels(calc.derive(calc.load("mlp")))

    assert (2, 1) == (labels.count("mm: dW = xᵀ dy"), labels.count("mm: dx = dy Wᵀ"))


@pytest.mark.parametrize("checkpointing", ["none", pytest.param("block", marks=pytest.mark.slow)])
def test_every_matmul_of_gpt2_has_a_name(checkpointing: str) -> None:
    """What is recomputed is the forward's own product."""
    labels = _labels(calc.derive(calc.load("gpt2"), checkpointing=checkpointing))

    assert labels.count("mm: dW = xᵀ dy") == labels.count("mm: dx = dy Wᵀ") == 5
