"""How an expression is displayed: as derived, with factors, order, sums over layers and labels.

A non-polynomial part (``floor(T / 2)``) is one ``Name``, as in the polynomial ring against which each step of a derivation is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any, TypeGuard

from calc.errors import NapkinError
from calc.symbolic import parser
from calc.symbolic.evaluation import Arithmetic, ByName
from calc.symbolic.expression import (
    Expression,
    FloorQuotient,
    FunctionCall,
    Name,
    Negative,
    Number,
    Piecewise,
    Power,
    Product,
    Quotient,
    Remainder,
    Sum,
)
from calc.symbolic.writer import as_text, is_operator


def parse(text: str) -> Expression:
    """The displayed tree of an expression's text. A non-polynomial part (``floor(T/2)``) becomes one name."""
    return displayed(parser.parse(text))


def displayed(node: Expression) -> Expression:
    """A tree as it is displayed: sums and products flat, and what is no polynomial one name."""
    match node:
        case Number(int()) | Name():
            return node
        case Negative(body):
            return Negative(displayed(body))
        case Sum(terms):
            return Sum(tuple(addend for term in terms for addend in _addends(term)))
        case Product(factors):
            return _product(tuple(part for factor in factors for part in _factors(factor)))
        case Quotient(top, bottom):
            return Quotient(displayed(top), displayed(bottom))
        case Power(base, Number(int()) as exponent):
            return Power(displayed(base), exponent)
        case FunctionCall("Max", arguments):
            return maximum(map(displayed, arguments))
        case FunctionCall() | FloorQuotient() | Remainder() | Piecewise():
            return Name(as_text(node, spaced=True))
    written = as_text(node, spaced=True)
    raise NapkinError(f"cannot typeset the expression {written!r}: it is not made of sums, products and powers")


def _addends(node: Expression) -> tuple[Expression, ...]:
    tree = displayed(node)
    return tree.terms if isinstance(tree, Sum) else (tree,)


def _product(factors: tuple[Expression, ...]) -> Expression:
    """The product, negated as a whole if its first factor is: Python reads ``-12*d`` as ``(-12)*d``, a reader as minus ``12*d``."""
    first, *rest = factors
    return Negative(Product((first.body, *rest))) if isinstance(first, Negative) else Product(factors)


def _factors(node: Expression) -> tuple[Expression, ...]:
    match displayed(node):
        case Product(factors):
            return factors
        case Negative(Product((first, *rest))):
            return (Negative(first), *rest)
        case tree:
            return (tree,)


def maximum(items: Iterable[Expression]) -> FunctionCall:
    """``Max`` of the items."""
    return FunctionCall("Max", tuple(items))


def is_maximum(tree: Expression) -> TypeGuard[FunctionCall]:
    """Whether a tree is the ``Max`` of its arguments."""
    return isinstance(tree, FunctionCall) and tree.function == "Max"


def text(tree: Expression) -> str:
    """The tree as one line that SymPy can read, grouped as derived, without labels."""
    return as_text(tree, grouped=True)


def as_factor(name: str) -> str:
    """A dimension or an atom as it is written in a product."""
    return f"({name})" if is_operator(name) else name


def joined(terms: Iterable[tuple[Fraction, Sequence[tuple[str, int]]]]) -> str:
    """A polynomial's text for SymPy, ``12*L*d**2 + 13*L*d``, from its terms (coefficient, [(factor's text, power)])."""
    parts: list[str] = []
    for coefficient, powers in terms:
        number = abs(coefficient)
        factors = [f"{factor}**{power}" if power > 1 else factor for factor, power in powers]
        head = [] if number.numerator == 1 and factors else [str(number.numerator)]
        body = "*".join([*head, *factors]) + (f"/{number.denominator}" if number.denominator != 1 else "")
        sign = "-" if coefficient < 0 else "+"
        parts.append(body if not parts and sign == "+" else f"{sign}{body}" if not parts else f" {sign} {body}")
    return "".join(parts) or "0"


def value(tree: Expression, leaf: Callable[[str], Any]) -> Any:
    """The tree's value, with ``leaf`` giving the value of each name (a polynomial, an int, …)."""
    return tree.value_in(_Leaves(leaf))


class _Leaves(Arithmetic[Any]):
    """Values of whatever type the leaves have."""

    def __init__(self, leaf: Callable[[str], Any]) -> None:
        self.values = ByName(leaf)

    def quotient(self, node: Quotient) -> Any:
        top, bottom = node.top.value_in(self), node.bottom.value_in(self)
        # Python's own quotient of two integers is a double, not exact.
        return Fraction(top, bottom) if isinstance(top, int) and isinstance(bottom, int) else top / bottom

    def power(self, node: Power) -> Any:
        return node.base.value_in(self) ** node.exponent.value_in(self)

    def call(self, node: FunctionCall) -> Any:
        if not is_maximum(node):
            raise self.refused(node)
        return max(argument.value_in(self) for argument in node.arguments)
