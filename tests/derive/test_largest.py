"""The largest size at which a quantity stays within a budget."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn

import calc
from calc.derive.result import Derivation
from calc.dimensions import Dim
from calc.errors import BadInputError, DimensionError
from calc.spec import Spec


@functools.cache
def layer() -> Derivation:
    """A linear layer of ``d`` features, a multiple of 6, with at most 17 rows."""
    spec = Spec(
        "layer",
        {"d": Dim(12, multiple_of=6), "k": Dim("2*d", tied=True), "P": 17, "B": Dim(5, at_most="P"), "h": 3, "w": Dim(9, multiple_of="h")},
        lambda n: nn.Sequential(nn.Linear(n.d, n.k), nn.Linear(n.k, n.w)),
        lambda n: (torch.randn(n.B, n.d),),
        lambda module, x: module(x).sum(),
    )
    return calc.derive(spec)


@functools.cache
def gpt2() -> Derivation:
    return calc.derive(calc.load("gpt2"))


@pytest.mark.parametrize(("dimension", "quantity"), [("B", "flops.step.total"), ("d", "memory.peak"), ("w", "parameters")])
def test_the_next_size_is_over_the_budget(dimension: str, quantity: str) -> None:
    step = {"B": 1, "d": 6, "w": 3}[dimension]
    counted = layer()[quantity]
    budget = counted.at({dimension: 4 * step})
    assert [layer().largest(dimension, more, quantity) for more in (budget, budget + 1, budget - 1)] == [4 * step, 4 * step, 3 * step]


def test_no_size_is_zero() -> None:
    assert layer().largest("B", 10) == 0


def test_the_model_ends_before_the_budget() -> None:
    assert layer().largest("B", 80e9) == 17


def test_a_size_that_others_bound_from_below() -> None:
    enough = gpt2()["parameters"].at(C=1031)
    assert [gpt2().largest("C", budget, "parameters") for budget in (enough, gpt2()["parameters"].value - 1)] == [1031, 0]


def test_a_batch_is_the_answer_of_the_question() -> None:
    assert gpt2().largest("B", 80 * 10**9) == calc.ask("largest-batch", model="gpt2", memory="80GB").value


@pytest.mark.parametrize(
    ("dimension", "at_most", "quantity", "error", "message"),
    [
        ("Z", 10, "memory.peak", DimensionError, "layer has no dimension 'Z': use one of d, k, P, B, h, w"),
        ("k", 10, "memory.peak", BadInputError, "k = 2*d cannot be set: choose a size that it follows from"),
        ("h", 10, "memory.peak", BadInputError, "h must divide w: evaluate its divisors with at"),
        ("P", 10**9, "parameters", BadInputError, "parameters does not grow with P"),
        ("B", "80GB", "memory.peak", BadInputError, "at_most = '80GB': give a number, e.g. 80 * 10**9"),
        ("B", -1, "memory.peak", BadInputError, "at_most = -1: give a number, e.g. 80 * 10**9"),
        ("B", float("nan"), "memory.peak", BadInputError, "at_most = nan: give a number, e.g. 80 * 10**9"),
    ],
)
def test_it_is_refused_in_one_line(dimension: str, at_most: float, quantity: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as raised:
        layer().largest(dimension, at_most, quantity)
    assert str(raised.value) == message
