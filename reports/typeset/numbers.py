"""The one place where numbers become text: every writer prints what is made here, so no two outputs round apart.

Rounded readings have three significant figures and stand beside the exact integer. Bytes are read in powers of 1000
and of 1024, each with its own name.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from fractions import Fraction

from calc.units import Unit

NBSP = "\u00a0"
MINUS = "\u2212"
FIGURES = 3

_SHORT = ("", "k", "M", "G", "T", "P", "E", "Z", "Y")
_COUNT = ("", "", "million", "billion", "trillion", "quadrillion")
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi")


@dataclass(frozen=True, slots=True)
class PrintedAmount:
    """A number ready to print: its exact digits, its unit, and rounded readings in larger units."""

    exact: str
    unit: str
    readings: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """``12,345 bytes`` with a space that does not break."""
        return f"{self.exact}{NBSP}{self.unit}" if self.unit else self.exact

    @property
    def headline(self) -> str:
        """The first rounded reading where there is one, else the exact number."""
        return self.readings[0] if self.readings else self.text

    @property
    def beside(self) -> tuple[str, ...]:
        """What stands beside the headline: the exact number and the other readings."""
        return (self.text, *self.readings[1:]) if self.readings else ()


def integer(value: int) -> str:
    """Digits in groups of three: ``124,439,808``."""
    return f"{value:,}".replace("-", MINUS)


def signed(value: int) -> str:
    """A difference: ``+1,234``, ``−5``, ``0``."""
    return f"+{integer(value)}" if value > 0 else integer(value)


def amount(value: int, unit: Unit) -> PrintedAmount:
    """``value`` with its unit and the readings that go with the unit."""
    plural = abs(value) != 1
    match unit:
        case Unit.BYTE:
            return PrintedAmount(integer(value), "bytes" if plural else "byte", _byte_readings(value))
        case Unit.FLOP:
            return PrintedAmount(integer(value), "FLOP", _scaled(value, 1000, _SHORT, "FLOP"))
        case Unit.ELEMENT:
            readings = _scaled(value, 1000, _COUNT, "") if abs(value) >= 10**6 else ()
            return PrintedAmount(integer(value), "elements" if plural else "element", readings)


def _byte_readings(value: int) -> tuple[str, ...]:
    decimal = _scaled(value, 1000, _SHORT, "B")
    # The binary reading goes with the decimal one: kB with KiB, GB with GiB.
    return (*decimal, *_scaled(value, 1024, _BINARY, "B", tier=_tier(value, 1000, len(_SHORT)))) if decimal else ()


def _scaled(value: int, base: int, prefixes: tuple[str, ...], unit: str, tier: int | None = None) -> tuple[str, ...]:
    tier = _tier(value, base, len(prefixes)) if tier is None else tier
    if tier == 0:
        return ()
    return (f"{significant(Fraction(value, base**tier))}{NBSP}{prefixes[tier]}{unit}",)


def _tier(value: int, base: int, tiers: int) -> int:
    """The power of ``base`` in which ``value``, rounded, has one to three digits before the point."""
    tier = 0
    while tier + 1 < tiers and _rounded(Fraction(abs(value), base**tier)) >= base:
        tier += 1
    return tier


def _rounded(value: Fraction) -> Decimal:
    with localcontext() as context:
        context.prec = FIGURES
        context.rounding = ROUND_HALF_EVEN
        return Decimal(value.numerator) / Decimal(value.denominator)


def significant(value: Fraction) -> str:
    """``value`` to three significant figures, without an exponent: ``12.3``, ``0.464``, ``1,230``."""
    if value == 0:
        return "0"
    rounded = _rounded(value)
    exponent = rounded.adjusted()
    places = max(0, FIGURES - 1 - exponent)
    return f"{rounded:,.{places}f}".replace("-", MINUS)


def fraction(value: Fraction) -> str:
    """An integer in full, another number in significant digits."""
    return integer(int(value)) if value.denominator == 1 else significant(value)


def percent(value: Fraction, *, signed: bool = False) -> str:
    """A part of one as a percentage: ``37.5 %``. A part too small for one decimal is not rounded to nothing."""
    part = abs(value) * 100
    sign = MINUS if value < 0 else "+" if signed and value > 0 else ""
    if not part:
        return f"0{NBSP}%"
    with localcontext() as context:
        context.prec = 60
        small = Decimal(part.numerator) / Decimal(part.denominator)
        places = 1 if part >= Fraction(1, 10) else -small.adjusted()
        rounded = (Decimal(part.numerator) / Decimal(part.denominator)).quantize(Decimal(1).scaleb(-places), rounding=ROUND_HALF_EVEN)
    return f"{sign}{rounded:,f}{NBSP}%"


def times(value: Fraction) -> str:
    """A factor: ``×2.00``."""
    return f"×{NBSP}{significant(value)}"


_SECONDS = (("s", 1), ("ms", 10**3), ("µs", 10**6), ("ns", 10**9))


def duration(seconds: Fraction) -> str:
    """A time to three significant figures, in the unit in which it is at least 1: ``12.3 ms``."""
    unit, scale = next(((u, n) for u, n in _SECONDS if _rounded(abs(seconds) * n) >= 1), _SECONDS[-1])
    return f"{significant(seconds * scale)}{NBSP}{unit}"


def bytes_text(nbytes: int) -> str:
    """Bytes as they are read in a sentence: ``11.3 GB``."""
    return amount(nbytes, Unit.BYTE).headline


def rate(per_second: Fraction, unit: str) -> str:
    """So much in a second, to three significant figures: ``70.3 TFLOP/s``, ``12.3 ktokens/s``."""
    tier = _tier(int(per_second), 1000, len(_SHORT))
    return f"{significant(per_second / 1000**tier)}{NBSP}{_SHORT[tier]}{unit}/s"
