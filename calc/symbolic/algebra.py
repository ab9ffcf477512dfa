"""Exact polynomials in the sizes of a model, on SymPy's sparse polynomial rings.

Sums over thousands of operators are accumulated here rather than in ``sympy.Expr``, which is a hundred times slower and reorders its
arguments. A non-polynomial size (``floor(T/2)``) becomes a generator of its own, an *atom*. The same code runs on plain integers, which is
how a closed form is compared with a trace at concrete sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache, cached_property
from typing import Any

import sympy as sp
from sympy.polys.domains import QQ
from sympy.polys.orderings import lex
from sympy.polys.rings import PolyElement, PolyRing

from calc.errors import BadInputError, DimensionError, NapkinError
from calc.symbolic.evaluation import Arithmetic, ByName, PythonOperators
from calc.symbolic.exact import evaluate_text as evaluate_text
from calc.symbolic.expression import (
    Compare,
    Expression,
    FloorQuotient,
    FunctionCall,
    Number,
    Piecewise,
    Power,
    Quotient,
    Remainder,
    Sum,
    children,
    walk,
)
from calc.symbolic.parser import FUNCTIONS, free_names, parse
from calc.symbolic.tree import as_factor, joined
from calc.symbolic.writer import as_text

Poly = Any  # a PolyElement or an int: both add, multiply and compare alike


def log2_ceiling(size: int | str) -> int | str:
    """⌈log₂ n⌉ of a size, as an int or as the text that traces use."""
    return (size - 1).bit_length() if isinstance(size, int) else f"ceiling(log({size}, 2))"


class Symbol(sp.Symbol):  # type: ignore[misc]  # SymPy has no types
    """The symbol of a size. ``subs`` replaces it by name: SymPy alone would return an expression unchanged where ``"B"`` or
    ``sympy.Symbol("B")`` is substituted, since these lack the assumptions of a size.

    It has the name of SymPy's class, by which SymPy orders the arguments of a sum, and equals SymPy's symbol of the same name and
    assumptions, so that the two cancel."""

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, sp.Symbol) and self._hashable_content() == other._hashable_content()
        return bool(same)

    __hash__ = sp.Symbol.__hash__

    def _eval_subs(self, old: sp.Basic, new: sp.Basic) -> sp.Basic | None:
        return new if isinstance(old, sp.Symbol) and old.name == self.name else None


def symbol(name: str) -> Symbol:
    """The one SymPy symbol of a dimension. Same-named symbols with other assumptions would not cancel."""
    return Symbol(name, positive=True, integer=True)


class _SizesAndAtoms(dict[str, int]):
    """Sizes by name, and atoms by their text, each evaluated once."""

    def __init__(self, values: Mapping[str, int]) -> None:
        super().__init__(values)
        self._values = values

    def __missing__(self, atom: str) -> int:
        number = self[atom] = int(evaluate_text(atom, self._values))
        return number


class Algebra:
    """Polynomials in ``symbols`` and in the atoms that occur in ``texts``."""

    def __init__(self, symbols: Sequence[str], texts: Iterable[str] = ()) -> None:
        self._parsed: dict[str | int, Poly] = {}
        trees = [parse(text) for text in set(texts)]
        atoms = {node for tree in trees for node in (*filter(_is_atom, walk(tree)), *_quotients(tree))}
        self.names = (*symbols, *sorted({as_text(node, spaced=True) for node in atoms}))
        self.ring = PolyRing([sp.Symbol(name) for name in self.names] or [sp.Symbol("x")], QQ, lex)
        self._index = {name: i for i, name in enumerate(self.names)}
        self._factors = {name: as_factor(name) for name in self.names}
        self._powers: dict[tuple[int, ...], tuple[tuple[str, int], ...]] = {}
        self._arithmetic = _Ring(self)

    def parse(self, size: str | int) -> Poly:
        """The polynomial of a size as written in a trace."""
        polynomial = self._parsed.get(size)
        if polynomial is None:
            polynomial = self.ring.ground_new(size) if isinstance(size, int) else parse(size).value_in(self._arithmetic)
            self._parsed[size] = polynomial
        return polynomial

    def gen(self, name: str) -> Poly:
        """The polynomial that is just ``name``."""
        return self.ring.gens[self._index[name]]

    def refusal(self, name: str) -> NapkinError:
        """The error for a size that is not a polynomial in these symbols."""
        return NapkinError(f"cannot read the size {name!r}: it is not a polynomial in {', '.join(self.names)}")

    def constant(self, number: int | Fraction) -> Poly:
        return self.ring.ground_new(QQ(number.numerator, number.denominator))

    # -- reading polynomials -------------------------------------------------------------------------------------

    def value(self, poly: Poly, values: Mapping[str, int]) -> int:
        """Exact integer value of ``poly`` at integer sizes, atoms included."""
        return self.at(values)(poly)

    def at(self, values: Mapping[str, int]) -> Callable[[Poly], int]:
        """``value`` at these sizes, for many polynomials: each atom and each product of sizes is evaluated once."""
        numbers, products = _SizesAndAtoms(values), dict[tuple[int, ...], int]()

        def value(poly: Poly) -> int:
            if not isinstance(poly, PolyElement):
                return int(poly)
            numerators: dict[int, int] = {}
            for monomial, coefficient in poly.iterterms():
                product = products.get(monomial)
                if product is None:
                    powers = self._powers.get(monomial) or self._powers_of(monomial)
                    product = products[monomial] = math.prod(numbers[name] ** power for name, power in powers)
                denominator = int(coefficient.denominator)
                numerators[denominator] = numerators.get(denominator, 0) + int(coefficient.numerator) * product
            whole = numerators.pop(1, 0)
            total = sum((Fraction(n, d) for d, n in numerators.items()), start=Fraction(0))
            if total.denominator != 1:
                raise NapkinError(f"{self.text(poly)} is {total + whole}, not an integer, at {dict(values)}: choose sizes that divide")
            return int(total) + whole

        return value

    def _powers_of(self, monomial: tuple[int, ...]) -> tuple[tuple[str, int], ...]:
        """The names in a monomial with their powers, cached: few monomials occur in many polynomials."""
        powers = tuple((self.names[i], power) for i, power in enumerate(monomial) if power)
        self._powers[monomial] = powers
        return powers

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


class Max(sp.Max):  # type: ignore[misc]  # SymPy has no types
    """A maximum of closed forms, left as it is written where they are more than two. SymPy would compare every pair, after each ``subs``
    too, which takes minutes and simplifies nothing: none is below another."""

    def __new__(cls, *arguments: sp.Expr, **assumptions: Any) -> sp.Expr:
        if len(arguments) <= 2 or all(sp.sympify(argument).is_Number for argument in arguments):
            return sp.Max(*arguments, **assumptions)
        return super().__new__(cls, *arguments, **{**assumptions, "evaluate": False})


class _ClosedForm:
    """An expression whose ``subs`` refuses a name that it does not have: SymPy would return it unchanged. Only texts are refused, which
    people write; SymPy substitutes symbols. It equals SymPy's expression, and SymPy makes only its own classes from it."""

    __slots__ = ()

    def subs(self, first: Any, *new: Any, **flags: Any) -> sp.Expr:
        names = {each.name for each in self.free_symbols}  # type: ignore[attr-defined]  # SymPy's
        olds = [first] if new else first if isinstance(first, Mapping) else [old for old, _ in first]
        for old in olds:
            if isinstance(old, str) and old not in names:
                raise BadInputError(f"this expression has no {old[:40]!r}: it has {', '.join(sorted(names)) or 'no sizes'}")
        return closed_form(super().subs(first, *new, **flags))  # type: ignore[misc]  # SymPy's

    @property
    def func(self) -> Any:
        return type(self).__mro__[2]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, self.func) and sp.Tuple(*self.args) == sp.Tuple(*other.args)  # type: ignore[attr-defined]  # SymPy's

    def __hash__(self) -> int:
        return int(sp.Basic.__hash__(self))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.func, self.args  # type: ignore[attr-defined]  # SymPy's


