"""Which of several polynomials can be the largest, at some sizes of at least 1.

``p ≤ q`` at all such sizes follows when ``q - p`` has no negative coefficient after each size x is written 1 + x' (and C as T + C', where T
≤ C is known). An atom such as ``Mod(-T, 4)``, which is not a polynomial, is written as its lower bound plus a nonnegative rest; an atom
without a lower bound must cancel. Coefficients are rows of a matrix, one for each polynomial, so that many pairs are compared at once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from calc.symbolic.algebra import Algebra, Poly
from calc.symbolic.parser import parse
from calc.symbolic.ranges import range_of

Monomial = tuple[int, ...]
Column = Monomial | tuple[Monomial, int]  # a monomial, or with -1 the negative of its coefficient
Matrix = np.ndarray[Any, Any]
Label = TypeVar("Label", bound=Hashable)

_WEIGHTS = 16

# Means are tried between at most this many rows. The time is cubic in their number, and in a longer list, such as that of a hybrid
# model with twelve sizes, few rows are below a mean: of Bamba's 1,153 candidates at least 874 are not.
_MOST_WITH_MEANS = 500


class Shift:
    """Rewrites polynomials in sizes as polynomials in the excess of each size over its lower bound. Exact."""

    def __init__(self, algebra: Algebra, bounds: Sequence[tuple[str, str]] = ()) -> None:
        self._one = algebra.constant(1)
        lows = [_lowest(name) for name in algebra.names]
        self._shifts = [g + (low or 0) for g, low in zip(algebra.ring.gens, lows, strict=False)]
        self._unbounded = [i for i, low in enumerate(lows) if low is None]
        self._below_zero = [i for i, low in enumerate(lows) if low is None or low < 0]
        self._expanded: dict[Monomial, list[tuple[Monomial, Any]]] = {}
        names = list(algebra.names)
        for low, high in bounds:
            if low in names and high in names:
                self._shifts[names.index(high)] = self._shifts[names.index(low)] + algebra.gen(high)

    def __call__(self, poly: Poly) -> dict[Column, Any]:
        """Coefficients by monomial: integers, or fractions where they are not integral. A monomial of unknown sign has an entry for each
        sign."""
        coefficients: dict[Monomial, Any] = {}
        for monomial, coefficient in poly.iterterms():
            factor = _plain(coefficient)
            for m, c in self._expand(monomial):
                coefficients[m] = coefficients.get(m, 0) + c * factor
        return _with_both_signs(coefficients, self._unbounded)

    def unshifted(self, poly: Poly) -> dict[Column, Any]:
        """Coefficients of ``poly`` as it is, in the same form: a generator that may be negative has an unknown sign."""
        return _with_both_signs({m: _plain(c) for m, c in poly.iterterms()}, self._below_zero)

    def _expand(self, monomial: Monomial) -> list[tuple[Monomial, Any]]:
        terms = self._expanded.get(monomial)
        if terms is None:
            product = self._one
            for shift, power in zip(self._shifts, monomial, strict=False):  # a ring without names has an unused generator
                if power:
                    product = product * shift**power
            terms = self._expanded[monomial] = [(m, _plain(c)) for m, c in product.iterterms()]
        return terms


def _lowest(name: str) -> int | None:
    """The lower bound of a size or an atom, if it has one."""
    low = range_of(parse(name)).low
    return None if isinstance(low, float) else math.floor(low)


def _with_both_signs(coefficients: Mapping[Monomial, Any], of_any_sign: Sequence[int]) -> dict[Column, Any]:
    """``coefficients``, and the negatives of those whose monomials have a generator of unknown sign: if neither a coefficient nor its
    negative is below another polynomial's, they are equal."""
    columns: dict[Column, Any] = dict(coefficients.items())
    if of_any_sign:
        columns |= {(m, -1): -c for m, c in coefficients.items() if any(m[i] for i in of_any_sign)}
    return columns


def _plain(coefficient: Any) -> Any:
    """A coefficient of a ring as a Python number: arithmetic on integers is many times faster."""
    if coefficient.denominator == 1:
        return int(coefficient.numerator)
    return Fraction(int(coefficient.numerator), int(coefficient.denominator))


