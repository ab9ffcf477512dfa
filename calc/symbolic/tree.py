"""How an expression is displayed: as derived, with factors, order, sums over layers and labels.

A non-polynomial part (``floor(T / 2)``) is one ``Name``, as in the polynomial ring against which each step of a derivation is checked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
    rewritten,
)
from calc.symbolic.writer import as_text, is_operator

_WRITTEN_OUT = 4  # names of peak candidates


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
        case Sum():
            return Sum(_addends(node))
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
    return tuple(addend for term in node.terms for addend in _addends(term)) if isinstance(node, Sum) else (displayed(node),)


def factored(tree: Expression, counts: Collection[str]) -> Expression:
    """The tree with the factor that several pairs of its addends share: ``3·d·L·E − 9·d·E + d·L − 3·d`` is ``3·d·(L − 3)·E + d·(L − 3)``,
    a sum over the layers that have experts. ``counts`` are the names, here L, that may be in such a factor; a pair by itself, such as
    ``13·d·L + 26·d``, stays, since its factor says nothing of the model."""
    if not isinstance(tree, Sum) or not counts:
        return tree
    monomials = [monomial_of(term) for term in tree.terms]
    name, pairs = _shared_factors(monomials, counts)
    if not pairs:
        return tree
    partner = {first: (offset, second) for offset, alike in pairs.items() for first, second in alike}
    joined_to_another = {second for _, second in partner.values()}
    terms = (
        _shifted(monomial, name, partner[i][0]) if monomial is not None and i in partner else term
        for i, (monomial, term) in enumerate(zip(monomials, tree.terms, strict=True))
        if i not in joined_to_another
    )
    return Sum(tuple(terms))


_Monomial = tuple[Fraction, Mapping[str, int]]
_Pairs = Mapping[int, Sequence[tuple[int, int]]]
_SEVERAL = 2  # pairs that share a factor, from which it is one of the model


def _shared_factors(monomials: Sequence[_Monomial | None], counts: Collection[str]) -> tuple[str, _Pairs]:
    """The name x that most pairs of terms share in a factor ``x + n``, and by n the pairs: the place with x, and the one without."""
    places = {frozenset(monomial[1].items()): i for i, monomial in enumerate(monomials) if monomial is not None}
    by_name: dict[str, dict[int, list[tuple[int, int]]]] = {name: {} for name in counts}
    for powers, first in places.items():
        for name in (name for name, power in powers if power == 1 and name in by_name):
            second = places.get(powers - {(name, 1)})
            offset = None if second is None else _ratio(monomials[second], monomials[first])
            if second is not None and offset is not None:
                by_name[name].setdefault(offset, []).append((first, second))
    several = {name: {n: pairs for n, pairs in offsets.items() if len(pairs) >= _SEVERAL} for name, offsets in by_name.items()}
    best = max(several, key=lambda name: sum(map(len, several[name].values())))
    return best, several[best]


def _ratio(above: _Monomial | None, below: _Monomial | None) -> int | None:
    """The quotient of two coefficients if it is an integer."""
    if above is None or below is None or not below[0]:
        return None
    ratio = above[0] / below[0]
    return ratio.numerator if ratio.denominator == 1 else None


def _shifted(monomial: _Monomial, name: str, offset: int) -> Expression:
    """The monomial with ``name + offset`` in place of ``name``."""
    shifted = Sum((Name(name), Number(offset) if offset > 0 else Negative(Number(-offset))))
    return rewritten(monomial_tree(*monomial), lambda node: shifted if node == Name(name) else None)


def monomial_of(tree: Expression) -> _Monomial | None:
    """Coefficient, and the power of each name, of a product of numbers, names and powers; None for anything else."""
    match tree:
        case Number(int(number)):
            return Fraction(number), {}
        case Name(name):
            return Fraction(1), {name: 1}
        case Power(Name(name), Number(int(exponent))):
            return Fraction(1), {name: exponent}
        case Negative(body):
            inner = monomial_of(body)
            return None if inner is None else (-inner[0], inner[1])
        case Quotient(top, Number(int(over))) if over:
            inner = monomial_of(top)
            return None if inner is None else (inner[0] / over, inner[1])
        case Product(factors):
            return _multiplied([monomial_of(factor) for factor in factors])
    return None


def _multiplied(monomials: Sequence[_Monomial | None]) -> _Monomial | None:
    coefficient, powers = Fraction(1), dict[str, int]()
    for monomial in monomials:
        if monomial is None:
            return None
        coefficient *= monomial[0]
        for name, power in monomial[1].items():
            powers[name] = powers.get(name, 0) + power
    return coefficient, powers


def monomial_tree(coefficient: Fraction, powers: Mapping[str, int]) -> Expression:
    """A product of a number and powers of names, as it is displayed."""
    return scaled(coefficient, [Name(n) if p == 1 else Power(Name(n), Number(p)) for n, p in powers.items()])


def scaled(coefficient: Fraction, factors: Sequence[Expression]) -> Expression:
    """A product of a number and factors, as it is displayed: the number first, a sign before and a denominator below all of it."""
    number = abs(coefficient)
    if number.numerator != 1 or not factors:
        factors = [Number(number.numerator), *factors]
    body: Expression = factors[0] if len(factors) == 1 else Product(tuple(factors))
    if number.denominator != 1:
        body = Quotient(body, Number(number.denominator))
    return Negative(body) if coefficient < 0 else body


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


def numbered(items: tuple[Expression, ...]) -> bool:
    """Whether ``items`` are more names like M_1 than a reader wants to see one by one."""
    return len(items) > _WRITTEN_OUT and all(isinstance(i, Name) and re.fullmatch(r"[A-Z]_\d+", i.name) for i in items)


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
