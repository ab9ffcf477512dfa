"""The sizes at which closed forms are certified: such as a wrong one would be seen at."""

from __future__ import annotations

import sys
from fractions import Fraction
from typing import Any

import pytest
import sympy as sp
import torch
from torch import nn

import calc
from calc import Spec, trace
from calc.trace.values import doubles

FACTORS = (2, 3, 5, 7)


def _spec(d: int = 31) -> Spec:
    def build(n: Any) -> nn.Module:
        return nn.Sequential(nn.Linear(n.d, int(n.d * (8 / 3))), nn.ReLU(), nn.Linear(int(n.d * (8 / 3)), n.d))

    return Spec("wide", {"B": 3, "d": d}, build, lambda n: (torch.randn(n.B, n.d),), lambda module, x: module(x).sum())


def test_certificates_are_at_the_sizes_of_the_spec_and_at_multiples_of_small_primes() -> None:
    """One of each: a size with at least three of 2, 3, 5 and 7 in it, all sizes different."""
    first, second, *_ = trace(_spec(), cache=False).certificates

    assert {"B": 3, "d": 31} == first.sizes
    assert all(sum(size % factor == 0 for factor in FACTORS) >= 3 for size in second.sizes.values())
    assert len(set(second.sizes.values())) == len(second.sizes)


def test_certificates_at_primes_alone_would_not_see_what_is_wrong_at_multiples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: 2.6666666666666665 as the decimal fraction that it is written as, at every size. It falls short at multiples of three."""
    monkeypatch.setattr(doubles, "_simplest", lambda number: Fraction(repr(number)))
    monkeypatch.setattr(doubles, "_is_proved", lambda _: True)

    with pytest.raises(calc.NapkinError):
        calc.derive(_spec(), cache=False, optimizer="sgd")
    monkeypatch.setattr(sys.modules["calc.trace"], "next_composite", sp.nextprime)
    assert calc.derive(_spec(), cache=False, optimizer="sgd")["parameters"].at(d=768) == 3_147_007  # the module has 3,148,544


def test_a_certificate_is_at_sizes_at_which_torch_can_count_the_bytes() -> None:
    """A square matrix of six sizes: at numbers with many divisors it has more than 2**63 bytes."""

    def width(n: Any) -> Any:
        return n.p * n.p * n.q * n.r * n.s * n.s

    wide = Spec(
        "wide",
        {"B": 2, "p": 2, "q": 3, "r": 2, "s": 2},
        lambda n: nn.Linear(width(n), width(n), bias=False),
        lambda n: (torch.randn(n.B, width(n)),),
        lambda module, x: module(x).sum(),
    )
    derivation = calc.derive(wide, cache=False)

    assert ("p**4*q**2*r**2*s**4", {}) == (derivation["parameters"].text, derivation.specialization_reasons)
