"""The page of a table of several steps: what they are, their quantities, and each quantity by part with shares and a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from calc.derive.side_by_side import PartRow, QuantityTable, SideBySide
from reports.figures.shapes import Figure
from reports.figures.shares import shares
from reports.page.inputs import Inputs
from reports.page.model import TypesetFormula
from reports.page.parts import or_unknown, sizes_text, stated_formula
from reports.typeset.escape import slug
from reports.typeset.numbers import amount, integer, percent
from reports.typeset.wording import several, undivided

SECTIONS = {"steps": "The steps", "quantities": "Quantities", "parts": "Each quantity by part"}
MOST = 30  # rows of a quantity's tables


Columns = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ValueRow:
    """A quantity or a part in each step, written. ``target``: the anchor of its parts; empty if it has none. ``shares``: empty in the
    table of quantities."""

    name: str
    target: str
    formula: TypesetFormula | None
    values: tuple[str, ...]
    shares: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QuantityView:
    """A quantity by part: the rows of its table of shares, those of its table of amounts, which end with the total, and a figure.
    ``undivided``: what the row of attention is that is none of its lines."""

    number: str
    anchor: str
    quantity: str
    meaning: str
    unit: str
    rows: tuple[ValueRow, ...]
    amounts: tuple[ValueRow, ...]
    figure: Figure
    share_columns: Columns
    amount_columns: Columns
    undivided: str


@dataclass(frozen=True, slots=True)
class SideBySidePage:
    """The whole page, with every number written. ``columns``: those of each table. ``inputs``: the line from which ``napkin verify``
    makes it again."""

    model: str
    step: str
    subtitle: str
    sizes: str
    date: str
    names: tuple[str, ...]
    settings: tuple[tuple[str, tuple[str, ...]], ...]
    rows: tuple[ValueRow, ...]
    parts: tuple[QuantityView, ...]
    sections: Mapping[str, str]
    inputs: str

    def columns(self, first: str) -> Columns:
        """The columns of a table with a number for each step."""
        return _columns(self.names, first)


def _columns(names: Sequence[str], first: str, *more: tuple[str, str]) -> Columns:
    return ((first, "text"), *more, *((name, "number") for name in names))


def build(table: SideBySide, inputs: Inputs) -> SideBySidePage:
    """The page of a table of several models or sizes."""
    views = (quantity for quantity in table.quantities if quantity.parts)
    sized = ((name, tuple(map(size_text, values))) for name, values in table.sizes.items())
    return SideBySidePage(
        model=", ".join(table.names),
        step=f"{several(len(table.names), 'step')} side by side",
        subtitle="A column for each step. Shares are of the quantity in that step.",
        sizes=f"all: {sizes_text(table.same)}" if table.same else "the steps have no size in common",
        date=inputs.noted,
        names=table.names,
        settings=(*table.options.items(), *sized),
        rows=tuple(_row(quantity) for quantity in table.quantities),
        parts=tuple(quantity_view(str(i), quantity, table.names) for i, quantity in enumerate(views, 1)),
        sections=SECTIONS,
        inputs=inputs.text(),
    )


def size_text(size: int | None) -> str:
    """A size as text; a dash for a dimension that the step does not have."""
    return "–" if size is None else integer(size)


def _anchor(table: QuantityTable) -> str:
    return f"parts-{slug(table.quantity)}"


def _row(table: QuantityTable) -> ValueRow:
    values = zip(table.values, table.unknown, strict=True)
    written = tuple(f"unknown: {why}" if value is None else amount(value, table.unit).headline for value, why in values)
    return ValueRow(table.quantity, _anchor(table) if table.parts else "", stated_formula(table.expr), written)


def quantity_view(number: str, table: QuantityTable, names: Sequence[str]) -> QuantityView:
    """A quantity by part, with a column for each of ``names``."""
    rows = tuple(_part(row, table) for row in table.largest(MOST))
    total = ValueRow("all", "", stated_formula(table.expr), tuple(map(or_unknown, table.values)))
    return QuantityView(
        number=number,
        anchor=_anchor(table),
        quantity=table.quantity,
        meaning=table.meaning,
        unit=amount(0, table.unit).unit,
        rows=rows,
        amounts=(*rows, total),
        figure=shares(table, names),
        share_columns=_columns(names, "Part"),
        amount_columns=_columns(names, "Part", ("Closed form", "math")),
        undivided=undivided(row.name for row in rows),
    )


def _part(row: PartRow, table: QuantityTable) -> ValueRow:
    shares = [table.share(row, i) for i in range(len(row.values))]
    written = tuple("–" if share is None else percent(share) for share in shares)
    return ValueRow(row.part, "", stated_formula(row.expr), tuple(map(integer, row.values)), written)
