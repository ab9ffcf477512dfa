"""Scales of figures: round steps of bytes, and logarithmic axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from reports.typeset import numbers
from reports.typeset.numbers import bytes_text

_TICKS = 4


def round_step(largest: int) -> int:
    """1, 2 or 5 times a power of ten; about four of it make ``largest``."""
    step = 1
    while True:
        for factor in (1, 2, 5):
            if step * factor * _TICKS >= largest:
                return step * factor
        step *= 10


def short_bytes(value: int) -> str:
    """A round number of bytes without trailing zeros: ``5 GB``."""
    return trimmed(bytes_text(value)) if value else "0"


def short_power(power: int) -> str:
    """A power of ten without its unit: ``10 T``, ``0.01``."""
    if power < 0:
        return f"0.{'0' * (-power - 1)}1"
    written = numbers.rate(Fraction(10) ** power, "").removesuffix("/s")
    return trimmed(written).rstrip(numbers.NBSP)


def trimmed(written: str) -> str:
    """``10 T`` for ``10.0 T``."""
    number, space, unit = written.partition(numbers.NBSP)
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number}{space}{unit}"


@dataclass(frozen=True, slots=True)
class Logarithmic:
    """A logarithmic axis from 10**low to 10**high; positions are shares from 0 to 1."""

    low: float
    high: float

    def at(self, value: float | Fraction) -> Fraction:
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return Fraction(round(share * 10_000), 10_000)

    @property
    def powers(self) -> range:
        """The exponents of the powers of ten that get a label, a few of them."""
        low, high = math.ceil(self.low), math.floor(self.high)
        return range(low, high + 1, max(1, math.ceil((high - low) / _TICKS)))


def around(values: Sequence[float | Fraction], below: float, above: float) -> Logarithmic:
    """The axis from ``below`` powers of ten under the values to ``above`` powers over them."""
    return Logarithmic(math.log10(min(values)) - below, math.log10(max(values)) + above)


def whole_powers(values: Sequence[float | Fraction]) -> Logarithmic:
    """The axis between the powers of ten around the values."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return Logarithmic(low, max(high, low + 1))
