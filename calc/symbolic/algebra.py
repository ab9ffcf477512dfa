"""Exact polynomials in the sizes of a model, on SymPy's sparse polynomial rings.

Sums over thousands of operators are folded here rather than in ``sympy.Expr``, which is a hundred times slower and
reorders what it is given. A size that is no polynomial (``floor(T/2)``) becomes a generator of its own, an *atom*.
The same code runs on plain integers, which is how a closed form is compared with a recording at concrete sizes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any

import sympy as sp
from sympy.polys.domains import QQ
from sympy.polys.orderings import lex
from sympy.polys.rings import PolyElement, PolyRing

from calc.errors import NapkinError
from calc.symbolic.exact import FUNCTIONS
from calc.symbolic.exact import evaluate_text as evaluate_text
from calc.symbolic.tree import as_factor, joined

Poly = Any  # a PolyElement or an int: both add, multiply and compare alike


def log2_ceiling(size: int | str) -> int | str:
    """⌈log₂ n⌉ of a size as records write it: how often 1 is doubled until n is reached."""
    return (size - 1).bit_length() if isinstance(size, int) else f"ceiling(log({size}, 2))"


def symbol(name: str) -> sp.Symbol:
    """The one SymPy symbol of a dimension. Same-named symbols with other assumptions would not cancel."""
    return sp.Symbol(name, positive=True, integer=True)


class Algebra:
    """Polynomials in ``symbols`` and in the atoms that occur in ``texts``."""

    def __init__(self, symbols: Sequence[str], texts: Iterable[str] = ()) -> None:
        self._parsed: dict[str | int, Poly] = {}
        atoms: dict[str, None] = {}
        trees = {text: ast.parse(text, mode="eval").body for text in set(texts)}
        for tree in trees.values():
            atom_nodes = [node for node in ast.walk(tree) if _is_atom(node)]
            atoms |= {ast.unparse(node): None for node in (*atom_nodes, *_quotients(tree))}
        self.names = (*symbols, *sorted(atoms))
        self.ring = PolyRing([sp.Symbol(name) for name in self.names] or [sp.Symbol("x")], QQ, lex)
        self._index = {name: i for i, name in enumerate(self.names)}
        self._factors = {name: as_factor(name) for name in self.names}

    def parse(self, size: str | int) -> Poly:
        """The polynomial of a size as written in a record."""
        polynomial = self._parsed.get(size)
        if polynomial is None:
            polynomial = self.ring.ground_new(size) if isinstance(size, int) else self._build(ast.parse(size, mode="eval").body)
            self._parsed[size] = polynomial
        return polynomial

    def gen(self, name: str) -> Poly:
        """The polynomial that is just ``name``."""
        return self.ring.gens[self._index[name]]

    def constant(self, number: int | Fraction) -> Poly:
        return self.ring.ground_new(QQ(number.numerator, number.denominator))

    def _build(self, node: ast.expr) -> Poly:
        match node:
            case ast.Constant(value=int() as number):
                return self.ring.ground_new(number)
            case ast.Name(id=name) if name in self._index:
                return self.gen(name)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self._build(operand)
            case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int() as power)) if power >= 0:
                return self._build(left) ** power
            case ast.BinOp(op=ast.FloorDiv() | ast.Mod()) | ast.Call():
                return self.gen(ast.unparse(node))
            case ast.BinOp(left=left, op=ast.Div(), right=ast.Constant(value=int() as number)) if number:
                return self._build(left) * self.constant(Fraction(1, number))
            case ast.BinOp(op=ast.Div()) if (quotient := ast.unparse(node)) in self._index:
                return self.gen(quotient)
            case ast.BinOp(left=left, op=op, right=right):
                a, b = self._build(left), self._build(right)
                match op:
                    case ast.Add():
                        return a + b
                    case ast.Sub():
                        return a - b
                    case ast.Mult():
                        return a * b
        raise NapkinError(f"cannot read the size {ast.unparse(node)!r}: it is no polynomial in {', '.join(self.names)}")

    # -- reading polynomials -------------------------------------------------------------------------------------

    def value(self, poly: Poly, values: Mapping[str, int]) -> int:
        """Exact integer value of ``poly`` at integer sizes, atoms included."""
        if not isinstance(poly, PolyElement):
            return int(poly)
        numerators: dict[int, int] = {}
        for monomial, coefficient in poly.iterterms():
            product = int(coefficient.numerator)
            for i, power in enumerate(monomial):
                if power:
                    product *= self._number(i, values) ** power
            denominator = int(coefficient.denominator)
            numerators[denominator] = numerators.get(denominator, 0) + product
        total = sum((Fraction(n, d) for d, n in numerators.items()), start=Fraction(0))
        if total.denominator != 1:
            raise NapkinError(f"{self.text(poly)} is {total}, not an integer, at {dict(values)}: choose sizes that divide")
        return int(total)

    def _number(self, index: int, values: Mapping[str, int]) -> int:
        name = self.names[index]
        return values[name] if name in values else int(evaluate_text(name, values))

    def _used(self, poly: PolyElement) -> list[str]:
        return [name for i, name in enumerate(self.names) if any(m[i] for m in poly)]

    def terms(self, poly: Poly) -> list[tuple[Fraction, dict[str, int]]]:
        """``(coefficient, {name: power})`` in ring order; ``[]`` for zero."""
        if not isinstance(poly, PolyElement):
            return [(Fraction(poly), {})] if poly else []
        return [(Fraction(int(c.numerator), int(c.denominator)), {self.names[i]: p for i, p in enumerate(m) if p}) for m, c in poly.terms()]

    def text(self, poly: Poly) -> str:
        """``poly`` as SymPy would read it: ``12*L*d**2 + 13*L*d``."""
        return joined((coefficient, [(self._factors[name], p) for name, p in powers.items()]) for coefficient, powers in self.terms(poly))

    @cached_property
    def _locals(self) -> dict[str, sp.Symbol]:
        return {name: symbol(name) for name in self.names if name.isidentifier()}

    def expr(self, poly: Poly) -> sp.Expr:
        """``poly`` as a SymPy expression in positive integer symbols."""
        if not isinstance(poly, PolyElement):
            return sp.Integer(poly)
        return sp.Add(
            *(
                sp.Mul(sp.Rational(c.numerator, c.denominator), *(self._symbol(n) ** p for n, p in powers.items()))
                for c, powers in self.terms(poly)
            )
        )

    def _symbol(self, name: str) -> sp.Expr:
        if name in self._locals:
            return self._locals[name]
        return to_sympy(name)


def maximum(items: Sequence[sp.Expr]) -> sp.Expr:
    """The largest of ``items``, or the only one. Of more than two SymPy would compare every pair, which takes seconds and finds
    nothing: none is below another."""
    return items[0] if len(items) == 1 else sp.Max(*items, evaluate=len(items) == 2)


def _is_atom(node: ast.AST) -> bool:
    """Whether a part of a size is no polynomial. A logarithm by itself is no size: only rounded is it one."""
    if isinstance(node, ast.Call):
        return not (isinstance(node.func, ast.Name) and node.func.id == "log")
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv | ast.Mod)


def _quotients(node: ast.expr) -> Iterator[ast.expr]:
    """Quotients of sizes (``S / P``) that a size is made of; those inside an atom are a part of it."""
    match node:
        case ast.BinOp(op=ast.Div(), right=right) if not isinstance(right, ast.Constant):
            yield node
        case ast.BinOp(left=left, right=right) if not _is_atom(node):
            yield from _quotients(left)
            yield from _quotients(right)
        case ast.UnaryOp(operand=operand):
            yield from _quotients(operand)


def to_sympy(text: str) -> sp.Expr:
    """A size's text as a SymPy expression over positive integer symbols; ``a//b`` becomes ``floor(a/b)``."""
    return _to_sympy(ast.parse(text, mode="eval").body)


