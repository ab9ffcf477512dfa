"""Sums over labels in normal form: factors that do not depend on a label are pulled out of its sum, and sums known from the forward's
definitions are replaced (Σ P = 1 of a softmax, Σ (x - mean x) = 0, Σ δ = 1)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import sympy as sp

from calc.mathematics.autodiff import ir
from calc.mathematics.autodiff.ir import Equations, argument
from calc.mathematics.autodiff.sizes import INFINITY, product
from calc.mathematics.autodiff.terms import Element, Monomial, Poly, Symbols, Total, added, expand, monomial_of, multiplied, product_of

SHIFT = "softmax does not change when a constant is added to a row, so a bias that adds one, such as the key bias, has gradient 0"

_DEPTH = 3
Vanishes = Callable[[int, Collection[int]], bool]


class Summing:
    """``forward`` nodes are those below that index. ``sums_to_zero`` returns whether the sum over axes of a node that is not a scalar
    expression is zero. ``facts`` collects the facts used."""

    def __init__(self, equations: Equations, forward: int, symbols: Symbols, sums_to_zero: Vanishes) -> None:
        self.equations = equations
        self.forward = forward
        self.symbols = symbols
        self.facts: list[tuple[str, int]] = []
        self.written: dict[int, sp.Expr] = {}  # node → its expression over labels 0, 1, …, of gradients already simplified
        self._sums_to_zero = sums_to_zero
        self._totals = _totals(equations, forward)
        self.masks = Masks(equations, symbols)

    def expr(self, poly: Poly) -> sp.Expr:
        """The expression of a polynomial after applying the facts."""
        return sp.Add(*(product_of(m, c) for m, c in poly.items()))

    def normal(self, expr: sp.Expr) -> Poly:
        return self._tidied(expand(expr))

    def _tidied(self, poly: Poly) -> Poly:
        """Powers of 0/1 values are the values, and a mask is dropped beside a factor that is 0 outside it."""
        tidied: Poly = {}
        for monomial, coefficient in poly.items():
            powers = {f: sp.Integer(1) if p > 1 and self._is_truth(f) else p for f, p in monomial}
            key = monomial_of(self._unmasked(powers))
            tidied[key] = tidied.get(key, sp.Integer(0)) + coefficient
        return {m: c for m, c in tidied.items() if c != 0}

    def _unmasked(self, powers: dict[sp.Expr, sp.Expr]) -> dict[sp.Expr, sp.Expr]:
        masks = [f for f in powers if isinstance(f, sp.Piecewise)]
        if not masks:
            return powers
        zero: set[sp.Expr] = set()
        for factor, power in powers.items():
            meaning = self.symbols.meaning.get(factor)
            if isinstance(meaning, Element) and power > 0:
                zero |= {self.symbols.renamed(c, dict(enumerate(meaning.labels))) for c in self.masks.zero_unless(meaning.node)}
        for mask in masks:
            condition = truth_of(mask)
            if condition is not None and condition in zero:
                self.facts.append(("the masked elements are 0 already", -1))
                powers = {f: p for f, p in powers.items() if f != mask}
        return powers

    def _is_truth(self, factor: sp.Expr) -> bool:
        meaning = self.symbols.meaning.get(factor)
        if not isinstance(meaning, Element):
            return False
        op = self.equations[meaning.node].op
        if isinstance(op, ir.Map) and isinstance(op.expr, sp.Piecewise):
            return all(value in (0, 1) for value, _ in op.expr.args)
        return isinstance(op, ir.Delta)

    # -- sums ---------------------------------------------------------------------------------------------------------

    def total(self, poly: Poly, bound: Mapping[int, sp.Expr], depth: int = _DEPTH) -> Poly:
        """Σ over the labels ``bound``, whose sizes it gives."""
        return added(*(self._one(m, c, bound, depth) for m, c in poly.items()))

    def _one(self, monomial: Monomial, coefficient: sp.Expr, bound: Mapping[int, sp.Expr], depth: int) -> Poly:
        labels = self.symbols.labels
        inside = {f: p for f, p in monomial if labels(f) & bound.keys()}
        front = {f: p for f, p in monomial if f not in inside}
        met = frozenset().union(*(labels(f) for f in inside))
        repeats = product(size for label, size in bound.items() if label not in met)
        bound = {label: size for label, size in bound.items() if label in met}
        outer: Poly = multiplied({monomial_of(front): coefficient}, expand(repeats))
        if not inside:
            return outer
        return multiplied(outer, self._settled(inside, bound, depth))

    def _settled(self, inside: Mapping[sp.Expr, sp.Expr], bound: Mapping[int, sp.Expr], depth: int) -> Poly:
        """The sum of a product whose factors all depend on the labels."""
        if len(inside) == 1 and next(iter(inside.values())) == 1:
            (factor,) = inside
            meaning = self.symbols.meaning.get(factor)
            if isinstance(meaning, Total):
                return self.total(expand(meaning.inner), {**bound, **dict(zip(meaning.bound, meaning.sizes, strict=True))}, depth)
            if isinstance(meaning, Element):
                settled = self._of_element(meaning, bound, depth)
                if settled is not None:
                    return settled
        parts = self._separate(inside, bound)
        if len(parts) > 1:
            poly: Poly = {(): sp.Integer(1)}
            for factors, labels in parts:
                poly = multiplied(poly, self._settled(factors, labels, depth))
            return poly
        inner = product_of(monomial_of(inside))
        return {((self.symbols.total(inner, bound.keys(), bound), sp.Integer(1)),): sp.Integer(1)}

    def _separate(
        self, inside: Mapping[sp.Expr, sp.Expr], bound: Mapping[int, sp.Expr]
    ) -> list[tuple[dict[sp.Expr, sp.Expr], dict[int, sp.Expr]]]:
        """Factors without common labels are summed separately: Σ over a, b of f[a] g[b] is a product of two sums."""
        groups: list[tuple[dict[sp.Expr, sp.Expr], set[int]]] = []
        for factor, power in inside.items():
            mine = set(self.symbols.labels(factor) & bound.keys())
            joined = {factor: power}
            apart = []
            for factors, labels in groups:
                if labels & mine:
                    joined.update(factors)
                    mine |= labels
                else:
                    apart.append((factors, labels))
            groups = [*apart, (joined, mine)]
        return [(factors, {label: bound[label] for label in labels}) for factors, labels in groups]

    def _of_element(self, element: Element, bound: Mapping[int, sp.Expr], depth: int) -> Poly | None:
        """The sum of a tensor's elements, if known from its definition."""
        node = self.equations[element.node]
        settled_total = self._known_total(element, bound)
        if settled_total is not None:
            return settled_total
        if isinstance(node.op, ir.Delta) and set(bound) == {element.labels[-1]}:
            self.facts.append(("exactly one class is the target: Σ onehot = 1", -1))
            return {(): sp.Integer(1)}
        if not isinstance(node.op, ir.Map | ir.Reduce):
            axes = [i for i, label in enumerate(element.labels) if label in bound]
            return {} if self._sums_to_zero(element.node, axes) else None
        if depth == 0 or not isinstance(node.op, ir.Map) or (element.node >= self.forward and element.node not in self.written):
            return None
        inlined = self.normal(self.definition(element))
        total = self.total(inlined, bound, depth - 1)
        if any(isinstance(self.symbols.meaning.get(s), Total) for m in total for f, _ in m for s in f.free_symbols):
            return None
        self.facts.append((f"Σ {_value(total)} by the definition of", node.index))
        return total

    def invariant(self, before: int) -> None:
        """Notes why a gradient is zero, if the facts from ``before`` on say that a softmax sums to 1: that is its invariance to a shift."""
        if any(node >= 0 and _is_softmax(self.equations, node) for _, node in self.facts[before:]):
            self.facts.append((SHIFT, -1))

    def _known_total(self, element: Element, bound: Mapping[int, sp.Expr]) -> Poly | None:
        """A sum or mean that the forward computes."""
        for operand, reduced, sizes, kind in self._totals.get(element.node, ()):
            rank = len(self.equations[reduced].shape)
            inner = {element.labels[i] for i, label in enumerate(operand.at) if label >= rank}
            if inner != set(bound):
                continue
            at = {label: element.labels[i] for i, label in enumerate(operand.at)}
            total = self.symbols.element(reduced, (at[label] for label in range(rank)))
            return multiplied({((total, sp.Integer(1)),): sp.Integer(1)}, expand(product(sizes) if kind == "mean" else sp.Integer(1)))
        return None

    def definition(self, element: Element) -> sp.Expr:
        """The scalar expression of a Map's element."""
        node = self.equations[element.node]
        if element.node in self.written:
            return self.symbols.renamed(self.written[element.node], dict(enumerate(element.labels)))
        assert isinstance(node.op, ir.Map)
        parts = {
            argument(i): self.symbols.element(o.node, (element.labels[label] for label in o.at)) for i, o in enumerate(node.op.operands)
        }
        return node.op.expr.xreplace(parts)


