"""How an expression is argued, kept apart from what it equals.

SymPy folds and reorders (``2*(x+y)`` becomes ``2*x + 2*y``), so "before" lines cannot survive in it. A display tree
remembers factors, order, sums over layers and labels. It is written as text here and as LaTeX by the reports; its value
is compared with the polynomial it stands for when a step is made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Number:
    value: int


@dataclass(frozen=True, slots=True)
class Name:
    """A dimension, or an atom such as ``floor(T/2)``."""

    name: str


@dataclass(frozen=True, slots=True)
class Sum:
    terms: tuple[Display, ...]


@dataclass(frozen=True, slots=True)
class Product:
    factors: tuple[Display, ...]


@dataclass(frozen=True, slots=True)
class Power:
    base: Display
    exponent: int


@dataclass(frozen=True, slots=True)
class Fraction:
    top: Display
    bottom: Display


@dataclass(frozen=True, slots=True)
class Negative:
    body: Display


@dataclass(frozen=True, slots=True)
class OverLayers:
    """``Σ index=1..upper body``, where ``body`` does not depend on the index: its value is ``upper * body``."""

    index: str
    upper: Display
    body: Display


@dataclass(frozen=True, slots=True)
class Labelled:
    """``body`` with a label under a brace: where the addend comes from."""

    body: Display
    label: str


@dataclass(frozen=True, slots=True)
class Maximum:
    items: tuple[Display, ...]


Display = Number | Name | Sum | Product | Power | Fraction | Negative | OverLayers | Labelled | Maximum


def text(tree: Display) -> str:
    """The tree as one line that SymPy can read (labels are left out)."""
    match tree:
        case Number(value):
            return str(value)
        case Name(name):
            return name
        case Sum(terms):
            return _join_sum(terms)
        case Product(factors):
            return "*".join(_factor(f) for f in factors) or "1"
        case Power(Power() as base, exponent):
            return f"({text(base)})**{exponent}"  # a**b**c would be a**(b**c)
        case Power(base, exponent):
            return f"{_factor(base)}**{exponent}"
        case Fraction(top, bottom):
            return f"{_factor(top)}/{_factor(bottom)}"
        case Negative(body):
            return f"-{_factor(body)}"
        case OverLayers(_, upper, body):
            return f"{_factor(upper)}*{_factor(body)}"
        case Labelled(body, _):
            return text(body)
        case Maximum(items):
            return f"Max({', '.join(text(i) for i in items)})"


def _join_sum(terms: tuple[Display, ...]) -> str:
    out = ""
    for term in terms:
        inner = term.body if isinstance(term, Labelled) else term
        if isinstance(inner, Negative):
            out += f" - {_factor(inner.body)}" if out else text(inner)
        else:
            written = f"({text(inner)})" if isinstance(inner, Sum) else text(inner)
            out += f" + {written}" if out else written
    return out or "0"


def _factor(tree: Display) -> str:
    inner = tree.body if isinstance(tree, Labelled) else tree
    written = text(inner)
    compound = isinstance(inner, Sum | Negative | Fraction | OverLayers) or (isinstance(inner, Product) and len(inner.factors) > 1)
    return f"({written})" if compound else written


def value(tree: Display, leaf: Callable[[str], Any]) -> Any:
    """The tree's value, with ``leaf`` giving the value of each name (a polynomial, an int, …)."""
    match tree:
        case Number(number):
            return number
        case Name(name):
            return leaf(name)
        case Sum(terms):
            return sum((value(t, leaf) for t in terms), start=0)
        case Product(factors):
            result: Any = 1
            for factor in factors:
                result = result * value(factor, leaf)
            return result
        case Power(base, exponent):
            return value(base, leaf) ** exponent
        case Fraction(top, Number(bottom)):
            return value(top, leaf) / bottom
        case Fraction(top, bottom):
            return value(top, leaf) / value(bottom, leaf)
        case Negative(body):
            return -value(body, leaf)
        case OverLayers(_, upper, body):
            return value(upper, leaf) * value(body, leaf)
        case Labelled(body, _):
            return value(body, leaf)
        case Maximum(items):
            return max(value(i, leaf) for i in items)
