"""A comparison is proved from given sizes on, or it is not: never one that fails at a size of the range."""

from __future__ import annotations

import itertools

import pytest

from calc.symbolic.exact import holds
from calc.symbolic.lower_bounds import holds_from

# Each is proved for T of at least 3 and other sizes of at least 1, and fails at T = 2.
FROM_3 = {
    "-1 + T >= 2": True,
    "-1 + T > 1": True,
    "-1 + T == 1": False,
    "-1 + T <= 1": False,
    "(-1 + T)**2 >= 2": True,
    "B*(-1 + T) == B": False,
    "B != B*(-1 + T)": True,
    "B < B*(-1 + T)": True,
    "Mod(B, B*(-1 + T)) == 0": False,
    "B % (B*(-1 + T)) == 0": False,
    "Max(1, -1 + T) == Max(1, -1 + T)**2": False,
    "Min(2*B, B*(-1 + T)) == 2*B": True,
    "Max(2*B, B*(-1 + T)) == B*(-1 + T)": True,
    "8*d + 64*h == (-1 + T)*(8*d + 64*h)": False,
    "T/3 >= 1": True,
    "T >= 3 and B*(T - 2) >= B": True,
    "d == -1 or T >= 3": True,
    "not (T < 3 or B*d == 0)": True,
}


@pytest.mark.parametrize("text", FROM_3)
def test_what_holds_from_a_size_on_is_proved_from_there_on(text: str) -> None:
    assert holds_from(text, FROM_3[text], {"T": 3})
    assert not holds_from(text, FROM_3[text], {"T": 2})
    assert not holds_from(text, not FROM_3[text], {"T": 3})


UNPROVED = (
    *("B == d", "T > d", "T <= 5", "B*d >= T", "T//2 > 1", "floor(T/2) > 1", "Mod(T, 2) == 0"),
    *("Mod(d, T) == d", "T/d > 0", "T**20 > 1", "T > 1 and d > 1"),
)


@pytest.mark.parametrize(("text", "outcome"), [*itertools.product(UNPROVED, (True, False))])
def test_nothing_else_is_said_to_hold(text: str, outcome: bool) -> None:
    assert not holds_from(text, outcome, {"T": 3})


@pytest.mark.parametrize("text", FROM_3)
def test_no_proof_is_wrong_at_any_size_of_the_range(text: str) -> None:
    for T, small in itertools.product(range(3, 9), itertools.product(range(1, 4), repeat=3)):
        assert holds(text, {"T": T, **dict(zip("Bdh", small, strict=True))}) is FROM_3[text]
