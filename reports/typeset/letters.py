"""Letters for axes, and FLOPs as people write them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import sympy as sp

from calc.graph.forward import Program
from calc.mathematics.autodiff.ir import Node
from calc.mathematics.autodiff.sizes import in_dimensions
from reports.typeset.numbers import integer
from reports.typeset.sympy_text import SizeText

_SPARE = "ijnmpqruvwxyzacehklosgdft"
# What a second axis of the same size is usually called.
_SECOND = {"t": "su", "b": "a", "v": "w"}


class Letters:
    """Letters for the axes of one equation after another: of size T the letter t, of a second one s. No letter is that of a size, or of one
    of the ``tensors`` ([i = i[b]] would not be read): an axis of size d has the letter i. ``sizes``: of each letter, the sizes
    so far that do not begin with it: of n, p and p² + 1."""

    def __init__(self, program: Program, tensors: Collection[str] = ()) -> None:
        self._program = program
        names = [name for name in dict.fromkeys([*program.define, *program.symbols]) if name not in program.fixed]
        blocked = {*names, *tensors}
        self._of = _initials(names, blocked)
        free = (letter for letter in _SPARE if letter not in blocked and letter not in self._of.values())
        given = dict(zip(free, (name for name in names if len(name) == 1 and name not in self._of), strict=False))
        self.sizes: dict[str, dict[str, None]] = {letter: {} for letter in (*given, *self._of.values())}
        self._initials = frozenset(self._of)
        self._of |= {name: letter for letter, name in given.items()}
        self._spare = [letter for letter in _SPARE if letter not in blocked and letter not in self._of.values()]

    def start(self, sizes: Sequence[sp.Expr]) -> list[str]:
        """Letters for the axes of what an equation is of."""
        return self.more(sizes, ())

    def more(self, sizes: Sequence[sp.Expr], texts: Sequence[str]) -> list[str]:
        """Letters for further axes, none of them taken."""
        used = {c for text in texts for c in text}
        letters: list[str] = []
        for size in sizes:
            letter = next((c for c in (*self._wishes(size), *self._spare) if c not in used), "_")
            used.add(letter)
            letters.append(letter)
            if letter in self.sizes and str(in_dimensions(size, self._program)) not in self._initials:
                self.sizes[letter][axis_text(size, self._program)] = None
        return letters

    def _wishes(self, size: sp.Expr) -> Iterator[str]:
        shown = in_dimensions(size, self._program)
        names = sorted(str(s.name) for s in shown.free_symbols)
        if len(names) == 1 and (shown.is_Symbol or shown.is_Add) and names[0] in self._of:
            yield self._of[names[0]]
            yield from (letter for letter in _SECOND.get(self._of[names[0]], "") if letter in self._spare)


def _initials(names: Sequence[str], blocked: Collection[str]) -> dict[str, str]:
    """Sizes whose initial in lower case is a letter of their own."""
    initials: dict[str, str] = {}
    for name in names:
        letter = name[0].lower()
        if letter not in blocked and letter not in initials.values():
            initials[name] = letter
    return initials


def flops_text(expr: sp.Expr, program: Program) -> str:
    """FLOPs as people write them, sizes in the order of the model's dimensions: 2·B·T·d·f."""
    return _terms(expr, program, _grouped)


def axis_text(size: sp.Expr, program: Program) -> str:
    """The size of an axis, a sum from its highest power down: p² + 1."""
    return SizeText().write(in_dimensions(size, program))


def shape_text(sizes: Sequence[sp.Expr], program: Program) -> str:
    """The shape of a tensor in an equation: (B, p² + 1, d)."""
    return f"({', '.join(axis_text(size, program) for size in sizes)})"


def size_text(expr: sp.Expr, program: Program) -> str:
    """A size in a shape, where commas separate the axes: 50257."""
    return _terms(expr, program, str)


def contraction_flops_text(node: Node, program: Program) -> str:
    """The FLOPs of a contraction of two tensors, 2 for a multiplication and an addition. Numbers stay factors: those of the result, then
    those summed over."""
    numbers = [[int(size) for size in sizes if size.is_Integer and size != 1] for sizes in (node.shape, node.inner)]
    symbols = sp.expand(sp.Mul(*(size for size in (*node.shape, *node.inner) if not size.is_Integer)))
    if len([*numbers[0], *numbers[1]]) < 2 or symbols.is_Add:
        return flops_text(2 * node.multiplications, program)
    factors = ["2", *(_factors(group) for group in numbers if group)]
    return "·".join(factors if symbols == 1 else [*factors, flops_text(symbols, program)])


def _factors(numbers: Sequence[int]) -> str:
    written = "·".join(integer(number) for number in numbers)
    return f"({written})" if len(numbers) > 1 else written


def _terms(expr: sp.Expr, program: Program, number: Callable[[sp.Expr], str]) -> str:
    shown = in_dimensions(expr, program)
    terms = sorted(sp.Add.make_args(shown), key=lambda t: sp.default_sort_key(t))
    places = {name: place for place, name in enumerate(program.define)}
    return " + ".join(_term(t, places, number) for t in terms)


def _term(term: sp.Expr, places: Mapping[str, int], number: Callable[[sp.Expr], str]) -> str:
    coefficient, monomial = term.as_coeff_Mul()
    factors = () if monomial == 1 else sp.Mul.make_args(monomial)
    written = [SizeText().write(f) for f in sorted(factors, key=lambda f: (places.get(str(f.as_base_exp()[0]), len(places)), str(f)))]
    return "·".join([number(coefficient), *written] if coefficient != 1 or not written else written)


def _grouped(number: sp.Expr) -> str:
    return integer(int(number)) if number.is_Integer else str(number)
