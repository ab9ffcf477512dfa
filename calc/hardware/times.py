"""Repetitions of one timed operation and their exact statistics. Plain data. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

BILLION = 10**9


@dataclass(frozen=True, slots=True)
class Timings:
    """All repetitions of one operation, in order, in nanoseconds, each of ``calls`` calls. ``warm_up`` are the untimed ones."""

    nanoseconds: tuple[int, ...]
    calls: int = 1
    warm_up: tuple[int, ...] = ()

    @property
    def median(self) -> Fraction:
        """Nanoseconds of one call."""
        return self.quantile(Fraction(1, 2))

    @property
    def quartiles(self) -> tuple[Fraction, Fraction]:
        """The first and third quartiles, in nanoseconds of one call."""
        return self.quantile(Fraction(1, 4)), self.quantile(Fraction(3, 4))

    @property
    def least(self) -> Fraction:
        return Fraction(min(self.nanoseconds), self.calls)

    @property
    def most(self) -> Fraction:
        return Fraction(max(self.nanoseconds), self.calls)

    @property
    def seconds(self) -> Fraction:
        """The median in seconds."""
        return self.median / BILLION

    def quantile(self, share: Fraction) -> Fraction:
        """Linear interpolation between the ordered repetitions, minimum at 0 and maximum at 1 (Hyndman and Fan 1996, definition 7)."""
        ordered = sorted(self.nanoseconds)
        place = share * (len(ordered) - 1)
        below = place.numerator // place.denominator
        above = min(below + 1, len(ordered) - 1)
        return (ordered[below] + (place - below) * (ordered[above] - ordered[below])) / self.calls

    def to_json(self) -> dict[str, Any]:
        """Plain data: all repetitions, and their statistics in seconds."""
        low, high = self.quartiles
        numbers = {"median": self.median, "lower_quartile": low, "upper_quartile": high, "least": self.least, "most": self.most}
        seconds = {name: float(value / BILLION) for name, value in numbers.items()}
        return {"nanoseconds": list(self.nanoseconds), "calls": self.calls, "warm_up": list(self.warm_up), "seconds": seconds}
