"""The parser of expressions: Python's notation, read by Python's own parser, of bounded length and depth."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Set
from functools import lru_cache
from typing import Any

from calc.errors import BadInputError
from calc.symbolic.expression import (
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
    names,
)

LONGEST = 10_000_000  # characters: the closed form of a peak with hundreds of candidates has up to some millions
DEEPEST = 200  # operations inside one another
FUNCTIONS = ("floor", "ceiling", "Max", "Min", "Mod")


class ExpressionError(BadInputError):
    """The text is not a valid expression."""


class ForeignError(ExpressionError):
    """The text is Python, but contains more than numbers, names, operators and function calls."""


@lru_cache(maxsize=1 << 16)
def parse(text: str) -> Expression:
    """The tree of ``text`` in Python's notation. Raises ExpressionError if it is too long, too deep, or not an expression."""
    if len(text) > LONGEST:
        raise ExpressionError(f"cannot read an expression of {len(text):,} characters: write one of at most {LONGEST:,}")
    try:
        return _read(ast.parse(text, mode="eval").body, DEEPEST)
    except ForeignError:
        raise ForeignError(f"cannot read {text[:60]!r}: write it with + - * / // % ** and {', '.join(FUNCTIONS)}") from None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ExpressionError(f"cannot read the expression {text[:60]!r}: write it with + - * / // % ** and names") from None


def _read(node: ast.expr, depth: int) -> Expression:
    reader = _READERS.get(type(node))
    if reader is None:
        raise ForeignError
    if not depth:
        raise ValueError
    return reader(node, depth - 1)


def _name(node: ast.Name, depth: int) -> Expression:
    return Name(node.id)


def _constant(node: ast.Constant, depth: int) -> Expression:
    match node.value:
        case bool() as truth:
            return Truth(truth)
        case int() as number:
            return Number(number)
        case float() as number if math.isfinite(number):
            return Number(number)
    raise ForeignError


_ADDITIVE, _MULTIPLICATIVE = frozenset({ast.Add, ast.Sub}), frozenset({ast.Mult})
_OPERATIONS: dict[type[ast.operator], Callable[[Expression, Expression], Expression]] = {
    ast.Div: Quotient, ast.FloorDiv: FloorQuotient, ast.Mod: Remainder, ast.Pow: Power,
}  # fmt: skip


def _operation(node: ast.BinOp, depth: int) -> Expression:
    kind = type(node.op)
    if kind is ast.Mult:
        return Product(_operands(node, _MULTIPLICATIVE, depth))
    if kind in _ADDITIVE:
        return Sum(_operands(node, _ADDITIVE, depth))
    if kind not in _OPERATIONS:
        raise ForeignError
    return _OPERATIONS[kind](_read(node.left, depth), _read(node.right, depth))


def _operands(node: ast.expr, kinds: Set[type[ast.operator]], depth: int) -> tuple[Expression, ...]:
    """The terms of a sum or the factors of a product, which Python reads from the left: (a + b) - c."""
    operands: list[Expression] = []
    while isinstance(node, ast.BinOp) and (kind := type(node.op)) in kinds:
        right = _read(node.right, depth)
        operands.append(Negative(right) if kind is ast.Sub else right)
        node = node.left
    operands.append(_read(node, depth))
    return tuple(reversed(operands))


def _unary(node: ast.UnaryOp, depth: int) -> Expression:
    match node.op:
        case ast.USub():
            return Negative(_read(node.operand, depth))
        case ast.Not():
            return Not(_read(node.operand, depth))
    raise ForeignError


def _call(node: ast.Call, depth: int) -> Expression:
    if not isinstance(node.func, ast.Name) or node.keywords:
        raise ForeignError
    if node.func.id != "Piecewise":
        return FunctionCall(node.func.id, tuple([_read(argument, depth) for argument in node.args]))
    pairs = [a.elts for a in node.args if isinstance(a, ast.Tuple) and len(a.elts) == 2]
    if not pairs or len(pairs) != len(node.args):
        raise ForeignError
    return Piecewise(tuple((_read(value, depth), _read(condition, depth)) for value, condition in pairs))


_RELATION_OF: dict[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip


def _comparison(node: ast.Compare, depth: int) -> Expression:
    match node.ops:
        case [op] if type(op) in _RELATION_OF:
            return Compare(_read(node.left, depth), _RELATION_OF[type(op)], _read(node.comparators[0], depth))
    raise ForeignError


def _connection(node: ast.BoolOp, depth: int) -> Expression:
    return (And if isinstance(node.op, ast.And) else Or)(tuple(_read(part, depth) for part in node.values))


_READERS: dict[type[ast.expr], Callable[[Any, int], Expression]] = {
    ast.Name: _name, ast.Constant: _constant, ast.BinOp: _operation, ast.UnaryOp: _unary, ast.Call: _call,
    ast.Compare: _comparison, ast.BoolOp: _connection,
}  # fmt: skip


@lru_cache(maxsize=1 << 16)
def free_names(text: str) -> frozenset[str]:
    """The names in the expression ``text``."""
    return frozenset(names(parse(text)))
