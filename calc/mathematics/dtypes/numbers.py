"""Numbers as they are read and written: exact, with signed zeros, infinities and NaN beside the rationals."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from calc.errors import BadInputError

# More digits than the smallest fp64 number has when it is written out, and fewer than Python refuses to convert.
_LONGEST = 1200
_FARTHEST = 2000
_DECIMAL = re.compile(r"([+-]?)(\d*)(?:\.(\d*))?(?:[eE]([+-]?\d+))?", re.ASCII)
_HEX = re.compile(r"([+-]?)0[xX]([0-9a-fA-F]*)(?:\.([0-9a-fA-F]*))?(?:[pP]([+-]?\d+))?", re.ASCII)
_SPECIAL = re.compile(r"([+-]?)(inf|infinity|nan)", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FormatNumber:
    """``kind`` is finite, infinity or nan; ``size`` the absolute value of a finite one. ``negative`` also tells -0 from 0."""

    size: Fraction
    negative: bool = False
    kind: str = "finite"

    @property
    def value(self) -> Fraction | None:
        """The number, where it is finite."""
        if self.kind != "finite":
            return None
        return -self.size if self.negative else self.size


def infinity(negative: bool = False) -> FormatNumber:
    """Plus or minus infinity."""
    return FormatNumber(Fraction(0), negative, "infinity")


def finite(value: Fraction) -> FormatNumber:
    """The number that is ``value``."""
    return FormatNumber(abs(value), value < 0)


NAN = FormatNumber(Fraction(0), kind="nan")


def read(text: str) -> FormatNumber:
    """The exact number that ``text`` writes: ``0.01``, ``-0``, ``1e-8``, ``0x1.8p3``, ``inf``, ``nan``."""
    if len(text) > _LONGEST:
        raise BadInputError(f"a number of {len(text)} characters is too long: at most {_LONGEST}")
    for pattern, base, per_digit, exponent_of in ((_DECIMAL, 10, 10, 10), (_HEX, 16, 16, 2)):
        match = pattern.fullmatch(text)
        if match and (match[2] or match[3]):
            integer, part = match[2] or "", match[3] or ""
            power = _power(text, match[4] or "0")
            digits = Fraction(int(integer + part, base), per_digit ** len(part))
            return FormatNumber(digits * Fraction(exponent_of) ** power, match[1] == "-")
    special = _SPECIAL.fullmatch(text)
    if special is None:
        raise BadInputError(f"cannot read {text[:40]!r} as a number: write 0.01, 1e-8, -0, 0x1.8p3, inf or nan")
    negative = special[1] == "-"
    return NAN if special[2].lower() == "nan" else infinity(negative)


def _power(text: str, exponent: str) -> int:
    # Looked at before int(): an exponent of a million digits would be a number too large to hold.
    if len(exponent.lstrip("+-0")) > 4 or abs(int(exponent)) > _FARTHEST:
        raise BadInputError(f"the exponent of {text[:40]!r} is out of range: use one from -{_FARTHEST} to {_FARTHEST}")
    return int(exponent)


def decimal(value: Fraction) -> str:
    """All digits of a number whose denominator has only the factors 2 and 5; else a fraction."""
    twos, fives, remainder = _exponents(value.denominator)
    if remainder != 1:
        return f"{value.numerator}/{value.denominator}"
    places = max(twos, fives)
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    sign = "-" if value < 0 else ""
    return f"{sign}{digits[: len(digits) - places]}.{digits[len(digits) - places :]}" if places else f"{sign}{digits}"


def _exponents(denominator: int) -> tuple[int, int, int]:
    counts = []
    for prime in (2, 5):
        count = 0
        while denominator % prime == 0:
            denominator, count = denominator // prime, count + 1
        counts.append(count)
    return counts[0], counts[1], denominator


def written(number: FormatNumber) -> str:
    """A number in full: ``-0``, ``0.15625``, ``inf``."""
    sign = "-" if number.negative else ""
    if number.kind == "finite":
        return f"{sign}{decimal(number.size)}"
    return "nan" if number.kind == "nan" else f"{sign}inf"
