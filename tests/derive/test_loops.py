"""A few depths determine a polynomial in them, whatever else is in it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from calc.derive.loops import Interpolation
from calc.symbolic.algebra import Algebra, Poly

ALGEBRA = Algebra(("L", "T", "d"), [])
L, T, D = (ALGEBRA.gen(name) for name in ALGEBRA.names)


def _interpolated(poly: Poly, counts: dict[str, Sequence[int]]) -> Poly:
    """From its values at all of the counts, which come in no order."""
    grid = [dict(zip(counts, at, strict=True)) for at in itertools.product(*counts.values())]
    random.Random(0).shuffle(grid)
    values = [_at(poly, at) for at in grid]
    traces: list[Any] = [SimpleNamespace(sizes=at) for at in grid]
    return Interpolation(traces, list(counts), ALGEBRA)(values)


def _at(poly: Poly, sizes: dict[str, int]) -> Poly:
    for name, size in sizes.items():
        poly = poly.compose(ALGEBRA.gen(name), ALGEBRA.constant(size))
    return poly


@pytest.mark.parametrize(
    ("poly", "counts"),
    [
        (7 * D + 5, {}),
        (7 * D + 5, {"L": (3, 4)}),
        (12 * L * D**2 + 13 * L * D + 2 * D, {"L": (3, 4)}),
        (12 * L * D**2 + 13 * L * D + 2 * D, {"L": (5, 6)}),
        (L * (L + 1) * D + L, {"L": (3, 4, 5)}),
        (L * T * D + 3 * T * D + L, {"L": (3, 4), "T": (6, 7)}),
        (L * T**2 * D + 3 * T * D + L, {"L": (5, 6), "T": (6, 7, 9)}),
    ],
    ids=str,
)
def test_a_polynomial_in_the_depths_is_found_from_its_values(poly: Poly, counts: dict[str, Sequence[int]]) -> None:
    """Of one degree less than there are counts, in each loop."""
    assert _interpolated(poly, counts) == poly


def test_too_few_counts_give_another_polynomial() -> None:
    """Which a certificate at further counts refuses."""
    linear = _interpolated(L**2 * D, {"L": (3, 4)})

    assert linear != L**2 * D
    assert [_at(linear, {"L": n}) for n in (3, 4)] == [9 * D, 16 * D]
