"""Proves that a comparison holds at all sizes from given ones on: shifted to start there, the difference of its sides has no negative term.

With T from 3 on, ``B*(T - 1) != B``: at B = 1 + b and T = 3 + t the difference is 1 + b + t + b*t, for b and t of at least 0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import sympy as sp
from sympy.polys.domains import QQ
from sympy.polys.orderings import lex
from sympy.polys.rings import PolyRing

from calc.errors import NapkinError
from calc.symbolic.evaluation import Arithmetic, ByName
from calc.symbolic.expression import (
    And,
    Compare,
    Expression,
    FloorQuotient,
    FunctionCall,
    Not,
    Number,
    Or,
    Power,
    Quotient,
    Remainder,
    names,
)
from calc.symbolic.parser import parse

_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_Poly = Any  # a polynomial of SymPy's rings, which has no types


def holds_from(text: str, outcome: bool, least: Mapping[str, int]) -> bool:
    """Whether the guard is proved to have this ``outcome`` at all sizes of at least ``least``, 1 where it has none. False where there is no
    such proof: it may hold all the same."""
    return _has_outcome(parse(text), outcome, least)


def _has_outcome(expr: Expression, outcome: bool, least: Mapping[str, int]) -> bool:
    match expr:
        case Not(body):
            return _has_outcome(body, not outcome, least)
        case And(parts) | Or(parts):
            proved = (_has_outcome(part, outcome, least) for part in parts)
            return all(proved) if outcome == isinstance(expr, And) else any(proved)
        case Compare():
            return _compares(expr, outcome, least)
    return False


def _compares(expr: Compare, outcome: bool, least: Mapping[str, int]) -> bool:
    try:
        arithmetic = _FromLeast(names(expr), least)
        return arithmetic.proves(
            expr.left.value_in(arithmetic), expr.relation if outcome else _OPPOSITE[expr.relation], expr.right.value_in(arithmetic)
        )
    except NapkinError:
        return False


class _FromLeast(Arithmetic[_Poly]):
    """Polynomials in what each size exceeds its least value by. Raises NapkinError for what it cannot show to be a polynomial."""

    def __init__(self, symbols: tuple[str, ...], least: Mapping[str, int]) -> None:
        self._ring = PolyRing([sp.Symbol(name) for name in symbols] or [sp.Symbol("x")], QQ, lex)
        self.values = {name: gen + least.get(name, 1) for name, gen in zip(symbols, self._ring.gens, strict=False)}

    def proves(self, left: _Poly, relation: str, right: _Poly) -> bool:
        """Whether the signs of the terms prove the comparison."""
        match relation:
            case "<=" | ">=":
                return _is_negative_nowhere(right - left if relation == "<=" else left - right)
            case "<" | ">":
                return _is_positive(right - left if relation == "<" else left - right)
            case "!=":
                return _is_positive(left - right) or _is_positive(right - left)
        return bool(left == right)

    def number(self, node: Number) -> _Poly:
        if not isinstance(node.value, int):
            raise self.refused(node)
        return self._ring.ground_new(node.value)

    def power(self, node: Power) -> _Poly:
        match node.exponent:
            case Number(int() as power) if 0 <= power <= _LARGEST_POWER:
                return node.base.value_in(self) ** power
        raise self.refused(node)

    def quotient(self, node: Quotient) -> _Poly:
        match node.bottom:
            case Number(int() as number) if number:
                return node.top.value_in(self) * QQ(1, number)
        raise self.refused(node)

    def remainder(self, node: Remainder) -> _Poly:
        """That of a size by a larger one is the size."""
        top, bottom = node.top.value_in(self), node.bottom.value_in(self)
        if _is_negative_nowhere(top) and _is_positive(bottom - top):
            return top
        raise self.refused(node)

    def call(self, node: FunctionCall) -> _Poly:
        match node.function, node.arguments:
            case "Mod", (top, bottom):
                return self.remainder(Remainder(top, bottom))
            case "Max" | "Min" as function, (_, *_):
                relation, sizes = ">=" if function == "Max" else "<=", [argument.value_in(self) for argument in node.arguments]
                for size in sizes:
                    if all(self.proves(size, relation, compared) for compared in sizes):
                        return size
        raise self.refused(node)


_LARGEST_POWER = 8


def _is_negative_nowhere(polynomial: _Poly) -> bool:
    return all(coefficient >= 0 for coefficient in polynomial.coeffs())


def _is_positive(polynomial: _Poly) -> bool:
    return _is_negative_nowhere(polynomial) and bool(polynomial.coeff(1) > 0)


# -- ranges -----------------------------------------------------------------------------------------------------------
# Bounds of an expression for all sizes: interval arithmetic over names of at least 1.
#
# A size is at least 1, but a part of one may be 0 (``Mod(-T, 4)``, which pads T to a multiple of 4) or less (``floor((T - 5)/2)``).


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


class _Ranges(Arithmetic[Range]):
    """Ranges; a node without a rule here is unbounded."""

    values = ByName(lambda _: Range(1, _INFINITE))

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
