"""A comparison on a terminal: both values of each quantity, the totals by part, and each difference in closed form with its terms."""

from __future__ import annotations

from collections.abc import Collection

from calc.derive.compare import Change, Comparison
from calc.derive.side_by_side import USUAL
from calc.symbolic.assignments import sizes_text
from reports.page.parts import in_cases, or_unknown
from reports.typeset.numbers import amount, signed
from reports.typeset.wording import several
from reports.views.side_by_side import form_text, show_parts
from reports.writers.terminal import Terminal, bold, right

_MOST = 3


def show(comparison: Comparison, explain: str | None, out: Terminal) -> None:
    """What differs, all quantities, the usual ones by part where a part differs, and of each the largest terms; with ``explain``, the parts
    and all terms of one."""
    out.line(bold(comparison.left), " → ", bold(comparison.right))
    sizes = {name: tuple(map(or_unknown, pair)) for name, pair in comparison.sizes.items()}
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
