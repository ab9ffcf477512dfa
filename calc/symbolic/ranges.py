"""Bounds of an expression for all sizes: interval arithmetic over names of at least 1.

A size is at least 1, but a part of one may be 0 (``Mod(-T, 4)``, which pads T to a multiple of 4) or less (``floor((T - 5)/2)``).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from calc.symbolic.evaluation import Arithmetic
from calc.symbolic.expression import Expression, FloorQuotient, FunctionCall, Number, Power, Quotient, Remainder

_INFINITE = math.inf
_End = int | Fraction | float  # a float only where it is infinite


@dataclass(frozen=True, slots=True)
class Range:
    """All values from ``low`` to ``high``; an end without a bound is infinite."""

    low: _End
    high: _End

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high)

    def __neg__(self) -> Range:
        return Range(-self.high, -self.low)

    def __mul__(self, other: Range) -> Range:
        corners = [a * b if a and b else 0 for a, b in itertools.product((self.low, self.high), (other.low, other.high))]
        return Range(min(corners), max(corners))

    def inverse(self) -> Range:
        """The range of 1/x for x > 0."""
        return Range(_inverse(self.high), _inverse(self.low))

    def rounded(self, how: Callable[[Fraction], int]) -> Range:
        low, high = (end if isinstance(end, float) else how(Fraction(end)) for end in (self.low, self.high))
        return Range(low, high)


_UNBOUNDED = Range(-_INFINITE, _INFINITE)


def _inverse(end: _End) -> _End:
    return 0 if isinstance(end, float) else 1 / Fraction(end)


def range_of(expr: Expression) -> Range:
    """Bounds of ``expr`` for names that are integers of at least 1. They may be loose: each mention of a name varies independently."""
    return expr.value_in(_Ranges())


class _AtLeastOne(dict[str, Range]):
    def __missing__(self, name: str) -> Range:
        return Range(1, _INFINITE)


class _Ranges(Arithmetic[Range]):
    """Ranges; a node without a rule here is unbounded."""

    values = _AtLeastOne()

    def number(self, node: Number) -> Range:
        return Range(node.value, node.value) if isinstance(node.value, int) else _UNBOUNDED

    def quotient(self, node: Quotient) -> Range:
        top, bottom = node.top.value_in(self), node.bottom.value_in(self)
        return top * bottom.inverse() if bottom.low > 0 else _UNBOUNDED

    def floor_quotient(self, node: FloorQuotient) -> Range:
        return self.quotient(Quotient(node.top, node.bottom)).rounded(math.floor)

    def remainder(self, node: Remainder) -> Range:
        """Its sign is the divisor's."""
        bottom = node.bottom.value_in(self)
        return Range(0, bottom.high) if bottom.low > 0 else _UNBOUNDED

    def power(self, node: Power) -> Range:
        base = node.base.value_in(self)
        match node.exponent:
            case Number(int() as exponent) if exponent >= 0 and base.low >= 0:
                return Range(base.low**exponent, base.high**exponent)
        return _UNBOUNDED

    def call(self, node: FunctionCall) -> Range:
        match node.function, node.arguments:
            case "floor", (inside,):
                return inside.value_in(self).rounded(math.floor)
            case "ceiling", (inside,):
                return inside.value_in(self).rounded(math.ceil)
            case "Mod", (top, bottom):
                return self.remainder(Remainder(top, bottom))
            case "Max" | "Min" as function, arguments:
                ranges = [a.value_in(self) for a in arguments]
                end = max if function == "Max" else min
                return Range(end(r.low for r in ranges), end(r.high for r in ranges))
            case "log", (inside, *_) if inside.value_in(self).low >= 1:
                return Range(0, _INFINITE)
        return _UNBOUNDED