@cache
def _closed_form_class(kind: Any) -> Any:
    return type(kind.__name__, (_ClosedForm, kind), {"__slots__": ()})


def closed_form(expr: sp.Expr) -> sp.Expr:
    """``expr`` with a ``subs`` that refuses a text which names none of its symbols."""
    if not expr.args or isinstance(expr, _ClosedForm):
        return expr
    kind: Any = type(expr)
    form = sp.Basic.__new__(_closed_form_class(kind), *expr.args)
    if isinstance(expr, sp.Add | sp.Mul | sp.Pow):
        form.is_commutative = True
    return form


def maximum(items: Sequence[sp.Expr]) -> sp.Expr:
    """``Max`` of ``items``, or the only item."""
    return items[0] if len(items) == 1 else Max(*items)


class _Gens(dict[str, Poly]):
    def __init__(self, algebra: Algebra) -> None:
        super().__init__(zip(algebra.names, algebra.ring.gens, strict=False))
        self._algebra = algebra

    def __missing__(self, name: str) -> Poly:
        raise self._algebra.refusal(name)


class _Ring(Arithmetic[Poly]):
    """Polynomials; a non-polynomial part is a generator."""

    def __init__(self, algebra: Algebra) -> None:
        self.values, self._algebra = _Gens(algebra), algebra

    def number(self, node: Number) -> Poly:
        if not isinstance(node.value, int):
            raise self.refused(node)
        return self._algebra.ring.ground_new(node.value)

    def power(self, node: Power) -> Poly:
        match node.exponent:
            case Number(int() as power) if power >= 0:
                return node.base.value_in(self) ** power
        raise self.refused(node)

    def quotient(self, node: Quotient) -> Poly:
        match node.bottom:
            case Number(int() as number) if number:
                return node.top.value_in(self) * self._algebra.constant(Fraction(1, number))
        return self.call(node)

    def call(self, node: Expression) -> Poly:
        name = as_text(node, spaced=True)
        if isinstance(node, Quotient) and name not in self.values:
            raise self.refused(node)
        return self.values[name]

    floor_quotient = remainder = call

    def refused(self, node: Expression) -> NapkinError:
        return self._algebra.refusal(as_text(node, spaced=True))


