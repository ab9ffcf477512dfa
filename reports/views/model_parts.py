"""Quantities by part of the model on a terminal: a row for each part, with its amount and share of each total."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from calc.derive.part_names import place
from calc.units import Unit
from reports.typeset.numbers import amount, percent
from reports.typeset.wording import undivided
from reports.writers.terminal import Terminal

# The totals of the first screen.
TOTALS = ("parameters", "flops.forward.matmul", "flops.step.total", "activations.bytes")
_MOST = 15


@dataclass(frozen=True, slots=True)
class PartColumn:
    """One total with its parts, which add up to it."""

    quantity: str
    unit: Unit
    parts: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.parts.values())

    def share(self, part: str) -> Fraction:
        return Fraction(self.parts.get(part, 0), self.total)


def show(columns: Sequence[PartColumn], out: Terminal) -> None:
    """The table, or nothing where no quantity has parts. The smallest parts of many are one row; one that is 0 in all, as where a special
    case runs without it, has none."""
    shown = [column for column in columns if column.parts and column.total]
    if not shown:
        return
    every = sorted(dict.fromkeys(part for column in shown for part, value in column.parts.items() if value), key=place)
    largest = sorted(every, key=lambda part: -max(column.share(part) for column in shown))[: _MOST if len(every) > _MOST + 1 else None]
    rows = [(part, *(_cell(column, (part,)) for column in shown)) for part in every if part in largest]
    if smaller := [part for part in every if part not in largest]:
        rows.append((f"{len(smaller)} smaller parts", *(_cell(column, smaller) for column in shown)))
    out.line()
    out.table(("Part of the model", *((column.quantity, "right") for column in shown)), rows)
    if note := undivided(every):
        out.line(note)


def _cell(column: PartColumn, parts: Sequence[str]) -> str:
    value = sum(column.parts.get(part, 0) for part in parts)
    if not value:
        return ""
    return f"{amount(value, column.unit).headline}  {percent(Fraction(value, column.total)):>7}"
