"""The expressions of live documents: numbers with units, names, + - * /, powers, ``max`` and ``min``, and nothing else.

``calc.symbolic`` parses them, once numbers with units and dotted names are names of its own notation. Values are exact fractions with a
unit. Sums need equal units, powers integer exponents. Lengths, exponents and the work of a whole
document are bounded, so that no document can keep a checker busy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from calc.errors import BadInputError
from calc.symbolic.evaluation import Arithmetic
from calc.symbolic.expression import Expression, FunctionCall, Name, Negative, Power, Product, Quotient, Sum, walk
from calc.symbolic.parser import ExpressionError, parse
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

    remaining: int = _MOST_WORK

    def spend(self, operations: int) -> None:
        """Counts ``operations``. Raises ``BadInputError`` when none remain."""
        self.remaining -= operations
        if self.remaining < 0:
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
    translator = _Translator(_tokens(text), lookup, work or WorkBudget())
    try:
        tree = parse(translator.translated())
    except ExpressionError:
        raise LanguageError("too many operations inside one another: use names", 0) from None
    return tree.value_in(_UnitArithmetic(translator))


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


class _Translator:
    """Translates tokens to the notation of ``calc.symbolic``: a number with its unit, a name or a function becomes the number of its token,
    ``_3``, of which the value and the column are known. Raises ``LanguageError`` where an operand, operator or parenthesis is missing."""

    def __init__(self, tokens: Sequence[_Token], lookup: Lookup, work: WorkBudget) -> None:
        self.tokens, self.lookup, self.work = tokens, lookup, work
        self.values: dict[str, UnitValue] = {}
        self.at = 0
        self.opened: list[_Token] = []  # parentheses, or the functions before them
        self.start = 0  # column of the operand that is being read, with its signs and parentheses
        self.starts: dict[str, int] = {}

    def token(self, symbol: str) -> _Token:
        """The token that a name of the translated expression stands for."""
        return self.tokens[int(symbol[1:])]

    def translated(self) -> str:
        """The expression in Python's notation. Raises ``LanguageError`` with the column of what is wrong."""
        parts: list[str] = []
        complete, begins = False, True
        while (token := self.tokens[self.at]).kind != "end":
            self.spend(1, token.column)
            if begins and not complete:
                self.start = token.column
            begins = complete
            part, complete = self._operator(token) if complete else self._operand(token)
            parts.append(part)
            self.at += 1
            if len(self.opened) > _DEEPEST:
                raise LanguageError(f"parentheses nested more than {_DEEPEST} deep", self.tokens[self.at].column)
        if not complete:
            raise LanguageError("a number or a name is missing at the end", token.column)
        if self.opened:
            raise LanguageError("missing closing parenthesis", self.opened[-1].column)
        return "".join(parts)

    def _operand(self, token: _Token) -> tuple[str, bool]:
        """(text, whether the operand is complete)."""
        symbol = f"_{self.at}"
        self.starts[symbol] = self.start
        match token.kind, token.text:
            case "number", _:
                self.values[symbol] = self.number(token)
                return symbol, True
            case "name", _ if self.tokens[self.at + 1].text == "(":
                if token.text not in _CHOICES:
                    raise LanguageError(f"unknown function {token.text!r}: there are max and min", token.column)
                self.at += 1
                self.spend(1, token.column)
                self.opened.append(token)
                return f"{symbol}(", False
            case "name", _:
                self.values[symbol] = self.named(token)
                return symbol, True
            case _, "(":
                self.opened.append(token)
                return "(", False
            case _, "+" | "-" as sign:
                return sign.strip("+"), False
        raise LanguageError(f"a number or a name is missing before {token.text!r}", token.column)

    def _operator(self, token: _Token) -> tuple[str, bool]:
        """(text, whether an operand is complete behind it)."""
        match token.text:
            case "+" | "-" | "*" | "/" | "**" as sign:
                return sign, False
            case "^":
                return "**", False
            case "," if self.opened and self.opened[-1].text in _CHOICES:
                return ",", False
            case ")" if self.opened:
                self.opened.pop()
                return ")", True
        if self.opened:
            raise LanguageError("missing closing parenthesis", self.opened[-1].column)
        raise LanguageError(f"{token.text!r} after a complete expression: is an operator missing?", token.column)

    def spend(self, operations: int, column: int) -> None:
        """Counts ``operations``. Raises ``LanguageError`` when none remain."""
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

    def named(self, token: _Token) -> UnitValue:
        """The value of a name. Raises ``LanguageError`` if it has none."""
        try:
            value = self.lookup(token.text)
        except LanguageError:
            raise
        except BadInputError as error:
            raise LanguageError(str(error), token.column) from None
        return self.bounded(value.number, value.kind, token.column)

    def number(self, token: _Token) -> UnitValue:
        """A number with the unit that follows it. Raises ``LanguageError`` if it is too large."""
        exponent = re.search(r"[eE]([+-]?\d+)$", token.text)
        if len(token.text) > 80 or (exponent and (len(exponent[1]) > 4 or abs(int(exponent[1])) > _LARGEST_EXPONENT)):
            raise LanguageError(f"a number too large: exponents go up to {_LARGEST_EXPONENT}", token.column)
        number = Fraction(token.text.replace("_", ""))
        for length in (3, 1):  # FLOP/s is three tokens
            following = self.tokens[self.at + 1 : self.at + 1 + length]
            text = "".join(t.text for t in following)
            readings = units.meanings(text) if following[0].kind == "name" or text == "%" else []
            if readings and len(following) == length:
                self.at += length
                return UnitValue(number * readings[0].scale, readings[0].kind)
        return UnitValue(number)


