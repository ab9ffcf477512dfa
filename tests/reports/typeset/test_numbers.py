"""How numbers are written: exact first, rounded readings beside, units never confused."""

from __future__ import annotations

from fractions import Fraction

import pytest

from calc.units import Unit
from reports.typeset.numbers import amount, integer, percent, signed, significant


def test_bytes_are_exact_and_read_in_both_kinds_of_gigabyte():
    """12,345,678,901 bytes are 12.3 GB (10**9) and 11.5 GiB (2**30): 12345678901 / 1073741824 = 11.498."""
    actual = amount(12_345_678_901, Unit.BYTE)

    assert "12,345,678,901" == actual.exact
    assert ("12.3\u00a0GB", "11.5\u00a0GiB") == actual.readings


def test_a_gibibyte_is_never_written_as_a_gigabyte():
    """2**30 bytes are 1.00 GiB but 1.07 GB."""
    assert ("1.07\u00a0GB", "1.00\u00a0GiB") == amount(2**30, Unit.BYTE).readings


def test_flop_is_an_amount_and_never_a_rate():
    """A FLOP count carries FLOP, not FLOP/s or FLOPS."""
    actual = amount(7_186_339_180_732, Unit.FLOP)

    assert ("7.19\u00a0TFLOP",) == actual.readings
    assert "7,186,339,180,732\u00a0FLOP" == actual.text


@pytest.mark.parametrize(("value", "reading"), [(999_499, "999\u00a0kFLOP"), (999_500, "1.00\u00a0MFLOP"), (1_000, "1.00\u00a0kFLOP")])
def test_rounding_up_moves_to_the_next_prefix(value, reading):
    """999,500 rounds to 1,000 k, which is written 1.00 M."""
    assert (reading,) == amount(value, Unit.FLOP).readings


def test_small_numbers_have_no_reading():
    """496 bytes need no larger unit."""
    assert () == amount(496, Unit.BYTE).readings
    assert "1\u00a0byte" == amount(1, Unit.BYTE).text


def test_no_digit_of_a_large_integer_is_lost():
    """2**63 + 1 is written with all its digits."""
    assert "9,223,372,036,854,775,809" == integer(2**63 + 1)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Fraction(3, 8), "37.5\u00a0%"),
        (Fraction(-1, 8), "−12.5\u00a0%"),
        (Fraction(-3, 10**7), "−0.00003\u00a0%"),
        (Fraction(6, 10**10), "0.00000006\u00a0%"),
        (Fraction(0), "0\u00a0%"),
    ],
)
def test_a_small_part_is_not_rounded_to_nothing(value, text):
    """A percentage keeps one decimal, or as many as its first digit needs."""
    assert text == percent(value)


def test_significant_figures_are_three():
    """1/3 is 0.333, 1234.5 is 1,230."""
    assert "0.333" == significant(Fraction(1, 3))
    assert "1,230" == significant(Fraction(12345, 10))


def test_differences_carry_their_sign():
    """A positive difference has a plus, a negative one a minus sign (not a hyphen)."""
    assert ["+1,234", "−5", "0"] == [signed(1234), signed(-5), signed(0)]
