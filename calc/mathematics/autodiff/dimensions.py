"""Sizes of a program in the model's own dimensions: d where the basis has h·k."""

from __future__ import annotations

import functools

import sympy as sp

from calc.graph.forward import Program
from calc.symbolic.algebra import symbol


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
