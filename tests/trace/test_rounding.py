"""Widths that a model rounds: ``int``, ``round``, ``math.floor`` and ``math.ceil`` of a size leave it a symbol."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import calc
from calc import Spec
from tests.checks import failures
from tests.quick import few

WIDTHS: dict[str, Callable[[Any], Any]] = {
    "int of a fraction": lambda d: int(8 * d / 3),
    "int of a decimal": lambda d: int(d * 0.75),
    "floor of a decimal": lambda d: math.floor(d * 2.5),
    "ceiling of a decimal": lambda d: math.ceil(d * 2.5),
    "ceiling of a fraction": lambda d: math.ceil(d / 4) * 8,
    "ceiling of a fraction of a fraction": lambda d: int(math.ceil((d * 8 / 3) / 16) * 16),
    "rounded up without math": lambda d: -(-d * 8 // 3),
    "round of thirds": lambda d: round(d * 8 / 3),
    "round of a whole number": lambda d: round(d * 4),
    "round of a whole decimal": lambda d: round(d * 4.0),
    "round of sixths": lambda d: round(8 * d / 3 / 16) * 16,
}


def _spec(width: Callable[[Any], Any]) -> Spec:
    def build(n: Any) -> nn.Module:
        return nn.Sequential(nn.Linear(n.d, width(n.d)), nn.ReLU(), nn.Linear(width(n.d), n.d))

    return Spec("rounded", {"B": 3, "d": 31}, build, lambda n: (torch.randn(n.B, n.d),), lambda module, x: module(x).sum())


@pytest.mark.parametrize("name", few(WIDTHS, 3))
def test_a_rounded_width_is_that_of_python_at_other_sizes(name: str) -> None:
    """f of d: 2·d·f + f + d parameters, at sizes on either side of a whole number."""
    derivation = calc.derive(_spec(WIDTHS[name]), cache=False, mode="infer")

    assert not derivation.specialized
    for d in (31, 32, 35, 47, 64, 97):
        f = WIDTHS[name](d)
        assert 2 * d * f + f + d == derivation["parameters"].at(d=d), d


def test_a_half_goes_to_the_even_side_as_in_python() -> None:
    """round(8·9/3/16) is round(1.5), which is 2, and round(8·15/3/16) is round(2.5), which is 2 as well."""
    derivation = calc.derive(_spec(WIDTHS["round of sixths"]), cache=False, mode="infer")

    for d, f in ((9, 32), (15, 32), (21, 64)):
        assert 2 * d * f + f + d == derivation["parameters"].at(d=d)


@pytest.mark.parametrize(
    "width", few([lambda d: int(math.sqrt(d)), lambda d: 2 ** math.ceil(math.log2(d)), lambda d: 1 << int(math.log2(d))], 1)
)
@pytest.mark.parametrize("d", [pytest.param(31, marks=pytest.mark.slow), 768])
def test_a_width_without_a_closed_form_is_the_number_that_it_is_at_these_sizes(width: Callable[[Any], Any], d: int) -> None:
    """The rest of the step has its closed form; where that width is another number, the step is traced again."""
    derivation = calc.derive(_spec(width), {"d": d}, cache=False, mode="infer")

    assert not derivation.specialized
    for at in (d, 5 * d):
        assert 2 * at * width(at) + width(at) + at == derivation["parameters"].at(d=at)
    assert any("branches on it at test_rounding.py:" in a.because and "d" in a.expr for a in derivation.assumptions)


@pytest.mark.parametrize(
    ("constant", "d", "parameters"), few([(8 / 3, 768, 3_148_544), (0.29, 100, 5_728), (1.15, 100, 23_014), (2.3, 50, 11_564)], 2)
)
def test_a_width_times_a_double_is_what_python_makes_of_the_product(constant: float, d: int, parameters: int) -> None:
    """At sizes where the double is a whole number and where it falls short of one: 100·0.29 is 28.999999999999996."""
    spec = _spec(lambda d: int(d * constant))
    f = int(d * constant)

    assert parameters == 2 * d * f + f + d == calc.derive(spec, {"d": d}, cache=False, mode="infer")["parameters"].value


def _as_the_module(pairs: int, seed: int) -> None:
    """Widths of d ≤ 20,000 times a factor of one to three decimals, thirds or sevenths: parameters are the module's own."""
    generator = random.Random(seed)
    for _ in range(pairs):
        d, parts = generator.randint(2, 20_000), generator.choice([3, 7, 10, 100, 1000])
        factor = generator.randint(1, 4 * parts) / parts
        f = int(d * factor)
        if f > 1:
            derivation = calc.derive(_spec(lambda width, factor=factor: int(width * factor)), {"d": d}, cache=False, mode="infer")
            assert 2 * d * f + f + d == derivation["parameters"].value, (d, factor)


def test_widths_times_random_factors_are_those_of_the_module() -> None:
    _as_the_module(6, seed=0)


@pytest.mark.slow
def test_widths_times_many_random_factors_are_those_of_the_module() -> None:
    _as_the_module(400, seed=1)


def test_order_of_operations_on_doubles_is_that_of_the_model() -> None:
    """3·(d·0.29) is not d·0.87: at d = 100 the one is 86.99999999999999 and the other 87."""
    for d in (31, 100):
        width = 3 * (d * 0.29)
        spec = _spec(lambda d: int(d * 0.29 * 3))
        assert 2 * d * int(width) + int(width) + d == calc.derive(spec, {"d": d}, cache=False, mode="infer")["parameters"].value


def test_experts_have_room_for_their_share_rounded_up() -> None:
    """As routers write it, ``-(-2·N // E)``: a size like others, also where peaks are compared."""

    class Router(nn.Module):
        def __init__(self, n: Any) -> None:
            super().__init__()
            self.experts, self.score = n.E, nn.Linear(n.d, n.E)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            room = -(-x.shape[0] * 2 // self.experts)
            return x.new_zeros(x.shape[0], self.experts, room) * self.score(x).sum()

    dims = {"N": 21, "d": 5, "E": 4}
    s = Spec("router", dims, Router, lambda n: (torch.randn(n.N, n.d),), lambda module, x: module(x).sum())
    derivation = calc.derive(s, cache=False, optimizer="sgd")

    assert "ceiling(2 * N / E)" in derivation["memory.peak"].text
    assert [] == [text for at in ({}, {"N": 11, "E": 3}) for text in failures(calc.check(derivation, **at))]
