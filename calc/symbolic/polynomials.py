"""Polynomials in the sizes of a model as a table of numbers, which plain Python evaluates: no SymPy, and nothing is run as code.

Hundreds of closed forms of one step share a few dozen products of sizes (B·T·d·L, …), so the table has each product once, and each is
evaluated once at given sizes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from calc.errors import NapkinError
from calc.symbolic.exact import evaluate_text
from calc.symbolic.tree import as_factor, joined

Monomial = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Polynomial:
    """Σ numerator · monomial / ``over``. ``terms`` are (index of the monomial, numerator), in the order in which they are written."""

    over: int
    terms: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Table:
    """``names`` are dimensions and non-polynomial parts (``floor(T/2)``); a monomial has an (index of the name, power ≥ 1) for each
    factor."""

    names: tuple[str, ...]
    monomials: tuple[Monomial, ...]
    polynomials: tuple[Polynomial, ...]

    def text(self, polynomial: Polynomial) -> str:
        """The polynomial as SymPy would read it: ``12*L*d**2 + 13*L*d``."""
        return joined(
            (Fraction(numerator, polynomial.over), [(as_factor(self.names[i]), power) for i, power in self.monomials[number]])
            for number, numerator in polynomial.terms
        )

    def added(self, polynomials: Sequence[Polynomial]) -> Polynomial:
        """The sum of several polynomials. Monomials are indexed in the order in which a sum is written."""
        over = math.lcm(*(p.over for p in polynomials))
        total: dict[int, int] = {}
        for p in polynomials:
            scale = over // p.over
            for number, numerator in p.terms:
                total[number] = total.get(number, 0) + scale * numerator
        return Polynomial(over, tuple((number, total[number]) for number in sorted(total) if total[number]))


class Point:
    """The polynomials of a table at integer sizes, exactly. ``values`` holds every name that is a dimension or a quotient of two."""

    def __init__(self, table: Table, values: Mapping[str, int]) -> None:
        self._table, self._values = table, values
        self._leaves: dict[int, int] = {}
        self._products: dict[int, int] = {}

    def __call__(self, polynomial: Polynomial) -> int:
        """The value of ``polynomial``. Raises NapkinError if it is not an integer."""
        total = sum(numerator * self._monomial(number) for number, numerator in polynomial.terms)
        if total % polynomial.over:
            value = Fraction(total, polynomial.over)
            at = dict(self._values)
            raise NapkinError(f"{self._table.text(polynomial)} is {value}, not an integer, at {at}: choose sizes that divide")
        return total // polynomial.over

    def _monomial(self, number: int) -> int:
        value = self._products.get(number)
        if value is None:
            value = 1
            for i, power in self._table.monomials[number]:
                value *= self._leaf(i) ** power
            self._products[number] = value
        return value

    def _leaf(self, i: int) -> int:
        value = self._leaves.get(i)
        if value is None:
            name = self._table.names[i]
            value = self._leaves[i] = self._values[name] if name in self._values else int(evaluate_text(name, self._values))
        return value
