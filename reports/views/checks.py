"""``napkin check`` on a terminal: the tally, then each verdict with both numbers."""

from __future__ import annotations

from typing import Any

from calc.derive.result import Derivation
from reports.page import checks as checked
from reports.page.checks import CheckTally
from reports.page.conventions import options_in_words
from reports.typeset.wording import headline
from reports.views.explained import TONES
from reports.writers.terminal import Styled, Terminal, dim

_HEADS = ("Verdict", "Quantity", ("Derived", "right"), ("Measured", "right"), ("Difference", "right"), "Tolerance", ("Note", "right"))


def show(derivation: Derivation, checks: Any, out: Terminal) -> None:
    """What was checked at which sizes, the verdicts, and the notes that they refer to by number."""
    first = headline(derivation.specialization_reasons, derivation.sizes)
    if first:
        out.line(first, style="yellow")
    tally = checked.tally(checks, "")
    show_tally(tally, out)
    out.lines(*checks.exchanged, *checks.counted_with)
    out.line(f"{derivation.model} at {tally.sizes}, {options_in_words(derivation)}", style="dim")
    if tally.why:
        out.line(f"these sizes: {tally.why}; -d NAME=SIZE sets others", style="dim")
    out.line()
    notes = checked.notes(checks.verdicts)
    rows = []
    for row in (checked.row(verdict, notes) for verdict in checks.verdicts):
        badge = Styled(f"{row.badge.sign} {row.badge.words}", TONES[row.badge.tone])
        rows.append((badge, row.quantity, row.derived, row.measured, row.difference, dim(row.tolerance), dim(row.note)))
    out.table(_HEADS, rows)
    out.line()
    for number, note in enumerate(notes, 1):
        out.line(f"{number}. {note}", style="dim", hang=len(str(number)) + 2)


def show_tally(tally: CheckTally, out: Terminal) -> None:
    """How many checks passed and failed, or why none was run."""
    if tally.ran:
        out.line(Styled(", ".join(f"{count} {word}" for count, word in tally.counts), TONES[tally.tone]))
    else:
        out.line(Styled(f"checks were not run: {tally.why}", TONES["open"]))
