"""Two steps on a terminal, with the differences in closed form and by terms; and several steps with the parts of each and their shares."""

from __future__ import annotations

from collections.abc import Collection
from fractions import Fraction

from calc.derive.compare import Change, Comparison, size_or_none
from calc.derive.side_by_side import USUAL, QuantityTable, SideBySide
from calc.symbolic import tree
from reports.page.parts import formula, in_cases
from reports.page.side_by_side import size_text
from reports.typeset.numbers import amount, percent, signed
from reports.typeset.wording import several, sizes_text, undivided
from reports.writers.terminal import Terminal, bold, right

_MOST = 3


def show(comparison: Comparison, explain: str | None, out: Terminal) -> None:
    """What differs, all quantities, the usual ones by part where a part differs, and of each the largest terms; with ``explain``, the parts
    and all terms of one."""
    out.line(bold(comparison.left), " → ", bold(comparison.right))
    sizes = {name: tuple(map(size_or_none, pair)) for name, pair in comparison.sizes.items()}
    for name, (one, two) in {**comparison.options, **sizes}.items():
        out.line(f"  {name}: {one} → {two}")
    if comparison.same:
        out.line("  both: " + sizes_text(comparison.same), style="dim")
    out.lines(*(f"  {words}" for words in in_cases(comparison)), style="dim")
    out.line()
    if explain is not None:
        _show_change(next(change for change in comparison.changes if change.quantity == explain), None, out)
        _show_by_part(comparison, (explain,), out)
        return
    heads = ("Quantity", *right("Left", "Right", "Difference", "Right ÷ left"))
    out.table(heads, [_row(change) for change in comparison.changes])
    _show_by_part(comparison, USUAL, out)
    for change in comparison.changes:
        if change.value:
            out.line()
            _show_change(change, _MOST, out)


def _show_by_part(comparison: Comparison, quantities: Collection[str], out: Terminal) -> None:
    for table in comparison.by_part:
        if table.quantity in quantities and any(row.values[0] != row.values[1] for row in table.parts):
            out.line()
            show_parts(table, ("Left", "Right"), out)


def _row(change: Change) -> tuple[str, ...]:
    difference = "–" if change.value is None else signed(change.value)
    ratio = f"{change.right / change.left:.3f}" if change.left and change.right is not None else "–"
    return change.quantity, _value(change, change.left), _value(change, change.right), difference, ratio


def _value(change: Change, value: int | None) -> str:
    return "unknown" if value is None else amount(value, change.unit).headline


def _show_change(change: Change, most: int | None, out: Terminal) -> None:
    unit = str(change.unit)
    head = "the same" if change.value == 0 else "unknown" if change.value is None else f"{signed(change.value)} {unit}"
    out.line(bold(f"{change.quantity}: {head}"), f"  {form_text(change.expr)}" if change.value else "")
    if change.note:
        out.line(f"  {change.note}", style="dim")
    for term in change.terms[:most]:
        out.line(f"  {signed(term.value)}  {term.module_path}: {form_text(term.expr)}  ({term.because})")
    smaller = change.terms[most:] if most is not None else ()
    if smaller:
        total = sum(term.value for term in smaller)
        out.line(f"  {signed(total)}  {several(len(smaller), 'more term')}: --explain {change.quantity}", style="dim")


# -- several steps ----------------------------------------------------------------------------------------------------


_MOST_PARTS = 12  # parts of a quantity
_LONGEST = 24  # characters of a part's closed form; the longer ones are in the files


def show_several(table: SideBySide, out: Terminal) -> None:
    """Sizes and options that differ, all quantities, and of each the largest parts."""
    if table.same:
        out.line("all: " + sizes_text(table.same), style="dim")
    settings = {**table.options, **{name: tuple(map(size_text, values)) for name, values in table.sizes.items()}}
    rows = [*((name, *values) for name, values in settings.items()), *map(_quantity_row, table.quantities)]
    out.table(("", *right(*table.names)), rows)
    for quantity in table.quantities:
        if quantity.parts:
            out.line()
            show_parts(quantity, table.names, out)


def _quantity_row(table: QuantityTable) -> tuple[str, ...]:
    return (table.quantity, *("unknown" if value is None else amount(value, table.unit).headline for value in table.values))


def show_parts(table: QuantityTable, names: tuple[str, ...], out: Terminal) -> None:
    """The largest parts of a quantity: a row for each, and a column with amount and share for each step."""
    out.line(bold(table.quantity), f": {table.meaning}")
    if table.expr is not None:
        out.line(f"  = {form_text(table.expr)}")
    steps = range(len(names))
    largest = table.largest(_MOST_PARTS)
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
