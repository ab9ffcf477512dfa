"""Expressions as plain data that a page's script evaluates: an integer, a name, or ``[operation, operand, …]``.

Python parses and the script only evaluates, so that no text is run as code. What the script cannot evaluate exactly, such as a root, is
refused here.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from calc.errors import BadInputError
from calc.symbolic.expression import (
    SYMPY_RELATIONS,
    And,
    Compare,
    Expression,
    FloorQuotient,
    FunctionCall,
    Name,
    Negative,
    Not,
    Number,
    Or,
    Piecewise,
    Power,
    Product,
    Quotient,
    Remainder,
    Sum,
    Truth,
)
from calc.symbolic.parser import parse
from calc.symbolic.writer import as_text

_EXACT = 2**53
_FUNCTIONS = {"floor": 1, "ceiling": 1, "Mod": 2, "Max": 0, "Min": 0}  # with their operands; 0: one or more


def tree_of(text: str, *, as_written: bool = False) -> Any:
    """The tree of an expression or of a condition. Decimals are doubles, as in a step; ``as_written``: 0.1 is a tenth, as in a question.

    Raises ``BadInputError`` for what has no exact value.
    """
    return _Trees(as_written).of(parse(text))


def integer(value: int) -> int | str:
    """An integer as JSON holds it: as text where a double would lose digits."""
    return value if abs(value) <= _EXACT else str(value)


class _Trees:
    def __init__(self, as_written: bool) -> None:
        self._as_written = as_written

    def of(self, node: Expression) -> Any:
        match node:
            case Number(int(value)):
                return value if abs(value) <= _EXACT else ["integer", str(value)]
            case Number(float(value)) if self._as_written:
                return self._fraction(Fraction(str(value)))
            case Name(name):
                return name
            case Truth(value):
                return value
            case Sum(terms):
                return self._call("+", terms)
            case Product(factors):
                return self._call("*", factors)
            case Negative(body):
                return self._call("-", (body,))
            case Quotient(a, b):
                return self._call("/", (a, b))
            case FloorQuotient(a, b):
                return self._call("//", (a, b))
            case Remainder(a, b):
                return self._call("Mod", (a, b))
            case Power(base, exponent):
                return self._call("**", (base, exponent))
            case Compare(left, relation, right):
                return [relation, self._side(left), self._side(right)]
            case FunctionCall(function, (left, right)) if function in SYMPY_RELATIONS:
                return [SYMPY_RELATIONS[function], self._side(left), self._side(right)]
            case And(parts) | FunctionCall("And", parts):
                return self._call("and", parts)
            case Or(parts) | FunctionCall("Or", parts):
                return self._call("or", parts)
            case Not(body) | FunctionCall("Not", (body,)):
                return self._call("not", (body,))
            case Piecewise(cases):
                return ["cases", *([self.of(value), self.of(condition)] for value, condition in cases)]
            case FunctionCall("ceiling", (FunctionCall("log", (size, Number(2))),)):
                return self._call("bits", (size,))
            case FunctionCall(function, arguments) if _FUNCTIONS.get(function, -1) in (0, len(arguments)) and arguments:
                return self._call(function, arguments)
        raise BadInputError(f"{as_text(node, spaced=True)[:60]!r} has no exact value in a page")

    def _call(self, operation: str, operands: Sequence[Expression]) -> list[Any]:
        return [operation, *map(self.of, operands)]

    def _side(self, node: Expression) -> Any:
        """A side of a comparison, where doubles may occur: Python compares them exactly with integers."""
        match node:
            case Number(float(value)):
                return self._fraction(Fraction(value))
            case FunctionCall("float", (size,)):
                return self._call("float", (size,))
        return self.of(node)

    def _fraction(self, value: Fraction) -> Any:
        integral = value.denominator == 1
        top, bottom = Number(value.numerator), Number(value.denominator)
        return self.of(top) if integral else ["/", self.of(top), self.of(bottom)]
