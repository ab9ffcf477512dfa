"""Exact arithmetic on arrays of sizes: the expressions that ``calc.symbolic.exact`` evaluates at one point, over many at once.

Integers are int64 if a bound, computed from the largest sizes, shows that no intermediate value overflows. Otherwise they are Python's own,
which are slower and of any length.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from calc.errors import NapkinError
from calc.symbolic import exact
from calc.symbolic.evaluation import Arithmetic, ByName
from calc.symbolic.expression import (
    RELATIONS,
    Compare,
    Expression,
    FloorQuotient,
    FunctionCall,
    Negative,
    Number,
    Power,
    Product,
    Quotient,
    Remainder,
    names,
    walk,
)
from calc.symbolic.parser import FUNCTIONS, parse
from calc.symbolic.polynomials import Monomial, Polynomial, Table
from calc.symbolic.writer import as_text

Array = npt.NDArray[Any]
Terms = tuple[tuple[Monomial, int], ...]
LIMIT = 2**63
_LONGEST = 4096
_HIGHEST = 64


class UnevenError(NapkinError):
    """A quotient is not an integer at some of the points."""


def widest(largest: int) -> type:
    """The dtype for integers of absolute value up to ``largest``: int64, or object for Python's own."""
    return np.int64 if largest < LIMIT else object


def evaluate(of: str | Expression, values: Mapping[str, Array]) -> Array:
    """The value of an expression of sizes at every point. Arrays of sizes broadcast; a quotient by ``/`` must be an integer at every point
    (UnevenError)."""
    tree = parse(of) if isinstance(of, str) else of
    wide = widest(tree.value_in(_Bound({name: int(array.max()) for name, array in values.items()})))
    return tree.value_in(Arrays({name: array.astype(wide, copy=False) for name, array in values.items()}))


def holds(text: str, values: Mapping[str, Array]) -> Array:
    """Whether a condition holds, at every point."""
    truth: Array = parse(text).holds_in(Arrays(values))
    return truth


def side(text: str, values: Mapping[str, Array]) -> Array | None:
    """The sign of left − right of an inequality at each point: −1, 0 or 1. None for any other condition."""
    match parse(text):
        case Compare(_, "<" | ">" | "<=" | ">=", _) as node if _of_doubles(node):
            return _one_by_one(exact.side, node, values)
        case Compare(_, "<" | ">" | "<=" | ">=", _) as node:
            a, b = Arrays(values).both(node)
            return np.greater(a, b).astype(np.int8) - np.less(a, b).astype(np.int8)
    return None


class _NamedArrays(dict[str, Array]):
    def __missing__(self, name: str) -> Array:
        raise NapkinError(f"{name[:40]!r} of the expression has no size: give {name[:40]}=…, or use only {', '.join(self)}")


