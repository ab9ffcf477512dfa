"""A comparison on a terminal: both values of each quantity, their difference in closed form, and what it comes from."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from calc.derive.compare import Change, Contrast
from calc.symbolic import tree
from reports.page.parts import formula, in_cases, or_unknown
from reports.typeset.escape import visible
from reports.typeset.numbers import amount, signed

_MOST = 3


def show(found: Contrast, explain: str | None, out: Console) -> None:
    """What differs, all quantities, and of each the largest terms; with ``explain``, all terms of one."""
    out.print(Text.assemble((visible(found.left), "bold"), " → ", (visible(found.right), "bold")))
    for name, (one, other) in {**found.options, **{n: tuple(map(or_unknown, pair)) for n, pair in found.sizes.items()}}.items():
        out.print(Text(visible(f"  {name}: {one} → {other}")))
    if found.same:
        out.print(Text(visible("  both: " + ", ".join(f"{name} = {size:,}" for name, size in found.same.items())), style="dim"))
    for words in in_cases(found):
        out.print(Text(visible(f"  {words}"), style="dim"))
    out.print()
    if explain is not None:
        _show_one(next(change for change in found.changes if change.quantity == explain), None, out)
        return
    out.print(_table(found))
    for change in found.changes:
        if change.value:
            out.print()
            _show_one(change, _MOST, out)


def _table(found: Contrast) -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False)
    table.add_column("Quantity")
    for heading in ("Left", "Right", "Difference"):
        table.add_column(heading, justify="right")
    table.add_column("Of left", justify="right")
    for change in found.changes:
        difference = "–" if change.value is None else signed(change.value)
        share = f"{change.right / change.left:.3f}" if change.left and change.right is not None else "–"
        table.add_row(Text(change.quantity), _value(change, change.left), _value(change, change.right), Text(difference), Text(share))
    return table


def _value(change: Change, value: int | None) -> Text:
    return Text("unknown" if value is None else amount(value, change.unit).headline)


def _show_one(change: Change, most: int | None, out: Console) -> None:
    unit = str(change.unit)
    head = "the same" if change.value == 0 else "unknown" if change.value is None else f"{signed(change.value)} {unit}"
    out.print(Text.assemble((f"{change.quantity}: {head}", "bold"), f"  {_written(change.expr)}" if change.value else ""))
    if change.note:
        out.print(Text(visible(f"  {change.note}"), style="dim"))
    for term in change.terms[:most]:
        out.print(Text(visible(f"  {signed(term.value)}  {term.module_path}: {_written(term.expr)}  ({term.because})")))
    rest = change.terms[most:] if most is not None else ()
    if rest:
        left = sum(term.value for term in rest)
        out.print(Text(f"  {signed(left)}  {len(rest)} more terms: --explain {change.quantity}", style="dim"))


def _written(expr: str | None) -> str:
    return "" if expr is None else " ".join(formula(tree.parse(expr)).plain)
