"""Loop counts: what several records at small depths say about every depth.

A depth is a Python loop, so each record has it as a number. Every amount is a polynomial in it; the records at 3 and 4
determine a linear one, more records a higher degree. Certificates at other depths decide whether the degree was enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from calc.algebra import Algebra, Poly
from calc.graph import Record


class Interpolation:
    """Tensor-product Lagrange interpolation over the loop counts of ``records``, which form a full grid."""

    def __init__(self, records: Sequence[Record], loops: Sequence[str], algebra: Algebra) -> None:
        self._algebra = algebra
        points = {name: sorted({r.sizes[name] for r in records}) for name in loops}
        self.weights: list[Poly] = []
        for record in records:
            weight = algebra.constant(1)
            for name in loops:
                weight *= self._basis(name, points[name], record.sizes[name])
            self.weights.append(weight)

    def _basis(self, name: str, points: Sequence[int], at: int) -> Poly:
        """The Lagrange polynomial in ``name`` that is 1 at ``at`` and 0 at the other points."""
        result = self._algebra.constant(1)
        for other in points:
            if other != at:
                result *= (self._algebra.gen(name) - other) * self._algebra.constant(Fraction(1, at - other))
        return result

    def __call__(self, values: Sequence[Poly]) -> Poly:
        """The polynomial that takes ``values``, one a record."""
        if all(v == values[0] for v in values):
            return values[0]
        total = self._algebra.constant(0)
        for weight, value in zip(self.weights, values, strict=True):
            total += weight * value
        return total


class Sites:
    """Which numbers in module paths are loop indices: those of containers whose length differs between records."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._cache: dict[str, str] = {}
        self._indices: dict[str, tuple[int, ...]] = {}
        children = [_children(record) for record in records]
        self.looped = {prefix for prefix in children[0] if any(c.get(prefix) != children[0][prefix] for c in children)}

    def general(self, site: str) -> str:
        """``"h.0.mlp"`` → ``"h.*.mlp"`` where ``h`` is looped over."""
        found = self._cache.get(site)
        if found is None:
            parts = site.split(".")
            found = self._cache[site] = ".".join(
                "*" if part.isdigit() and ".".join(parts[:i]) in self.looped else part for i, part in enumerate(parts)
            )
        return found

    def indices(self, site: str) -> tuple[int, ...]:
        """The loop indices in a site, the outermost first: ``"h.3.mlp"`` → ``(3,)`` where ``h`` is looped over."""
        found = self._indices.get(site)
        if found is None:
            parts = site.split(".")
            found = self._indices[site] = tuple(
                int(part) for i, part in enumerate(parts) if part.isdigit() and ".".join(parts[:i]) in self.looped
            )
        return found

    def instances(self, record: Record) -> Mapping[str, int]:
        """Number of children of each looped container in ``record``."""
        return {prefix: len(c) for prefix, c in _children(record).items() if prefix in self.looped}


def _children(record: Record) -> dict[str, frozenset[int]]:
    """Numbered children of each container, by the container's path."""
    found: dict[str, set[int]] = {}
    for site in {op.site for op in record.ops} | {name for name, _ in record.parameters}:
        parts = site.split(".")
        for i, part in enumerate(parts):
            if part.isdigit():
                found.setdefault(".".join(parts[:i]), set()).add(int(part))
    return {prefix: frozenset(numbers) for prefix, numbers in found.items()}
