"""Letters for axes, and sizes in the model's own dimensions."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import sympy as sp

from calc.algebra import symbol
from calc.program import Program

_SPARE = "ijmnpqruvwxyzacehklo"
# What a second axis of the same size is usually called.
_SECOND = {"t": "su", "b": "a", "d": "e", "k": "l", "v": "w", "h": "g", "f": "m", "i": "j"}


class Letters:
    """Letters for the axes of one equation after another: of size T the letter t, of a second one s."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def start(self, sizes: Sequence[sp.Expr]) -> list[str]:
        """Letters for the axes of what an equation is of."""
        return self.more(sizes, ())

    def more(self, sizes: Sequence[sp.Expr], taken: Sequence[str]) -> list[str]:
        """Letters for further axes, none of them taken."""
        used = {c for text in taken for c in text}
        found: list[str] = []
        for size in sizes:
            letter = next((c for c in self._wishes(size) if c not in used), "") or next((c for c in _SPARE if c not in used), "_")
            used.add(letter)
            found.append(letter)
        return found

    def _wishes(self, size: sp.Expr) -> str:
        shown = in_dimensions(size, self._program)
        names = sorted(str(s.name) for s in shown.free_symbols)
        if len(names) == 1 and (shown.is_Symbol or shown.is_Add):
            first = names[0][:1].lower()
            return first + _SECOND.get(first, "")
        return ""


@functools.lru_cache(maxsize=4096)
def _folded(expr: sp.Expr, folds: tuple[tuple[str, int | str, str], ...], hidden: frozenset[str]) -> sp.Expr:
    found = sp.Integer(0)
    for term in sp.Add.make_args(sp.expand(expr)):
        coefficient, rest = term.as_coeff_Mul()
        powers = {
            base.name: power for base, power in (f.as_base_exp() for f in sp.Mul.make_args(rest)) if base.is_Symbol and power.is_Integer
        }
        others = sp.Mul(*(f for f in sp.Mul.make_args(rest) if not (f.as_base_exp()[0].is_Symbol and f.as_base_exp()[1].is_Integer)))
        for whole, part, quotient in folds:
            there = powers.get(quotient, 0)
            if isinstance(part, int):
                coefficient /= sp.Integer(part) ** there
                moved = there
            else:
                both = (there, powers.get(part, 0))
                moved = min(both) if min(both) > 0 else max(both) if max(both) < 0 else 0
                if quotient in hidden:  # no dimension of the model: it stands as the quotient that it is
                    moved = there
                powers[part] = powers.get(part, 0) - moved
            powers[quotient] = there - moved
            powers[whole] = powers.get(whole, 0) + moved
        found += coefficient * others * sp.Mul(*(symbol(n) ** p for n, p in powers.items()))
    return found


def in_dimensions(expr: sp.Expr, program: Program) -> sp.Expr:
    """A size in the model's dimensions: d where the basis has h·k."""
    if not expr.free_symbols:
        return expr
    hidden = frozenset(quotient for _, _, quotient in program.folds if quotient not in program.define)
    return _folded(expr, program.folds, hidden)


def folded(expr: sp.Expr, program: Program) -> sp.Expr:
    """A scalar expression, the sizes in it as they are: products of sizes inside stay where they stand."""
    sizes = {symbol(name) for name in program.symbols}

    def of_sizes(e: sp.Expr) -> bool:
        return bool(e.free_symbols) and e.free_symbols <= sizes and (e.is_Mul or e.is_Pow)

    return expr.replace(of_sizes, lambda e: in_dimensions(e, program) if e.is_Mul and all(f.is_rational for f in e.args) else e)


def flops_text(expr: sp.Expr, program: Program) -> str:
    """FLOPs as people write them: 2·B·T·d·f."""
    shown = in_dimensions(expr, program)
    terms = sorted(sp.Add.make_args(shown), key=lambda t: sp.default_sort_key(t))
    return " + ".join(_term(t) for t in terms)


def _term(term: sp.Expr) -> str:
    coefficient, rest = term.as_coeff_Mul()
    factors = [] if rest == 1 else [_factor(f) for f in sp.Mul.make_args(rest)]
    return "·".join([str(coefficient), *sorted(factors)] if coefficient != 1 or not factors else sorted(factors))


_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def _factor(factor: sp.Expr) -> str:
    base, power = factor.as_base_exp()
    text = str(base) if base.is_Symbol or base.is_Integer else f"({base})"
    return text if power == 1 else f"{text}{str(power).translate(_RAISED)}" if power.is_Integer and power > 0 else f"{text}^({power})"
