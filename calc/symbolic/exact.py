"""Exact values of sizes: ``"floor(T/2) + 1"`` at integers, and of conditions on them such as ``"T <= C"``.

Separate from ``algebra``, so that a closed form can be evaluated without SymPy.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from calc.errors import NapkinError
from calc.symbolic.evaluation import Arithmetic
from calc.symbolic.expression import Compare, FloorQuotient, FunctionCall, Number, Power, Product, Quotient, Remainder, Sum
from calc.symbolic.parser import parse

# Functions of doubles: Python's own, so that a condition evaluates as it does in a step.
DOUBLES: dict[str, Callable[[Any], int | float]] = {"float": float, "int": int, "round": round, "sqrt": math.sqrt, "log2": math.log2}

Exactly = int | Fraction


class Exact(Arithmetic[Exactly]):
    """Integers and fractions. Integers stay ``int``, which is several times as fast; only a division with a remainder makes a ``Fraction``.
    Doubles occur only inside conditions, where they are rounded to integers."""

    def __init__(self, values: Mapping[str, int]) -> None:
        self.values = values

    def sum(self, node: Sum) -> Exactly:
        total: Exactly = 0
        for term in node.terms:
            total += term.value_in(self)
        return total

    def product(self, node: Product) -> Exactly:
        total: Exactly = 1
        for factor in node.factors:
            total *= factor.value_in(self)
        return total

    def quotient(self, node: Quotient) -> Exactly:
        x, y = node.top.value_in(self), node.bottom.value_in(self)
        if isinstance(x, float) or isinstance(y, float):
            return x / y  # type: ignore[return-value]  # a double inside a condition
        return x // y if x % y == 0 else Fraction(x) / y

    def floor_quotient(self, node: FloorQuotient) -> Exactly:
        return node.top.value_in(self) // node.bottom.value_in(self)

    def remainder(self, node: Remainder) -> Exactly:
        return node.top.value_in(self) % node.bottom.value_in(self)

    def power(self, node: Power) -> Exactly:
        x, y = node.base.value_in(self), node.exponent.value_in(self)
        if isinstance(x, float) or isinstance(y, float):
            return x**y  # type: ignore[return-value]  # as above
        if y.denominator != 1:
            raise NapkinError(f"a size to the power of {y} is not exact: write whole powers")
        return x ** int(y) if y >= 0 else Fraction(x) ** int(y)

    def call(self, node: FunctionCall) -> Exactly:
        function, arguments = node.function, node.arguments
        match arguments:
            case (FunctionCall("log", (size, Number(2))),) if function == "ceiling":
                return (math.ceil(size.value_in(self)) - 1).bit_length()
            case (argument,) if function in DOUBLES:
                return DOUBLES[function](argument.value_in(self))  # type: ignore[return-value]  # a double inside a condition
        if function not in _FUNCTIONS or len(arguments) != _ARGUMENTS.get(function, len(arguments) or 1):
            raise self.refused(node)
        return _FUNCTIONS[function](*[argument.value_in(self) for argument in arguments])


# Max and Min of one argument return it; Python's own would iterate over it.
_FUNCTIONS: dict[str, Callable[..., Exactly]] = {
    "floor": math.floor, "ceiling": math.ceil, "Max": lambda *a: max(a), "Min": lambda *a: min(a), "Mod": operator.mod,
}  # fmt: skip
_ARGUMENTS = {"floor": 1, "ceiling": 1, "Mod": 2}


def evaluate_text(text: str, values: Mapping[str, int]) -> Fraction:
    """Exact value of a size's text at integer sizes. Raises NapkinError for a double, which may occur only inside a condition, rounded."""
    value: int | Fraction | float = parse(text).value_in(Exact(values))
    if isinstance(value, float):
        raise NapkinError(f"cannot read the size {text!r}")
    return Fraction(value)


def holds(text: str, values: Mapping[str, int]) -> bool:
    """Whether a condition on sizes holds at integer sizes, e.g. ``"T <= C"``."""
    return bool(parse(text).holds_in(Exact(values)))


def side(text: str, values: Mapping[str, int]) -> int | None:
    """The sign of left − right of an inequality at ``values``: −1, 0 or 1. None for any other condition."""
    match parse(text):
        case Compare(left, "<" | "<=" | ">" | ">=", right):
            exact = Exact(values)
            apart = left.value_in(exact) - right.value_in(exact)
            return (apart > 0) - (apart < 0)
    return None
