"""Expression texts as display trees, and display trees with their names replaced by numbers."""

from __future__ import annotations

from collections.abc import Mapping

from calc.symbolic.exact import evaluate_text
from calc.symbolic.expression import Expression, Labelled, Name, Number, OverLayers, Quotient, rewritten, walk
from calc.symbolic.expression import names as names_of
from calc.symbolic.parser import free_names
from calc.symbolic.tree import parse as parse


def substituted(tree: Expression, sizes: Mapping[str, int]) -> Expression:
    """``tree`` with the number of each name in its place; labels are left out, an atom becomes its value."""

    def number(node: Expression) -> Expression | None:
        match node:
            case Name(name):
                value = evaluate_text(name, sizes)
                return Number(int(value)) if value.denominator == 1 else Quotient(Number(value.numerator), Number(value.denominator))
            case Labelled(body, _):
                return rewritten(body, number)
        return None

    return rewritten(tree, number)


def names(tree: Expression) -> set[str]:
    """Dimension names that occur in ``tree``, those inside atoms too."""
    return set().union(*map(free_names, names_of(tree)))


def has_layers(tree: Expression) -> bool:
    """Whether a sum over layers occurs in ``tree``, so that its index needs a row in the table of symbols."""
    return any(isinstance(node, OverLayers) for node in walk(tree))