class Arrays(Arithmetic[Array]):
    """Integers at every point: int64 or Python's own, as in the arrays of ``values``."""

    def __init__(self, values: Mapping[str, Array]) -> None:
        self.values = _NamedArrays(values)

    def number(self, node: Number) -> Array:
        if not isinstance(node.value, int):
            raise self.refused(node)
        return np.asarray(node.value, dtype=widest(abs(node.value)))

    def power(self, node: Power) -> Array:
        power = node.exponent.value if isinstance(node.exponent, Number) else None
        if not isinstance(power, int):
            raise NapkinError(f"an exponent must be a small integer: {_said(node)}")
        if power > _HIGHEST:
            raise NapkinError(f"{_said(node)} has a power above {_HIGHEST}: write one up to that")
        return np.asarray(node.base.value_in(self) ** power)

    def quotient(self, node: Quotient) -> Array:
        a, b = node.top.value_in(self), self._divisor(node.bottom, node)
        if np.any(a % b):
            raise UnevenError(f"{_said(node)} is not an integer at all points: write // or ceiling(…), or choose sizes that divide")
        return a // b

    def floor_quotient(self, node: FloorQuotient) -> Array:
        return node.top.value_in(self) // self._divisor(node.bottom, node)

    def remainder(self, node: Remainder) -> Array:
        return node.top.value_in(self) % self._divisor(node.bottom, node)

    def _divisor(self, bottom: Expression, node: Expression) -> Array:
        divisor = bottom.value_in(self)
        if not np.all(divisor):
            raise NapkinError(f"{_said(node)} divides by 0 at some of the points")
        return divisor

    def call(self, node: FunctionCall) -> Array:
        match node:
            case FunctionCall("ceiling", (FunctionCall("log", (size, Number(2))),)):
                return _log2_ceiling(size.value_in(self))
            case FunctionCall("floor" | "ceiling", (Quotient(top, bottom),)):
                a, b = top.value_in(self), self._divisor(bottom, node)
                return a // b if node.function == "floor" else -(-a // b)
            case FunctionCall("floor" | "ceiling", (integer,)):
                return integer.value_in(self)
            case FunctionCall("Mod", (a, b)):
                return self.remainder(Remainder(a, b))
            case FunctionCall("Max" | "Min", (_, *_) as arguments):
                largest = np.maximum if node.function == "Max" else np.minimum
                return functools.reduce(largest, [a.value_in(self) for a in arguments])
        if node.function in FUNCTIONS and node.arguments:
            raise NapkinError(f"cannot read {_said(node)!r}: it has {len(node.arguments)} arguments")
        raise self.refused(node)

    def compare(self, node: Compare) -> Array:
        if _of_doubles(node):
            return _one_by_one(exact.holds, node, self.values).astype(bool)
        return np.asarray(RELATIONS[node.relation](*self.both(node)), dtype=bool)

    def both(self, node: Compare) -> tuple[Array, Array]:
        """Both sides, in integers as wide as they need."""
        used = {name: self.values[name] for name in dict.fromkeys(names(node))}
        bound = _Bound({name: int(array.max()) for name, array in used.items()})
        wide = widest(max(node.left.value_in(bound), node.right.value_in(bound)))
        at = Arrays({name: array.astype(wide, copy=False) for name, array in used.items()})
        return node.left.value_in(at), node.right.value_in(at)

    def all_hold(self, conditions: Sequence[Expression]) -> Array:
        return np.asarray(np.logical_and.reduce(np.broadcast_arrays(*(c.holds_in(self) for c in conditions))))

    def any_holds(self, conditions: Sequence[Expression]) -> Array:
        return np.asarray(np.logical_or.reduce(np.broadcast_arrays(*(c.holds_in(self) for c in conditions))))

    def inverse(self, condition: Expression) -> Array:
        return np.asarray(np.logical_not(condition.holds_in(self)))

    def refused(self, node: Expression) -> NapkinError:
        return NapkinError(f"cannot read {_said(node)!r}: write it with + - * / // % ** and {', '.join(FUNCTIONS)}")

    def refused_condition(self, node: Expression) -> NapkinError:
        return NapkinError(f"cannot read the condition {_said(node)!r}")


def _said(node: Expression) -> str:
    return as_text(node, spaced=True)[:60]


def _log2_ceiling(a: Array) -> Array:
    """⌈log₂ n⌉ of each element, as int64."""
    return np.asarray(np.vectorize(lambda n: (int(n) - 1).bit_length(), otypes=[np.int64])(a))


def _of_doubles(node: Expression) -> bool:
    return any(isinstance(part, FunctionCall) and part.function in exact.DOUBLES for part in walk(node))


def _one_by_one(answer: Callable[[str, Mapping[str, int]], int | None], node: Expression, values: Mapping[str, Array]) -> Array:
    """``answer`` to a condition on doubles, point by point in Python's own arithmetic: NumPy's differs from it in the last bit of a
    logarithm."""
    text = as_text(node)
    names_ = [*dict.fromkeys(names(node))]
    at = np.vectorize(lambda *sizes: answer(text, dict(zip(names_, map(int, sizes), strict=True))), otypes=[np.int8])
    return np.asarray(at(*(values[name] for name in names_)))


class _Bound(Arithmetic[int]):
    """An upper bound of the absolute value of every intermediate result, for sizes from 0 to ``maxima``."""

    def __init__(self, maxima: Mapping[str, int]) -> None:
        self.values = ByName(lambda _: 0, maxima)  # a name without a size is refused where it is evaluated

    def number(self, node: Number) -> int:
        return abs(node.value) if isinstance(node.value, int) else LIMIT

    def negative(self, node: Negative) -> int:
        return node.body.value_in(self)

    def product(self, node: Product) -> int:
        bounds = [factor.value_in(self) for factor in node.factors]
        return functools.reduce(lambda a, b: max(a * b, a, b), bounds)

    def quotient(self, node: Quotient | FloorQuotient | Remainder) -> int:
        return max(node.top.value_in(self), node.bottom.value_in(self)) + 1

    floor_quotient = remainder = quotient

    def power(self, node: Power) -> int:
        a, b = node.base.value_in(self), node.exponent.value_in(self)
        if b > _HIGHEST:
            return max(a, b) + 1
        if a.bit_length() * b > _LONGEST:
            raise NapkinError(f"{_said(node)} is too large: numbers here have up to {_LONGEST} binary digits")
        return int(max(a**b, a, b))

    def call(self, node: FunctionCall) -> int:
        return max((a.value_in(self) for a in node.arguments), default=0) + 1

    def refused(self, node: Expression) -> NapkinError:
        return Arrays({}).refused(node)