def undominated(live: Mapping[Label, Poly], shift: Shift) -> list[Label]:
    """Labels of the polynomials that can be the largest. One is dropped when another, or a weighted mean of two others, is at least as
    large everywhere; means are skipped where too many remain."""
    as_written = _matrix([shift.unshifted(poly) for poly in live.values()])
    labels = [list(live)[i] for i in sorted(_front(as_written))]  # a quick first pass, before anything is rewritten
    matrix = _matrix([shift(live[label]) for label in labels])
    front = _front(matrix)
    return [labels[i] for i in sorted(_without_means(front, matrix) if len(front) <= _MOST_WITH_MEANS else front)]


def _front(matrix: Matrix) -> list[int]:
    """Indices of rows that no other row bounds from above in every column; of equal rows the first."""
    # In order of decreasing sums, no later row bounds an earlier one.
    totals = matrix.sum(axis=1)
    rows: list[int] = []
    front = matrix[:0]
    for i in sorted(range(len(matrix)), key=lambda i: (-totals[i], i)):
        if not (front >= matrix[i]).all(axis=1).any():
            rows.append(i)
            front = matrix[rows]
    return rows


def _without_means(candidates: Sequence[int], matrix: Matrix) -> list[int]:
    """``candidates`` without those that are at most a mean of two others: the larger of the two is at least the mean."""
    left = list(candidates)
    for i in reversed(candidates):
        others = matrix[[j for j in left if j != i]]
        columns = (others < matrix[i]).any(axis=0)  # in the other columns every mean is large enough
        if _below_some_mean(matrix[i][columns], others[:, columns]):
            left.remove(i)
    return left


def _below_some_mean(row: Matrix, others: Matrix) -> bool:
    """Whether ``row`` is at most some weighted mean of two of ``others`` in every column: where one is below it, the other must not be."""
    if not others.size:
        return False
    above = others >= row
    rarest = above.sum(axis=0).argmin()  # the column with the fewest large enough rows: one of the two is among them
    for n in np.flatnonzero(above[:, rarest]):
        fitting = (above | above[n]).all(axis=1)
        fitting[n] = False
        if fitting.any() and _some_weight(row, others[n], others[fitting]):
            return True
    return False


def _some_weight(row: Matrix, x: Matrix, mates: Matrix) -> bool:
    """Whether w·x + (W - w)·y ≥ W·row in every column for one y of ``mates`` and one integer w from 1 to W - 1.

    Each column requires w·(x - y) ≥ W·(row - y): a lower bound of w where x > y, an upper bound where x < y, and neither where they are
    equal.
    """
    asking = (x < row) | (mates < row).any(axis=0)  # where neither is below the row, no mean is
    row, x, mates = row[asking], x[asking], mates[:, asking]
    least, most = np.ones(len(mates), dtype=row.dtype), np.full(len(mates), _WEIGHTS - 1, dtype=row.dtype)
    for columns in _few_first(len(row)):  # a few columns exclude most mates
        gain, need = x[columns] - mates[:, columns], _WEIGHTS * (row[columns] - mates[:, columns])
        more, less = gain > 0, gain < 0
        least = np.maximum(least, np.where(more, -(-need // np.where(more, gain, 1)), 1).max(axis=1))
        most = np.minimum(most, np.where(less, need // np.where(less, gain, -1), _WEIGHTS - 1).min(axis=1))
        possible = (least <= most) & ~((gain == 0) & (need > 0)).any(axis=1)
        if not possible.any():
            return False
        mates, least, most = mates[possible], least[possible], most[possible]
    return True


def _few_first(columns: int) -> Iterator[slice]:
    """All columns in parts, each several times as large as the one before."""
    start, size = 0, 16
    while start < columns:
        yield slice(start, start + size)
        start, size = start + size, 4 * size


def _matrix(rows: Sequence[Mapping[Column, Any]]) -> Matrix:
    """One row for each mapping, one column for each monomial that occurs."""
    columns = {m: i for i, m in enumerate(dict.fromkeys(itertools.chain.from_iterable(rows)))}
    matrix = np.zeros((len(rows), len(columns)), dtype=object)
    for number, row in enumerate(rows):
        for monomial, coefficient in row.items():
            matrix[number, columns[monomial]] = coefficient
    return _as_integers(matrix)


def _as_integers(matrix: Matrix) -> Matrix:
    """The matrix in int64, which is much faster, where all entries are integers that leave room for the weights."""
    if all(isinstance(c, int) and abs(c) < 2**56 for c in matrix.flat):
        return matrix.astype(np.int64)
    return matrix
