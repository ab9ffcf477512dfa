"""How an expression is argued, kept apart from what it equals.

SymPy folds and reorders (``2*(x+y)`` becomes ``2*x + 2*y``), so "before" lines cannot survive in it. A display tree
remembers factors, order, sums over layers and labels. It is written as text here and as LaTeX by the reports; its value
is compared with the polynomial it stands for when a step is made.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction as Rational
from typing import Any

from calc.errors import NapkinError


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


def parse(text: str) -> Display:
    """The tree of an expression as the calculus writes it. What is no polynomial (``floor(T/2)``) stays one name."""
    return _tree(ast.parse(text, mode="eval").body)


def _tree(node: ast.expr) -> Display:
    match node:
        case ast.Constant(value=int() as value):
            return Number(value)
        case ast.Name(id=name):
            return Name(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return Negative(_tree(operand))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return Sum((*_addends(left), *_addends(right)))
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return Sum((*_addends(left), Negative(_tree(right))))
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _product((*_factors(left), *_factors(right)))
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return Fraction(_tree(left), _tree(right))
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int() as power)):
            return Power(_tree(left), power)
        case ast.Call(func=ast.Name(id="Max"), args=args):
            return Maximum(tuple(_tree(a) for a in args))
        case ast.Call() | ast.BinOp(op=ast.FloorDiv() | ast.Mod()):
            return Name(ast.unparse(node))
    raise NapkinError(f"cannot typeset the expression {ast.unparse(node)!r}: it is not made of sums, products and powers")


def _addends(node: ast.expr) -> tuple[Display, ...]:
    tree = _tree(node)
    return tree.terms if isinstance(tree, Sum) else (tree,)


def _product(factors: tuple[Display, ...]) -> Display:
    """Python reads ``-12*d`` as ``(-12)*d``; a reader sees minus the product."""
    first, *rest = factors
    return Negative(Product((first.body, *rest))) if isinstance(first, Negative) else Product(factors)


def _factors(node: ast.expr) -> tuple[Display, ...]:
    match _tree(node):
        case Product(factors):
            return factors
        case Negative(Product((first, *rest))):
            return (Negative(first), *rest)
        case tree:
            return (tree,)


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
        case Power(base, exponent):
            return f"{_base(base)}**{exponent}"
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


def bare(tree: Display) -> Display:
    """The tree without labels around it: a label changes nothing of what is in it."""
    while isinstance(tree, Labelled):
        tree = tree.body
    return tree


def _join_sum(terms: tuple[Display, ...]) -> str:
    out = ""
    for term in terms:
        inner = bare(term)
        if isinstance(inner, Negative):
            out += f" - {_factor(inner.body)}" if out else text(inner)
        else:
            written = f"({text(inner)})" if isinstance(inner, Sum) else text(inner)
            out += f" + {written}" if out else written
    return out or "0"


def _base(tree: Display) -> str:
    """``tree`` under an exponent: a**b**c would be a**(b**c), and -2**2 would be -(2**2)."""
    inner = bare(tree)
    apart = isinstance(inner, Power) or (isinstance(inner, Number) and inner.value < 0)
    return f"({text(inner)})" if apart else _factor(inner)


def _factor(tree: Display) -> str:
    inner = bare(tree)
    written = text(inner)
    compound = isinstance(inner, Sum | Negative | Fraction | OverLayers) or (isinstance(inner, Product) and len(inner.factors) > 1)
    operator = isinstance(inner, Name) and is_operator(inner.name)
    return f"({written})" if compound or operator else written


def is_operator(name: str) -> bool:
    """Whether an atom is written with an operator (``T // 2``), which would fall apart beside another one."""
    return not name.isidentifier() and not isinstance(ast.parse(name, mode="eval").body, ast.Call)


def as_factor(name: str) -> str:
    """A dimension or an atom as it is written in a product."""
    return f"({name})" if is_operator(name) else name


def joined(terms: Iterable[tuple[Rational, Sequence[tuple[str, int]]]]) -> str:
    """A polynomial as SymPy would read it, ``12*L*d**2 + 13*L*d``, of coefficients and of (factor, power) as factors are written."""
    parts: list[str] = []
    for coefficient, powers in terms:
        number = abs(coefficient)
        factors = [f"{factor}**{power}" if power > 1 else factor for factor, power in powers]
        head = [] if number.numerator == 1 and factors else [str(number.numerator)]
        body = "*".join([*head, *factors]) + (f"/{number.denominator}" if number.denominator != 1 else "")
        sign = "-" if coefficient < 0 else "+"
        parts.append(body if not parts and sign == "+" else f"{sign}{body}" if not parts else f" {sign} {body}")
    return "".join(parts) or "0"


def _over(top: Any, bottom: Any) -> Any:
    """Python's own quotient of two integers is no exact number."""
    return Rational(top, bottom) if isinstance(top, int) and isinstance(bottom, int) else top / bottom


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
            return _over(value(top, leaf), bottom)
        case Fraction(top, bottom):
            return _over(value(top, leaf), value(bottom, leaf))
        case Negative(body):
            return -value(body, leaf)
        case OverLayers(_, upper, body):
            return value(upper, leaf) * value(body, leaf)
        case Labelled(body, _):
            return value(body, leaf)
        case Maximum(items):
            return max(value(i, leaf) for i in items)
