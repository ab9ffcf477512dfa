"""Expressions written as one line of text, with the brackets that Python's grammar needs."""

from __future__ import annotations

from collections.abc import Mapping

from calc.symbolic.expression import (
    And,
    Compare,
    Expression,
    FloorQuotient,
    FunctionCall,
    Labelled,
    Name,
    Negative,
    Not,
    Number,
    Or,
    OverLayers,
    Piecewise,
    Power,
    Product,
    Quotient,
    Remainder,
    Sum,
    Truth,
    bare,
    substitute,
)
from calc.symbolic.parser import parse

# Precedences as in Python's grammar, lowest first.
_OR, _AND, _NOT, _RELATION, _SUM, _PRODUCT, _SIGN, _POWER, ATOM = range(9)


def as_text(expr: Expression, *, spaced: bool = False, grouped: bool = False) -> str:
    """The expression as one line that ``parse`` and SymPy read, without labels.

    ``spaced`` puts spaces around every operator. ``grouped`` brackets nested sums, products and quotients even where precedence does not
    require it, ``(a*b)/c``; its non-polynomial parts, ``floor(T / 2)``, are spaced.
    """
    return (_GROUPED if grouped else _SPACED if spaced else _COMPACT).written(expr)[0]


def substituted(expression: str, replacements: Mapping[str, str]) -> str:
    """The text of ``expression`` with names replaced by expressions."""
    return as_text(substitute(parse(expression), {name: parse(of) for name, of in replacements.items()}), spaced=True)


class TextWriter:
    """Writes the brackets that Python's grammar needs, with the given signs."""

    left, right = _PRODUCT, _SIGN  # least precedence of the first factor, and of the others

    def __init__(self, times: str = "*", over: str = "/", to_the: str = "**", minus: str = "-") -> None:
        self._times, self._over, self._to_the, self._minus = times, over, to_the, minus

    def written(self, expr: Expression) -> tuple[str, int]:
        """(text, precedence)."""
        match expr:
            case Name(name):
                return self.name(name), ATOM
            case Number(value):
                return (f"{self._minus}{self.digits(-value)}", _SIGN) if value < 0 else (self.digits(value), ATOM)
            case Sum(terms):
                return self.sum(terms)
            case Product(factors):
                return self.product(factors)
            case OverLayers(_, upper, body):
                return self.product((upper, body))
            case Power(base, exponent):
                return f"{self.base(base)}{self.exponent(exponent)}", _POWER
            case Quotient(top, bottom):
                return f"{self.inside(top, self.left)}{self._over}{self.inside(bottom, self.right)}", _PRODUCT
            case Negative(body):
                return f"{self._minus}{self.inside(body, self.right)}", _SIGN
            case Labelled(body, _):
                return self.written(body)
            case FloorQuotient() | Remainder() | FunctionCall():
                return self.atom(expr)
            case _:
                return self._condition(expr)

    def atom(self, expr: FloorQuotient | Remainder | FunctionCall) -> tuple[str, int]:
        """(text, precedence) of a non-polynomial part."""
        match expr:
            case FloorQuotient(top, bottom):
                return f"{self.inside(top, _PRODUCT)} // {self.inside(bottom, _SIGN)}", _PRODUCT
            case Remainder(top, bottom):
                return f"{self.inside(top, _PRODUCT)} % {self.inside(bottom, _SIGN)}", _PRODUCT
            case FunctionCall(function, arguments):
                return f"{self.name(function)}({', '.join(self.written(a)[0] for a in arguments)})", ATOM

    def _condition(self, expr: Truth | Compare | And | Or | Not | Piecewise) -> tuple[str, int]:
        match expr:
            case Truth(value):
                return repr(value), ATOM
            case Compare(left, relation, right):
                return f"{self.inside(left, _SUM)} {relation} {self.inside(right, _SUM)}", _RELATION
            case And(parts):
                return " and ".join(self.inside(part, _NOT) for part in parts), _AND
            case Or(parts):
                return " or ".join(self.inside(part, _AND) for part in parts), _OR
            case Not(body):
                return f"not {self.inside(body, _NOT)}", _NOT
            case Piecewise(cases):
                pairs = (f"({self.written(value)[0]}, {self.written(condition)[0]})" for value, condition in cases)
                return f"Piecewise({', '.join(pairs)})", ATOM

    def inside(self, expr: Expression, least: int) -> str:
        """The text of ``expr``, in brackets if its precedence is below ``least``."""
        written, tightness = self.written(expr)
        return written if tightness >= least else f"({written})"

    def sum(self, terms: tuple[Expression, ...]) -> tuple[str, int]:
        if len(terms) == 1:
            return self.written(terms[0])
        return self._added(terms, _SUM), _SUM

    def _added(self, terms: tuple[Expression, ...], first: int) -> str:
        out = ""
        for term in terms:
            inner = bare(term)
            if isinstance(inner, Negative) and out:
                out += f" {self._minus} {self.inside(inner.body, max(self.left, _PRODUCT))}"
            else:
                out = f"{out} + {self.inside(inner, _PRODUCT)}" if out else self.inside(inner, first)
        return out or "0"

    def product(self, factors: tuple[Expression, ...]) -> tuple[str, int]:
        if len(factors) == 1:
            return self.written(factors[0])
        first, *rest = factors or (Number(1),)
        return self._times.join([self.inside(first, self.left), *(self.inside(factor, self.right) for factor in rest)]), _PRODUCT

    def name(self, name: str) -> str:
        return name

    def digits(self, number: float) -> str:
        """A number that is not negative."""
        return repr(number)

    def exponent(self, exponent: Expression) -> str:
        """An exponent with its sign."""
        return f"{self._to_the}{self.inside(exponent, _POWER)}"

    def base(self, base: Expression) -> str:
        """The text of a power's base, in brackets where needed: a**b**c would be a**(b**c), and -2**2 would be -(2**2)."""
        inner = bare(base)
        return f"({inner.value!r})" if isinstance(inner, Number) and inner.value < 0 else self.inside(base, ATOM)


def is_operator(name: str) -> bool:
    """Whether the text of an atom is written with an operator (``T // 2``), so that it needs brackets beside another operator."""
    return not name.isidentifier() and not isinstance(parse(name), FunctionCall)


class _GroupingWriter(TextWriter):
    """Writes brackets around every sum, product or quotient inside another one."""

    left = right = _POWER

    def written(self, expr: Expression) -> tuple[str, int]:
        match expr:
            case Number(value):
                return repr(value), ATOM
            case Name(name):
                return name, _PRODUCT if is_operator(name) else ATOM
        return super().written(expr)

    def atom(self, expr: FloorQuotient | Remainder | FunctionCall) -> tuple[str, int]:
        return super().atom(expr) if isinstance(expr, FunctionCall) and expr.function == "Max" else _SPACED.written(expr)

    def sum(self, terms: tuple[Expression, ...]) -> tuple[str, int]:
        return self._added(terms, _PRODUCT), _SUM

    def product(self, factors: tuple[Expression, ...]) -> tuple[str, int]:
        written = "*".join(self.inside(factor, _POWER) for factor in factors)
        return written or "1", _PRODUCT if len(factors) > 1 else ATOM


_COMPACT, _SPACED, _GROUPED = TextWriter(), TextWriter(" * ", " / ", " ** "), _GroupingWriter()
