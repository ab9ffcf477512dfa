"""Exact values of sizes written as text: ``"floor(T/2) + 1"`` at integers, and of conditions on them such as ``"T <= C"``.

Apart from the algebra of closed forms, so that a number can be had of one without SymPy.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

from calc.errors import NapkinError

# Of doubles made of sizes: Python's own, so that a question about them has the answer that it has in a step.
DOUBLES: dict[str, Callable[[Any], int | float]] = {"float": float, "int": int, "round": round, "sqrt": math.sqrt, "log2": math.log2}
FUNCTIONS = ("floor", "ceiling", "Max", "Min", "Mod")


def evaluate_text(text: str, values: Mapping[str, int]) -> Fraction:
    """Exact value of a size's text at integer sizes. A double is none: it is only part of a question, rounded to a whole number."""
    value: int | Fraction | float = _evaluate(parsed(text), values)
    if isinstance(value, float):
        raise NapkinError(f"cannot read the size {text!r}")
    return Fraction(value)


Exact = int | Fraction
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Exact]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.Div: lambda x, y: _quotient(x, y), ast.Pow: lambda x, y: _power(x, y),
}  # fmt: skip


def _quotient(x: Any, y: Any) -> Any:
    if isinstance(x, float) or isinstance(y, float):
        return x / y
    return x // y if x % y == 0 else Fraction(x) / y


def _power(x: Any, y: Any) -> Any:
    if isinstance(x, float) or isinstance(y, float):
        return x**y
    if y.denominator != 1:
        raise NapkinError(f"a size to the power of {y} is no exact number: write whole powers")
    return x ** int(y) if y >= 0 else Fraction(x) ** int(y)


def _evaluate(node: ast.expr, values: Mapping[str, int]) -> Exact:
    """Whole numbers stay ``int``, which is several times as fast; only a division that leaves a rest makes a ``Fraction``."""
    match node:
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            return _ARITHMETIC[type(op)](_evaluate(left, values), _evaluate(right, values))
        case ast.Name(id=name):
            return values[name]
        case ast.Constant(value=int() | float() as number):
            return number  # type: ignore[return-value]  # doubles are only in questions about sizes, rounded to a whole number there
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate(operand, values)
        case ast.Call(func=ast.Name(id="ceiling"), args=[ast.Call(func=ast.Name(id="log"), args=[size, ast.Constant(value=2)])]):
            return (math.ceil(_evaluate(size, values)) - 1).bit_length()
        case ast.Call(func=ast.Name(id=function), args=[number]) if function in DOUBLES:
            return DOUBLES[function](_evaluate(number, values))  # type: ignore[return-value]  # as above
        case ast.Call(func=ast.Name(id=function), args=args) if function in FUNCTIONS:
            a = [_evaluate(x, values) for x in args]
            match function:
                case "floor":
                    return math.floor(a[0])
                case "ceiling":
                    return math.ceil(a[0])
                case "Mod":
                    return a[0] % a[1]
                case "Max":
                    return max(a)
                case _:
                    return min(a)
    raise NapkinError(f"cannot read the size {ast.unparse(node)!r}")


_COMPARE: dict[type[ast.cmpop], Callable[[Exact, Exact], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip


def holds(text: str, values: Mapping[str, int]) -> bool:
    """Whether a condition on sizes holds at integer sizes, e.g. ``"T <= C"``."""
    return _holds(parsed(text), values)


def side(text: str, values: Mapping[str, int]) -> int | None:
    """On which side of an inequality sizes lie: −1, 0 where both sides are equal, or 1. Nothing of another condition."""
    match parsed(text):
        case ast.Compare(left=left, ops=[ast.Lt() | ast.Gt() | ast.LtE() | ast.GtE()], comparators=[right]):
            apart = _evaluate(left, values) - _evaluate(right, values)
            return (apart > 0) - (apart < 0)
    return None


@lru_cache(maxsize=4096)
def parsed(text: str) -> ast.expr:
    """A text as Python's syntax tree, parsed once."""
    return ast.parse(text, mode="eval").body


def _holds(node: ast.expr, values: Mapping[str, int]) -> bool:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _COMPARE[type(op)](_evaluate(left, values), _evaluate(right, values))
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(_holds(part, values) for part in parts)
        case ast.BoolOp(op=ast.Or(), values=parts):
            return any(_holds(part, values) for part in parts)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _holds(operand, values)
    raise NapkinError(f"cannot read the condition {ast.unparse(node)!r}")
