"""Bounds of expressions hold at every size of at least 1."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc.symbolic.exact import evaluate_text
from calc.symbolic.lower_bounds import Range, range_of
from calc.symbolic.parser import parse

SIZES = st.integers(1, 40)
TEXTS = [
    "Mod(-T, 4)", "floor((T - 5)/2)", "ceiling(T/8)", "T // 3 - B // 2", "(T - B) % 7", "Max(T - 3, 0)", "Min(T, B, 5)", "floor(T/B)",
    "B*T - 2*T + 3", "(T + 1)**2", "(T - 3)**2", "ceiling(log(T, 2))", "-floor((B*T - 7)/3)*(T - 2)", "floor(-T/2)*floor(B/2)",
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
@given(b=SIZES, t=SIZES)
def test_a_value_lies_in_its_range(text: str, b: int, t: int) -> None:
    """At any B and T."""
    bounds = range_of(parse(text))

    assert bounds.low <= evaluate_text(text, {"B": b, "T": t}) <= bounds.high


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("Mod(-T, 4)", 0, 4), ("floor((T - 5)/2)", -2, math.inf), ("ceiling(T/8)", 1, math.inf), ("Max(T - 3, 0)", 0, math.inf),
        ("T - B", -math.inf, math.inf), ("floor(T/2)", 0, math.inf), ("Min(T, 5)", 1, 5), ("round(0.5*T)", -math.inf, math.inf),
    ],
)  # fmt: skip
def test_bounds_are_as_tight_as_a_reader_sees_them(text: str, low: float, high: float) -> None:
    """Where each name is mentioned once."""
    assert range_of(parse(text)) == Range(low, high)
