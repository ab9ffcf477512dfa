"""Numbers as they are typed: exact, in the unit of what is meant, refused where they make no sense."""

from __future__ import annotations

import contextlib
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc.capacity.questions.values import read
from calc.errors import BadInputError
from calc.units import QuantityValue, Unit


@pytest.mark.parametrize(("typed", "unit", "value"), [
    ("70e9", "parameters", 70 * 10**9), ("15T", "tokens", 15 * 10**12), ("70B", "parameters", 70 * 10**9), ("1_000", "devices", 1000),
    ("1,082,990", "h", 1_082_990), ("12,345.5", "1", Fraction(24691, 2)), ("2.788M", "h", 2_788_000), ("180K", "h", 180_000),
    ("30.84Mh", "h", 30_840_000),
    ("57gCO2eq/kWh", "g/kWh", 57), ("0.057 kg CO₂e/KWh", "g/kWh", 57), ("291.42 tCO2-eq", "kg", 291_420), ("433,196 kWH", "kWh", 433_196),
    ("80GB", "bytes", 80 * 10**9), ("80GiB", "bytes", 80 * 2**30), ("1.5KiB", "bytes", 1536), ("80 GB", "bytes", 80 * 10**9),
    ("30days", "days", 30), ("12h", "days", Fraction(1, 2)), ("2weeks", "days", 14), ("30", "days", 30), ("3ms", "s", Fraction(3, 1000)),
    ("50%", "share", Fraction(1, 2)), ("0.1", "share", Fraction(1, 10)), (0.1, "share", Fraction(1, 10)), ("1/3", "share", Fraction(1, 3)),
    ("3.35TB/s", "bytes/s", 3350 * 10**9), ("400Gbit/s", "bytes/s", 50 * 10**9), ("989.5TFLOP/s", "FLOP/s", 9895 * 10**11),
    ("3640PFdays", "FLOP", 3640 * 86400 * 10**15), ("2$/h", "USD/h", 2), ("$2/h", "USD/h", 2), ("$5M", "USD", 5 * 10**6),
    ("1.2kW", "W", 1200), ("3.6MJ", "kWh", 1), ("500MWh", "kWh", 500_000),
    ("400e3*1024*1024", "tokens", 400_000 * 2**20), ("8 × 80GB", "bytes", 640 * 10**9), ("2K·3M", "tokens", 6 * 10**9),
    ("429g/kWh", "g/kWh", 429), ("0.4kg/kWh", "g/kWh", 400), ("3t", "kg", 3000),
    ("2lb", "kg", Fraction(90718474, 10**8)), ("0.954lb/kWh", "g/kWh", Fraction(954 * 45359237, 10**8)),
    ("954lb/MWh", "g/kWh", Fraction(954 * 45359237, 10**8)),
    (Fraction(7, 2), "1", Fraction(7, 2)), (".5", "1", Fraction(1, 2)),
])  # fmt: skip
def test_a_number_is_read_exactly(typed: str | float | Fraction, unit: str, value: int | Fraction) -> None:
    assert read("x", typed, unit).value == value


