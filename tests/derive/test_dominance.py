"""A moment is left out only where another, or a mean of two others, is never below it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from calc.derive.dominance import _WEIGHTS, Shift, _some_weight, undominated
from calc.symbolic.algebra import Algebra

ALGEBRA = Algebra(("B", "d", "T", "C"), [])
B, D, T, C = (ALGEBRA.gen(name) for name in ALGEBRA.names)
ROW = st.lists(st.integers(-9, 9), min_size=3, max_size=3)


@given(row=ROW, x=ROW, mates=st.lists(ROW, min_size=1, max_size=4))
def test_a_mean_is_found_where_there_is_one(row: list[int], x: list[int], mates: list[list[int]]) -> None:
    """Every mate and every weight, tried one by one."""
    if all(a >= b for a, b in zip(x, row, strict=True)):
        return  # it is below that one itself, and is dropped before means are asked for
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
