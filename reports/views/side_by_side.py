"""Several steps side by side on a terminal: quantities, then the parts of each with their shares."""

from __future__ import annotations

from fractions import Fraction

from calc.derive.side_by_side import QuantityTable, SideBySide
from calc.symbolic import tree
from calc.symbolic.assignments import sizes_text
from reports.page.parts import formula
from reports.page.side_by_side import size_text
from reports.typeset.numbers import amount, percent
from reports.typeset.wording import undivided
from reports.writers.terminal import Terminal, bold, right

_MOST = 12  # parts of a quantity
_LONGEST = 24  # characters of a part's closed form; the longer ones are in the files


def show(table: SideBySide, out: Terminal) -> None:
    """Sizes and options that differ, all quantities, and of each the largest parts."""
    if table.same:
        out.line("all: " + sizes_text(table.same), style="dim")
    settings = {**table.options, **{name: tuple(map(size_text, values)) for name, values in table.sizes.items()}}
    rows = [*((name, *values) for name, values in settings.items()), *map(_row, table.quantities)]
    out.table(("", *right(*table.names)), rows)
    for quantity in table.quantities:
        if quantity.parts:
            out.line()
            show_parts(quantity, table.names, out)


def _row(table: QuantityTable) -> tuple[str, ...]:
    return (table.quantity, *("unknown" if value is None else amount(value, table.unit).headline for value in table.values))


def show_parts(table: QuantityTable, names: tuple[str, ...], out: Terminal) -> None:
    """The largest parts of a quantity: a row for each, and a column with amount and share for each step."""
    out.line(bold(table.quantity), f": {table.meaning}")
    if table.expr is not None:
        out.line(f"  = {form_text(table.expr)}")
    steps = range(len(names))
    largest = table.largest(_MOST)
    forms = ("Closed form",) if any(row.expr is not None for row in largest) else ()
    rows = [(row.part, *(_share(table, row.values[i], i) for i in steps), *(_short(row.expr) for _ in forms)) for row in largest]
    out.table(("Part", *right(*names), *forms), rows)
    if note := undivided(row.part for row in largest):
        out.line(note)


def _short(expr: str | None) -> str:
    written = form_text(expr)
    return written if len(written) <= _LONGEST else ""


def _share(table: QuantityTable, value: int, step: int) -> str:
    whole = table.values[step]
    if not whole:
        return "–"
    value_and_unit = amount(value, table.unit)
    return f"{value_and_unit.readings[0] if value_and_unit.readings else value_and_unit.exact}  {percent(Fraction(value, whole)):>7}"


def form_text(expr: str | None) -> str:
    """A closed form as a line of text; empty if there is none."""
    return "" if expr is None else " ".join(formula(tree.parse(expr)).plain)
