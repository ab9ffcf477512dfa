"""Letters for axes, and FLOPs as people write them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import sympy as sp

from calc.graph.forward import Program
from calc.mathematics.autodiff.sizes import in_dimensions

_SPARE = "ijmnpqruvwxyzacehklo"
# What a second axis of the same size is usually called.
_SECOND = {"t": "su", "b": "a", "d": "e", "k": "l", "v": "w", "h": "g", "f": "m", "i": "j"}


class Letters:
    """Letters for the axes of one equation after another: of size T the letter t, of a second one s. An axis whose size has no name takes
    none of the ``tensors``: [i = i[b]] would not be read."""

    def __init__(self, program: Program, tensors: Collection[str] = ()) -> None:
        self._program = program
        self._spare = [letter for letter in _SPARE if letter not in tensors]

    def start(self, sizes: Sequence[sp.Expr]) -> list[str]:
        """Letters for the axes of what an equation is of."""
        return self.more(sizes, ())

    def more(self, sizes: Sequence[sp.Expr], texts: Sequence[str]) -> list[str]:
        """Letters for further axes, none of them taken."""
        used = {c for text in texts for c in text}
        letters: list[str] = []
        for size in sizes:
            letter = next((c for c in self._wishes(size) if c not in used), "") or next((c for c in self._spare if c not in used), "_")
            used.add(letter)
            letters.append(letter)
        return letters

    def _wishes(self, size: sp.Expr) -> str:
        shown = in_dimensions(size, self._program)
        names = sorted(str(s.name) for s in shown.free_symbols)
        if len(names) == 1 and (shown.is_Symbol or shown.is_Add):
            first = names[0][:1].lower()
            return first + _SECOND.get(first, "")
        return ""


def flops_text(expr: sp.Expr, program: Program) -> str:
    """FLOPs as people write them, sizes in the order of the model's dimensions: 2·B·T·d·f."""
    shown = in_dimensions(expr, program)
    terms = sorted(sp.Add.make_args(shown), key=lambda t: sp.default_sort_key(t))
    places = {name: place for place, name in enumerate(program.define)}
    return " + ".join(_term(t, places) for t in terms)


def _term(term: sp.Expr, places: Mapping[str, int]) -> str:
    coefficient, monomial = term.as_coeff_Mul()
    factors = () if monomial == 1 else sp.Mul.make_args(monomial)
    written = [_factor(f) for f in sorted(factors, key=lambda f: (places.get(str(f.as_base_exp()[0]), len(places)), str(f)))]
    return "·".join([str(coefficient), *written] if coefficient != 1 or not written else written)


_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def _factor(factor: sp.Expr) -> str:
    base, power = factor.as_base_exp()
    text = str(base) if base.is_Symbol or base.is_Integer else f"({base})"
    return text if power == 1 else f"{text}{str(power).translate(_RAISED)}" if power.is_Integer and power > 0 else f"{text}^({power})"
