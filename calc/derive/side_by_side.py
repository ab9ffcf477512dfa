"""Quantities of several steps in one table: values, parts and shares by column. Torch-free.

    napkin compare gpt2 d=768,1024 L=12,24 h=12,16 --quantity flops.forward.matmul

A part is one of the model, as in ``calc/derive/model_parts.py``; of a peak, the bytes of one role. Parts with one name are one row. A row
has a closed form where all steps share it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from calc.derive.result import Derivation, Quantity
from calc.derive.to_json import number
from calc.errors import BadInputError
from calc.platform.tables import text_table
from calc.symbolic import branches
from calc.units import Unit

# Quantities of a table for which none are named.
USUAL = ("parameters", "flops.forward.matmul", "flops.step.total", "activations.bytes", "memory.peak")


@dataclass(frozen=True, slots=True)
class PartRow:
    """A part of a quantity in each step, 0 in a step without it. ``expr``: the closed form of all steps, or ``None`` where they differ."""

    part: str
    expr: str | None
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class QuantityTable:
    """A quantity in each step. Where a value is ``None``, ``unknown`` says why. In each step with a value, ``parts`` add up to it, unless
    there are none."""

    quantity: str
    meaning: str
    unit: Unit
    expr: str | None
    values: tuple[int | None, ...]
    unknown: tuple[str, ...]
    parts: tuple[PartRow, ...]

    def share(self, row: PartRow, step: int) -> Fraction | None:
        """The share of a part in a step's value; ``None`` where that is unknown or 0."""
        whole = self.values[step]
        return Fraction(row.values[step], whole) if whole else None

    def largest(self, most: int) -> tuple[PartRow, ...]:
        """At most ``most`` rows: the parts with the largest shares in any step, in order, and the sum of all others as the last row."""
        if len(self.parts) <= most:
            return self.parts
        by_share = sorted(self.parts, key=lambda row: -max((self.share(row, i) or Fraction(0)) for i in range(len(self.values))))
        shown = [row for row in self.parts if row in by_share[: most - 1]]
        rest = [row for row in self.parts if row not in shown]
        others = PartRow(f"{len(rest)} smaller parts", None, tuple(map(sum, zip(*(row.values for row in rest), strict=True))))
        return (*shown, others)


@dataclass(frozen=True, slots=True, repr=False)
class SideBySide:
    """Several steps: ``names`` are unique, ``sizes`` and ``options`` those in which they differ, ``same`` the sizes that they share."""

    names: tuple[str, ...]
    same: dict[str, int]
    sizes: dict[str, tuple[int | None, ...]]
    options: dict[str, tuple[str, ...]]
    quantities: tuple[QuantityTable, ...]

    def __repr__(self) -> str:
        """A line for each quantity, a column for each step."""
        rows = [(q.quantity, *("unknown" if v is None else f"{v:,}" for v in q.values)) for q in self.quantities]
        columns = range(1, len(self.names) + 1)
        return text_table("side by side", [("", *self.names), *rows], frozenset(columns))


def side_by_side(derivations: Sequence[Derivation], names: Sequence[str], quantities: Sequence[str] = USUAL) -> SideBySide:
    """The table of ``quantities`` in each derivation. Raises ``BadInputError`` for a name that no derivation has."""
    sizes = _by_step(derivation.sizes for derivation in derivations)
    options = _by_step(derivation.options for derivation in derivations)
    same = {name: values[0] for name, values in sizes.items() if _equal(values) and values[0] is not None}
    return SideBySide(
        names=tuple(names),
        same=same,
        sizes={name: values for name, values in sizes.items() if name not in same},
        options={name: tuple("–" if v is None else str(v) for v in values) for name, values in options.items() if not _equal(values)},
        quantities=tuple(quantity_table(name, derivations) for name in dict.fromkeys(quantities)),
    )