def _is_atom(node: Expression) -> bool:
    """Whether a part of a size is not a polynomial. A logarithm is a valid size only inside floor, ceiling or round."""
    return isinstance(node, FloorQuotient | Remainder | Piecewise) or (isinstance(node, FunctionCall) and node.function != "log")


def _quotients(node: Expression) -> Iterator[Expression]:
    """The quotients of sizes (``S / P``) in an expression, except those inside an atom."""
    if isinstance(node, Quotient) and not isinstance(node.bottom, Number):
        yield node
    elif not isinstance(node, FunctionCall) and not _is_atom(node):
        for child in children(node):
            yield from _quotients(child)


def to_sympy(text: str) -> sp.Expr:
    """A size's text as a SymPy expression over positive integer symbols; ``a//b`` becomes ``floor(a/b)``."""
    return parse(text).value_in(Sympy(ByName(symbol)))


def substituted(quantity: str, text: str, sizes: Mapping[str, Any]) -> sp.Expr:
    """The closed form ``text`` of ``quantity`` with ``sizes``, by name, replaced by integers or expressions. Raises BadInputError for a
    name that it does not have."""
    symbols = {name: symbol(name) for name in free_names(text)}
    unknown = [name for name in sizes if name not in symbols]
    if unknown:
        raise BadInputError(f"{quantity} has no {unknown[0][:40]!r}: its closed form has {', '.join(sorted(symbols)) or 'no sizes'}")
    value = parse(text).value_in(Sympy({**symbols, **{name: _size(name, size) for name, size in sizes.items()}}))
    return value if value.free_symbols else value.doit()  # a maximum of closed forms is left as it is written, one of numbers is not


def _size(name: str, size: object) -> sp.Expr:
    """A size that replaces ``name``: a positive integer, or an expression, whose symbols are sizes too."""
    value = to_sympy(size) if isinstance(size, str) else sp.sympify(size)
    if value.is_number and not (value.is_integer and value.is_positive):
        raise DimensionError(f"{name} = {str(value)[:40]} is not a size: sizes are integers from 1 to 2**63 - 1")
    return value.xreplace({each: symbol(each.name) for each in value.free_symbols})


def condition_to_sympy(text: str) -> Any:
    """The SymPy condition of a text such as ``Eq(B, 1)``."""
    return parse(text).holds_in(Sympy(ByName(symbol)))


class Sympy(PythonOperators):
    """SymPy expressions of sizes."""

    def number(self, node: Number) -> sp.Expr:
        if not isinstance(node.value, int):
            raise self.refused(node)
        return sp.Integer(node.value)

    def sum(self, node: Sum) -> sp.Expr:
        return sp.Add(*(term.value_in(self) for term in node.terms))  # at once: one by one, SymPy would sort every partial sum

    def floor_quotient(self, node: FloorQuotient) -> sp.Expr:
        return sp.floor(self.quotient(Quotient(node.top, node.bottom)))

    def remainder(self, node: Remainder) -> sp.Expr:
        return sp.Mod(node.top.value_in(self), node.bottom.value_in(self))

    def call(self, node: FunctionCall) -> sp.Expr:
        arguments = [argument.value_in(self) for argument in node.arguments]
        match node:
            case FunctionCall("log", (_, Number(2))):
                return sp.log(*arguments)
            case FunctionCall("Max"):
                return maximum(arguments)
            case FunctionCall(function, _) if function in FUNCTIONS:
                return getattr(sp, function)(*arguments)
        raise self.refused(node)

    def piecewise(self, node: Piecewise) -> sp.Expr:
        match node.cases:
            case (special, condition), (general, _):
                return sp.Piecewise((special.value_in(self), condition.holds_in(self)), (general.value_in(self), True), evaluate=False)
        raise self.refused(node)

    def compare(self, node: Compare) -> Any:
        return _RELATIONS[node.relation](node.left.value_in(self), node.right.value_in(self))

    def all_hold(self, conditions: Sequence[Expression]) -> Any:
        return sp.And(*(condition.holds_in(self) for condition in conditions))


_RELATIONS = {"==": sp.Eq, "!=": sp.Ne, "<": sp.Lt, "<=": sp.Le, ">": sp.Gt, ">=": sp.Ge}


class SympyFunctions(Sympy):
    """SymPy expressions of real numbers, with decimals and the given functions."""

    def __init__(self, values: Mapping[str, Any], functions: Mapping[str, Any]) -> None:
        super().__init__(values)
        self._functions = functions

    def number(self, node: Number) -> sp.Expr:
        return sp.sympify(node.value)

    def call(self, node: FunctionCall) -> sp.Expr:
        if node.function not in self._functions:
            raise self.refused(node)
        return self._functions[node.function](*(argument.value_in(self) for argument in node.arguments))

    def piecewise(self, node: Piecewise) -> sp.Expr:
        return sp.Piecewise(*((value.value_in(self), condition.holds_in(self)) for value, condition in node.cases))
