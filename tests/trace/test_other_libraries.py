"""Operators of other libraries than torch's own are traced: none is zero because nobody knows it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.profiler import record_function

import calc
from calc.errors import UnknownOperatorError
from calc.experiment.stated import STATED
from calc.rules.registry import REGISTRY, Cost, rule, term
from tests.opaque import NAME, twice
from tests.trace.modules import function
from tests.trace.refused import refusal


@torch.library.custom_op("napkin_sines::sines", mutates_args=())
def sines(x: Tensor) -> Tensor:
    """Computed by NumPy, which no trace follows."""
    return torch.from_numpy(x.numpy()).sin()


@sines.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


sines.register_autograd(lambda ctx, gradient: gradient)


def test_an_operator_of_another_library_is_refused() -> None:
    """What it computes nobody has stated."""
    error = refusal(function(twice))

    assert isinstance(error, UnknownOperatorError)
    assert str(error).startswith(f"no cost rule for operator {NAME} at (model), inputs: x (")


def test_an_operator_of_another_library_costs_what_a_rule_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four for each element, beside the multiplication by the weight and the sum."""
    monkeypatch.setattr(REGISTRY, "rules", dict(REGISTRY.rules))
    rule(NAME, statement="2 x", source="this test")(lambda op: Cost(elementwise=(term("all of it", 4, *op.out.shape),)))
    STATED.discard(NAME)

    assert "6*B*d - 1" == calc.derive(function(twice), cache=False)["flops.forward.elementwise"].text


def test_an_operator_in_python_that_cannot_be_traced_inside_is_refused_with_what_to_state() -> None:
    """A rule that states its cost as a whole is the way out."""
    assert str(refusal(function(sines))).endswith(
        "state what napkin_sines.sines.default costs as a whole, with @calc.rules.rule('napkin_sines.sines.default', …)"
    )


def test_a_mark_for_the_profiler_costs_nothing() -> None:
    """It is no operator of the step."""

    def marked(x: Tensor) -> Tensor:
        with record_function("a part"):
            return x

    assert "2*B*d - 1" == calc.derive(function(marked), cache=False)["flops.forward.elementwise"].text