def _by_step(steps: Iterable[Any]) -> dict[str, tuple[Any, ...]]:
    """The value of each key in each step; ``None`` where a step lacks it."""
    every = list(steps)
    return {name: tuple(step.get(name) for step in every) for name in dict.fromkeys(name for step in every for name in step)}


def _equal(values: Sequence[object]) -> bool:
    return all(value == values[0] for value in values)


def in_force(quantity: Quantity | None, sizes: Mapping[str, int]) -> Quantity | None:
    """The quantity with the closed forms of the case that is in force at ``sizes``."""
    if quantity is None or quantity.text is None:
        return quantity
    terms = tuple(replace(term, expr=branches.at_hand(term.expr, sizes)) for term in quantity.terms)
    parts = tuple(replace(part, expr=branches.at_hand(part.expr, sizes)) for part in quantity.parts)
    return replace(quantity, text=branches.at_hand(quantity.text, sizes), terms=terms, parts=parts)


def quantity_table(name: str, derivations: Sequence[Derivation]) -> QuantityTable:
    """One quantity in each derivation, by part. Raises ``BadInputError`` for a name that none has."""
    columns = [in_force(derivation.quantities.get(name), derivation.sizes) for derivation in derivations]
    described = next((quantity for quantity in columns if quantity is not None), None)
    if described is None:
        raise BadInputError(f"no quantity {name[:60]!r}: see napkin list quantities")
    exprs = [quantity.text if quantity is not None else None for quantity in columns]
    return QuantityTable(
        quantity=name,
        meaning=described.meaning,
        unit=described.unit,
        expr=exprs[0] if _equal(exprs) and not described.candidates else None,
        values=tuple(quantity.value if quantity is not None else None for quantity in columns),
        unknown=tuple("this step has none" if quantity is None else quantity.unknown for quantity in columns),
        parts=_parts([_by_part(quantity) for quantity in columns]),
    )


_ExprsAndValues = Mapping[str, tuple[str, int]]


def _by_part(quantity: Quantity | None) -> _ExprsAndValues:
    """Closed form and value of each part."""
    if quantity is None or quantity.value is None:
        return {}
    largest = quantity.largest_candidate
    if largest is None:
        return {part.part: (part.expr, part.value) for part in quantity.parts}
    return {role: (expr, largest.part_values[role]) for role, expr in largest.parts.items()}


def _parts(columns: Sequence[_ExprsAndValues]) -> tuple[PartRow, ...]:
    rows = []
    for part in dict.fromkeys(part for by_part in columns for part in by_part):
        terms = [by_part.get(part) for by_part in columns]
        exprs = [term[0] if term is not None else None for term in terms]
        rows.append(PartRow(part, exprs[0] if _equal(exprs) else None, tuple(term[1] if term is not None else 0 for term in terms)))
    return tuple(rows)


def document(table: SideBySide) -> dict[str, Any]:
    """The ``"schema": 1`` document of the table, as plain data; shares are exact fractions in text, ``"3/8"``."""
    return {
        "schema": 1,
        "steps": list(table.names),
        "same": {name: number(size) for name, size in table.same.items()},
        "sizes": {name: list(map(number, values)) for name, values in table.sizes.items()},
        "options": {name: list(values) for name, values in table.options.items()},
        "quantities": {quantity.quantity: _document(quantity) for quantity in table.quantities},
    }


def _document(table: QuantityTable) -> dict[str, Any]:
    return {
        "meaning": table.meaning,
        "unit": str(table.unit),
        "expr": table.expr,
        "values": list(map(number, table.values)),
        "because": [reason or None for reason in table.unknown],
        "parts": parts_document(table),
    }


def parts_document(table: QuantityTable) -> list[dict[str, Any]]:
    """The parts of a quantity as plain data; a share is ``None`` where the whole is unknown or 0."""
    steps = range(len(table.values))
    return [
        {
            "part": row.part,
            "expr": row.expr,
            "values": list(map(number, row.values)),
            "shares": [None if (share := table.share(row, i)) is None else str(share) for i in steps],
        }
        for row in table.parts
    ]
