"""Converts expressions from different sources to polynomials that can be subtracted: tied dimensions and defaults in force (``f = 4*d``,
``k = d/h``) are substituted, so that equal amounts are written alike."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sympy.polys.polyerrors import ExactQuotientFailed

from calc.derive.result import Derivation
from calc.derive.steps import tree
from calc.errors import NapkinError, SpecError
from calc.graph.basis import Basis, Folding, basis_of, with_quotients
from calc.graph.guards import dimensions
from calc.symbolic import branches
from calc.symbolic import tree as display
from calc.symbolic.algebra import Algebra, Poly
from calc.symbolic.expression import Expression, Name, Quotient, names, rewritten
from calc.symbolic.writer import as_text, substituted


class Common:
    """Converts texts to polynomials in one ring, in the independent dimensions."""

    def __init__(self, derivation: Derivation, texts: Iterable[str]) -> None:
        self._sizes = derivation.sizes
        self._basis = _tied_basis(derivation)
        self._replacements = {**self._basis.define, **dict.fromkeys(self.fixed_to_one(derivation), "1")}
        rewritten = [self._rewritten(text) for text in (*texts, *self._sizes)]
        self._inner = Algebra(self._basis.symbols, rewritten)
        self._fold = Folding(self._basis, self._inner)
        self.algebra = self._fold.outer

    @staticmethod
    def fixed_to_one(derivation: Derivation) -> list[str]:
        """Sizes that a special case in force specializes to 1: its closed forms no longer contain them, so all else must be written without
        them."""
        return [name for name, size in derivation.specialized.items() if size == 1]

    def __call__(self, text: str) -> Poly:
        return self._fold(self._inner.parse(self._rewritten(text)))

    def _rewritten(self, text: str) -> str:
        return substituted(with_quotients(branches.at_hand(text, self._sizes), self._basis), self._replacements)

    def tree(self, poly: Poly) -> Expression:
        return tree(self.algebra, poly)

    def text(self, poly: Poly) -> str:
        return self.algebra.text(poly)

    def value(self, poly: Poly) -> int:
        return self.algebra.value(poly, {**self._basis.values(self._sizes), **self._sizes})

    def require_equal(self, before: Expression, after: Expression, step: str) -> None:
        """Raise unless both sides are equal. They are compared in the basis, where h·k and d are the same."""
        try:
            value = display.value(before, self._in_basis)
        except ExactQuotientFailed:  # d/h, where no one says that d is a multiple of h, is an atom
            value = display.value(rewritten(before, _atom), self._in_basis)
        if value != display.value(after, self._in_basis):
            raise NapkinError(f"internal error: {step} does not hold; please report it")

    def _in_basis(self, name: str) -> Poly:
        inner = self._fold.in_basis(name)
        return self._inner.parse(inner if inner in self._inner.names and not inner.isidentifier() else self._rewritten(inner))


def _atom(node: Expression) -> Expression | None:
    return Name(as_text(node)) if isinstance(node, Quotient) and names(node.bottom) else None


def _tied_basis(derivation: Derivation) -> Basis:
    """The basis in which defaults in force are ties. ``k = d/h`` can be one only where d is declared a multiple of h."""
    table = dimensions(derivation)
    dims = {name: dim if dim.tied else replace(dim, default=derivation.sizes[name]) for name, dim in table.items()}
    for name, dim in table.items():
        if isinstance(dim.default, str) and not dim.tied and not dim.unbacked_at:
            tied = {**dims, name: replace(dim, tied=True)}
            try:
                basis = basis_of(tied)
                Algebra(basis.symbols, basis.define.values()).parse(basis.define[name])
            except (SpecError, NapkinError):
                continue
            dims = tied
    return basis_of(dims)
