"""A moment is left out only where another, or a mean of two others, is never below it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import calc
from calc import Spec
from calc.derive.dominance import _WEIGHTS, Shift, _some_weight, undominated
from calc.symbolic.algebra import Algebra

ALGEBRA = Algebra(("B", "d", "T", "C"), [])
B, D, T, C = (ALGEBRA.gen(name) for name in ALGEBRA.names)
ROW = st.lists(st.integers(-9, 9), min_size=3, max_size=3)


@given(row=ROW, x=ROW, mates=st.lists(ROW, min_size=1, max_size=4))
def test_a_mean_is_found_where_there_is_one(row: list[int], x: list[int], mates: list[list[int]]) -> None:
    """Every mate and every weight, tried one by one."""
    if all(a >= b for a, b in zip(x, row, strict=True)):
        return  # it is below that one itself, and is dropped before means are tried
    tried = any(
        all(w * a + (_WEIGHTS - w) * b >= _WEIGHTS * c for a, b, c in zip(x, y, row, strict=True))
        for y in mates
        for w in range(1, _WEIGHTS)
    )

    assert _some_weight(np.array(row), np.array(x), np.array(mates)) == tried


def test_what_can_be_the_largest_stays() -> None:
    """B·d² and B²·d cross; 3·B·d is below B·d² + 3·B·d; (B·d² + B²·d)/2 is never above the larger of the two; C is at least T."""
    live = {"square": B * D**2 + 3 * B * D, "batch": B**2 * D, "less": 3 * B * D, "mean": (B * D**2 + B**2 * D) / 2}

    assert undominated(live, Shift(ALGEBRA)) == ["square", "batch"]
    assert undominated({"T": B * T, "C": B * C}, Shift(ALGEBRA)) == ["T", "C"]
    assert undominated({"T": B * T, "C": B * C}, Shift(ALGEBRA, [("T", "C")])) == ["C"]


PADDED = Algebra(("B", "T"), ["Mod(-T, 4)", "floor((T - 5)/2)"])


def test_what_pads_to_a_multiple_may_be_nothing() -> None:
    """B·T·Mod(-T, 4) is 0 at T = 4, where B is more; floor((T - 5)/2) is -2 at T = 1, so no multiple of it is sure to be above B."""
    pad, half = PADDED.parse("Mod(-T, 4)"), PADDED.parse("floor((T - 5)/2)")
    batch, length = PADDED.gen("B"), PADDED.gen("T")

    assert undominated({"pad": batch * length * pad, "batch": batch}, Shift(PADDED)) == ["pad", "batch"]
    assert undominated({"pad": batch * length * pad + batch, "batch": batch}, Shift(PADDED)) == ["pad"]
    assert undominated({"half": batch + 2 * half, "batch": batch}, Shift(PADDED)) == ["half", "batch"]
    assert undominated({"half": batch + 2 * half + 4, "batch": batch}, Shift(PADDED)) == ["half"]


def test_what_has_no_lower_bound_must_cancel() -> None:
    """T - B·T has none, so floor((T - B*T)/2) of the one is only below as much of the other."""
    algebra = Algebra(("B", "T"), ["floor((T - B*T)/2)"])
    atom, batch = algebra.parse("floor((T - B*T)/2)"), algebra.gen("B")

    assert undominated({"more": 2 * atom + batch, "less": atom + batch}, Shift(algebra)) == ["more", "less"]
    assert undominated({"more": atom + 2 * batch, "less": atom + batch}, Shift(algebra)) == ["more"]


class Padded(nn.Module):
    """A large tensor over the length in multiples of 4, then one over the length itself beside a small one."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(n.d, n.d)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        padded = x.new_ones(batch, batch, width, 100, length + -length % 4).sum()
        beside = x.new_ones(width)
        total: Tensor = padded + x.new_ones(batch, batch, width, 100, length).sum() + self.linear(x).sum()
        return total + 0 * beside.sum()


def test_the_peak_where_nothing_is_padded_is_that_of_a_real_run() -> None:
    """Derived at a length of 7 the peak is while it is padded; at 8 it is a few bytes later."""
    dims = {"B": 13, "T": 7, "d": 5}
    padded = Spec("padded", dims, Padded, lambda n: (torch.randn(n.B, n.T, n.d),), lambda module, x: module(x))
    derivation = calc.derive(padded, cache=False, optimizer="sgd")

    for length in (7, 8):
        verdicts = {v.quantity: v.verdict for v in calc.check(derivation, T=length).verdicts}
        assert ("exact", "exact") == (verdicts["memory.peak"], verdicts["memory.peak.first_step"])
