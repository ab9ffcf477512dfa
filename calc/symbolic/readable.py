"""Expressions as a person writes them on one line, ``6·N·D/(86,400·R)``: for reasons and screens, not to be pasted into Python."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from calc.errors import NapkinError
from calc.symbolic.expression import Expression, FunctionCall, Negative, Number, Piecewise, Quotient, Sum
from calc.symbolic.parser import parse
from calc.symbolic.tree import displayed, monomial_of, monomial_tree
from calc.symbolic.writer import ATOM, TextWriter

MINUS = "−"
_FUNCTIONS = {"Max": "max", "Min": "min", "Mod": "mod"}
_SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def superscript(number: float) -> str:
    """Digits and sign raised: ``⁻¹²``."""
    return str(number).translate(_SUPERSCRIPTS)


class ReadableWriter(TextWriter):
    """With raised powers, digits in groups of three, cases with their conditions, and texts in the place of the names in ``values``."""

    def __init__(self, times: str = "·", over: str = "/", values: Mapping[str, str] | None = None) -> None:
        super().__init__(times, over, "^", MINUS)
        self._values = values or {}

    def written(self, expr: Expression) -> tuple[str, int]:
        match expr:
            case Piecewise():
                return f"[{self.cases(expr)}]", ATOM
            case FunctionCall("Eq", (left, right)):
                return f"{self.written(left)[0]} = {self.written(right)[0]}", ATOM
        return super().written(expr)

    def cases(self, expr: Piecewise) -> str:
        """``x where x > 0; else 0``."""
        writer = ReadableWriter(over=" / ", values=self._values)
        *first, (last, _) = expr.cases
        parts = [f"{writer.written(value)[0]} where {writer.written(condition)[0]}" for value, condition in first]
        return "; ".join([*parts, f"else {writer.written(last)[0]}"])

    def name(self, name: str) -> str:
        return self._values.get(name) or _FUNCTIONS.get(name, name)

    def digits(self, number: float) -> str:
        return f"{number:,}"

    def exponent(self, exponent: Expression) -> str:
        match exponent:
            case Number(int() as power):
                return superscript(power)
            case Negative(Number(int() as power)):
                return superscript(-power)
        return super().exponent(exponent)


def readable(expr: str | Expression, signs: Mapping[str, str] | None = None) -> str:
    """``6*N*D/(86400*R)`` as 6·N·D/(86,400·R), and powers raised. ``signs`` replace names: ``β₁`` for ``beta1``."""
    writer, tree = ReadableWriter(values=signs), parse(expr) if isinstance(expr, str) else expr
    return writer.cases(tree) if isinstance(tree, Piecewise) else writer.written(tree)[0]


def rounded_up(atom: Expression) -> Expression:
    """A rounded quotient as a person writes it: ``floor((255 + f)/256)`` is ``ceiling(f/256)``. Equal for all integers, since the last
    multiple of 256 below ``f + 255`` is the first one from ``f`` on; any other expression as it is."""
    match atom:
        case FunctionCall("floor", (Quotient(top, bottom),)):
            difference = _monomials(Sum((top, Negative(bottom), Number(1))))
            terms = None if difference is None else [(powers, c) for powers, c in difference.items() if c]
            if terms and isinstance(top, Sum) and all(c > 0 and c.denominator == 1 for _, c in terms):
                addends = tuple(monomial_tree(c, dict(powers)) for powers, c in terms)
                return FunctionCall("ceiling", (Quotient(addends[0] if len(addends) == 1 else Sum(addends), bottom),))
    return atom


def _monomials(polynomial: Sum) -> dict[tuple[tuple[str, int], ...], Fraction] | None:
    """The coefficient of each product of powers; None where an addend is no such product."""
    try:
        tree, monomials = displayed(polynomial), dict[tuple[tuple[str, int], ...], Fraction]()
    except NapkinError:  # a power with a size in the exponent
        return None
    for term in tree.terms if isinstance(tree, Sum) else (tree,):
        monomial = monomial_of(term)
        if monomial is None:
            return None
        powers = tuple(monomial[1].items())
        monomials[powers] = monomials.get(powers, Fraction(0)) + monomial[0]
    return monomials
