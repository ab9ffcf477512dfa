"""Converts a model's dimensions to the free symbols of a trace, and back.

A model that needs ``d`` divisible by ``h`` is traced with ``d = h*k``: every size is then a polynomial and no guard on divisibility
remains. Afterwards ``d`` is substituted for ``h*k`` (a *fold*). Torch-free.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import sympy as sp

from calc.dimensions import Dim, ordered_names
from calc.errors import NapkinError, SpecError
from calc.graph.folds import Basis as Basis
from calc.graph.folds import Fold as Fold
from calc.graph.folds import quotient_name
from calc.symbolic.algebra import Algebra, Poly, to_sympy
from calc.symbolic.expression import (
    Expression,
    FloorQuotient,
    FunctionCall,
    Name,
    Number,
    Quotient,
    Remainder,
    children,
    rewritten,
    substitute,
    with_children,
)
from calc.symbolic.parser import parse
from calc.symbolic.writer import as_text, substituted


def in_dimensions(text: str, basis: Basis) -> str:
    """An expression in basis symbols, with quotients that are no dimension written as quotients."""
    return str(sp.cancel(to_sympy(substituted(text, basis.hidden))))


def basis_of(dims: Mapping[str, Dim], equal: Mapping[str, str] | None = None) -> Basis:
    """The basis of a model's dimensions. ``equal`` adds the ties of a special case (``{"g": "h"}``, ``{"B": "1"}`` or ``{"d": "h*k"}``)."""
    equal = equal or {}
    define: dict[str, str] = {}
    symbols: list[str] = []
    folds: list[Fold] = []
    quotients = {ends: name for ends, name in _tied_quotients(dims).items() if ends[0] not in equal}

    def visit(name: str) -> str:
        if name in define:
            return define[name]
        dim = dims[name]
        if name in equal:
            to = equal[name]
            define[name] = visit(to) if to in dims else substituted(to, {n: visit(n) for n in ordered_names(to)})
        elif dim.tied and name not in quotients.values() and isinstance(dim.default, str):
            define[name] = _simplest(substituted(dim.default, {n: visit(n) for n in ordered_names(dim.default)}))
        elif dim.tied and isinstance(dim.default, int):
            define[name] = str(dim.default)
        elif dim.multiple_of is not None and (dim.plus or not _divides_itself(dim.multiple_of, name)):
            part = dim.multiple_of
            quotient = quotients.get((name, part), quotient_name(name, part))
            inner = visit(quotient) if quotient in dims else _new(quotient)
            outer = str(part) if isinstance(part, int) else visit(part)
            define[name] = f"({outer})*({inner}) + {dim.plus}" if dim.plus else f"({outer})*({inner})"
            folds.append(Fold(name, part, quotient, dim.plus))
        else:
            define[name] = _new(name)
        return define[name]

    def _new(name: str) -> str:
        if name not in symbols:
            symbols.append(name)
        return name

    for name in dims:
        visit(name)
    decided = tuple(name for name, dim in dims.items() if dim.unbacked_at)
    return Basis(tuple(symbols), {name: define[name] for name in dims}, tuple(folds), decided)


def _simplest(text: str) -> str:
    """A quotient of equal dimensions is a number: ``k = d/h`` is 1 where ``d = h``."""
    return str(sp.cancel(to_sympy(text))) if "/" in text and "//" not in text else text


def _divides_itself(part: int | str, name: str) -> bool:
    return part in (1, name)


def _tied_quotients(dims: Mapping[str, Dim]) -> dict[tuple[str, int | str], str]:
    """``(whole, part) -> name`` for tied dimensions whose default is the quotient ``whole/part`` of two dimensions."""
    quotients: dict[tuple[str, int | str], str] = {}
    for name, dim in dims.items():
        if not dim.tied or not isinstance(dim.default, str):
            continue
        match parse(dim.default):
            case Quotient(Name(dividend), Name(part) | Number(int() as part)):
                _require_multiple(dims, name, dividend, part)
                quotients[dividend, part] = name
    return quotients


def _require_multiple(dims: Mapping[str, Dim], name: str, dividend: str, part: int | str) -> None:
    if dividend not in dims or dims[dividend].multiple_of != part:
        raise SpecError(f"dimension {name} is tied to {dividend}/{part}: declare {dividend} as Dim(…, multiple_of={part!r})")


def with_quotients(text: str, basis: Basis) -> str:
    """``text`` with each quotient ``S / P`` that is not a dimension replaced by its symbol."""
    if "/" not in text or not basis.hidden:
        return text
    symbols = {parse(of): Name(symbol) for symbol, of in basis.hidden.items()}
    return as_text(rewritten(parse(text), lambda node: symbols.get(node) if isinstance(node, Quotient) else None), spaced=True)