# -- polynomials ------------------------------------------------------------------------------------------------------


def bound(table: Table, polynomial: Polynomial, maxima: Mapping[str, int]) -> int:
    """An upper bound of the absolute value of every partial sum of a polynomial's numerators, for sizes from 0 to ``maxima``."""
    total = 0
    for number, numerator in polynomial.terms:
        product = abs(numerator)
        for i, power in table.monomials[number]:
            product *= max(maxima[table.names[i]], 1) ** power
        total += product
    return total


class Mesh:
    """The polynomials of a table over a mesh of sizes, each an array that broadcasts with the others.

    A polynomial is split along one axis of the mesh at a time: Σ uᵢ·qᵢ where only the uᵢ vary along it. The qᵢ are evaluated on a mesh with
    one axis less, so the whole mesh takes one product per distinct uᵢ, mostly two.
    """

    def __init__(self, table: Table, values: Mapping[str, Array]) -> None:
        self._table = table
        self.leaves = [self._leaf(name, values) for name in table.names]
        self._extents = [frozenset(d for d, n in enumerate(leaf.shape) if n > 1) for leaf in self.leaves]
        self._size = np.broadcast_shapes(*(leaf.shape for leaf in self.leaves)) if self.leaves else ()
        self.maxima = {name: int(np.abs(leaf).max()) for name, leaf in zip(table.names, self.leaves, strict=True)}
        self._powers: dict[Monomial, Array] = {}
        self._sums: dict[Any, Array] = {}

    @staticmethod
    def _leaf(name: str, values: Mapping[str, Array]) -> Array:
        return values[name] if name in values else evaluate(name, values)

    def __call__(self, polynomial: Polynomial) -> Array:
        """Numerators of the polynomial over ``polynomial.over``, as int64 or as Python's integers where those do not hold them."""
        terms = tuple((self._table.monomials[number], numerator) for number, numerator in polynomial.terms)
        return self._split(terms, widest(bound(self._table, polynomial, self.maxima)))

    def _sum(self, terms: Terms, wide: type) -> Array:
        """The sum of ``terms`` on a part of the mesh, cached because many polynomials share it."""
        groups = self._sums.get((terms, wide))
        if groups is None:
            groups = self._sums[terms, wide] = self._split(terms, wide)
        return groups

    def _split(self, terms: Terms, wide: type) -> Array:
        along = {d for monomial, _ in terms for i, _ in monomial for d in self._extents[i]}
        if not along:
            return np.asarray(sum(self._constant(monomial) * numerator for monomial, numerator in terms), dtype=wide)
        grouped = min((self._grouped(terms, d) for d in sorted(along, key=lambda d: -self._size[d])), key=len)
        total: Array | None = None
        for moving, factors in grouped.items():
            part = self._sum(tuple(factors), wide)
            if moving:
                part = part * self._power(moving, wide)
            total = part if total is None else total + part
        assert total is not None  # there are terms
        return total

    def _grouped(self, terms: Any, direction: int) -> dict[Any, list[Any]]:
        """The terms grouped by their factors that vary along an axis: {varying factors: [(other factors, numerator)]}."""
        groups: dict[Any, list[Any]] = {}
        for monomial, numerator in terms:
            moving = tuple(f for f in monomial if direction in self._extents[f[0]])
            still = tuple(f for f in monomial if direction not in self._extents[f[0]])
            groups.setdefault(moving, []).append((still, numerator))
        return groups

    def _constant(self, monomial: Monomial) -> int:
        product = 1
        for i, power in monomial:
            product *= int(self.leaves[i].flat[0]) ** power
        return product

    def _power(self, factors: Monomial, wide: type) -> Array:
        """A product of powers, cached: a product of more factors reuses those of fewer."""
        product = self._powers.get((*factors, (-1, int(wide is object))))
        if product is None:
            (i, power), preceding = factors[-1], factors[:-1]
            leaf: Array = self.leaves[i].astype(wide, copy=False)
            before = (*preceding, (i, power - 1)) if power > 1 else preceding
            product = self._power(before, wide) * leaf if before else leaf
            self._powers[*factors, (-1, int(wide is object))] = product
        return product
