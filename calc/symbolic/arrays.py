"""Exact arithmetic on arrays of sizes: the texts that ``calc.symbolic.exact`` evaluates at one point, over many at once.

Integers are 64 bits wide while no value on the way can leave them, which is known before from the largest sizes; else they are
Python's own, slower and of any length. So an overflow is not met, but foreseen.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from calc.errors import NapkinError
from calc.symbolic import exact
from calc.symbolic.exact import FUNCTIONS, parsed
from calc.symbolic.polynomials import Monomial, Polynomial, Table

Array = npt.NDArray[Any]
Terms = tuple[tuple[Monomial, int], ...]
LIMIT = 2**63
_LONGEST = 4096
_HIGHEST = 64


class UnevenError(NapkinError):
    """A quotient is no integer at some of the points."""


def widest(largest: int) -> type:
    """The type of integers none of which is beyond ``largest`` in size."""
    return np.int64 if largest < LIMIT else object


def evaluate(text: str, values: Mapping[str, Array]) -> Array:
    """The value of an expression of sizes at every point. Arrays of sizes broadcast; a quotient by ``/`` must be an integer at all."""
    tree = parsed(text)
    wide = widest(_magnitude(tree, {name: int(array.max()) for name, array in values.items()}))
    return _evaluate(tree, {name: array.astype(wide, copy=False) for name, array in values.items()})


def holds(text: str, values: Mapping[str, Array]) -> Array:
    """Whether a condition holds, at every point."""
    return _holds(parsed(text), values)


def side(text: str, values: Mapping[str, Array]) -> Array | None:
    """On which side of an inequality each point lies: −1, 0 where both sides are equal, or 1. Nothing of another condition."""
    match parsed(text):
        case ast.Compare(ops=[ast.Lt() | ast.Gt() | ast.LtE() | ast.GtE()]) as node if _of_doubles(node):
            return _one_by_one(exact.side, node, values)
        case ast.Compare(left=left, ops=[ast.Lt() | ast.Gt() | ast.LtE() | ast.GtE()], comparators=[right]):
            a, b = _both(left, right, values)
            return np.greater(a, b).astype(np.int8) - np.less(a, b).astype(np.int8)
    return None


def _evaluate(node: ast.expr, values: Mapping[str, Array]) -> Array:
    match node:
        case ast.Constant(value=int() as number):
            return np.asarray(number, dtype=widest(abs(number)))
        case ast.Name(id=name):
            if name not in values:
                raise NapkinError(f"the expression mentions {name[:40]!r}, which is no size here: there are {', '.join(values)}")
            return values[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate(operand, values)
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int() as power)):
            if power > _HIGHEST:
                raise NapkinError(f"{ast.unparse(node)[:60]} has a power above {_HIGHEST}: write one up to that")
            return np.asarray(_evaluate(left, values) ** power)
        case ast.BinOp(left=left, op=op, right=right):
            return _combined(_evaluate(left, values), op, _evaluate(right, values), node)
        case ast.Call(func=ast.Name(id="ceiling"), args=[ast.Call(func=ast.Name(id="log"), args=[size, ast.Constant(value=2)])]):
            return _log2_ceiling(_evaluate(size, values))
        case ast.Call(func=ast.Name(id="floor" | "ceiling" as function), args=[ast.BinOp(left=left, op=ast.Div(), right=right)]):
            a, b = _evaluate(left, values), _divisor(_evaluate(right, values), node)
            return a // b if function == "floor" else -(-a // b)
        case ast.Call(func=ast.Name(id=function), args=args) if function in FUNCTIONS and args:
            return _called(function, [_evaluate(a, values) for a in args], node)
    raise NapkinError(f"cannot read {ast.unparse(node)[:60]!r}: write it with + - * / // % ** and {', '.join(FUNCTIONS)}")


def _combined(a: Array, op: ast.operator, b: Array, node: ast.expr) -> Array:
    match op:
        case ast.Add():
            return a + b
        case ast.Sub():
            return a - b
        case ast.Mult():
            return a * b
        case ast.FloorDiv():
            return a // _divisor(b, node)
        case ast.Mod():
            return a % _divisor(b, node)
        case ast.Div():
            if np.any(a % _divisor(b, node)):
                said = ast.unparse(node)[:60]
                raise UnevenError(f"{said} is no integer at all points: write // or ceiling(…), or choose sizes that divide")
            return a // b
    raise NapkinError(f"cannot read {ast.unparse(node)[:60]!r}: write it with + - * / // % ** and {', '.join(FUNCTIONS)}")


def _divisor(b: Array, node: ast.expr) -> Array:
    if not np.all(b):
        raise NapkinError(f"{ast.unparse(node)[:60]} divides by 0 at some of the points")
    return b


def _called(function: str, args: Sequence[Array], node: ast.expr) -> Array:
    match function, args:
        case "Max", [first, *rest]:
            for array in rest:
                first = np.maximum(first, array)
            return first
        case "Min", [first, *rest]:
            for array in rest:
                first = np.minimum(first, array)
            return first
        case "Mod", [a, b]:
            return a % _divisor(b, node)
        case "floor" | "ceiling", [whole]:
            return whole
    raise NapkinError(f"cannot read {ast.unparse(node)[:60]!r}: it has {len(args)} arguments")


def _log2_ceiling(a: Array) -> Array:
    """⌈log₂ n⌉: how often 1 is doubled until n is reached."""
    return np.asarray(np.vectorize(lambda n: (int(n) - 1).bit_length(), otypes=[np.int64])(a))


def _both(left: ast.expr, right: ast.expr, values: Mapping[str, Array]) -> tuple[Array, Array]:
    used = {node.id for side in (left, right) for node in ast.walk(side) if isinstance(node, ast.Name)}
    used_values = {name: array for name, array in values.items() if name in used}
    maxima = {name: int(array.max()) for name, array in used_values.items()}
    wide = widest(max(_magnitude(left, maxima), _magnitude(right, maxima)))
    used_values = {name: array.astype(wide, copy=False) for name, array in used_values.items()}
    return _evaluate(left, used_values), _evaluate(right, used_values)


_COMPARE: dict[type[ast.cmpop], Any] = {
    ast.Eq: np.equal, ast.NotEq: np.not_equal, ast.Lt: np.less, ast.LtE: np.less_equal, ast.Gt: np.greater, ast.GtE: np.greater_equal,
}  # fmt: skip


def _of_doubles(node: ast.expr) -> bool:
    return any(isinstance(part, ast.Name) and part.id in exact.DOUBLES for part in ast.walk(node))


def _one_by_one(answer: Callable[[str, Mapping[str, int]], int | None], node: ast.expr, values: Mapping[str, Array]) -> Array:
    """What is asked of doubles, point after point in Python's own arithmetic: NumPy's differs from it in the last bit of a logarithm."""
    text = ast.unparse(node)
    names = [name for name in values if any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(node))]
    at = np.vectorize(lambda *sizes: answer(text, dict(zip(names, map(int, sizes), strict=True))), otypes=[np.int8])
    return np.asarray(at(*(values[name] for name in names)))


def _holds(node: ast.expr, values: Mapping[str, Array]) -> Array:
    match node:
        case ast.Compare() if _of_doubles(node):
            return _one_by_one(exact.holds, node, values).astype(bool)
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return np.asarray(_COMPARE[type(op)](*_both(left, right, values)), dtype=bool)
        case ast.BoolOp(op=ast.And() | ast.Or() as op, values=parts):
            truths = [_holds(part, values) for part in parts]
            return np.asarray((np.logical_and if isinstance(op, ast.And) else np.logical_or).reduce(np.broadcast_arrays(*truths)))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return ~_holds(operand, values)
    raise NapkinError(f"cannot read the condition {ast.unparse(node)[:60]!r}")


def _magnitude(node: ast.expr, maxima: Mapping[str, int]) -> int:
    """A bound of the size of every value on the way, at sizes from 0 to ``maxima``."""
    match node:
        case ast.Constant(value=int() as number):
            return abs(number)
        case ast.Name(id=name):
            return maxima.get(name, 0)
        case ast.UnaryOp(operand=operand):
            return _magnitude(operand, maxima)
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _magnitude(left, maxima), _magnitude(right, maxima)
            match op:
                case ast.Add() | ast.Sub():
                    return a + b
                case ast.Mult():
                    return max(a * b, a, b)
                case ast.Pow() if b <= _HIGHEST:
                    if a.bit_length() * b > _LONGEST:
                        raise NapkinError(f"{ast.unparse(node)[:60]} is too large: numbers here have up to {_LONGEST} binary digits")
                    return int(max(a**b, a, b))
            return max(a, b) + 1
        case ast.Call(args=args):
            return max((_magnitude(a, maxima) for a in args), default=0) + 1
    return LIMIT


# -- polynomials ------------------------------------------------------------------------------------------------------


def bound(table: Table, polynomial: Polynomial, maxima: Mapping[str, int]) -> int:
    """What no partial sum of a polynomial can exceed in size, where no size is below 0 or above ``maxima``."""
    total = 0
    for number, numerator in polynomial.terms:
        product = abs(numerator)
        for i, power in table.monomials[number]:
            product *= max(maxima[table.names[i]], 1) ** power
        total += product
    return total


class Mesh:
    """The polynomials of a table over a mesh of sizes, each an array that broadcasts with the others.

    A polynomial is split by one direction of the mesh at a time: Σ uᵢ·qᵢ where only the uᵢ change along it. The qᵢ are then worked out
    on a mesh of one direction less, and of the whole mesh there are as many products as there are different uᵢ, mostly two.
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
        """A sum on a part of the mesh, which many polynomials share."""
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
        for moving, rest in grouped.items():
            part = self._sum(tuple(rest), wide)
            if moving:
                part = part * self._power(moving, wide)
            total = part if total is None else total + part
        assert total is not None  # there are terms
        return total

    def _grouped(self, terms: Any, direction: int) -> dict[Any, list[Any]]:
        """The terms by what of them moves along a direction."""
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
        """A product of powers. One of fewer factors is part of one of more, and is worked out once."""
        product = self._powers.get((*factors, (-1, int(wide is object))))
        if product is None:
            (i, power), rest = factors[-1], factors[:-1]
            leaf: Array = self.leaves[i].astype(wide, copy=False)
            before = (*rest, (i, power - 1)) if power > 1 else rest
            product = self._power(before, wide) * leaf if before else leaf
            self._powers[*factors, (-1, int(wide is object))] = product
        return product
