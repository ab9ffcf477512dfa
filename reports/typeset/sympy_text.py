"""SymPy's expressions as one line of text with the signs of mathematics: ``2·x^3 − √(y)/3``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy as sp
from sympy.printing.precedence import PRECEDENCE, precedence
from sympy.printing.str import StrPrinter

from calc.mathematics.autodiff.sizes import INFINITY
from calc.symbolic.readable import MINUS, superscript

CLOSE = 90  # binds like one symbol
FUNCTIONS = {
    "Sigmoid": "σ",
    "Softplus": "softplus",
    "Floor": "floor",
    "Ceiling": "ceil",
    "Round": "round",
    "Truncate": "trunc",
    "Sign": "sign",
}
_RELATIONS = {"==": "=", "!=": "≠", "<=": "≤", ">=": "≥"}
_DIGITS = 10  # of a number that has no end


@dataclass(frozen=True, slots=True)
class Written:
    """A piece of an equation and how closely it holds together; whether all of it is in brackets of its own."""

    text: str
    binds: int = CLOSE
    is_enclosed: bool = False

    def bound(self, level: int) -> Written:
        """The piece, in brackets where it would fall apart."""
        return self if self.binds > level else Written(f"({self.text})", is_enclosed=True)

    def within(self, level: int) -> str:
        """The text of ``bound``."""
        return self.bound(level).text


class Prime(sp.Function):  # type: ignore[misc]  # SymPy publishes no types
    """The derivative of a named function at its argument, where that is too long to be read inside an equation."""


def decimal(number: sp.Float, further: str) -> str:
    """The shortest decimals of a double, or its first digits and ``further``."""
    text = f"{float(number):.{_DIGITS}g}"
    return text if float(text) == float(number) else f"{text}{further}"


class SympyText(StrPrinter):  # type: ignore[misc]  # as above
    """Writes ``parts`` in the place of their symbols, and terms in the order of SymPy's arguments. With ``matrix``, numbers multiply and
    parts multiply element by element."""

    minus, gap = MINUS, " "
    order: str | None = "none"

    def __init__(self, parts: Mapping[sp.Symbol, Written] | None = None, matrix: bool = False) -> None:
        super().__init__({"order": self.order})
        self._parts = parts or {}
        self._matrix = matrix

    def write(self, expr: sp.Expr) -> str:
        return str(self.doprint(expr))

    def _print_Add(self, expr: Any, order: Any = None) -> str:
        return self._sum(self._as_ordered_terms(expr, order=order))

    def _sum(self, terms: Iterable[Any]) -> str:
        text = ""
        for term in terms:
            negative = bool(term.as_coeff_Mul()[0] < 0)
            sign = f"{self.gap}{self.minus if negative else '+'}{self.gap}" if text else self.minus * negative
            written = self._magnitude(term) if negative else self._print(term)
            text += sign + (f"({written})" if term.is_Add or precedence(term) < PRECEDENCE["Add"] else written)
        return text

    def _print_Mul(self, expr: Any) -> str:
        return self.minus * bool(expr.as_coeff_Mul()[0] < 0) + self._magnitude(expr)

    def _magnitude(self, expr: Any) -> str:
        """A product without its sign."""
        number, rest = expr.as_coeff_Mul()
        factors = expr.as_ordered_factors() if self.order is None else sp.Mul.make_args(rest)
        top, bottom = (abs(number.p), number.q) if number.is_Rational else (abs(number), 1)
        above, below = [*_unless_one(top)], [*_unless_one(bottom)]
        for factor in (f for f in factors if not f.is_Number):
            base, power = factor.as_base_exp() if factor.is_Pow else (factor, sp.Integer(1))
            if power.as_coeff_Mul()[0] < 0:
                below.append(sp.Pow(base, -power, evaluate=False) if power != -1 else base)
            else:
                above.append(factor)
        over = f"({self._product(below)})" if len(below) > 1 else self._product(below)
        return self._product(above or [sp.Integer(1)]) + (f"/{over}" if below else "")

    def _product(self, factors: Sequence[Any]) -> str:
        text, before = "", False
        for factor in factors:
            is_tensor = self._matrix and factor.has(*self._parts)
            sign = " ⊙ " if before and is_tensor else "·" if text else ""
            text, before = text + sign + self.parenthesize(factor, PRECEDENCE["Mul"]), is_tensor
        return text

    def _print_Pow(self, expr: Any, rational: bool = False) -> str:
        base, power = expr.args
        if abs(power) == sp.S.Half:
            return f"{'1/' * bool(power < 0)}√{self._argument(base)}"
        if power == -1:
            return f"1/{self.parenthesize(base, PRECEDENCE['Pow'])}"
        return f"{self.parenthesize(base, PRECEDENCE['Pow'])}{self._raised(power)}"

    def _raised(self, power: Any) -> str:
        return f"^{self.parenthesize(power, PRECEDENCE['Pow'])}"

    def _argument(self, expr: Any) -> str:
        """In brackets; only once, if it is a part that has them."""
        part = self._parts.get(expr)
        return part.text if part is not None and part.is_enclosed else f"({self._print(expr)})"

    def _print_Symbol(self, expr: Any) -> str:
        part = self._parts.get(expr)
        return part.text if part is not None else "∞" if expr == INFINITY else str(expr.name)

    def _print_Integer(self, expr: Any) -> str:
        return f"{self.minus * bool(expr < 0)}{abs(expr.p)}"

    def _print_Rational(self, expr: Any) -> str:
        return f"{self._print_Integer(sp.Integer(expr.p))}/{expr.q}"

    def _print_Float(self, expr: Any) -> str:
        return self.minus * bool(expr < 0) + decimal(abs(expr), "…")

    def _print_Pi(self, expr: Any) -> str:
        return "π"

    def _print_Whole(self, expr: Any) -> str:
        return self._argument(expr.args[0])

    def _print_Prime(self, expr: Any) -> str:
        return f"{expr.args[0]}'{self._argument(expr.args[1])}"

    def _print_Piecewise(self, expr: Any) -> str:
        cases = [f"{self._print(e)} where {self._print(c)}" for e, c in expr.args[:-1]]
        return "{" + "; ".join([*cases, f"else {self._print(expr.args[-1][0])}"]) + "}"

    def _print_Abs(self, expr: Any) -> str:
        return f"|{self._print(expr.args[0])}|"

    def _print_Function(self, expr: Any) -> str:
        return self._call(expr, expr.args)

    def _print_LatticeOp(self, expr: Any) -> str:
        return self._call(expr, sorted(expr.args, key=sp.default_sort_key))

    def _call(self, expr: Any, arguments: Sequence[Any]) -> str:
        name = type(expr).__name__
        if len(arguments) == 1:
            return FUNCTIONS.get(name, name) + self._argument(arguments[0])
        return f"{FUNCTIONS.get(name, name)}({f',{self.gap}'.join(map(self._print, arguments))})"

    def _print_Relational(self, expr: Any) -> str:
        return f"{self._print(expr.lhs)} {_RELATIONS.get(expr.rel_op, expr.rel_op)} {self._print(expr.rhs)}"


class SizeText(SympyText):
    """A size, a sum from its highest power down: ``p² - 1``."""

    minus, order = "-", None

    def _raised(self, power: Any) -> str:
        return superscript(int(power)) if power.is_Integer and power > 0 else super()._raised(power)


class IndexText(SympyText):
    """A size inside an index: ``k/2-1``."""

    minus, gap, order = "-", "", None

    def after(self, first: sp.Expr, then: sp.Expr) -> str:
        """The sum of both, the terms of ``first`` before the others: ``i+k/2-1``."""
        return self._sum(term for part in (first, then) if part != 0 for term in part.as_ordered_terms()) or "0"


def _unless_one(number: Any) -> Iterator[sp.Expr]:
    if number != 1:
        yield sp.sympify(number)
