"""Which of several polynomials can be the largest, at some sizes of at least 1.

``p ≤ q`` at all such sizes follows when ``q - p`` has no negative coefficient after each size x is written 1 + x' (and C as T + C', where T
≤ C is known). An atom such as ``Mod(-T, 4)``, which is not a polynomial, is written as its lower bound plus a nonnegative rest; an atom
without a lower bound must cancel. Coefficients are rows of a matrix, one for each polynomial, so that many pairs are compared at once.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from calc.symbolic.algebra import Algebra, Poly
from calc.symbolic.lower_bounds import range_of
from calc.symbolic.parser import parse

Monomial = tuple[int, ...]
Matrix = np.ndarray[Any, Any]
Label = TypeVar("Label", bound=Hashable)

_WEIGHTS = 16

# Coefficients below this leave room in int64 for the weights.
_ROOM = 2**56

# Of many columns, those that exclude most rows are compared first.
_COMPARED_FIRST = 6

# Means are tried between at most this many rows. The time is cubic in their number, and in a longer list, such as that of a hybrid
# model with twelve sizes, few rows are below a mean: of Bamba's 1,153 candidates at least 874 are not.
_MOST_WITH_MEANS = 500


class Shift:
    """Rewrites polynomials in sizes as polynomials in the excess of each size over its lower bound. Exact."""

    def __init__(self, algebra: Algebra, bounds: Sequence[tuple[str, str]] = ()) -> None:
        self.algebra, self._one = algebra, algebra.constant(1)
        lows = [_lowest(name) for name in algebra.names]
        self._shifts = [g + (low or 0) for g, low in zip(algebra.ring.gens, lows, strict=False)]
        self._unbounded = [i for i, low in enumerate(lows) if low is None]
        self._below_zero = [i for i, low in enumerate(lows) if low is None or low < 0]
        self._expanded: dict[Monomial, list[tuple[Monomial, int]]] = {}
        names = list(algebra.names)
        for low, high in bounds:
            if low in names and high in names:
                self._shifts[names.index(high)] = self._shifts[names.index(low)] + algebra.gen(high)

    def never_negative(self, poly: Poly) -> bool:
        """Whether ``poly`` is at least 0 because no coefficient is negative after the rewriting, and none of unknown sign is left."""
        return bool((self.shifted([poly]) >= 0).all())

    def shifted(self, polys: Sequence[Poly]) -> Matrix:
        """The coefficients of each polynomial as integers, one row each: all multiplied by one number, a common denominator. A monomial of
        unknown sign has a column for each sign."""
        monomials, coefficients = _coefficients(polys)
        columns: dict[Monomial, int] = {}
        expanded = [[(columns.setdefault(m, len(columns)), c) for m, c in self._expand(monomial)] for monomial in monomials]
        rewritten: Matrix = np.zeros((len(polys), len(columns)), dtype=_room(coefficients, expanded))
        for column, terms in enumerate(expanded):
            rows = np.flatnonzero(coefficients[:, column])
            factors = coefficients[rows, column].astype(rewritten.dtype)
            for of, coefficient in terms:
                rewritten[rows, of] += factors * coefficient
        return _with_both_signs([*columns], rewritten, self._unbounded)

    def unshifted(self, polys: Sequence[Poly]) -> Matrix:
        """The coefficients of the polynomials as they are, in the same form: a generator that may be negative has an unknown sign."""
        return _with_both_signs(*_coefficients(polys), self._below_zero)

    def _expand(self, monomial: Monomial) -> list[tuple[Monomial, int]]:
        terms = self._expanded.get(monomial)
        if terms is None:
            product = self._one
            for shift, power in zip(self._shifts, monomial, strict=False):  # a ring without names has an unused generator
                if power:
                    product = product * shift**power
            terms = self._expanded[monomial] = [(m, int(c)) for m, c in product.iterterms()]
        return terms


def _lowest(name: str) -> int | None:
    """The lower bound of a size or an atom, if it has one."""
    low = range_of(parse(name)).low
    return None if isinstance(low, float) else math.floor(low)


def _with_both_signs(monomials: Sequence[Monomial], matrix: Matrix, of_any_sign: Sequence[int]) -> Matrix:
    """``matrix``, and the negatives of the columns whose monomials have a generator of unknown sign: if neither a coefficient nor its
    negative is below another polynomial's, they are equal."""
    columns = [column for column, monomial in enumerate(monomials) if any(monomial[i] for i in of_any_sign)]
    return np.hstack([matrix, -matrix[:, columns]]) if columns else matrix