def _value(total: Poly) -> str:
    if not total:
        return "= 0"
    return "= 1" if total == {(): sp.Integer(1)} else "is known"


def _is_softmax(equations: Equations, index: int) -> bool:
    """Whether a tensor is E/Σ E of an exponential E."""
    op = equations[index].op
    if not isinstance(op, ir.Map) or op.expr not in (argument(0) / argument(1), argument(1) / argument(0)):
        return False
    over, under = (op.operands[i].node for i in ((0, 1) if op.expr == argument(0) / argument(1) else (1, 0)))
    power, total = equations[over].op, equations[under].op
    return isinstance(power, ir.Map) and isinstance(power.expr, sp.exp) and isinstance(total, ir.Reduce) and total.operand.node == over


_Summand = tuple[ir.Operand, int, ir.Shape, str]


def _totals(equations: Equations, forward: int) -> dict[int, list[_Summand]]:
    """The sums and means of the forward, by their operand."""
    totals: dict[int, list[_Summand]] = {}
    for node in equations.nodes[:forward]:
        if isinstance(node.op, ir.Reduce) and node.op.kind in ("sum", "mean") and set(range(len(node.shape))) <= set(node.op.operand.at):
            totals.setdefault(node.op.operand.node, []).append((node.op.operand, node.index, node.inner, node.op.kind))
    return totals


