"""Sizes and numbers of a program as SymPy expressions, and their values. Every size is one expanded form, so that equality is ``==``."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import sympy as sp

from calc.errors import NapkinError
from calc.graph.forward import ComputedNumber, Program
from calc.symbolic.algebra import SympyFunctions, symbol, to_sympy
from calc.symbolic.expression import Expression, Number, names
from calc.symbolic.parser import parse
from calc.symbolic.writer import as_text

# Stands for infinity in scalar expressions: SymPy's own would fold x + oo to oo.
INFINITY = sp.Symbol("infinity", positive=True)

_DYADIC = 64


@functools.lru_cache(maxsize=65536)
def size(written: int | str) -> sp.Expr:
    """A size as programs write it, expanded."""
    return sp.Integer(written) if isinstance(written, int) else sp.expand(to_sympy(written))


def product(sizes: Any) -> sp.Expr:
    """The expanded product of sizes; 1 for none."""
    return sp.expand(math.prod(sizes, start=sp.Integer(1)))


@functools.lru_cache(maxsize=65536)
def quotient(product: sp.Expr, part: sp.Expr) -> sp.Expr | None:
    """``product/part`` where it is a whole number at all sizes, else nothing."""
    if part == 1 or product == part:
        return product if part == 1 else sp.Integer(1)
    ratio = sp.cancel(product / part)
    symbols = sorted(ratio.free_symbols, key=str)
    numerator, denominator = sp.fraction(sp.together(ratio))
    if denominator != 1:
        return None
    if ratio.is_Integer or (symbols and ratio.is_polynomial(*symbols) and all(c.is_Integer for c in sp.Poly(ratio, *symbols).coeffs())):
        return sp.expand(ratio)
    return sp.expand(numerator) if not symbols or ratio.has(sp.floor, sp.ceiling, sp.Max, sp.Min) else None


def number(value: Any) -> sp.Expr:
    """A scalar argument (a number of Python's, or one computed from sizes) as an expression."""
    if isinstance(value, ComputedNumber):
        return _amount(value.text)
    if isinstance(value, bool | int):
        return sp.Integer(int(value))
    if isinstance(value, float):
        if math.isinf(value):
            return INFINITY if value > 0 else -INFINITY
        if math.isnan(value):
            return sp.nan
        over, under = value.as_integer_ratio()
        return sp.Rational(over, under) if under <= _DYADIC and abs(over) < 2**53 else sp.Float(value)
    raise NapkinError(f"an argument that should be a number is {str(value)[:60]!r}: this operator has no equation for it")


@functools.lru_cache(maxsize=4096)
def _amount(text: str) -> sp.Expr:
    try:
        return sp.expand(to_sympy(text))
    except Exception:  # what to_sympy cannot read is no size: numbers with roots in them
        tree = parse(text)
        return tree.value_in(_Numbers({name: symbol(name) for name in names(tree)}, _FUNCTIONS))


_FUNCTIONS = {"sqrt": sp.sqrt, "exp": sp.exp, "log": sp.log, "floor": sp.floor, "ceiling": sp.ceiling, "Max": sp.Max, "Min": sp.Min}


class _Numbers(SympyFunctions):
    def number(self, node: Number) -> sp.Expr:
        return number(node.value)

    def refused(self, node: Expression) -> NapkinError:
        return NapkinError(f"a number depends on sizes in a way that equations cannot express: {as_text(node, spaced=True)[:60]}")


def value_of(expr: sp.Expr, sizes: Mapping[str, int]) -> int:
    """A size in numbers. ``sizes`` has every symbol by name."""
    if expr.is_Integer:
        return int(expr)
    value = expr.xreplace({s: sp.Integer(sizes[s.name]) for s in expr.free_symbols})
    return int(value.doit() if not value.is_Integer else value)


# -- in the model's own dimensions ------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def _folded(expr: sp.Expr, folds: tuple[tuple[str, int | str, str], ...], hidden: frozenset[str]) -> sp.Expr:
    total = sp.Integer(0)
    for term in sp.Add.make_args(sp.expand(expr)):
        coefficient, factors_ = term.as_coeff_Mul()
        powers = {
            base.name: power for base, power in (f.as_base_exp() for f in sp.Mul.make_args(factors_)) if base.is_Symbol and power.is_Integer
        }
        remaining = sp.Mul(*(f for f in sp.Mul.make_args(factors_) if not (f.as_base_exp()[0].is_Symbol and f.as_base_exp()[1].is_Integer)))
        for product_name, part, quotient in folds:
            power_of_quotient = powers.get(quotient, 0)
            if isinstance(part, int):
                coefficient /= sp.Integer(part) ** power_of_quotient
                moved = power_of_quotient
            else:
                both = (power_of_quotient, powers.get(part, 0))
                moved = min(both) if min(both) > 0 else max(both) if max(both) < 0 else 0
                if quotient in hidden:  # no dimension of the model: it stays a quotient
                    moved = power_of_quotient
                powers[part] = powers.get(part, 0) - moved
            powers[quotient] = power_of_quotient - moved
            powers[product_name] = powers.get(product_name, 0) + moved
        total += coefficient * remaining * sp.Mul(*(symbol(n) ** p for n, p in powers.items()))
    return total


def in_dimensions(expr: sp.Expr, program: Program) -> sp.Expr:
    """A size in the model's dimensions: d where the basis has h·k."""
    if not expr.free_symbols:
        return expr
    hidden = frozenset(quotient for _, _, quotient in program.folds if quotient not in program.define)
    return _folded(expr, program.folds, hidden)


def folded(expr: sp.Expr, program: Program) -> sp.Expr:
    """A scalar expression with its sizes in the basis; products of sizes are not substituted."""
    sizes = {symbol(name) for name in program.symbols}

    def of_sizes(e: sp.Expr) -> bool:
        return bool(e.free_symbols) and e.free_symbols <= sizes and (e.is_Mul or e.is_Pow)

    return expr.replace(of_sizes, lambda e: in_dimensions(e, program) if e.is_Mul and all(f.is_rational for f in e.args) else e)
