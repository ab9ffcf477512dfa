"""The expressions of live documents: numbers with units, names, + - * /, powers, ``max`` and ``min``, and nothing else.

Values are exact fractions with a unit. Sums need equal units, powers integer exponents. Lengths, exponents and the work of a whole
document are bounded, so that no document can keep a checker busy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from calc.errors import BadInputError
from reports.live import units
from reports.live.units import Kind

LONGEST = 500
_DEEPEST = 50
_LARGEST_POWER = 64
_MOST_BITS = 4096
_LARGEST_EXPONENT = 60
_LARGEST_UNIT_POWER = 99
_MOST_WORK = 200_000


class LanguageError(BadInputError):
    """A malformed expression; ``column`` counts from 0."""

    def __init__(self, message: str, column: int) -> None:
        super().__init__(message)
        self.column = column


@dataclass(slots=True)
class WorkBudget:
    """The work that a document may still do, in operations on short numbers (about 5 µs each)."""

    left: int = _MOST_WORK

    def spend(self, operations: int) -> None:
        self.left -= operations
        if self.left < 0:
            raise BadInputError(
                f"the document needs more than {_MOST_WORK:,} operations up to here (tracing a model counts as 10,000): split it"
            )


@dataclass(frozen=True, slots=True)
class UnitValue:
    """An exact number and its unit."""

    number: Fraction
    kind: Kind = units.NUMBER


Lookup = Callable[[str], UnitValue]
"""Dotted name → value; raises ``BadInputError`` for an unknown name."""


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    column: int


_TOKENS = re.compile(
    r"(?P<number>(?:\d[\d_]*(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-zµ$%][\w$]*(?:\.[A-Za-z_]\w*)*)|(?P<sign>\*\*|[-+*/(),^%])"
)


def evaluate(text: str, lookup: Lookup, work: WorkBudget | None = None) -> UnitValue:
    """The value of an expression. Spends ``work``. Raises ``LanguageError`` for a malformed expression."""
    if len(text) > LONGEST:
        raise LanguageError(f"an expression of {len(text):,} characters, at most {LONGEST} are allowed: use names", 0)
    reader = _ExpressionParser(_tokens(text), lookup, work or WorkBudget())
    value = reader.sum(0)
    reader.require_end()
    return value


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        match = _TOKENS.match(text, at)
        if match is None:
            raise LanguageError(f"{text[at]!r} is not allowed in an expression: use numbers, names, + - * / **, max and min", at)
        assert match.lastgroup is not None
        tokens.append(_Token(match.lastgroup, match.group(), at))
        at = match.end()
    return [*tokens, _Token("end", "", len(text))]


class _ExpressionParser:
    """A recursive-descent parser that evaluates as it reads: sums, products, signs, powers, atoms."""

    def __init__(self, tokens: Sequence[_Token], lookup: Lookup, work: WorkBudget) -> None:
        self.tokens = tokens
        self.lookup = lookup
        self.work = work
        self.at = 0

    @property
    def next(self) -> _Token:
        return self.tokens[self.at]

    def take(self) -> _Token:
        token = self.tokens[self.at]
        self.spend(1, token.column)
        self.at += 1
        return token

    def spend(self, operations: int, column: int) -> None:
        try:
            self.work.spend(operations)
        except BadInputError as error:
            raise LanguageError(str(error), column) from None

    def bounded(self, number: Fraction, kind: Kind, column: int) -> UnitValue:
        """The result of an operation. Spends work by its length; raises ``LanguageError`` if it is too large."""
        bits = max(number.numerator.bit_length(), number.denominator.bit_length())
        if bits > _MOST_BITS:
            raise LanguageError("the number is too large", column)
        if any(abs(power) > _LARGEST_UNIT_POWER for _, power in kind):
            raise LanguageError(f"a unit to a power above {_LARGEST_UNIT_POWER}", column)
        self.spend(bits // 32, column)
        return UnitValue(number, kind)

    def takes(self, *signs: str) -> str:
        if self.next.kind == "sign" and self.next.text in signs:
            return self.take().text
        return ""

    def require_end(self) -> None:
        if self.next.kind != "end":
            raise LanguageError(f"{self.next.text!r} after a complete expression: is an operator missing?", self.next.column)

    def sum(self, depth: int) -> UnitValue:
        if depth > _DEEPEST:
            raise LanguageError(f"parentheses nested more than {_DEEPEST} deep", self.next.column)
        left = self.product(depth)
        while sign := self.takes("+", "-"):
            column = self.next.column
            right = self.product(depth)
            if left.kind != right.kind:
                raise LanguageError(f"cannot add {_said(left)} and {_said(right)}", column)
            left = self.bounded(left.number + (right.number if sign == "+" else -right.number), left.kind, column)
        return left

    def product(self, depth: int) -> UnitValue:
        left = self.signed(depth)
        while sign := self.takes("*", "/"):
            column = self.next.column
            right = self.signed(depth)
            if sign == "/" and not right.number:
                raise LanguageError("division by 0", column)
            number = left.number * right.number if sign == "*" else left.number / right.number
            left = self.bounded(number, units.times(left.kind, right.kind, 1 if sign == "*" else -1), column)
        return left

    def signed(self, depth: int) -> UnitValue:
        negative = False
        while sign := self.takes("-", "+"):
            negative ^= sign == "-"
        value = self.power(depth)
        return UnitValue(-value.number, value.kind) if negative else value

    def power(self, depth: int) -> UnitValue:
        base = self.atom(depth)
        if not self.takes("**", "^"):
            return base
        column = self.next.column
        exponent = self.signed(depth + 1) if depth < _DEEPEST else base
        if exponent.kind or exponent.number.denominator != 1 or abs(exponent.number) > _LARGEST_POWER:
            raise LanguageError(f"an exponent must be an integer, at most {_LARGEST_POWER}", column)
        n = int(exponent.number)
        if n < 0 and not base.number:
            raise LanguageError("division by 0", column)
        size = max(base.number.numerator.bit_length(), base.number.denominator.bit_length())
        if size * abs(n) > _MOST_BITS:
            raise LanguageError("the number is too large", column)
        return self.bounded(base.number**n, units.raised(base.kind, n), column)

    def atom(self, depth: int) -> UnitValue:
        token = self.take()
        if token.kind == "number":
            return self.number(token)
        if token.kind == "name" and self.next.text == "(":
            return self.call(token, depth)
        if token.kind == "name":
            return self.named(token)
        if token.text == "(":
            value = self.sum(depth + 1)
            if not self.takes(")"):
                raise LanguageError("missing closing parenthesis", token.column)
            return value
        raise LanguageError(f"a number or a name is missing{f' before {token.text!r}' if token.text else ' at the end'}", token.column)

    def named(self, token: _Token) -> UnitValue:
        try:
            value = self.lookup(token.text)
        except LanguageError:
            raise
        except BadInputError as error:
            raise LanguageError(str(error), token.column) from None
        return self.bounded(value.number, value.kind, token.column)

    def number(self, token: _Token) -> UnitValue:
        """A number with the unit that follows it."""
        exponent = re.search(r"[eE]([+-]?\d+)$", token.text)
        if len(token.text) > 80 or (exponent and (len(exponent[1]) > 4 or abs(int(exponent[1])) > _LARGEST_EXPONENT)):
            raise LanguageError(f"a number too large: exponents go up to {_LARGEST_EXPONENT}", token.column)
        number = Fraction(token.text.replace("_", ""))
        for length in (3, 1):  # FLOP/s is three tokens
            following = self.tokens[self.at : self.at + length]
            text = "".join(t.text for t in following)
            readings = units.meanings(text) if following[0].kind == "name" or text == "%" else []
            if readings and len(following) == length:
                self.at += length
                return UnitValue(number * readings[0].scale, readings[0].kind)
        return UnitValue(number)

    def call(self, name: _Token, depth: int) -> UnitValue:
        if name.text not in ("max", "min"):
            raise LanguageError(f"unknown function {name.text!r}: there are max and min", name.column)
        self.take()
        values = [self.sum(depth + 1)]
        while self.takes(","):
            values.append(self.sum(depth + 1))
        if not self.takes(")"):
            raise LanguageError("missing closing parenthesis", name.column)
        if any(v.kind != values[0].kind for v in values):
            raise LanguageError(f"cannot compare {' and '.join(_said(v) for v in values[:3])}", name.column)
        choose = max if name.text == "max" else min
        return choose(values, key=lambda v: v.number)


def _said(value: UnitValue) -> str:
    return units.named(value.kind) or "a bare number"
