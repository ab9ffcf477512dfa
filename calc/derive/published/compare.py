"""A published table beside the exact counts of a model: each cell's difference, split exactly into terms with a reason each."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from calc.derive.names import AddendLabel
from calc.derive.part_names import MIX, SCORES, SOFTMAX
from calc.derive.published.tables import PublishedCell, PublishedTable
from calc.derive.result import Derivation
from calc.derive.rules_of_thumb.corrections import explained
from calc.derive.rules_of_thumb.differences import Difference
from calc.derive.rules_of_thumb.exact import Addend, ExactCount
from calc.derive.rules_of_thumb.rules import RuleOfThumb
from calc.errors import BadInputError
from calc.symbolic import branches
from calc.symbolic.algebra import symbol, to_sympy
from calc.symbolic.exact import evaluate_text
from calc.units import Unit, fraction, number

_ATTENTION = (SCORES, SOFTMAX, MIX)  # whose matmuls have labels of their own


@dataclass(frozen=True, slots=True)
class ComparedCell:
    """A cell: the printed expression and its value, the exact one, and the terms of printed − exact. FLOPs per token may be fractions.

    ``exact`` is ``None`` where the count is unknown, and ``unknown`` says why. ``differences`` is ``None`` where they are not split.
    """

    expr: str
    unit: str
    printed: Fraction
    exact: Fraction | None
    differences: tuple[Difference, ...] | None
    unknown: str = ""

    @property
    def difference(self) -> Fraction | None:
        """Printed − exact."""
        return None if self.exact is None else self.printed - self.exact


@dataclass(frozen=True, slots=True)
class ComparedRow:
    operation: str
    because: str
    cells: tuple[ComparedCell | None, ...]


@dataclass(frozen=True, slots=True)
class ComparedTable:
    """A published table beside one model at ``sizes``."""

    table: PublishedTable
    model: str
    sizes: Mapping[str, int]
    rows: tuple[ComparedRow, ...]


class _PartCount(ExactCount):
    """The exact count of some parts of a model."""

    def __init__(self, rule: RuleOfThumb, derivation: Derivation, cell: PublishedCell) -> None:
        super().__init__(rule, derivation)
        self._counted, self._cell = derivation[rule.exact[0][1]], cell

    def addends(self) -> Iterator[Addend]:
        largest = self._counted.largest_candidate
        if largest is not None:
            yield from (Addend(self._counted.name, "", AddendLabel(role), expr) for role, expr in largest.parts.items())
        elif not self._cell.parts and self._cell.unit is Unit.FLOP and self._counted.parts:
            yield from self._by_part()
        elif not self._cell.parts:
            yield from super().addends()
        for part in self._counted.parts if self._cell.parts else ():
            if self._cell.has(part.part):
                of_parameters = self._counted.name == "parameters"  # each a tensor of its own
                for a in part.addends:
                    yield Addend(self._counted.name, a.module_path, AddendLabel(a.module_path) if of_parameters else a.label, a.expr)

    def _by_part(self) -> Iterator[Addend]:
        """All FLOPs, a matmul with a weight by the part that it is in: several are labelled x Wᵀ."""
        for part in self._counted.parts:
            for a in part.addends:
                own = replace(a.label, text=f"{a.label} ({part.part})", dtype="", is_causal=False)
                label = a.label if part.part in _ATTENTION else own
                yield Addend(self._counted.name, a.module_path, label, a.expr)

    def quantities(self) -> list[tuple[int, str, str]]:
        return [(1, self.rule.exact[0][1], " + ".join(f"({a.expr})" for a in self.addends()) or "0")]


def require_dimensions(table: PublishedTable, dimensions: Collection[str]) -> None:
    """Raises ``BadInputError`` for a model without the dimensions of the table."""
    absent = [name for name in table.needs if name not in dimensions]
    if absent:
        raise BadInputError(f"{table.name} is stated in {', '.join(table.needs)}, and this model has no {', '.join(absent)}")


def compare(table: PublishedTable, derivation: Derivation) -> ComparedTable:
    """Every cell of ``table`` beside the model. Raises ``BadInputError`` for a model without the dimensions of the table."""
    require_dimensions(table, derivation.sizes)
    rows = (
        ComparedRow(
            row.operation, row.because, tuple(None if c is None else _cell(c, table, derivation) for c in row.cells)
        )
        for row in table.rows
    )
    return ComparedTable(table, derivation.model, derivation.sizes, tuple(rows))


def _cell(cell: PublishedCell, table: PublishedTable, derivation: Derivation) -> ComparedCell:
    printed, per_token = cell.expr.replace("{n}", "C" if "C" in derivation.sizes else "T"), table.per_token and cell.unit is Unit.FLOP
    tokens = derivation.sizes["B"] * derivation.sizes["T"] if per_token else 1
    unit = f"{cell.unit}/token" if per_token else f"{cell.unit}s" if cell.unit is not Unit.FLOP else str(cell.unit)
    value = Fraction(evaluate_text(printed, derivation.sizes))
    unknown = next((derivation[name].unknown for name in cell.quantities if derivation[name].text is None), "")
    if unknown:
        return ComparedCell(printed, unit, value, None, None, unknown)
    expr = f"({printed})*B*T" if per_token else printed
    count = _PartCount(_rule(cell, table, expr), derivation, cell)
    texts = [branches.at_hand(a.expr, derivation.sizes) for a in count.addends()]
    exact = sum((Fraction(evaluate_text(text, derivation.sizes)) for text in texts), start=Fraction(0)) / tokens
    return ComparedCell(printed, unit, value, exact, _terms(explained(expr, count, derivation).all, per_token))


def _terms(differences: tuple[Difference, ...] | None, per_token: bool) -> tuple[Difference, ...] | None:
    """The differences, those of FLOPs per token without B·T."""
    if differences is None:
        return None
    import sympy as sp

    tokens = symbol("B") * symbol("T") if per_token else sp.Integer(1)
    exprs = [str(sp.expand(to_sympy(d.expr) / tokens)) for d in differences]
    return tuple(replace(d, expr=expr) for d, expr in zip(differences, exprs, strict=True))


def _rule(cell: PublishedCell, table: PublishedTable, expr: str) -> RuleOfThumb:
    """The cell as a rule of thumb, whose difference to an exact count can be split."""
    return RuleOfThumb(
        name=table.name, statement=table.title, letters=table.letters, source=table.source, link=table.link, unit=cell.unit, expr=expr,
        needs=table.needs, exact=tuple((1, name) for name in cell.quantities), stands_for=", ".join(cell.quantities), assumes=(),
        noun="table",
    )  # fmt: skip


def document(compared: ComparedTable) -> dict[str, Any]:
    """The ``"schema": 1`` document of the comparison, as plain data."""
    table = compared.table
    return {
        "schema": 1,
        "table": table.name,
        "title": table.title,
        "source": table.source,
        "link": table.link,
        "letters": table.letters,
        "model": compared.model,
        "sizes": {name: number(size) for name, size in compared.sizes.items()},
        "rows": [
            {
                "operation": row.operation,
                "because": row.because or None,
                "cells": {
                    column: cell and _cell_document(cell) for column, cell in zip(table.columns, row.cells, strict=True)
                },
            }
            for row in compared.rows
        ],
    }  # fmt: skip


def _cell_document(cell: ComparedCell) -> dict[str, Any]:
    return {
        "expr": cell.expr,
        "unit": cell.unit,
        "printed": fraction(cell.printed),
        "exact": None if cell.exact is None else fraction(cell.exact),
        "difference": None if cell.difference is None else fraction(cell.difference),
        "terms": None if cell.differences is None else [
            {"expr": d.expr, "kind": d.kind, "because": d.because} for d in cell.differences
        ],
        "because": cell.unknown or None,
    }  # fmt: skip
