"""Steps: the derivation of each closed form, from single operators through modules and layers to the total.

A step is made together with its check: its two sides are compared as polynomials, so an incorrect step cannot be made.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

from calc.derive import peak_roles
from calc.derive.analysis import Analysis
from calc.derive.loops import Group
from calc.derive.names import PeakPlace, StepPlace, WorkKind
from calc.derive.peak import PeakCandidate, place_of
from calc.derive.quantities import QUANTITIES
from calc.derive.reasons import Reasons
from calc.derive.result import PARTS, SUBSTITUTION, Step, StepCheck, StepReason
from calc.errors import NapkinError
from calc.graph.step import bare_name
from calc.symbolic import tree as display
from calc.symbolic.algebra import Algebra, Poly
from calc.symbolic.expression import Expression, Labelled, Number, OverLayers, Product, Sum, names
from calc.symbolic.readable import readable

_HOLDS = StepCheck("symbolic", "holds")


def tree(algebra: Algebra, poly: Poly, counts: Collection[str] = ()) -> Expression:
    """A collected polynomial as a display tree, terms in ring order; ``counts`` are the dimensions that count layers."""
    terms = tuple(display.monomial_tree(c, powers) for c, powers in algebra.terms(poly))
    return display.factored(terms[0] if len(terms) == 1 else Sum(terms) if terms else Number(0), counts)


@dataclass
class StepMaker:
    """Makes the steps of one derivation. Its polynomials are in basis symbols; steps show the model's dimensions."""

    analysis: Analysis
    sizes: Mapping[str, int]
    steps: list[Step] = field(default_factory=list)
    _counts: dict[str, Poly] = field(default_factory=dict)
    _trees: dict[Poly, Expression] = field(default_factory=dict)
    _later: list[tuple[str, Callable[..., None], tuple[Any, ...]]] = field(default_factory=list)

    def later(self, quantity: str, make: Callable[..., None], *parts: Any) -> None:
        """Note the method that makes the steps of ``quantity`` of these parts: not every derivation shows them."""
        self._later.append((quantity, make, parts))

    def made(self, quantities: Collection[str]) -> list[Step]:
        """The steps of these quantities, made now."""
        for quantity, make, parts in self._later:
            if quantity in quantities:
                make(self, quantity, *parts)
        self._later = [note for note in self._later if note[0] not in quantities]
        return self.steps

    # -- one step -------------------------------------------------------------------------------------------------

    def make(self, quantity: str, place: StepPlace | PeakPlace, before: Expression, after: Poly, why: StepReason) -> Expression:
        """Append ``before = after``; where that needs a defining equation of a dimension, a substitution step follows.

        ``after`` is the polynomial in basis symbols. Returns the collected tree.
        """
        folded = self.analysis.fold(after)
        collected = self._tree(folded)
        value = self._outer_value(before)
        direct = collected if value == folded else self._tree(value)
        self._append(quantity, place, (before, direct), why)
        if value != folded:
            if self._inner_value(direct) != after:
                raise NapkinError(f"internal error: the step {str(place)!r} of {quantity} does not hold; please report it")
            self._append(quantity, place, (direct, collected), StepReason(SUBSTITUTION, self._definitions(direct, collected)))
        return collected

    def _tree(self, folded: Poly) -> Expression:
        if folded not in self._trees:
            self._trees[folded] = tree(self.analysis.fold.outer, folded, self._trip_counts)
        return self._trees[folded]

    @cached_property
    def _trip_counts(self) -> tuple[str, ...]:
        return self.analysis.graph.trip_counts

    def _definitions(self, before: Expression, after: Expression) -> str:
        """Why a substitution holds: the definitions of the dimensions that are quotients, as far as it replaces them."""
        replaced = {*names(before)} ^ {*names(after)}
        folds = [f for f in self.analysis.graph.folds if f.quotient in self.sizes]
        used = [f"{f.whole} = {f.part}·{f.quotient}" for f in folds if not replaced.isdisjoint((f.whole, f.part, f.quotient))]
        return f"by definition {' and '.join(used)}" if used else "by the definition of the dimensions"

    def _append(
        self,
        quantity: str,
        place: StepPlace | PeakPlace,
        sides: tuple[Expression, Expression],
        why: StepReason,
        check: StepCheck = _HOLDS,
    ) -> None:
        number, (before, after) = len(self.steps) + 1, sides
        value = int(display.value(after, self._size))
        self.steps.append(Step(f"step-{number}", quantity, place, why.rule, before, after, why.because, check, value, why.operators))

    @cached_property
    def _size(self) -> Callable[[str], Any]:
        """The value of a name in a formula at the sizes of the derivation."""
        outer, sizes = self.analysis.fold.outer, self.sizes
        values = {**self.analysis.graph.as_basis().values(sizes), **sizes}
        return cache(lambda name: sizes[name] if name in sizes else outer.value(outer.gen(name), values))

    def _outer_value(self, before: Expression) -> Poly:
        outer = self.analysis.fold.outer
        return outer.constant(1) * display.value(before, outer.gen)

    def _inner_value(self, before: Expression) -> Poly:
        algebra, define = self.analysis.algebra, self.analysis.graph.basis
        in_basis = self.analysis.fold.in_basis
        return algebra.constant(1) * display.value(before, lambda n: algebra.parse(define[n]) if n in define else algebra.gen(in_basis(n)))

    # -- counted quantities -----------------------------------------------------------------------------------------

    def count(self, quantity: str, groups: Sequence[Group]) -> None:
        """Steps of a quantity that is a sum over operators or tensors."""
        root = _ModuleNode("")
        loose: dict[tuple[str, Poly, bool], list[Group]] = {}
        for g in groups:
            instances = self._instances(g.module_path)
            times = _integer_ratio(g.times, instances)
            if times is None:
                loose.setdefault((g.module_path, g.times, g.work is not None), []).append(g)
            else:
                root.at(g.module_path).add(g, times)
        parts = [self._loose(quantity, alike) for alike in loose.values()]
        parts += self._parts(quantity, root)
        because = QUANTITIES[quantity].because
        if not parts:
            because = f"no operator or tensor of the step belongs to the {QUANTITIES[quantity].meaning}"
        self._sum(quantity, StepPlace(quantity, "total"), parts, StepReason("sum", because))

    def _instances(self, module_path: str) -> Poly:
        result = self.analysis.algebra.constant(1)
        parts = module_path.split(".")
        for i, part in enumerate(parts):
            if part == "*":
                result *= self._children(".".join(parts[:i]))
        return result

    def _children(self, prefix: str) -> Poly:
        """Number of children of a looped container, in the trip counts."""
        count = self._counts.get(prefix)
        if count is None:
            count = self._counts[prefix] = self._counted_children(prefix)
        return count

    def _counted_children(self, prefix: str) -> Poly:
        unit = self.analysis.algebra.constant(1)
        counts = [
            unit
            * max(
                (n for p, n in self.analysis.module_paths.instances(r).items() if self.analysis.module_paths.general(p) == prefix),
                default=0,
            )
            for r in self.analysis.graph.traces
        ]
        return self.analysis.interpolate(counts)

    def _parts(self, quantity: str, node: _ModuleNode) -> list[_Part]:
        """The contributions of a module's own operators and of each submodule, with their steps."""
        parts: list[_Part] = []
        for name, child in node.children.items():
            if child is None:
                parts.append(self._own(quantity, node))
                continue
            below = self._parts(quantity, child)
            if name == "*":
                parts.append(self._over_layers(quantity, node.path, child.path, below))
            elif len(below) == 1:
                parts += below
            else:
                why = StepReason(PARTS, f"the parts of {child.path} are disjoint, so they add")
                parts.append(self._sum(quantity, StepPlace(child.path), below, why))
        return parts

    def _own(self, quantity: str, node: _ModuleNode) -> _Part:
        terms = tuple(_labelled(self._product(times, g), g) for g, times in node.own)
        total = _add([g.each * times for g, times in node.own], self.analysis.algebra)
        rules = list(dict.fromkeys(g.rule for g, _ in node.own))
        rule = rules[0] if len(rules) == 1 else "sum over operators"
        before = terms[0] if len(terms) == 1 else Sum(terms)
        operators = tuple(dict.fromkeys(g.rule for g, _ in node.own if g.work is not None))
        why = StepReason(rule, self._reasons.of(quantity, [g for g, _ in node.own]), operators)
        shown = self.make(quantity, StepPlace(node.path), before, total, why)
        return _Part(node.path, shown, total)

    def _loose(self, quantity: str, groups: Sequence[Group]) -> _Part:
        """Groups whose number is not a multiple of their module's: they run in some layers only, or in every iteration of a loop."""
        path, operators = groups[0].module_path, groups[0].work is not None
        number = self._tree(self.analysis.fold(groups[0].times))
        terms = tuple(_labelled(Product((number, *self._factors(g.factors))), g) for g in groups)
        rules = list(dict.fromkeys(g.rule for g in groups))
        total = _add([g.total for g in groups], self.analysis.algebra)
        count = readable(number)
        because = f"{self._reasons.of(quantity, groups)}; {_how_often(count, len(rules), operators)}"
        why = StepReason(rules[0] if len(rules) == 1 else "sum over operators", because, tuple(rules) if operators else ())
        shown = self.make(quantity, StepPlace(path), terms[0] if len(terms) == 1 else Sum(terms), total, why)
        plural = "" if count == "1" else "s"
        of = bare_name(rules[0]) if len(rules) == 1 else "each operator"
        return _Part(f"{path}, {count} {f'call{plural} of {of}' if operators else f'tensor{plural} in all'}", shown, total)

    def _over_layers(self, quantity: str, prefix: str, path: str, below: Sequence[_Part]) -> _Part:
        disjoint = StepReason(PARTS, "the parts of a layer are disjoint, so they add")
        layer = self._sum(quantity, StepPlace(path, "one layer"), below, disjoint) if len(below) > 1 else below[0]
        number = self._children(prefix)
        upper = self._tree(self.analysis.fold(number))
        total = layer.poly * number
        before = OverLayers("l", upper, layer.shown)
        equal = StepReason("sum over layers", "the layers are equal, so the sum is their number times one layer")
        shown = self.make(quantity, StepPlace(prefix, "all layers"), before, total, equal)
        return _Part(prefix, shown, total)

    def _sum(self, quantity: str, place: StepPlace, parts: Sequence[_Part], why: StepReason) -> _Part:
        terms = tuple(Labelled(p.shown, p.name) for p in parts)
        total = _add([p.poly for p in parts], self.analysis.algebra)
        before: Expression = Sum(terms) if terms else Number(0)
        return _Part(str(place), self.make(quantity, place, before, total, why), total)

    def _product(self, times: int, g: Group) -> Expression:
        factors = self._factors(g.factors)
        if times != 1:
            factors = (Number(times), *factors)
        return factors[0] if len(factors) == 1 else Product(factors)

    def _factors(self, factors: Sequence[Any]) -> tuple[Expression, ...]:
        return tuple(self._factor(factor) for factor in factors) or (Number(1),)

    def _factor(self, factor: Any) -> Expression:
        """A number, a polynomial, or a tuple of products that are added."""
        if isinstance(factor, tuple):
            return Sum(tuple(Product(self._factors(product)) for product in factor))
        return Number(factor) if isinstance(factor, int) else self._tree(self.analysis.fold(factor))

    @property
    def _reasons(self) -> Reasons:
        return Reasons(self.analysis.registry, self.analysis.graph.options.get("optimizer", ""), self._factor)

    # -- composed quantities and peaks --------------------------------------------------------------------------------

    def combine(self, quantity: str, parts: Sequence[tuple[str, Poly]], because: str) -> None:
        """A quantity that is the sum of others."""
        addends = [_Part(n, self._tree(self.analysis.fold(p)), p) for n, p in parts]
        self._sum(quantity, StepPlace(quantity), addends, StepReason("sum", because))

    def peak(self, quantity: str, peaks: Sequence[PeakCandidate]) -> None:
        """Each peak candidate from its parts, then their maximum."""
        sums: list[Expression] = []
        for peak, because in zip(peaks, peak_roles.reasons(self.analysis, peaks), strict=True):
            parts = {role: p for role, p in peak.parts.items() if p != 0}
            before = Sum(tuple(Labelled(self._tree(self.analysis.fold(p)), role) for role, p in parts.items()))
            sums.append(before)
            self.make(quantity, place_of(peak), before, peak.live, StepReason(_BY_ROLE, because))
        if len(peaks) > 1:
            collected = display.maximum(self._tree(self.analysis.fold(p.live)) for p in peaks)
            equal = all(self._inner_value(before) == peak.live for before, peak in zip(sums, peaks, strict=True))
            check = _HOLDS if equal else self._at_random_points(display.maximum(sums), collected)
            sides = display.maximum(sums), collected
            self._append(quantity, StepPlace(quantity, "maximum"), sides, StepReason("maximum", _DOMINANCE), check)

    def _at_random_points(self, before: Expression, after: Expression) -> StepCheck:
        """Evaluate both sides exactly at five random sizes: ``Max`` is not a polynomial."""
        points = [*itertools.islice(self._random_points(), _POINTS)]
        for at in points:
            if display.value(before, at.__getitem__) != display.value(after, at.__getitem__):
                raise NapkinError("internal error: a maximum does not hold at random sizes; please report it")
        return StepCheck("random points", f"holds at {len(points)} random exact points")

    def _random_points(self) -> Iterator[dict[str, int]]:
        """Random sizes at which every expression of the step is defined: no division by ``floor(T / w)`` where w exceeds T."""
        generator = random.Random(0)
        basis = self.analysis.graph.as_basis()
        outer = self.analysis.fold.outer
        drawn = ({name: generator.randint(2, 10**4) for name in basis.symbols} for _ in range(_MOST_DRAWN))
        for values in itertools.chain(drawn, (trace.sizes for trace in self.analysis.graph.certificates)):
            point = {**values, **basis.sizes(values)}
            with contextlib.suppress(ZeroDivisionError):
                yield {name: outer.value(outer.gen(name), point) for name in outer.names}


