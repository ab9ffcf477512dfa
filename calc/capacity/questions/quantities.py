"""A number with its unit, rounded as a person reads it: in an answer, in its steps, and in the sentences of flags and errors."""

from __future__ import annotations

from fractions import Fraction

from calc.capacity.questions.values import dimension
from calc.symbolic.readable import MINUS
from calc.units import singular

_DIGITS = 5
_SCALED = {"FLOP/s": "FLOP/s", "bytes": "B", "bytes/s": "B/s"}
_PREFIXES = ("", "k", "M", "G", "T", "P", "E")
_BINARY = ("KiB", "MiB", "GiB")
_SMALL = {10**3: "ms", 10**6: "µs", 10**9: "ns"}


def quantity(value: Fraction, unit: str) -> str:
    """A number with its unit, to five digits; whole numbers in full where they are counts."""
    if unit == "share":
        return f"{short(value)} ({short(100 * value)} %)"
    if unit == "1":
        return short(value)
    if unit in _SCALED:
        return f"{_prefixed(value, _SCALED[unit])}{_in_binary(value) if unit == 'bytes' else ''}"
    if unit in ("s", "h", "days"):
        return f"{short(value)} {unit}{_time(value, unit)}"
    if _in_full(value, unit):
        return f"{int(value):,} {unit} ({short(value)})"
    return f"{short(value)} {singular(unit) if value == 1 else unit}"


def in_sentence(value: Fraction, unit: str) -> str:
    """A number for a sentence, with one unit: ``4.6408 ms``, ``80 GB``, ``42,949,672,960 parameters``."""
    if unit in _SCALED:
        return _prefixed(value, _SCALED[unit])
    if unit == "s" and value < 1:
        scale = next((scale for scale in _SMALL if value * scale >= 1), 10**9)
        return f"{short(value * scale)} {_SMALL[scale]}"
    if unit in ("s", "h", "days"):
        return f"{short(value)} {unit}"
    if unit in ("share", "1"):
        return short(value)
    return f"{int(value):,} {unit}" if _in_full(value, unit) else f"{short(value)} {singular(unit) if value == 1 else unit}"


def is_measured(unit: str) -> bool:
    """Whether the values of a condition's message bring this unit with them, bytes or a time; the message itself names what is counted."""
    return dimension(unit)[0] in ("memory", "time")


def _in_full(value: Fraction, unit: str) -> bool:
    """Whether a whole number of many digits is written with all of them."""
    return unit not in ("share", "1", "s", "h", "days", *_SCALED) and value.denominator == 1 and 10**6 <= value < 10**15


def _in_binary(value: Fraction) -> str:
    """Bytes in powers of 1,024, up to GiB; empty for a few."""
    power = min((int(value).bit_length() - 1) // 10, len(_BINARY)) if value >= 1024 else 0
    return f" ({short(value / 1024**power)} {_BINARY[power - 1]})" if power else ""


def _time(value: Fraction, unit: str) -> str:
    """A short time in a smaller unit, a long one in a larger."""
    seconds = value * {"s": 1, "h": 3600, "days": 86400}[unit]
    if unit == "s" and seconds < Fraction(1, 10):
        return f" ({in_sentence(seconds, 's')})"
    if unit == "s" and seconds >= 7200:
        return f" ({short(seconds / 3600)} h)" if seconds < 2 * 86400 else f" ({short(seconds / 86400)} days)"
    if unit == "days" and seconds < 86400:
        return f" ({short(seconds / 3600)} h)" if seconds >= 3600 else f" ({in_sentence(seconds, 's')})"
    return ""


def _prefixed(value: Fraction, unit: str) -> str:
    power = 0
    while power + 1 < len(_PREFIXES) and value >= 1000 ** (power + 1):
        power += 1
    return f"{short(value / 1000**power)} {_PREFIXES[power]}{unit}"


def short(value: Fraction) -> str:
    """Five significant digits; powers of a thousand from a million on, powers of ten from 10²¹ on, where prefixes end; whole numbers below
    a million in full."""
    if value < 0:
        return f"{MINUS}{short(-value)}"
    if value.denominator == 1 and abs(value) < 10**6:
        return f"{int(value):,}"
    if Fraction(1, 1000) <= abs(value) < 10**6:
        return f"{float(value):,.{_DIGITS}g}" if abs(value) < 10 ** (_DIGITS - 1) else f"{float(value):,.0f}"
    digits, _, exponent = f"{float(value):.{_DIGITS - 1}e}".partition("e")
    moved = int(exponent) % 3 if int(exponent) < 21 else 0
    return f"{float(digits) * 10**moved:.{_DIGITS}g}e{int(exponent) - moved}"


def as_typed(value: Fraction, unit: str) -> str:
    """``quantity`` of an input, with all its digits where five are too few."""
    if exactly_shown(value, unit) or unit in _SCALED:
        return quantity(value, unit)
    return all_digits(value) if unit in ("share", "1") else f"{all_digits(value)} {unit}"


def all_digits(value: Fraction) -> str:
    """A number in a formula: ``short``, but with every digit of a whole number below 10¹⁵ and of a decimal of at most ten."""
    if exactly_shown(value, "1"):
        return short(value)
    if value.denominator == 1:
        return f"{int(value):,}" if abs(value) < 10**15 else short(value)
    decimal = f"{float(value):,.10g}"
    return decimal if Fraction(decimal.replace(",", "")) == value else short(value)


def exactly_shown(value: Fraction, unit: str) -> bool:
    """Whether the digits that ``quantity`` shows are all there are."""
    if _in_full(value, unit):
        return True
    return (value.denominator == 1 and abs(value) < 10**6) or Fraction(f"{float(value):.{_DIGITS}g}") == value