def _with_number(fold: Fold, basis: Basis) -> Fold:
    """The fold with its part as a number, where this basis fixes that dimension to a number."""
    if isinstance(fold.part, str) and basis.define[fold.part].isdigit():
        return replace(fold, part=int(basis.define[fold.part]))
    return fold


class Folding:
    """Rewrites polynomials in basis symbols to polynomials in the model's own dimensions."""

    def __init__(self, basis: Basis, algebra: Algebra) -> None:
        self.inner = algebra
        self.folds = [_with_number(fold, basis) for fold in basis.folds]
        names = [n for n, text in basis.define.items() if text == n or any(f.whole == n for f in basis.folds)]
        self._written = {n: _written(n, basis, algebra) for n in algebra.names if n not in names}
        self._unfolded = {written: n for n, written in self._written.items()}
        written = self._written.values()
        self.outer = Algebra([*names, *filter(str.isidentifier, written)], [text for text in written if not text.isidentifier()])
        self._cache: dict[Any, Poly] = {}
        self._texts: dict[Any, str] = {}

    def in_basis(self, name: str) -> str:
        """The name in ``inner`` of a symbol or an atom of ``outer``."""
        return self._unfolded.get(name, name)

    def __call__(self, poly: Poly) -> Poly:
        if isinstance(poly, int):
            return self.outer.constant(poly)
        folded = self._cache.get(poly)
        if folded is None:
            folded = self._cache[poly] = self._fold(poly)
        return folded

    def text(self, poly: Poly) -> str:
        """``poly`` in the model's own dimensions as text, cached: each set of sizes asks for it."""
        text = self._texts.get(poly)
        if text is None:
            text = self._texts[poly] = self.outer.text(self(poly))
        return text

    def _fold(self, poly: Poly) -> Poly:
        total = self.outer.constant(0)
        for coefficient, powers in self.inner.terms(poly):
            total += self._monomial(coefficient, dict(powers))
        return total

    def _monomial(self, coefficient: Fraction, powers: dict[str, int]) -> Poly:
        wholes = self.outer.constant(1)
        for fold in self.folds:
            exponent = powers.get(fold.quotient, 0)
            if not exponent:
                continue
            if fold.plus:
                assert isinstance(fold.part, int)
                wholes *= (self.outer.gen(fold.whole) - fold.plus) ** exponent * self.outer.constant(Fraction(1, fold.part**exponent))
                powers[fold.quotient] = 0
                continue
            if isinstance(fold.part, int):
                moved = exponent
                coefficient /= fold.part**exponent
            else:
                moved = min(exponent, powers.get(fold.part, 0))
                powers[fold.part] = powers.get(fold.part, 0) - moved
            powers[fold.quotient] -= moved
            powers[fold.whole] = powers.get(fold.whole, 0) + moved
        product = self.outer.constant(coefficient) * wholes
        for name, power in powers.items():
            if power:
                product *= self.outer.parse(self._written.get(name, name)) ** power
        return product


def _written(name: str, basis: Basis, algebra: Algebra) -> str:
    """A symbol or an atom of ``algebra`` in the model's dimensions: a quotient that is not a dimension as a quotient, with sizes inside an
    atom substituted too."""
    quotients = {fold.quotient: fold for fold in basis.folds}
    if name in quotients:
        return name if name in basis.define or isinstance(quotients[name].part, int) else basis.hidden[name]
    if name.isidentifier() or not quotients.keys() & set(ordered_names(name)):
        return name
    match tree := parse(name):
        case Quotient():
            return as_text(parse(in_dimensions(name, basis)), spaced=True)
        case FunctionCall() | FloorQuotient() | Remainder():
            return as_text(with_children(tree, [_folded(child, basis, algebra) for child in children(tree)]), spaced=True)
    return name


def _folded(size: Expression, basis: Basis, algebra: Algebra) -> Expression:
    """A size inside an atom in the model's dimensions, over one denominator."""
    text = as_text(size, spaced=True)
    inner = Algebra([n for n in algebra.names if n.isidentifier()], [text])
    try:
        poly = inner.parse(text)
    except NapkinError:  # a logarithm, or a quotient of sizes
        return substitute(size, {name: parse(of) for name, of in basis.hidden.items()})
    fold = Folding(basis, inner)
    folded = fold(poly)
    terms = fold.outer.terms(folded)
    over = math.lcm(*(coefficient.denominator for coefficient, _ in terms))
    if over == 1 or len(terms) == 1:
        return parse(fold.outer.text(folded))
    return Quotient(parse(fold.outer.text(folded * over)), Number(over))