# Number of random sizes at which a maximum is compared before and after collecting terms.
_POINTS, _MOST_DRAWN = 5, 1000

_BY_ROLE = "live storages by role"
_DOMINANCE = (
    "memory peaks at one of these candidates: at every other operator, live bytes are at most those of some candidate, or a mean of"
    " several; these less the operator's, with each size x written as 1 + y, have no negative coefficient, so they are at least 0 for all"
    " sizes from 1 on"
)

@dataclass(frozen=True, slots=True)
class _Part:
    """A partial sum: its name for the label, its displayed expression, its polynomial in basis symbols."""

    name: str
    shown: Expression
    poly: Poly


@dataclass
class _ModuleNode:
    """A node of the module tree, with its groups.

    ``children`` are in the order in which they first run; ``""`` is the module's own operators.
    """

    path: str
    own: list[tuple[Group, int]] = field(default_factory=list)
    children: dict[str, _ModuleNode | None] = field(default_factory=dict)

    def add(self, group: Group, times: int) -> None:
        self.own.append((group, times))
        self.children.setdefault("", None)

    def at(self, module_path: str) -> _ModuleNode:
        node = self
        for part in module_path.split("."):
            path = f"{node.path}.{part}" if node.path else part
            child = node.children.setdefault(part, _ModuleNode(path))
            assert child is not None  # only the empty name is for own operators
            node = child
        return node


def _integer_ratio(times: Poly, instances: Poly) -> int | None:
    """``m`` with ``times = m · instances``, or None."""
    ratio = times.LC / instances.LC
    return int(ratio) if ratio == int(ratio) and times == instances * int(ratio) else None


def _add(polys: Sequence[Poly], algebra: Algebra) -> Poly:
    total = algebra.constant(0)
    for poly in polys:
        total = total + poly
    return total


def _how_often(count: str, rules: int, operators: bool) -> str:
    """How often operators of so many rules run, or how many tensors there are, as a reason says it."""
    if operators:
        return f"{'it runs' if rules == 1 else 'each runs'} {'once' if count == '1' else f'{count} times'}"
    return f"there {'is one such tensor' if count == '1' else f'are {count} such tensors'} in all"


def _labelled(addend: Expression, g: Group) -> Labelled:
    label = g.label.product if g.work is WorkKind.TRAFFIC else str(g.label)  # all addends of bytes moved are reads and writes
    return Labelled(addend, label, "" if g.work is None else bare_name(g.rule))
