"""The composition of a derived number, its dependence on sizes, and where one part exceeds another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from calc.derive.result import Derivation, Quantity
from calc.dimensions import evaluate
from calc.errors import NapkinError
from calc.symbolic import branches
from calc.symbolic.algebra import Algebra
from calc.symbolic.parser import free_names

LARGEST_SHARES = 15


@dataclass(frozen=True, slots=True)
class PartShare:
    """What one part of the model, or one role of live bytes, takes of a quantity, and its share of the total."""

    part: str
    expr: str
    value: int
    share: Fraction


@dataclass(frozen=True, slots=True)
class Doubling:
    """The factor by which a quantity grows when one dimension doubles and defaults follow. ``None`` where it cannot double."""

    dim: str
    factor: Fraction | None
    because: str = ""


@dataclass(frozen=True, slots=True)
class Crossover:
    """``fast`` grows with the square of ``dim``, ``slow`` in proportion: from ``at`` on, ``fast`` is the larger."""

    quantity: str
    dim: str
    fast: str
    slow: str
    at: Fraction


def shares(quantity: Quantity, most: int = LARGEST_SHARES) -> tuple[PartShare, ...]:
    """The parts of ``quantity``, largest first, and together all of it: where there are more than ``most``, the last row is their sum."""
    if not quantity.value:
        return ()
    parts = sorted([(p.part, p.expr, p.value) for p in quantity.parts] or _roles(quantity), key=lambda part: (-part[2], part[0]))
    if len(parts) > most:
        parts[most - 1 :] = [_together(parts[most - 1 :])]
    return tuple(PartShare(part, expr, value, Fraction(value, quantity.value)) for part, expr, value in parts)


def _together(parts: Sequence[tuple[str, str, int]]) -> tuple[str, str, int]:
    return f"{len(parts)} smaller parts", " + ".join(f"({expr})" for _, expr, _ in parts), sum(value for _, _, value in parts)


def _roles(quantity: Quantity) -> list[tuple[str, str, int]]:
    """The parts of a peak by role, at its largest candidate."""
    candidate = quantity.largest_candidate
    return [(role, expr, candidate.part_values[role]) for role, expr in candidate.parts.items()] if candidate is not None else []


def doublings(derivation: Derivation, name: str) -> tuple[Doubling, ...]:
    """The effect of doubling each free dimension on quantity ``name``."""
    quantity = derivation[name]
    if quantity.text is None or not quantity.value:
        return ()
    occur = free_names(quantity.text)
    results: list[Doubling] = []
    for dim in derivation.dims:
        if dim.name not in occur or dim.expr is not None:
            continue
        most = int(evaluate(dim.at_most, derivation.sizes)) if dim.at_most else None
        if most is not None and 2 * dim.value > most:
            results.append(Doubling(dim.name, None, f"{dim.name} is at most {dim.at_most} = {most:,}"))
            continue
        try:
            if not _may_be_traced(derivation, dim.name) and not derivation.holds_at({dim.name: 2 * dim.value}):
                results.append(Doubling(dim.name, None, f"the step runs other operators at {dim.name} = {2 * dim.value:,}"))
                continue
            results.append(Doubling(dim.name, Fraction(quantity.at(**{dim.name: 2 * dim.value}), quantity.value)))
        except NapkinError as error:
            results.append(Doubling(dim.name, None, str(error)))
    return tuple(results)


def _may_be_traced(derivation: Derivation, dim: str) -> bool:
    """Whether doubling justifies a further trace: twice a batch of one, or a size that alone makes the derivation a special case."""
    return dim in derivation.specialized and (dim == "B" or len(derivation.specialized) == 1)


def crossover(derivation: Derivation, name: str, dim: str = "T") -> Crossover | None:
    """Where the part of quantity ``name`` that is quadratic in ``dim`` overtakes the part proportional to it."""
    quantity = derivation.quantities.get(name)
    if quantity is None or quantity.text is None or dim not in derivation.sizes:
        return None
    try:
        text = branches.at_hand(quantity.text, derivation.sizes)
        algebra = Algebra(list(derivation.sizes), [text])
        terms = algebra.terms(algebra.parse(text))
    except NapkinError:
        return None
    values: Mapping[str, int] = {**derivation.sizes, dim: 1}
    by_degree: dict[int, list[tuple[str, Fraction]]] = {}
    for coefficient, powers in terms:
        if any(not n.isidentifier() or n not in values for n in powers):
            return None
        poly, value = algebra.constant(coefficient), Fraction(coefficient)
        for n, power in powers.items():
            poly *= algebra.gen(n) ** power
            value *= values[n] ** power  # one addend alone may not be integral: of L layers, L/3 - 2/3 attend
        by_degree.setdefault(powers.get(dim, 0), []).append((algebra.text(poly), value))
    if set(by_degree) != {1, 2}:
        return None
    fast, slow = (sum((v for _, v in by_degree[degree]), Fraction(0)) for degree in (2, 1))
    written = {degree: " + ".join(t for t, _ in by_degree[degree]) for degree in (1, 2)}
    return Crossover(name, dim, written[2], written[1], slow / fast) if fast > 0 and slow > 0 else None
