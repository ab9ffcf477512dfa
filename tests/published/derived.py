"""Derivations that several figures are read off, each made once. Their closed forms hold at all sizes."""

from __future__ import annotations

from functools import cache

import sympy as sp

import calc
from calc.derive.result import Derivation
from calc.symbolic.algebra import to_sympy
from tests.published.decoder import Choices, decoder


@cache
def of(model: str) -> Derivation:
    """The forward of a built-in model: its parameters and its products."""
    return calc.derive(calc.load(model), mode="infer")


@cache
def decoded(choices: Choices, **sizes: int) -> Derivation:
    """The forward of a decoder."""
    return calc.derive(decoder(choices, **sizes), cache=False, mode="infer", attention="math")


@cache
def decoder_trained(choices: Choices, **sizes: int) -> Derivation:
    """A training step of a decoder, attention written out."""
    return calc.derive(decoder(choices, **sizes), cache=False, optimizer="sgd", attention="math")


def part(derivation: Derivation, quantity: str, *sites: str) -> sp.Expr:
    """The closed form of those addends of a quantity whose site begins with one of ``sites``."""
    terms = [term for term in derivation[quantity].terms if term.module_path.startswith(sites)]
    assert terms, sites
    return sp.Add(*(to_sympy(term.expr) for term in terms))


def value(expr: sp.Expr, **sizes: int) -> int:
    """An expression at those sizes."""
    number = expr.subs({to_sympy(name): size for name, size in sizes.items()})
    assert number.is_Integer, f"{number}: sizes are missing"
    return int(number)
