"""Counts of an operation: sums of products of sizes by name, which have a value once every size in them is known."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


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
