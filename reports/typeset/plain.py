"""Expression trees as one line of readable text: ``12·L·d² + 13·L·d``, for terminals and link texts."""

from __future__ import annotations

from calc.symbolic import parser
from calc.symbolic.expression import (
    Expression,
    FunctionCall,
    Labelled,
    Name,
    Negative,
    Number,
    OverLayers,
    Power,
    Product,
    Quotient,
    Sum,
    bare,
)
from calc.symbolic.readable import rounded_up, superscript
from calc.symbolic.tree import displayed, is_maximum, numbered
from calc.symbolic.writer import as_text, is_operator


def plain(tree: Expression, *, labels: bool = False) -> str:
    """The tree as text; with ``labels``, each labelled addend is followed by its label in brackets."""
    match tree:
        case Number(value):
            return f"{value:,}"
        case Name(name):
            return name if name.isidentifier() else _atom(name)
        case Sum(terms):
            return _sum(terms, labels)
        case Product(factors):
            return "·".join(_factor(f, labels) for f in factors) or "1"
        case Power(base, Number(exponent)):
            inner = bare(base)
            apart = isinstance(inner, Power) or (isinstance(inner, Number) and inner.value < 0)
            written = f"({plain(base, labels=labels)})" if apart else _factor(base, labels)
            return f"{written}{superscript(exponent)}"
        case Quotient(top, bottom):
            return f"{_factor(top, labels)}/{_factor(bottom, labels)}"
        case Negative(body):
            return f"−{_factor(body, labels, tight=True)}"
        case OverLayers(index, upper, body):
            return f"Σ[{index} = 1…{plain(upper)}] {_factor(body, labels, tight=True)}"
        case Labelled(body):
            return f"{plain(body, labels=labels)} [{tree.text}]" if labels else plain(body)
        case FunctionCall("Max" | "Min" as function, items):
            return f"{function.lower()}({', '.join(plain(i, labels=labels) for i in items)})"
    return as_text(tree, spaced=True)


def plain_text(text: str) -> str:
    """``plain`` of an expression's text."""
    return plain(displayed(parser.parse(text)))


def terms(tree: Expression) -> tuple[str, ...]:
    """The top-level terms, each with its sign and label, to be set one under another."""
    if isinstance(tree, Sum):
        return tuple(f"{'' if i == 0 else '+ '}{_addend(t, True)}".replace("+ −", "− ") for i, t in enumerate(tree.terms))
    if is_maximum(tree) and numbered(tree.arguments):
        return (f"max({plain(tree.arguments[0])},", f"{plain(tree.arguments[1])},", "…,", f"{plain(tree.arguments[-1])})")
    if is_maximum(tree):
        last = len(tree.arguments) - 1
        return tuple(
            f"{'max(' if i == 0 else ''}{plain(item, labels=True)}{')' if i == last else ','}" for i, item in enumerate(tree.arguments)
        )
    return (plain(tree, labels=True),)


def _sum(items: tuple[Expression, ...], labels: bool) -> str:
    out = ""
    for item in items:
        written = _addend(item, labels)
        if not out:
            out = written
        else:
            out += f" − {written[1:]}" if written.startswith("−") else f" + {written}"
    return out or "0"


def _addend(tree: Expression, labels: bool) -> str:
    written = plain(tree, labels=labels)
    return f"({written})" if isinstance(tree, Sum) else written


def _factor(tree: Expression, labels: bool, *, tight: bool = False) -> str:
    inner = bare(tree)
    product = isinstance(inner, Product) and len(inner.factors) > 1
    operator = isinstance(inner, Name) and is_operator(inner.name)
    apart = isinstance(inner, Sum | Negative | Quotient | OverLayers) or operator or (product and not tight)
    written = plain(tree, labels=labels)
    return f"({written})" if apart else written


_OF_SIZES = ("floor", "ceiling", "Mod", "Min", "Max")


def _atom(name: str) -> str:
    """What is no polynomial, with the sizes in it written as elsewhere: ``floor(2·f/3)``."""
    node = rounded_up(parser.parse(name))
    match node:
        case FunctionCall("log", (argument, Number(2))):
            return f"log₂({plain(displayed(argument))})"
    if not isinstance(node, FunctionCall) or node.function not in _OF_SIZES:
        return name
    function = {"Min": "min", "Max": "max", "Mod": "mod"}.get(node.function, node.function)
    return f"{function}({', '.join(plain(displayed(argument)) for argument in node.arguments)})"