def _coefficients(polys: Sequence[Poly]) -> tuple[list[Monomial], Matrix]:
    """The monomials of the polynomials, and their coefficients as integers: all multiplied by one number, a common denominator."""
    columns: dict[Monomial, int] = {}
    terms = [(row, columns.setdefault(m, len(columns)), c) for row, poly in enumerate(polys) for m, c in poly.iterterms()]
    over = math.lcm(*{int(c.denominator) for _, _, c in terms})
    values = [int(c.numerator) * (over // int(c.denominator)) for _, _, c in terms]
    matrix = np.zeros((len(polys), len(columns)), dtype=np.int64 if all(abs(value) < _ROOM for value in values) else object)
    if values:
        matrix[[row for row, _, _ in terms], [column for _, column, _ in terms]] = values
    return [*columns], matrix


def _room(coefficients: Matrix, expanded: Sequence[Sequence[tuple[int, int]]]) -> type:
    """int64, which is much faster, where every coefficient of the rewritten polynomials leaves room for the weights."""
    largest: dict[int, int] = {}
    for most, terms in zip(map(int, abs(coefficients).max(axis=0, initial=0)), expanded, strict=True):
        for of, coefficient in terms:
            largest[of] = largest.get(of, 0) + most * abs(coefficient)
    return np.int64 if max(largest.values(), default=0) < _ROOM else object


def undominated(live: Mapping[Label, Poly], shift: Shift) -> list[Label]:
    """Labels of the polynomials that can be the largest. One is dropped when another, or a weighted mean of two others, is at least as
    large everywhere; means are skipped where too many remain."""
    as_written = shift.unshifted([*live.values()])
    labels = [list(live)[i] for i in sorted(_front(as_written))]  # a quick first pass, before anything is rewritten
    matrix = shift.shifted([live[label] for label in labels])
    front = _front(matrix)
    return [labels[i] for i in sorted(_without_means(front, matrix) if len(front) <= _MOST_WITH_MEANS else front)]


def _front(matrix: Matrix) -> list[int]:
    """Indices of rows that no other row bounds from above in every column; of equal rows the first."""
    # In order of decreasing sums, no later row bounds an earlier one.
    totals = matrix.sum(axis=1)
    largest_first = _rarest(matrix)
    front = np.empty(len(matrix), dtype=np.intp)
    number = 0
    for i in sorted(range(len(matrix)), key=lambda i: (-totals[i], i)):
        row, above = matrix[i], front[:number]
        for column in largest_first[i]:
            above = above[matrix[above, column] >= row[column]]
        if not above.size or not (matrix[above] >= row).all(axis=1).any():
            front[number] = i
            number += 1
    return [*map(int, front[:number])]


def _rarest(matrix: Matrix) -> Matrix:
    """For each row, a few columns in which the fewest rows are as large: they exclude most rows."""
    below = np.empty(matrix.shape, dtype=np.int32)
    for column, values in enumerate(matrix.T):
        below[:, column] = np.searchsorted(np.sort(values), values)
    return np.argsort(-below, axis=1, kind="stable")[:, :_COMPARED_FIRST]


def _without_means(candidates: Sequence[int], matrix: Matrix) -> list[int]:
    """``candidates`` without those that are at most a mean of two others: the larger of the two is at least the mean."""
    remaining = list(candidates)
    for i in reversed(candidates):
        compared = matrix[[j for j in remaining if j != i]]
        columns = (compared < matrix[i]).any(axis=0)  # in the other columns every mean is large enough
        if _below_some_mean(matrix[i][columns], compared[:, columns]):
            remaining.remove(i)
    return remaining


def _below_some_mean(row: Matrix, compared: Matrix) -> bool:
    """Whether ``row`` is at most some weighted mean of two of ``compared`` in every column: where one is below it, the other may not be."""
    if not compared.size:
        return False
    above = compared >= row
    rarest = above.sum(axis=0).argmin()  # the column with the fewest large enough rows: one of the two is among them
    for n in np.flatnonzero(above[:, rarest]):
        fitting = (above | above[n]).all(axis=1)
        fitting[n] = False
        if fitting.any() and _some_weight(row, compared[n], compared[fitting]):
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
        gains, losses = gain > 0, gain < 0
        least = np.maximum(least, np.where(gains, -(-need // np.where(gains, gain, 1)), 1).max(axis=1))
        most = np.minimum(most, np.where(losses, need // np.where(losses, gain, -1), _WEIGHTS - 1).min(axis=1))
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
