"""Expression texts as display trees, and display trees with their names replaced by numbers."""

from __future__ import annotations

from collections.abc import Mapping

from calc.symbolic.exact import evaluate_text
from calc.symbolic.expression import names_in
from calc.symbolic.tree import Display, Fraction, Labelled, Maximum, Name, Negative, Number, OverLayers, Power, Product, Sum
from calc.symbolic.tree import parse as parse


def substituted(tree: Display, sizes: Mapping[str, int]) -> Display:
    """``tree`` with the number of each name in its place; labels are left out, an atom becomes its value."""
    match tree:
        case Number():
            return tree
        case Name(name):
            value = evaluate_text(name, sizes)
            return Number(int(value)) if value.denominator == 1 else Fraction(Number(value.numerator), Number(value.denominator))
        case Sum(terms):
            return Sum(tuple(substituted(t, sizes) for t in terms))
        case Product(factors):
            return Product(tuple(substituted(f, sizes) for f in factors))
        case Power(base, exponent):
            return Power(substituted(base, sizes), exponent)
        case Fraction(top, bottom):
            return Fraction(substituted(top, sizes), substituted(bottom, sizes))
        case Negative(body):
            return Negative(substituted(body, sizes))
        case OverLayers(index, upper, body):
            return OverLayers(index, substituted(upper, sizes), substituted(body, sizes))
        case Labelled(body, _):
            return substituted(body, sizes)
        case Maximum(items):
            return Maximum(tuple(substituted(i, sizes) for i in items))


def names(tree: Display) -> set[str]:
    """Dimension names that occur in ``tree``, those inside atoms too."""
    match tree:
        case Number():
            return set()
        case Name(name):
            return {*names_in(name)}
        case Sum(items) | Product(items) | Maximum(items):
            return set().union(*(names(i) for i in items))
        case Power(base, _):
            return names(base)
        case Fraction(top, bottom):
            return names(top) | names(bottom)
        case Negative(body) | Labelled(body, _):
            return names(body)
        case OverLayers(_, upper, body):
            return names(upper) | names(body)


def has_layers(tree: Display) -> bool:
    """Whether a sum over layers stands in ``tree``, so that its index needs a row in the table of symbols."""
    match tree:
        case OverLayers():
            return True
        case Sum(items) | Product(items) | Maximum(items):
            return any(has_layers(i) for i in items)
        case Fraction(top, bottom):
            return has_layers(top) or has_layers(bottom)
        case Power(body, _) | Negative(body) | Labelled(body, _):
            return has_layers(body)
        case _:
            return False
