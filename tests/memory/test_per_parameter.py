"""Bytes per parameter of each precision recipe, as the product derives them, and the published rules that they give."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import pytest

import calc
from calc.errors import BadInputError
from calc.memory.formulas import FP8_LM, TRANSFORMER_ENGINE
from calc.memory.per_parameter import PerParameter, per_parameter, sharded
from tests.quick import few

NAMES = ("parameters.bytes", "master_weights.bytes", "gradients.bytes", "optimizer_state.bytes")


@cache
def of(precision: str, optimizer: str = "adamw") -> PerParameter:
    return per_parameter(calc.derive(calc.load("mlp"), cache=False, precision=precision, optimizer=optimizer))


@pytest.mark.parametrize(
    ("precision", "optimizer", "weights", "copies", "gradients", "state", "total"),
    few(
        [
            ("fp32", "adamw", 4, 0, 4, 8, 16),
            ("fp32", "sgd", 4, 0, 4, 0, 8),
            ("fp32", "momentum", 4, 0, 4, 4, 12),
            ("bf16-autocast", "adamw", 4, 0, 4, 8, 16),  # casts of the weights live in the forward only
            ("fp16-autocast", "adamw", 4, 0, 4, 8, 16),
            ("bf16", "adamw", 2, 0, 2, 4, 8),
            ("bf16-master", "adamw", 2, 4, 2, 8, 16),  # the same 16 as fp32, from other parts
        ],
        4,
    ),
)
def test_a_recipe_keeps_so_many_bytes_per_parameter(
    precision: str, optimizer: str, weights: int, copies: int, gradients: int, state: int, total: int
) -> None:
    """Weights + fp32 copies + gradients + optimizer state."""
    actual = of(precision, optimizer)
    whole = {t.quantity: t.per_parameter for t in actual.terms}

    assert (weights, copies, gradients, state) == tuple(whole.get(name, 0) for name in NAMES)
    assert total == actual.per_parameter


def test_what_does_not_divide_is_left_over_and_named() -> None:
    """AdamW's four step counters of 4 bytes: 16 N + 16 bytes in all, to the byte what the derivation has."""
    derivation = calc.derive(calc.load("mlp"), cache=False)
    recipe = per_parameter(derivation)

    assert 16 == recipe.remainder
    assert sum(derivation[name].value or 0 for name in NAMES if derivation[name].text is not None) == recipe.bytes
    assert recipe.exact == 16 + Fraction(16, recipe.parameters)
    assert "plus 16 bytes, mostly step counters" in recipe.terms[-1].because


def test_a_forward_alone_has_no_bytes_per_parameter_of_training() -> None:
    """It is refused rather than given as the weights' 4 bytes."""
    with pytest.raises(BadInputError, match=r"^mode infer keeps no gradients and no optimizer state: use mode train$"):
        per_parameter(calc.derive(calc.load("mlp"), cache=False, mode="infer"))


def test_a_stage_of_zero_divides_what_it_says() -> None:
    """2 + 2 + 12/n, 2 + 14/n and 16/n bytes on n = 64 devices."""
    actual = of("bf16-master")

    assert [16, 4 + Fraction(12, 64), 2 + Fraction(14, 64), Fraction(16, 64)] == [sharded(actual, 64, stage) for stage in range(4)]
    with pytest.raises(BadInputError, match=r"^stage 4 on 8 devices: stages are 0 to 3, on at least one device$"):
        sharded(actual, 8, 4)


def test_stated_recipes_in_fp8_add_up() -> None:
    """FP8-LM: 2 + 1 + 1 + 2 = 6; fp8 copies over bf16 with fp32 copies: 2 + 2 + 4 + 4 + 4 + 2 = 18."""
    assert (6, 18) == (FP8_LM.total, TRANSFORMER_ENGINE.total)
    assert all(recipe.source and recipe.error for recipe in (FP8_LM, TRANSFORMER_ENGINE))
