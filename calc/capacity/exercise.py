"""Exercises of an assignment and their answers as data, which pages show and JSON has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

from calc.symbolic.expression import Expression
from calc.symbolic.writer import as_text
from calc.units import fraction, number


@dataclass(frozen=True, slots=True)
class ExerciseResult:
    """A number that answers a question. ``expr``: its closed form in the model's sizes, if it has one."""

    label: str
    value: Fraction
    unit: str
    expr: str | None = None
    because: str = ""


@dataclass(frozen=True, slots=True)
class ExerciseRow:
    """A part with its amount in each column; ``shares`` are of the column's total. ``once``: what the rule counts for one layer, with the
    factors in the order of the shapes."""

    part: str
    expr: str | None
    values: tuple[int, ...]
    shares: tuple[Fraction, ...]
    once: Expression | None = None


@dataclass(frozen=True, slots=True)
class ExerciseTable:
    """Parts of a quantity, in one column for each step."""

    caption: str
    unit: str
    columns: tuple[str, ...]
    rows: tuple[ExerciseRow, ...]

    @property
    def totals(self) -> tuple[int, ...]:
        return tuple(sum(row.values[i] for row in self.rows) for i in range(len(self.columns)))


@dataclass(frozen=True, slots=True)
class Exercise:
    """A question and its answer. ``explained``: the quantity whose steps lead to it, at the sizes ``at`` and those given. ``rising`` and
    ``falling`` name the parts whose share grows or shrinks from each column to the next, ``mixed`` those whose share does both."""

    name: str
    question: str
    explained: str
    results: tuple[ExerciseResult, ...] = ()
    tables: tuple[ExerciseTable, ...] = ()
    at: tuple[tuple[str, int], ...] = (("B", 1),)

    @property
    def rising(self) -> tuple[str, ...]:
        return self._parts(lambda grows, shrinks: grows and not shrinks)

    @property
    def falling(self) -> tuple[str, ...]:
        return self._parts(lambda grows, shrinks: shrinks and not grows)

    @property
    def mixed(self) -> tuple[str, ...]:
        return self._parts(lambda grows, shrinks: grows and shrinks)

    def _parts(self, chosen: Callable[[bool, bool], bool]) -> tuple[str, ...]:
        """The parts by whether their share grows, and whether it shrinks, somewhere between two columns."""
        changes = ((row.part, [*pairwise(row.shares)]) for table in self.tables for row in table.rows)
        return tuple(part for part, pairs in changes if chosen(any(a < b for a, b in pairs), any(a > b for a, b in pairs)))


def document(exercises: Sequence[Exercise]) -> list[dict[str, Any]]:
    """The exercises as plain data; values that are no integers are exact fractions in text."""
    return [
        {
            "name": exercise.name,
            "question": exercise.question,
            "results": [
                {"what": r.label, "value": fraction(r.value), "unit": r.unit, "expr": r.expr, "because": r.because or None}
                for r in exercise.results
            ],
            "tables": [
                {
                    "caption": table.caption,
                    "unit": table.unit,
                    "columns": list(table.columns),
                    "rows": [
                        {
                            "part": row.part,
                            "once": None if row.once is None else as_text(row.once),
                            "expr": row.expr,
                            "values": list(map(number, row.values)),
                            "shares": list(map(str, row.shares)),
                        }
                        for row in table.rows
                    ],
                }
                for table in exercise.tables
            ],
        }
        for exercise in exercises
    ]


def largest_parts(table: ExerciseTable, column: int = 0) -> Iterator[ExerciseRow]:
    """The rows of a table, the largest share of a column first."""
    yield from sorted(table.rows, key=lambda row: -row.shares[column])
