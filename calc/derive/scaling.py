"""The FLOPs of a step along one size: matrix multiplications by the power of it with which they grow, and elementwise arithmetic.

A closed form is a sum of terms, so the power of a size in each matrix multiplication can be read off. The parts are evaluated term by term
at other sizes and must add up to the derivation's own value there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from calc.derive.quantities import absent
from calc.derive.result import Derivation, Quantity
from calc.errors import NapkinError
from calc.graph.folds import named_quotient
from calc.graph.guards import follows
from calc.symbolic import branches
from calc.symbolic.algebra import Algebra
from calc.symbolic.evaluation import Arithmetic, ByName
from calc.symbolic.exact import evaluate_text
from calc.symbolic.expression import (
    Expression,
    FloorQuotient,
    FunctionCall,
    Negative,
    Number,
    Power,
    Product,
    Quotient,
    Remainder,
    Sum,
    names,
)
from calc.symbolic.parser import free_names, parse
from calc.symbolic.search import last
from calc.symbolic.writer import as_text

PRODUCTS = ("flops.forward.matmul", "flops.backward.matmul", "flops.optimizer.matmul")
ELEMENTWISE = ("flops.forward.elementwise", "flops.backward.elementwise", "flops.optimizer.elementwise")
TOTAL = "flops.step.total"
AROUND = 4  # doublings and halvings around the derivation's size
FARTHEST = 12  # further doublings, if the crossover is there
FEWEST = 3  # sizes that make a curve

Terms = list[tuple[Fraction, dict[str, int]]]
Read = dict[str, Terms]
"""Texts of closed forms with their addends: a coefficient and the power of each size."""

Part = int | None
"""The power of the size with which products grow; ``None`` is elementwise arithmetic, which is not split."""


@dataclass(frozen=True, slots=True)
class ScalingPoint:
    """FLOPs of each part at one size."""

    size: int
    values: Mapping[Part, int]

    @property
    def total(self) -> int:
        return sum(self.values.values())


@dataclass(frozen=True, slots=True)
class FlopsByPart:
    """A step's FLOPs by part along ``dim``, which is ``size`` in the derivation. ``because`` says why there are no ``points``.

    From ``crossover`` on, matrix multiplications of the highest power are at least all others; ``None`` where that is nowhere, or not known
    exactly. ``module_paths`` are where they run. ``raised`` are limits of the size (a model's maximum positions) which are raised with it
    where it would exceed them; at the ``refused`` sizes the closed forms do not hold.
    """

    dim: str = ""
    size: int = 0
    points: tuple[ScalingPoint, ...] = ()
    crossover: int | None = None
    module_paths: tuple[str, ...] = ()
    raised: tuple[str, ...] = ()
    refused: tuple[int, ...] = ()
    because: str = ""

    @property
    def parts(self) -> tuple[Part, ...]:
        """The nonzero parts: matrix multiplications by decreasing power, then elementwise arithmetic."""
        nonzero = {part for point in self.points for part, value in point.values.items() if value}
        return (*sorted((p for p in nonzero if p is not None), reverse=True), *([None] if None in nonzero else []))

    @property
    def at_hand(self) -> ScalingPoint:
        """The point at the derivation's own size."""
        return next(point for point in self.points if point.size == self.size)


def flops_by_degree(derivation: Derivation) -> FlopsByPart:
    """FLOPs along T where matrix multiplications grow with it, else along the first size in which some are quadratic, else along B."""
    free = [dim.name for dim in derivation.dims if not dim.tied and dim.name not in derivation.specialized]
    read: Read = {}
    because = ""
    for least, sizes in ((1, ["T"]), (2, free), (1, ["B"])):
        for name in sizes:
            try:
                line = _Line(derivation, name, read) if name in free else None
                if line is not None and line.highest >= least:
                    return line.split()
            except NapkinError as error:
                because = because or str(error)
    return FlopsByPart(because=because or "no matrix multiplication grows with T, with the square of a size, or with B")


def _stated(derivation: Derivation, names: Iterable[str]) -> list[Quantity]:
    """Those quantities that the step has. Raises for one without a closed form, since the parts would not add up to the total."""
    quantities = [derivation.quantities[n] for n in names if n in derivation.quantities and not absent(n, derivation.options)]
    for quantity in quantities:
        if quantity.text is None or quantity._evaluator is None:
            raise NapkinError(f"{quantity.name} is unknown: {quantity.unknown or 'it was not derived here'}")
    return quantities


class _Line:
    """A derivation along one of its sizes. ``highest`` is the largest power of it in a matrix multiplication."""

    def __init__(self, derivation: Derivation, name: str, read: Read) -> None:
        self.derivation, self.name, self._read = derivation, name, read
        self._dims = {dim.name: dim for dim in derivation.dims}
        self._powers: dict[str, int] = {}
        self._products, self._rest = _stated(derivation, PRODUCTS), _stated(derivation, ELEMENTWISE)
        self._total = _stated(derivation, [TOTAL])
        if not self._products or not self._total:
            raise NapkinError("this derivation states no matrix multiplications, or no total")
        terms = [powers for quantity in self._products for _, powers in self._terms(quantity, derivation.sizes)]
        self.highest = max((self._power(powers) for powers in terms), default=0)

    # -- along the size ----------------------------------------------------------------------------------------------

    def split(self) -> FlopsByPart:
        points_by_size: dict[int, ScalingPoint] = {}
        refused: dict[int, str] = {}
        current, crossover = self.derivation.sizes[self.name], self._crossover()
        for size in self._drawn(current, crossover):
            try:
                points_by_size[size] = self._point(size)
            except NapkinError as error:
                if size == current:
                    raise
                refused[size] = str(error)
        if len(points_by_size) < FEWEST:
            first = next(iter(refused.items()), (current, "there is nothing smaller"))
            return FlopsByPart(because=f"the closed forms hold at too few other sizes; at {self.name} = {first[0]:,}: {first[1]}")
        points = tuple(points_by_size[size] for size in sorted(points_by_size))
        limit = self._limit
        raised = (limit,) if limit and points[-1].size > self.derivation.sizes[limit] else ()
        if crossover is not None and (crossover not in points_by_size or not self._larger(points_by_size[crossover])):
            crossover = None
        return FlopsByPart(self.name, current, points, crossover, self._steepest(), raised, tuple(refused))

    def _larger(self, point: ScalingPoint) -> bool:
        """Whether matrix multiplications of the highest power are at least the others there; a raised limit may have changed those."""
        products = {part: value for part, value in point.values.items() if part is not None}
        return 2 * products[self.highest] >= sum(products.values())

    def _drawn(self, current: int, crossover: int | None) -> list[int]:
        """The sizes of the curve: halvings and doublings of the derivation's size, multiples of its declared divisor, and the crossover."""
        unit = self._unit
        up = AROUND
        while crossover is not None and current * 2**up < crossover and up < FARTHEST:
            up += 1
        drawn = {current * 2**i for i in range(up + 1)} | {current // 2**i // unit * unit for i in range(1, AROUND + 1)}
        if crossover is not None and crossover <= current * 2**up:
            drawn |= {crossover}
        return sorted(size for size in drawn if size > 0)

    @property
    def _unit(self) -> int:
        unit = self._dims[self.name].multiple_of
        return self.derivation.sizes[unit] if isinstance(unit, str) else unit or 1

    @property
    def _limit(self) -> str:
        """The free dimension that bounds this one, or an empty text."""
        limit = self._dims[self.name].at_most
        return limit if limit in self._dims and not self._dims[limit].tied else ""

    def _given(self, size: int) -> dict[str, int]:
        limit = self._limit
        return {self.name: size, **({limit: size} if limit and size > self.derivation.sizes[limit] else {})}

    def _point(self, size: int) -> ScalingPoint:
        (total,) = self._total
        assert total._evaluator is not None  # as stated
        sizes, values = total._evaluator.sizes(self._given(size)), dict[Part, int]()
        if not total._evaluator.holds(sizes):
            raise NapkinError("the step runs other operators there")
        for quantities, split in ((self._products, True), (self._rest, False)):
            for quantity in quantities:
                assert quantity._evaluator is not None  # as stated
                parts: dict[Part, Fraction] = {}
                for coefficient, powers in self._terms(quantity, sizes):
                    part = self._power(powers) if split else None
                    parts[part] = parts.get(part, Fraction(0)) + self._value(coefficient, powers, sizes)
                if sum(parts.values()) != quantity._evaluator.own.value(sizes) or any(v.denominator != 1 for v in parts.values()):
                    raise NapkinError(f"the parts of {quantity.name} are not whole, or do not add up to it, at {self.name} = {size:,}")
                for part, value in parts.items():
                    values[part] = values.get(part, 0) + int(value)
        if sum(values.values()) != total._evaluator.own.value(sizes):
            raise NapkinError(f"matrix multiplications and elementwise arithmetic do not add up to {TOTAL} at {self.name} = {size:,}")
        return ScalingPoint(size, values)

    def _steepest(self) -> tuple[str, ...]:
        """The module paths of matrix multiplications of the highest power."""
        module_paths: dict[str, None] = {}
        for quantity in self._products:
            for term in quantity.terms:
                powers = [self._power(powers) for _, powers in self._read_at(term.expr, self.derivation.sizes)]
                if self.highest in powers:
                    module_paths[term.module_path] = None
        return tuple(module_paths)

    # -- terms ---------------------------------------------------------------------------------------------------------

    def _terms(self, quantity: Quantity, sizes: Mapping[str, int]) -> Terms:
        """The addends of a quantity in the case that is in force at ``sizes``."""
        return self._read_at(quantity.text or "", sizes)

    def _read_at(self, text: str, sizes: Mapping[str, int]) -> Terms:
        text = branches.at_hand(text, sizes)
        if text not in self._read:
            algebra = Algebra(sorted(free_names(text)), [text])
            self._read[text] = algebra.terms(algebra.parse(text))
        return self._read[text]

    def _value(self, coefficient: Fraction, powers: Mapping[str, int], sizes: Mapping[str, int | Fraction]) -> Fraction:
        product = coefficient
        for name, power in powers.items():
            product *= self._factor(name, sizes) ** power
        return product

    def _factor(self, name: str, sizes: Mapping[str, int | Fraction]) -> Fraction:
        if name in sizes:
            return Fraction(sizes[name])
        try:
            return evaluate_text(_quotient(name), sizes)  # type: ignore[arg-type]  # fractions add and multiply like integers
        except KeyError:
            raise NapkinError(f"{name} is not a size of this derivation") from None

    def _power(self, powers: Mapping[str, int]) -> int:
        """The power of the size in a term."""
        return sum(power * self.growth(name) for name, power in powers.items())

    def growth(self, name: str) -> int:
        """The power of the size in a dimension or named quotient. Dimensions whose default depends on the size grow with it."""
        if name == self.name:
            return 1
        if name not in self._powers:
            made_of = self._followed(name) if name in self._dims else _quotient(name)
            alone = name.isidentifier() and made_of in ("", name)
            self._powers[name] = 0 if alone else parse(made_of).value_in(_Growth(self))
        return self._powers[name]

    def moves(self, name: str) -> bool:
        """Whether a dimension grows with the size."""
        return name in self._dims and bool(self.growth(name))

    def _followed(self, name: str) -> str:
        dim = self._dims[name]
        return dim.expr or "" if follows(dim, self.derivation.sizes) else ""

    # -- where the highest power is the larger -------------------------------------------------------------------------

    def _crossover(self) -> int | None:
        """The first size from which matrix multiplications of the highest power are at least the others together.

        Exact where every term is a power of the size times constants and no power's sum is negative: then the two sides cross once.
        """
        if self.highest < 2:
            return None
        at_one = self._fractions_at(Fraction(1))
        by_degree: dict[int, Fraction] = {}
        for quantity in self._products:
            for coefficient, powers in self._terms(quantity, self.derivation.sizes):
                power, value = self._power(powers), self._value(coefficient, powers, at_one)
                if self._value(coefficient, powers, self._fractions_at(Fraction(2))) != value * 2**power:
                    return None
                by_degree[power] = by_degree.get(power, Fraction(0)) + value
        fast = by_degree.pop(self.highest)
        if fast <= 0 or min(by_degree.values(), default=Fraction(0)) < 0 or not any(by_degree.values()):
            return None
        unit, low, high = self._unit, 0, 1
        while not self._over(high * unit, fast, by_degree):
            low, high = high, 2 * high
            if high > 2**40:
                return None
        return last(lambda n: self._over(n * unit, fast, by_degree), high, low) * unit

    def _over(self, size: int, fast: Fraction, slow: Mapping[int, Fraction]) -> bool:
        return bool(fast * size**self.highest >= sum(value * size**power for power, value in slow.items()))

    def _fractions_at(self, size: Fraction) -> dict[str, int | Fraction]:
        """All sizes with this one at ``size``, and those that follow it, integral or not."""
        values: dict[str, int | Fraction] = {n: v for n, v in self.derivation.sizes.items() if not self.growth(n)} | {self.name: size}
        moving = [n for n in self._dims if n not in values]
        while moving:
            ready = [n for n in moving if all(m in values for m in free_names(self._followed(n)))]
            if not ready:
                raise NapkinError(f"{', '.join(moving)} follow one another")
            for n in ready:
                values[n] = evaluate_text(self._followed(n), values)  # type: ignore[arg-type]  # as above
            moving = [n for n in moving if n not in values]
        return values


class _Growth(Arithmetic[int]):
    """Evaluates an expression to the power with which it grows along a line."""

    def __init__(self, line: _Line) -> None:
        self.values, self._line = ByName(line.growth), line

    def number(self, node: Number) -> int:
        return 0

    def negative(self, node: Negative) -> int:
        return node.body.value_in(self)

    def sum(self, node: Sum) -> int:
        return max(term.value_in(self) for term in node.terms)

    def product(self, node: Product) -> int:
        return sum(factor.value_in(self) for factor in node.factors)

    def power(self, node: Power) -> int:
        match node.exponent:
            case Number(int() as power):
                return node.base.value_in(self) * power
        return self._still(node)

    def quotient(self, node: Quotient | FloorQuotient) -> int:
        return self._still(node) if node.bottom.value_in(self) else node.top.value_in(self)

    floor_quotient = quotient

    def remainder(self, node: Remainder) -> int:
        return self._still(node)

    def call(self, node: FunctionCall) -> int:
        match node:
            case FunctionCall("floor" | "ceiling", (inner,)) if not isinstance(inner, FunctionCall):
                return inner.value_in(self)
        return self._still(node)

    def _still(self, node: Expression) -> int:
        """Zero for an expression without the size; raises for any other."""
        if any(self._line.moves(name) for name in names(node)):
            raise NapkinError(f"{as_text(node, spaced=True)[:60]} grows with no power of {self._line.name}")
        return 0


def _quotient(name: str) -> str:
    """``d_per_h`` as ``d/h``: a quotient named in the trace."""
    quotient = named_quotient(name)
    return as_text(quotient) if quotient else name