# -- masks ------------------------------------------------------------------------------------------------------------
# Where a tensor is zero because a mask added -∞ before an exponential: there P = 0, so P times the mask is P.


# Libraries write -∞ as the lowest number of a format. Its exponential is 0 in every format.
_LOW = -1e4


class Masks:
    """Conditions (over labels 0, 1, … of a node) outside which the node is 0."""

    def __init__(self, equations: Equations, symbols: Symbols) -> None:
        self._equations = equations
        self._symbols = symbols
        self._masks: dict[tuple[int, bool], frozenset[sp.Expr]] = {}

    def zero_unless(self, node: int) -> frozenset[sp.Expr]:
        """A node is 0 wherever one of these does not hold."""
        return self._unless(node, lowest=False)

    def _unless(self, node: int, lowest: bool) -> frozenset[sp.Expr]:
        """Conditions outside which the node is 0, or -∞ if ``lowest``."""
        key = (node, lowest)
        if key not in self._masks:
            self._masks[key] = frozenset()
            op = self._equations[node].op
            if isinstance(op, ir.Map):
                self._masks[key] = frozenset(self._of(op, lowest))
        return self._masks[key]

    def _of(self, op: ir.Map, lowest: bool) -> set[sp.Expr]:
        parts = {argument(i): self._symbols.element(o.node, o.at) for i, o in enumerate(op.operands)}
        expr = op.expr
        conditions: set[sp.Expr] = set()
        if isinstance(expr, sp.Piecewise) and len(expr.args) == 2:
            (first, condition), (second, _) = expr.args
            if _is(first, lowest):
                conditions.add(_normal(sp.Not(condition).xreplace(parts)))
            if _is(second, lowest):
                conditions.add(_normal(condition.xreplace(parts)))
            inner = second if _is(first, lowest) else first
            if _is(first, lowest) or _is(second, lowest):
                conditions |= self._through(inner, op, lowest)
            return conditions
        return self._through(expr, op, lowest)

    def _through(self, expr: sp.Expr, op: ir.Map, lowest: bool) -> set[sp.Expr]:
        """The conditions of an operand that the result inherits: by a sum with -∞, its exponential, a product with 0."""
        conditions: set[sp.Expr] = set()
        for i, operand in enumerate(op.operands):
            x = argument(i)
            if lowest:
                passes = expr == x or (expr.is_Add and x in expr.args) or (expr.is_Mul and x in expr.args and (expr / x).is_positive)
                source = self._unless(operand.node, True) if passes else frozenset()
            elif isinstance(expr, sp.exp):
                source = self._unless(operand.node, True) if expr.args[0] == x else frozenset()
            else:
                passes = expr == x or (expr.is_Mul and x in expr.args)
                source = self._unless(operand.node, False) if passes else frozenset()
            conditions |= {self._symbols.renamed(condition, dict(enumerate(operand.at))) for condition in source}
        return conditions


def _is(value: sp.Expr, lowest: bool) -> bool:
    if not lowest:
        return bool(value == 0)
    return value == -INFINITY or bool(value.is_number and value.is_real and value <= _LOW)


def _normal(condition: sp.Expr) -> sp.Expr:
    return getattr(condition, "canonical", condition)


def truth_of(mask: sp.Piecewise) -> sp.Expr | None:
    """The condition of a mask that is 1 where it holds and 0 elsewhere."""
    if len(mask.args) != 2:
        return None
    (first, condition), (second, _) = mask.args
    if (first, second) == (1, 0):
        return _normal(condition)
    return _normal(sp.Not(condition)) if (first, second) == (0, 1) else None