@pytest.mark.parametrize(("typed", "unit", "said"), [
    ("3*4*", "tokens", "x = '3*4*' lacks a factor: write a product as 400e3*1024*1024"),
    ("-3*-4", "tokens", "x = '-3*-4': every factor must be more than 0"),
    ("6*5e9 + 12", "tokens", "x = '6*5e9 + 12' is a sum: add it up, only products are read, as in 400e3*1024*1024"),
    ("2**3", "tokens", "x = '2**3' lacks a factor: write a product as 400e3*1024*1024"),
    ("2GB*3GB", "bytes", "x = '2GB*3GB' has 2 units: give one of the factors a unit"),
    ("-15T", "tokens", "x = '-15T' must be more than 0"),
    ("0", "tokens", "x = '0' must be more than 0"),
    ("60", "share", "x = '60' is above 1: did you mean 0.6, or 60%?"),
    ("600%", "share", "x = '600%' is above 1: give a share above 0, at most 1 or 100%"),
    ("1e999999999", "tokens", "x = '1e999999999' has too large an exponent: numbers are from 1e-40 to 1e40"),
    ("1" * 50, "tokens", "x = '111111111111111111111111111111…' is out of range: numbers are from 1e-40 to 1e40"),
    ("abc", "tokens", "x = 'abc' is not a number: write it as 70e9, 15T, 80GB, 30days, 50% or 3.35TB/s"),
    ("", "tokens", "x = '' is not a number: write it as 70e9, 15T, 80GB, 30days, 50% or 3.35TB/s"),
    (float("inf"), "tokens", "x = 'inf' is not a number: write it as 70e9, 15T, 80GB, 30days, 50% or 3.35TB/s"),
    (True, "tokens", "x = True is not a number"),
    ("1/0", "1", "x = '1/0' divides by 0"),
    ("1,00", "tokens", "x = '1,00': unknown unit ',00'; x is in tokens, e.g. 70e9, 70B, 15T"),
    ("1,0000", "tokens", "x = '1,0000': unknown unit ',0000'; x is in tokens, e.g. 70e9, 70B, 15T"),
    ("3MCO2", "tokens", "x = '3MCO2': unknown unit 'MCO2'; x is in tokens, e.g. 70e9, 70B, 15T"),
    ("5M", "days", "x = '5M' is a count: x is in days, e.g. 30days, 12h, 5min, 3ms"),
    ("30parsec", "days", "x = '30parsec': unknown unit 'parsec'; x is in days, e.g. 30days, 12h, 5min, 3ms"),
    ("3.35TB", "bytes/s", "x = '3.35TB' is an amount of memory: x is in bytes/s, write 3.35TB/s"),
    ("80GIB", "bytes", "x = '80GIB': unknown unit 'GIB'; did you mean GiB? x is in bytes, e.g. 80GB, 80GiB"),
    ("70GB", "days", "x = '70GB' is an amount of memory: x is in days, e.g. 30days, 12h, 5min, 3ms"),
    ("80TB/s", "bytes", "x = '80TB/s' is a rate: give an amount of memory, e.g. 80GB"),
    ("400Gbps", "bytes", "x = '400Gbps' is a rate: give an amount of memory, e.g. 80GB"),
    ("80G", "bytes", "x = '80G' can be read in several ways: write 80GB (powers of 1000), 80GiB (powers of 1024)"),
    ("80Gb/s", "bytes/s",
     "x = '80Gb/s' can be read in several ways: write 80GB/s (powers of 1000), 80GiB/s (powers of 1024) or 80Gbit/s (bits)"),
])  # fmt: skip
def test_what_makes_no_sense_is_refused(typed: str | float, unit: str, said: str) -> None:
    """In one line that names it and the way out."""
    with pytest.raises(BadInputError) as caught:
        read("x", typed, unit)

    assert said == str(caught.value)


def test_a_value_of_a_derivation_is_a_number() -> None:
    """Whatever it counts: ``ask("flops", parameters=result["parameters"].value)``."""
    assert read("x", QuantityValue(1234, Unit.ELEMENT), "parameters").value == 1234


def test_half_a_device_is_refused() -> None:
    with pytest.raises(BadInputError, match=r"^gpus = '1.5' is not an integer number of devices$"):
        read("gpus", "1.5", "devices", integer=True)


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    """No other exception, whatever is typed; the message of every refusal is one line by its class."""
    for unit in ("bytes", "days", "share", "tokens", "bytes/s"):
        with contextlib.suppress(BadInputError):
            assert read("x", text, unit).value > 0


def test_a_number_of_very_many_digits_is_refused() -> None:
    """Before Python is asked to write it, which it would not do."""
    with pytest.raises(BadInputError, match=r"^x has too many digits: numbers are from 1e-40 to 1e40$"):
        read("x", 10**5000, "tokens")