_CHOICES: Mapping[str, Callable[..., UnitValue]] = {"max": max, "min": min}


class _UnitArithmetic(Arithmetic[UnitValue]):
    """Exact numbers with units. A message names the column of the right operand."""

    def __init__(self, translator: _Translator) -> None:
        self.values, self._translator = translator.values, translator

    def _column(self, node: Expression) -> int:
        symbols = (part.name if isinstance(part, Name) else part.function for part in walk(node) if isinstance(part, Name | FunctionCall))
        return self._translator.starts[next(symbols)]

    def sum(self, node: Sum) -> UnitValue:
        total = node.terms[0].value_in(self)
        for term in node.terms[1:]:
            value, column = term.value_in(self), self._column(term)
            if total.kind != value.kind:
                raise LanguageError(f"cannot add {_said(total)} and {_said(value)}", column)
            total = self._translator.bounded(total.number + value.number, total.kind, column)
        return total

    def product(self, node: Product) -> UnitValue:
        total = node.factors[0].value_in(self)
        for factor in node.factors[1:]:
            value = factor.value_in(self)
            total = self._translator.bounded(total.number * value.number, units.times(total.kind, value.kind), self._column(factor))
        return total

    def quotient(self, node: Quotient) -> UnitValue:
        top, bottom, column = node.top.value_in(self), node.bottom.value_in(self), self._column(node.bottom)
        if not bottom.number:
            raise LanguageError("division by 0", column)
        return self._translator.bounded(top.number / bottom.number, units.times(top.kind, bottom.kind, -1), column)

    def negative(self, node: Negative) -> UnitValue:
        value = node.body.value_in(self)
        return UnitValue(-value.number, value.kind)

    def power(self, node: Power) -> UnitValue:
        base, exponent, column = node.base.value_in(self), node.exponent.value_in(self), self._column(node.exponent)
        if exponent.kind or exponent.number.denominator != 1 or abs(exponent.number) > _LARGEST_POWER:
            raise LanguageError(f"an exponent must be an integer, at most {_LARGEST_POWER}", column)
        n = int(exponent.number)
        if n < 0 and not base.number:
            raise LanguageError("division by 0", column)
        size = max(base.number.numerator.bit_length(), base.number.denominator.bit_length())
        if size * abs(n) > _MOST_BITS:
            raise LanguageError("the number is too large", column)
        return self._translator.bounded(base.number**n, units.raised(base.kind, n), column)

    def call(self, node: FunctionCall) -> UnitValue:
        function, values = self._translator.token(node.function), [argument.value_in(self) for argument in node.arguments]
        if any(v.kind != values[0].kind for v in values):
            raise LanguageError(f"cannot compare {' and '.join(_said(v) for v in values[:3])}", function.column)
        return _CHOICES[function.text](values, key=lambda v: v.number)


def _said(value: UnitValue) -> str:
    return units.named(value.kind) or "a bare number"
