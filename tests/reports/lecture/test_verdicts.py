"""Verdicts are outcomes of comparisons: of a number as it was written with one that was computed."""

from __future__ import annotations

from fractions import Fraction

import pytest

from reports.lecture.verdicts import (
    APPROXIMATE,
    CONVENTION,
    HOLDS,
    MISLEADING,
    ROUNDED,
    UNCHECKED,
    VERDICTS,
    WRONG,
    ClaimFinding,
    compared,
    convention,
    cut_off,
    number,
    numbers,
    readings,
    same,
    true,
    unchecked,
    worst,
)


@pytest.mark.parametrize(
    ("claimed", "actual", "verdict"),
    [
        ("144", 144, HOLDS),
        ("144", Fraction(13671875, 94992), ROUNDED),  # 143.93
        ("143", Fraction(13671875, 94992), APPROXIMATE),
        ("6.3e24", 6 * 70 * 10**9 * 15 * 10**12, HOLDS),
        ("3.14e23", 6 * 174_600_000_000 * 3 * 10**11, ROUNDED),  # 3.1428e23
        ("4.7e21", 8 * 7 * 86400 * 989_500_000_000_000, APPROXIMATE),  # 4.788e21
        ("4.8e21", 8 * 7 * 86400 * 989_500_000_000_000, ROUNDED),
        ("2.3", Fraction(9, 4), ROUNDED),  # 2.25, rounded up as people do
        ("0.6635742749004901", 0.6635742749004901, HOLDS),
        ("100", 95, WRONG),  # 5.3 % of what is
        ("100", Fraction(10000, 105), APPROXIMATE),  # 5 % of what is, the bound itself
    ],
)
def test_a_number_is_compared_at_the_precision_it_is_written_in(claimed: str, actual: Fraction, verdict: str) -> None:
    """Equal, equal when rounded, near, or wrong."""
    assert verdict == compared(claimed, actual)


def test_a_rule_of_thumb_may_be_off_by_more() -> None:
    """432 for 368 is 17.4 % off: wrong as a number, approximate as a rule of thumb."""
    assert (WRONG, APPROXIMATE) == (compared("432", 368), compared("432", 368, within=Fraction(1, 4)))


def test_digits_that_are_dropped_are_named() -> None:
    """65504 is 6.6e4 in two digits, 143.93 is 144 in three; a rounded number drops none, nor does the 6 of a rule."""
    assert cut_off("6.5e4", 65504) == "; 6.5e4 is truncated; it rounds to 6.6e4"
    assert cut_off("143", Fraction(14393, 100)) == "; 143 is truncated; it rounds to 144"
    assert ["", "", "", ""] == [cut_off(*pair) for pair in (("6.6e4", 65504), ("144", 143.93), ("6", 6.82), ("2.3", 2.416))]
    assert number("6.5e4", 65504, "it is", "").because == "it is; 6.5e4 is truncated; it rounds to 6.6e4"


def test_several_numbers_are_as_good_as_the_one_that_fits_least() -> None:
    """6.1e-5 is rounded, 6.5e4 for 65504 is off by more than its digits say."""
    assert APPROXIMATE == numbers((("6.1e-5", Fraction(1, 2**14)), ("6.5e4", 65504)), "", "", "").verdict
    assert (ROUNDED, WRONG) == (worst(HOLDS, ROUNDED), worst(WRONG, MISLEADING))


def test_statements_follow_from_what_was_computed() -> None:
    """True or false; true as written and false as understood; a choice that something contradicts is wrong."""
    assert [HOLDS, WRONG] == [true(actual, 1, "", "").verdict for actual in (True, False)]
    assert [HOLDS, WRONG] == [same((1, 2), actual, "", "").verdict for actual in ((1, 2), (2, 1))]
    cases = [(True, True), (True, False), (False, True), (False, False)]
    assert [HOLDS, MISLEADING, WRONG, WRONG] == [readings(a, b, 1, "", "").verdict for a, b in cases]
    assert [CONVENTION, WRONG] == [convention(fits, 1, "", "").verdict for fits in (True, False)]
    assert UNCHECKED == unchecked(1, "", "").verdict


def test_what_rests_on_judgment_says_so() -> None:
    """In what it rests on, and a choice also in its reason."""
    assert ["judgment"] * 2 == [f.rests_on for f in (convention(True, 1, "a reason", ""), unchecked(1, "", ""))]
    assert convention(True, 1, "a reason", "").because == "a reason (judgment: a choice, not a fact)"


def test_the_words_are_seven() -> None:
    """In their order from holds on."""
    assert VERDICTS == ("holds", "holds after rounding", "approximate", "misleading", "wrong", "convention", "cannot be checked")
    assert isinstance(number("1", 1, "", ""), ClaimFinding)
