"""Which peak candidate is the peak, as one size varies and the others are fixed: exactly, on the integers.

Along one size every candidate is a polynomial with rational coefficients. Crossings are isolated by bisection on intervals in which the
difference of two candidates changes sign at most once, so none between two sampled sizes is missed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial, reduce
from itertools import pairwise
from typing import NoReturn

from calc.derive.names import PeakPlace
from calc.derive.result import Derivation, Quantity
from calc.derive.size_steps import valid_step
from calc.errors import NapkinError
from calc.graph.folds import named_quotient
from calc.graph.guards import follows
from calc.graph.step import TracedDim
from calc.symbolic.algebra import Algebra, Poly
from calc.symbolic.evaluation import Arithmetic, ByName
from calc.symbolic.exact import evaluate_text
from calc.symbolic.expression import Expression, Name, Negative, Number, Product, Quotient, Sum
from calc.symbolic.parser import free_names, parse
from calc.symbolic.search import last, last_alike
from calc.symbolic.tree import joined
from calc.symbolic.writer import as_text

FARTHEST = 2**20

Univariate = tuple[int, ...]  # coefficients, highest power first


@dataclass(frozen=True, slots=True)
class PeakInterval:
    """The interval from ``first`` to ``last`` in which the candidate ``at`` is the peak. The first interval of a search starts at its
    smallest size. ``expr``: its bytes in this size alone, the others being numbers (``24784*B + 2933884``); empty among divisors."""

    first: int
    last: int
    at: PeakPlace
    expr: str = ""


@dataclass(frozen=True, slots=True)
class PeakCrossovers:
    """The peak candidates along one dimension; where it could not be searched, ``because`` says why.

    ``among`` are the valid sizes, where they are few (divisors); else all from the first to the last, in steps of ``step``.
    """

    dim: str
    intervals: tuple[PeakInterval, ...]
    step: int = 1
    among: tuple[int, ...] = ()
    because: str = ""


def peak_crossovers(derivation: Derivation, name: str = "memory.peak") -> tuple[PeakCrossovers, ...]:
    """The crossovers along each dimension that ``name`` depends on, and the peak in it. A size of 1 that makes the step a special case is
    varied from the smallest at which it is none."""
    quantity = derivation.quantities.get(name)
    if quantity is None or not quantity.candidates or quantity._evaluator is None:
        return ()
    forms = _Forms(quantity)
    dims = [dim for dim in derivation.dims if not dim.tied]
    along = [_Along(dim, forms, derivation) for dim in dims if dim.name not in derivation.specialized]
    elsewhere = [line for dim in dims if dim.name in derivation.specialized for line in _in_general(derivation, dim, name)]
    return tuple(line.crossovers() for line in (*elsewhere, *along) if line.matters)


def _in_general(derivation: Derivation, dim: TracedDim, name: str) -> Iterator[_Along]:
    """The peak along a dimension of 1 that makes the step a special case, where the closed forms in general are at hand."""
    if derivation.other_sizes is None or dim.value != 1 or dim.name in derivation.specialization_reasons:
        return
    sizes = {**derivation.sizes, dim.name: 2}
    if derivation.holds_at({dim.name: 2}):
        general = derivation.at_sizes({d.name: sizes[d.name] for d in derivation.dims if not d.tied})
        dim_of_general = next(d for d in general.dims if d.name == dim.name)
        if dim.name not in general.specialized and general[name].candidates:
            yield _Along(dim_of_general, _Forms(general[name]), general)


class _Forms:
    """The candidates of a quantity, parsed once for all dimensions."""

    def __init__(self, quantity: Quantity) -> None:
        assert quantity._evaluator is not None  # checked by the caller
        self.evaluator = quantity._evaluator.own
        self.at = [c.at for c in quantity.candidates]
        texts = [c.expr for c in quantity.candidates]
        self.names = sorted(set().union(*map(free_names, texts)))
        self.algebra = Algebra(self.names, texts)
        self.polys = [self.algebra.parse(text) for text in texts]


class _Along:
    """A quantity along one dimension. Dimensions whose default depends on it follow; invalid sizes are excluded."""

    def __init__(self, dim: TracedDim, forms: _Forms, derivation: Derivation) -> None:
        self.dim, self._forms = dim, forms
        self._dims = {d.name: d for d in derivation.dims}
        self._here = derivation.sizes
        self.step = valid_step(derivation, dim.name)
        self._first = dim.value % self.step  # all valid sizes are this plus a multiple of the step
        self._sizes_at: dict[int, dict[str, int] | None] = {}
        self._products: dict[tuple[tuple[str, int], ...], list[Fraction]] = {}

    @property
    def matters(self) -> bool:
        """Whether a candidate depends on this size, or on one that follows it."""
        return any(self._depends(name) for name in self._forms.names)

    def _depends(self, name: str) -> bool:
        if name == self.dim.name:
            return True
        text = self._definition(name)
        return text is not None and any(self._depends(n) for n in free_names(text))

    def _definition(self, name: str) -> str | None:
        """The definition of ``name``: its default expression where that is in force, or a quotient named in the trace."""
        dim = self._dims.get(name)
        if dim is None:
            match named_quotient(name):
                case Quotient(Name(numerator)) as quotient if numerator in self._dims:
                    return as_text(quotient)
            return None
        return dim.expr if follows(dim, self._here) else None

    # -- sizes ------------------------------------------------------------------------------------------------------

    def sizes(self, size: int) -> dict[str, int] | None:
        """All sizes with this one at ``size``; None where that is invalid, or where the step runs other operators."""
        if size not in self._sizes_at:
            try:
                sizes: dict[str, int] | None = self._forms.evaluator.sizes({self.dim.name: size})
                assert sizes is not None
                same = self._forms.evaluator.holds(sizes) and self._forms.evaluator.value(sizes) == max(self._values(sizes))
            except (NapkinError, KeyError, ZeroDivisionError):
                same = False
            self._sizes_at[size] = sizes if same else None
        return self._sizes_at[size]

    def _values(self, sizes: Mapping[str, int]) -> list[int]:
        """Every candidate at those sizes."""
        values = dict(sizes)
        for name in self._forms.names:
            if name not in values and (text := self._definition(name)) is not None:
                values[name] = int(evaluate_text(text, sizes))
        return [*map(self._forms.algebra.at(values), self._forms.polys)]

    def _size(self, multiple: int) -> int:
        return multiple * self.step + self._first

    def _end(self, start: int, end: int) -> int:
        """The last multiple from ``start`` towards ``end`` at which the closed forms hold."""
        if self.sizes(self._size(end)) is not None:
            return end
        return last(lambda n: self.sizes(self._size(n)) is not None, start, end)

    # -- the search ---------------------------------------------------------------------------------------------------

    def crossovers(self) -> PeakCrossovers:
        divided = [*self._divided()]
        if divided:
            return self._one_by_one(math.gcd(*divided))
        try:
            forms = [self._form(poly) for poly in self._forms.polys]
        except _NoPolynomialError as error:
            return PeakCrossovers(self.dim.name, (), because=str(error))
        start = (self._here[self.dim.name] - self._first) // self.step
        low, high = self._end(start, min(1, start)), self._end(start, max(FARTHEST // self.step, start))
        return PeakCrossovers(self.dim.name, tuple(self._intervals(forms, low, high)), self.step)

    def _divided(self) -> Iterator[int]:
        """Values of the dimensions that must be divisible by this one: declared multiples, or the numerator of a quotient that follows
        it."""
        for dim in self._dims.values():
            if dim.multiple_of == self.dim.name and dim.name != self.dim.name:
                yield dim.value - dim.plus
            match parse(self._definition(dim.name) or "0"):
                case Quotient(Name(numerator), Name(self.dim.name)):
                    yield self._here[numerator]

    def _one_by_one(self, dividend: int) -> PeakCrossovers:
        """The intervals over all valid sizes, where other sizes must be divisible by this one, so that there are only a few."""
        among = [n for n in range(1, min(dividend, FARTHEST) + 1) if dividend % n == 0 and self.sizes(n) is not None]
        intervals: list[PeakInterval] = []
        for size in among:
            sizes = self.sizes(size)
            assert sizes is not None  # ``among`` has valid sizes only
            values = self._values(sizes)
            _extend(intervals, size, size, self._forms.at[values.index(max(values))], "")
        return PeakCrossovers(self.dim.name, tuple(intervals), among=tuple(among))

    def _intervals(self, forms: Sequence[Univariate], low: int, high: int) -> list[PeakInterval]:
        intervals: list[PeakInterval] = []
        start = low
        while start <= high:
            best = max(range(len(forms)), key=lambda i: (_at(forms[i], start), -i))
            ends = [_first_above(_minus(forms[rival], forms[best]), start, high) for rival in range(len(forms)) if rival != best]
            end = min(ends, default=high + 1) - 1
            _extend(intervals, self._size(start), self._size(end), self._forms.at[best], self._text(forms[best]))
            start = end + 1
        return intervals

    def _form(self, poly: Poly) -> Univariate:
        """A candidate as a polynomial in the multiple (of ``step``), all scaled by the same factor."""
        total: list[Fraction] = [Fraction(0)]
        for coefficient, powers in self._forms.algebra.terms(poly):
            total = _plus(total, [coefficient * c for c in self._product(tuple(powers.items()))])
        # Sizes and counts are integers, so a common denominator exists; using it for all preserves their order.
        return tuple(int(c * _SCALE) if (c * _SCALE).denominator == 1 else _refuse(c) for c in total)

    def _text(self, form: Univariate) -> str:
        """A candidate in this size: the multiple is (size − first) / step."""
        total, multiple = [Fraction(0)], [Fraction(1, self.step), Fraction(-self._first, self.step)]
        for coefficient in form:
            total = _plus(_times(total, multiple), [Fraction(coefficient, _SCALE)])
        powers = zip(range(len(total) - 1, -1, -1), total, strict=True)
        return joined((coefficient, [(self.dim.name, power)] if power else []) for power, coefficient in powers if coefficient)

    def _product(self, powers: tuple[tuple[str, int], ...]) -> list[Fraction]:
        """A product of powers of sizes along this dimension, cached: the candidates have most of their terms in common."""
        if powers not in self._products:
            factors = (self.line(name) for name, power in powers for _ in range(power))
            self._products[powers] = reduce(_times, factors, [Fraction(1)])
        return self._products[powers]

    def line(self, name: str) -> list[Fraction]:
        """A size along this dimension, as a polynomial in the multiple."""
        if name == self.dim.name:
            return [Fraction(self.step), Fraction(self._first)]
        if not name.isidentifier():
            if any(self._depends(n) for n in free_names(name)):
                raise _NoPolynomialError(f"{name} is not a polynomial in {self.dim.name}")
            return [evaluate_text(name, self._here)]
        text = self._definition(name)
        if text is None or not self._depends(name):
            return [Fraction(self._here[name]) if name in self._here else evaluate_text(str(text), self._here)]
        return parse(text).value_in(_Polynomials(self))


class _Polynomials(Arithmetic[list[Fraction]]):
    """Evaluates expressions to polynomials in the multiple along a dimension."""

    def __init__(self, along: _Along) -> None:
        self.values, self._along = ByName(along.line), along

    def number(self, node: Number) -> list[Fraction]:
        return [Fraction(node.value)] if isinstance(node.value, int) else self.refused(node)

    def negative(self, node: Negative) -> list[Fraction]:
        return self.refused(node)

    def sum(self, node: Sum) -> list[Fraction]:
        return reduce(_plus, [term.value_in(self) for term in node.terms])

    def product(self, node: Product) -> list[Fraction]:
        return reduce(_times, [factor.value_in(self) for factor in node.factors])

    def quotient(self, node: Quotient) -> list[Fraction]:
        divisor = node.bottom.value_in(self)
        return self.refused(node) if len(divisor) > 1 else [c / divisor[0] for c in node.top.value_in(self)]

    def refused(self, node: Expression) -> NoReturn:
        raise _NoPolynomialError(f"{as_text(node, spaced=True)} is not a polynomial in {self._along.dim.name}")


class _NoPolynomialError(NapkinError):
    """A size along which the search is impossible, and why."""


_SCALE = math.lcm(*range(1, 33)) ** 2


def _refuse(coefficient: Fraction) -> int:
    raise _NoPolynomialError(f"a coefficient of {coefficient} is too fine to compare")


def _extend(intervals: list[PeakInterval], first: int, last: int, at: PeakPlace, expr: str) -> None:
    """Append an interval, merged with the one before it where the candidate is the same."""
    if intervals and intervals[-1].at == at and intervals[-1].expr == expr:
        intervals[-1] = PeakInterval(intervals[-1].first, last, at, expr)
    else:
        intervals.append(PeakInterval(first, last, at, expr))


# -- polynomials in one variable ----------------------------------------------------------------------------------------


def _plus(a: Sequence[Fraction], b: Sequence[Fraction]) -> list[Fraction]:
    size = max(len(a), len(b))
    return [x + y for x, y in zip([Fraction(0)] * (size - len(a)) + [*a], [Fraction(0)] * (size - len(b)) + [*b], strict=True)]


def _times(a: Sequence[Fraction], b: Sequence[Fraction]) -> list[Fraction]:
    coefficients = [Fraction(0)] * (len(a) + len(b) - 1)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            coefficients[i + j] += x * y
    return coefficients


def _minus(a: Univariate, b: Univariate) -> Univariate:
    size = max(len(a), len(b))
    return tuple(x - y for x, y in zip((0,) * (size - len(a)) + a, (0,) * (size - len(b)) + b, strict=True))


def _at(form: Univariate, x: int) -> int:
    value = 0
    for coefficient in form:
        value = value * x + coefficient
    return value


def _cells(form: Univariate, low: int, high: int) -> list[int]:
    """Every n for which ``form`` may change sign between n and n + 1, in order, from low to high; it changes sign nowhere else.

    Between two such cells of its derivative it is monotone: there it stops being negative, and starts being positive, at most once.
    """
    if len(form) < 2 or low >= high:
        return []
    degree = len(form) - 1
    turning = _cells(tuple(c * (degree - i) for i, c in enumerate(form[:-1])), low, high)
    cells = set(turning)
    for a, b in pairwise([low, *(n for cell in turning for n in (cell, cell + 1)), high]):
        for side in (-1, 1):
            if b > a and _is(form, side, a) != _is(form, side, b):
                cells.add(last_alike(partial(_is, form, side), a, b))
    return sorted(cells)


def _is(form: Univariate, side: int, x: int) -> bool:
    """Whether ``form`` is negative (``side`` −1) or positive (1)."""
    return side * _at(form, x) > 0


def _first_above(form: Univariate, low: int, high: int) -> int:
    """The first integer after ``low`` at which ``form``, not positive at ``low``, is positive; ``high + 1`` where there is none."""
    points = sorted({x for cell in _cells(form, low, high) for x in (cell, cell + 1)} | {low, high})
    return next((x for x in points if x > low and _at(form, x) > 0), high + 1)
