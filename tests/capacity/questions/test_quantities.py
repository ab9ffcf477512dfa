"""Numbers with their units, as answers, steps and messages show them."""

from __future__ import annotations

from fractions import Fraction

import pytest

from calc.capacity.questions import ask
from calc.capacity.questions.quantities import exactly_shown, in_sentence, quantity, short


@pytest.mark.parametrize(("value", "unit", "text"), [
    (Fraction(80 * 10**9), "bytes", "80 GB (74.506 GiB)"), (Fraction(327680), "bytes", "327.68 kB (320 KiB)"),
    (Fraction(96 * 2**20), "bytes", "100.66 MB (96 MiB)"), (Fraction(2), "bytes", "2 B"),
    (Fraction(2**50), "bytes", "1.1259 PB (1.0486e6 GiB)"),
    (Fraction(1, 2), "share", "0.5 (50 %)"), (Fraction(3, 1000), "s", "0.003 s (3 ms)"), (Fraction(3, 10**6), "s", "3e-6 s (3 µs)"),
    (Fraction(1, 2), "days", "0.5 days (12 h)"), (Fraction(70 * 10**9), "parameters", "70,000,000,000 parameters (70e9)"),
    (Fraction(1), "devices", "1 device"), (Fraction(989500 * 10**9), "FLOP/s", "989.5 TFLOP/s"),
    (Fraction("3.8e25"), "FLOP", "3.8e25 FLOP"),
])  # fmt: skip
def test_numbers_are_written_with_their_unit(value: Fraction, unit: str, text: str) -> None:
    assert text == quantity(value, unit)


@pytest.mark.parametrize(("value", "unit", "text"), [
    (Fraction(464081, 10**8), "s", "4.6408 ms"), (Fraction(3600), "s", "3,600 s"), (Fraction(1359525186388), "bytes", "1.3595 TB"),
    (Fraction(1, 4), "h", "0.25 h"), (Fraction(42949672960), "parameters", "42,949,672,960 parameters"), (Fraction(7, 4), "1", "1.75"),
])  # fmt: skip
def test_a_sentence_has_one_unit(value: Fraction, unit: str, text: str) -> None:
    assert text == in_sentence(value, unit)


def test_short_numbers_keep_five_digits() -> None:
    """Powers of a thousand from a million to 10²⁰, which prefixes end with; above, as papers write the FLOPs of a training."""
    numbers = ("86400", "143.92659", "12345.6", "506.624e15", "37.908e24", "3.14e23", "0.0000012345678")

    assert ["86,400", "143.93", "12,346", "506.62e15", "3.7908e25", "3.14e23", "1.2346e-6"] == [short(Fraction(x)) for x in numbers]


def test_a_count_shown_in_full_is_exact() -> None:
    """2,048 · 8,192 = 16,777,216 tokens, all of whose digits are shown; as bytes they are rounded to 16.777 MB."""
    assert exactly_shown(Fraction(2048 * 8192), "tokens")
    assert not exactly_shown(Fraction(2048 * 8192), "bytes")


def test_what_bounds_a_step_is_said_in_fitting_units() -> None:
    """A matrix of 4096² against vectors: 33.6 MB at 3.35 TB/s are 10.0 µs."""
    flags = ask("matmul", rows=1, inner=4096, columns=4096, gpu="h100-sxm").flags

    assert flags == ("bound by memory: moving takes 10.021 µs, computing 33.91 ns",)
