"""The normal form in which gradients are simplified: sums of products of tensor elements and of sums over labels.

An expression is SymPy's, over symbols for an element of a tensor (a node with its labels) or a sum over labels of a product. Its normal
form is expanded, with every factor outside the sums that it does not depend on. Labels from ``BOUND`` on are summed over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import sympy as sp

BOUND = 10_000
_MOST_TERMS = 40

# A product of factors, each with its power; a polynomial has a coefficient for each.
Monomial = tuple[tuple[sp.Expr, sp.Expr], ...]
Poly = dict[Monomial, sp.Expr]


class TooLarge(Exception):
    """Too many terms to be readable: the equation from the chain rule is used."""


@dataclass(frozen=True, slots=True)
class Element:
    """An element of a tensor."""

    node: int
    labels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Total:
    """Σ over ``bound`` of ``inner``, a product whose factors all depend on one of them."""

    bound: tuple[int, ...]
    sizes: tuple[sp.Expr, ...]
    inner: sp.Expr


class Symbols:
    """The symbols of one simplification, with their meanings."""

    def __init__(self) -> None:
        self._of: dict[Element | Total, sp.Symbol] = {}
        self.meaning: dict[sp.Symbol, Element | Total] = {}
        self._labels: dict[sp.Symbol, frozenset[int]] = {}

    def symbol(self, meaning: Element | Total) -> sp.Symbol:
        symbol = self._of.get(meaning)
        if symbol is None:
            symbol = self._of[meaning] = sp.Symbol(f"{_ELEMENT}{len(self._of)}", real=True)
            self.meaning[symbol] = meaning
            inside = frozenset(meaning.labels) if isinstance(meaning, Element) else self.labels(meaning.inner) - frozenset(meaning.bound)
            self._labels[symbol] = inside
        return symbol

    def element(self, node: int, labels: Iterable[int]) -> sp.Symbol:
        return self.symbol(Element(node, tuple(labels)))

    def labels(self, expr: sp.Expr) -> frozenset[int]:
        """The free labels of an expression."""
        return frozenset().union(*(self._labels.get(s, frozenset()) for s in expr.free_symbols))

    def nodes(self, expr: sp.Expr) -> set[int]:
        """The tensors in an expression, including those in its sums."""
        nodes: set[int] = set()
        for s in expr.free_symbols:
            meaning = self.meaning.get(s)
            if isinstance(meaning, Element):
                nodes.add(meaning.node)
            elif isinstance(meaning, Total):
                nodes |= self.nodes(meaning.inner)
        return nodes

    def renamed(self, expr: sp.Expr, to: Mapping[int, int]) -> sp.Expr:
        """The expression with its free labels renamed."""
        changed = {}
        for s in expr.free_symbols:
            meaning = self.meaning.get(s)
            if isinstance(meaning, Element):
                changed[s] = self.element(meaning.node, (to.get(label, label) for label in meaning.labels))
            elif isinstance(meaning, Total):
                changed[s] = self.symbol(Total(meaning.bound, meaning.sizes, self.renamed(meaning.inner, to)))
        return expr.xreplace(changed)

    def bounds(self, expr: sp.Expr) -> int:
        """The first label that no sum in the expression uses."""
        label = BOUND
        for s in expr.free_symbols:
            meaning = self.meaning.get(s)
            if isinstance(meaning, Total):
                label = max(label, 1 + max(meaning.bound), self.bounds(meaning.inner))
        return label

    def total(self, inner: sp.Expr, bound: Collection[int], size_of: Mapping[int, sp.Expr]) -> sp.Symbol:
        """The symbol of a sum. Its labels are numbered in order of appearance, so equal sums are one symbol."""
        order: list[int] = []
        for s in sorted(inner.free_symbols, key=lambda s: self._rank(s, bound)):
            order += [label for label in self._ordered(s) if label in bound and label not in order]
        start = self.bounds(inner)
        to = {label: start + i for i, label in enumerate(order)}
        return self.symbol(Total(tuple(to.values()), tuple(size_of[label] for label in order), self.renamed(inner, to)))

    def _ordered(self, s: sp.Symbol) -> list[int]:
        meaning = self.meaning.get(s)
        if isinstance(meaning, Element):
            return list(meaning.labels)
        return sorted(self._labels.get(s, ()))

    def _rank(self, s: sp.Symbol, bound: Collection[int]) -> tuple[str, ...]:
        meaning = self.meaning.get(s)
        if isinstance(meaning, Element):
            return ("", f"{meaning.node:08}", *("*" if label in bound else str(label) for label in meaning.labels))
        return ("~", str(s))


# -- polynomials -----------------------------------------------------------------------------------------------------------


def expand(expr: sp.Expr) -> Poly:
    """The expression as a sum of products. Anything else (a function of an element) is a factor."""
    if expr.is_number:
        return {(): expr} if expr != 0 else {}
    if expr.is_Add:
        return _sizes(expr) if _only_sizes(expr) else added(*(expand(a) for a in expr.args))
    if expr.is_Mul:
        product: Poly = {(): sp.Integer(1)}
        for a in expr.args:
            product = multiplied(product, expand(a))
        return product
    if expr.is_Pow and expr.exp.is_number:
        return _power(expr)
    return {((expr, sp.Integer(1)),): sp.Integer(1)}


_ELEMENT = "t_"
_WRITTEN: dict[sp.Symbol, sp.Expr] = {}


def _only_sizes(expr: sp.Expr) -> bool:
    return not any(s.name.startswith(_ELEMENT) for s in expr.free_symbols) and not expr.atoms(sp.Float)


def _sizes(expr: sp.Expr) -> Poly:
    """A sum of sizes (T - 1, B*T - B) as a product of unexpanded factors, so that equal ones cancel."""
    factored = sp.factor(expr)
    powers: dict[sp.Expr, sp.Expr] = {}
    coefficient = sp.Integer(1)
    for factor in sp.Mul.make_args(factored):
        base, power = factor.as_base_exp()
        if base.is_number:
            coefficient *= factor
            continue
        if not base.is_Symbol:
            name = sp.Symbol(f"<{base}>", positive=True)
            _WRITTEN[name] = base
            base = name
        powers[base] = powers.get(base, sp.Integer(0)) + power
    return {monomial_of(powers): coefficient}


def spelled(expr: sp.Expr) -> sp.Expr:
    """The expression with such factors expanded."""
    return expr.xreplace({s: _WRITTEN[s] for s in expr.free_symbols if s in _WRITTEN})


def _power(expr: sp.Expr) -> Poly:
    base = expand(expr.base)
    if len(base) == 1:
        ((monomial, coefficient),) = base.items()
        return {tuple((factor, power * expr.exp) for factor, power in monomial): coefficient**expr.exp}
    if expr.exp.is_Integer and 0 < expr.exp <= 4:
        product = base
        for _ in range(int(expr.exp) - 1):
            product = multiplied(product, base)
        return product
    return {((together(base), expr.exp),): sp.Integer(1)}


def added(*polys: Poly) -> Poly:
    """The sum of polynomials."""
    total: Poly = {}
    for poly in polys:
        for monomial, coefficient in poly.items():
            total[monomial] = total.get(monomial, sp.Integer(0)) + coefficient
    return {m: c for m, c in total.items() if c != 0}


def multiplied(a: Poly, b: Poly) -> Poly:
    """The product of two polynomials. Raises ``TooLarge`` for too many terms."""
    if len(a) * len(b) > _MOST_TERMS:
        raise TooLarge
    product: Poly = {}
    for m, c in a.items():
        for n, d in b.items():
            powers = dict(m)
            for factor, power in n:
                powers[factor] = powers.get(factor, sp.Integer(0)) + power
            key = monomial_of(powers)
            product[key] = product.get(key, sp.Integer(0)) + c * d
    return {m: c for m, c in product.items() if c != 0}


def monomial_of(powers: Mapping[sp.Expr, sp.Expr]) -> Monomial:
    """The monomial of factors with these powers, in a fixed order."""
    return tuple(sorted(((f, p) for f, p in powers.items() if p != 0), key=lambda item: item[0].sort_key()))


def product_of(monomial: Monomial, coefficient: sp.Expr = sp.S.One) -> sp.Expr:
    """The expression of a monomial with its coefficient."""
    return sp.Mul(coefficient, *(factor**power for factor, power in monomial))


def together(poly: Poly) -> sp.Expr:
    """The expression of a polynomial, with the common factor of its terms pulled out."""
    if not poly:
        return sp.Integer(0)
    shared = _shared(list(poly))
    content = _content(list(poly.values()))
    addends = []
    for monomial, coefficient in poly.items():
        powers = {f: p - shared.get(f, sp.Integer(0)) for f, p in monomial}
        powers.update({f: -p for f, p in shared.items() if f not in powers})
        addends.append(product_of(monomial_of(powers), coefficient / content))
    inner = _grouped(addends) if not shared and len(addends) > 2 else sp.Add(*addends)
    return sp.Mul(content, product_of(monomial_of(shared)), inner, evaluate=True)


def _grouped(terms: list[sp.Expr]) -> sp.Expr:
    """A sum with the factor that most of its terms share pulled out of those."""
    counts: dict[sp.Expr, int] = {}
    for term in terms:
        for factor in sp.Mul.make_args(term):
            if factor.is_Symbol and factor.name.startswith(_ELEMENT):
                counts[factor] = counts.get(factor, 0) + 1
    most = max(counts.values(), default=0)
    if most < 2:
        return sp.Add(*terms)
    best = min((f for f, n in counts.items() if n == most), key=lambda f: int(f.name.removeprefix(_ELEMENT)))
    inside = [t for t in terms if best in sp.Mul.make_args(t)]
    return sp.Add(*(t for t in terms if t not in inside), together(added(*(expand(t) for t in inside))))


def _shared(monomials: list[Monomial]) -> dict[sp.Expr, sp.Expr]:
    """The factors of all monomials, each with its lowest power."""
    tables = [dict(m) for m in monomials]
    shared = {}
    for factor, _power in tables[0].items():
        powers = [t.get(factor, sp.Integer(0)) for t in tables]
        if all(p > 0 for p in powers):
            shared[factor] = min(powers)
        elif all(p < 0 for p in powers):
            shared[factor] = max(powers)
    return shared if len(monomials) > 1 else tables[0]


def _content(coefficients: list[sp.Expr]) -> sp.Expr:
    """The common factor of all coefficients, negative if all are."""
    if len(coefficients) == 1:
        return coefficients[0]
    first = coefficients[0] if not coefficients[0].is_Rational else sp.Integer(1)
    ratios = [c / first for c in coefficients]
    if not all(r.is_Rational for r in ratios):
        return sp.Integer(1)
    divisor = sp.gcd_list(ratios)
    return first * (-divisor if all(r < 0 for r in ratios) else divisor)
