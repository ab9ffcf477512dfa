"""One step of an operation over named dimensions: two operands contracted, or one reduced, repeated or rearranged.

Counts: a contraction is a matmul, 2 FLOP for each combination of its dimensions (one multiply-add is 2 FLOP), as torch executes
it. Where no dimension is summed it is 1 multiplication for each element of the result. A dimension that one operand has alone and the
result has not is summed first: n - 1 additions for n elements. A reduction of n elements is n - 1 operations, a mean one division more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from calc.mathematics.einsum.pattern import Pattern


@dataclass(frozen=True, slots=True)
class Count:
    """``Σ factor · Π names``: (factor, names) with names in order of appearance."""

    terms: tuple[tuple[int, tuple[str, ...]], ...] = ()

    def __add__(self, other: Count) -> Count:
        return total((self, other))

    def times(self, factor: int) -> Count:
        return Count(tuple((factor * f, names) for f, names in self.terms)) if factor else Count()

    @property
    def text(self) -> str:
        """``2*b*s*d*f - b``, as SymPy reads it."""
        out = ""
        for factor, names in self.terms:
            sign = "-" if factor < 0 else "+"
            size = "*".join((*((str(abs(factor)),) if abs(factor) != 1 or not names else ()), *names))
            out += f" {sign} {size}" if out else f"{sign if factor < 0 else ''}{size}"
        return out or "0"

    def at(self, sizes: Mapping[str, int]) -> int | None:
        """The integer, or ``None`` where a size is not known."""
        if any(name not in sizes for _, names in self.terms for name in names):
            return None
        return sum(factor * math.prod(sizes[name] for name in names) for factor, names in self.terms)


def product(names: Iterable[str], factor: int = 1) -> Count:
    """``factor`` times the product of the sizes ``names``."""
    return Count(((factor, tuple(names)),)) if factor else Count()


def total(counts: Iterable[Count]) -> Count:
    """The sum, like terms collected."""
    terms: dict[tuple[str, ...], tuple[int, tuple[str, ...]]] = {}
    for count in counts:
        for factor, names in count.terms:
            key = tuple(sorted(names))
            before, shown = terms.get(key, (0, names))
            terms[key] = (before + factor, shown)
    return Count(tuple(term for term in terms.values() if term[0]))


# -- steps -------------------------------------------------------------------------------------------------------------


REDUCTIONS = ("sum", "mean", "max", "min", "prod")


@dataclass(frozen=True, slots=True)
class EinsumStep:
    """``inputs`` (name, dimensions) into ``out``; ``first`` are (name, dimensions) summed alone before the product.

    ``matmul`` and ``elementwise`` are FLOPs; ``elements`` are read and written.
    """

    kind: str
    inputs: tuple[tuple[str, tuple[str, ...]], ...]
    out: tuple[str, tuple[str, ...]]
    first: tuple[tuple[str, tuple[str, ...]], ...]
    matmul: Count
    elementwise: Count
    elements: Count
    because: str

    @property
    def flops(self) -> Count:
        return self.matmul + self.elementwise

    @property
    def backward_matmul(self) -> Count:
        """Matrix multiplications that autograd executes for both gradients: two products of the same dimensions."""
        return self.matmul.times(2)

    @property
    def pattern(self) -> str:
        """As a pattern of its own."""
        operands = ", ".join(" ".join(names) for _, names in self.inputs)
        return f"{operands} -> {' '.join(self.out[1])}".rstrip()


def operand_names(pattern: Pattern) -> tuple[str, ...]:
    """A letter for each operand: A, B, C and so on."""
    return tuple("ABCDEFGHIJKL"[: len(pattern.operands)])


def contract(left: str, right: str, out: str, of_left: Sequence[str], of_right: Sequence[str], of_out: Sequence[str]) -> EinsumStep:
    """The product of two operands with the dimensions of ``kept`` left."""
    firsts, operands = [], []
    for name, mine, opposite in ((left, of_left, of_right), (right, of_right, of_left)):
        alone = tuple(d for d in mine if d not in opposite and d not in of_out)
        firsts += [(name, alone)] if alone else []
        operands.append(tuple(d for d in mine if d not in alone))
    summed = tuple(d for d in operands[0] if d not in of_out)
    everything = tuple(dict.fromkeys((*operands[0], *operands[1])))
    added = total(_sum_of(names, mine) for names, mine in zip((of_left, of_right), operands, strict=True))
    if summed:
        matmul, elementwise = product(everything, 2), added
        because = f"{len(everything)} dimensions, {_list(summed)} summed: 2 FLOP for each combination"
    else:
        matmul, elementwise = Count(), total((added, product(everything)))
        because = "no dimension is summed: 1 multiplication for each element of the result"
    if firsts:
        because += f"; {' and '.join(f'{_list(alone)} of {name}' for name, alone in firsts)} summed before"
    elements = total((product(of_left), product(of_right), product(of_out)))
    inputs = ((left, tuple(of_left)), (right, tuple(of_right)))
    return EinsumStep("contract", inputs, (out, tuple(of_out)), tuple(firsts), matmul, elementwise, elements, because)


def _sum_of(before: Sequence[str], after: Sequence[str]) -> Count:
    return total((product(before), product(after, -1))) if len(after) < len(before) else Count()


def _list(names: Sequence[str]) -> str:
    return ", ".join(names)


def reduce(pattern: Pattern, how: str) -> EinsumStep:
    """One operand with some of its dimensions reduced by ``how``."""
    before, after = pattern.operands[0].names, pattern.result.names
    gone = tuple(name for name in before if name not in after)
    flops = total((product(before), product(after, -1), product(after) if how == "mean" else Count()))
    because = f"{_list(gone)} reduced: n - 1 operations for n elements of each result"
    because += ", and a division" if how == "mean" else ""
    return _single(f"reduce by {how}", pattern, flops, total((product(before), product(after))), because)


def repeat(pattern: Pattern, sizes: Mapping[str, int]) -> EinsumStep:
    """One operand along new dimensions."""
    new = [name for name in pattern.result.names if name not in pattern.operands[0].names]
    wide = [tuple(name for name in group if sizes.get(name) != 1) for group in pattern.result.groups]
    if any(len(group) > 1 and set(group) & set(new) for group in wide) or _scattered(pattern, set(new), sizes):
        return _single("repeat", pattern, Count(), _moved(pattern), f"{_list(new)} merged with others: every element is copied")
    return _single("repeat", pattern, Count(), Count(), f"{_list(new)} with stride 0: a view, no bytes are moved")


def rearrange(pattern: Pattern, sizes: Mapping[str, int]) -> EinsumStep:
    """One operand with its dimensions in another order, split or merged."""
    scattered = _scattered(pattern, set(), sizes)
    if scattered:
        because = f"({' '.join(scattered[0])}) are not next to each other in memory: merging them copies every element"
        return _single("rearrange", pattern, Count(), _moved(pattern), because)
    return _single("rearrange", pattern, Count(), Count(), "other sizes and strides of the same storage: a view, nothing is copied")


def _scattered(pattern: Pattern, new: set[str], sizes: Mapping[str, int]) -> list[tuple[str, ...]]:
    """Merged groups whose dimensions do not follow one another in the operand, which lies in memory without gaps.

    Dimensions of size 1 do not matter.
    """
    order = {name: at for at, name in enumerate(n for n in pattern.operands[0].names if sizes.get(n) != 1)}
    groups = []
    for group in pattern.result.groups:
        places = [order[name] for name in group if name in order and name not in new]
        if any(b != a + 1 for a, b in pairwise(places)):
            groups.append(group)
    return groups


def _moved(pattern: Pattern) -> Count:
    return total((product(pattern.operands[0].names), product(pattern.result.names)))


def _single(kind: str, pattern: Pattern, flops: Count, elements: Count, because: str) -> EinsumStep:
    (name,) = operand_names(pattern)
    inputs = ((name, pattern.operands[0].names),)
    return EinsumStep(kind, inputs, ("Y", pattern.result.names), (), Count(), flops, elements, because)