def _to_sympy(node: ast.expr) -> sp.Expr:
    match node:
        case ast.Constant(value=int() as number):
            return sp.Integer(number)
        case ast.Name(id=name):
            return symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_to_sympy(operand)
        case ast.Call(func=ast.Name(id="log"), args=[x, ast.Constant(value=2)]):
            return sp.log(_to_sympy(x), 2)
        case ast.Call(func=ast.Name(id="Max"), args=args) if len(args) > 2:
            return maximum([_to_sympy(a) for a in args])
        case ast.Call(func=ast.Name(id=function), args=args) if function in FUNCTIONS:
            return getattr(sp, function)(*(_to_sympy(a) for a in args))
        case ast.Call(func=ast.Name(id="Piecewise"), args=[ast.Tuple(elts=[special, condition]), ast.Tuple(elts=[general, _])]):
            return sp.Piecewise((_to_sympy(special), _to_sympy(condition)), (_to_sympy(general), True), evaluate=False)
        case ast.Call(func=ast.Name(id="Eq"), args=[left, right]):
            return sp.Eq(_to_sympy(left), _to_sympy(right))
        case ast.Call(func=ast.Name(id="And"), args=args):
            return sp.And(*(_to_sympy(a) for a in args))
        case ast.BinOp(op=ast.Add() | ast.Sub()):
            return sp.Add(*_addends(node))  # at once: one after another, SymPy would sort every partial sum
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _to_sympy(left), _to_sympy(right)
            match op:
                case ast.Mult():
                    return a * b
                case ast.Div():
                    return a / b
                case ast.FloorDiv():
                    return sp.floor(a / b)
                case ast.Mod():
                    return sp.Mod(a, b)
                case ast.Pow():
                    return a**b
    raise NapkinError(f"cannot read the size {ast.unparse(node)!r}")


def _addends(node: ast.expr) -> list[sp.Expr]:
    """The terms of a sum, which Python reads from the left: (a + b) - c."""
    terms: list[sp.Expr] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        right = _to_sympy(node.right)
        terms.append(-right if isinstance(node.op, ast.Sub) else right)
        node = node.left
    return [_to_sympy(node), *reversed(terms)]
