"""Widths that a model rounds: ``int``, ``round``, ``math.floor`` and ``math.ceil`` of a size leave it a symbol."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import calc
from calc import Spec
from calc.errors import TraceError

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


@pytest.mark.parametrize("name", WIDTHS)
def test_a_rounded_width_is_that_of_python_at_other_sizes(name: str) -> None:
    """f of d: 2·d·f + f + d parameters, at sizes on either side of a whole number."""
    derivation = calc.derive(_spec(WIDTHS[name]), cache=False, optimizer="sgd")

    assert not derivation.held
    for d in (31, 32, 35, 47, 64, 97):
        f = WIDTHS[name](d)
        assert 2 * d * f + f + d == derivation["parameters"].at(d=d), d


def test_a_half_that_goes_to_the_even_side_is_no_case_of_the_others() -> None:
    """round(8·9/3/16) is round(1.5), which is 2, and round(8·15/3/16) is round(2.5), which is 2 as well: no closed form says both."""
    derivation = calc.derive(_spec(WIDTHS["round of sixths"]), cache=False, optimizer="sgd")

    with pytest.raises(calc.errors.DimensionError, match="record it at these sizes"):
        derivation["parameters"].at(d=15)


def test_a_root_is_refused_by_the_line_that_takes_it() -> None:
    with pytest.raises(TraceError, match=r"has no closed form, so no closed form in d can be read off"):
        calc.derive(_spec(lambda d: int(math.sqrt(d))), cache=False, optimizer="sgd")


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
    assert [] == [v.quantity for at in ({}, {"N": 11, "E": 3}) for v in calc.check(derivation, **at).verdicts if v.verdict == "failed"]
