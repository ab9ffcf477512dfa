"""The checks of a derivation: counts by verdict, a row for each quantity, and the notes that the rows refer to by number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reports.page.model import CheckRow, CheckTally
from reports.page.parts import BADGES, badge_of, or_unknown, sizes_text
from reports.typeset import numbers


def tally(checks: Any, unchecked: str) -> CheckTally:
    """The counts by verdict. ``unchecked``: why there are no ``checks``."""
    if checks is None:
        return CheckTally(False, unchecked, (), "open", "")
    count = {kind: sum(v.verdict == kind for v in checks.verdicts) for kind in BADGES}
    # What was measured in parts, because torch has no instrument for the whole, is counted apart.
    counts = (
        (numbers.integer(count["exact"] + count["within"]), "passed"),
        (numbers.integer(count["in parts"]), "measured in parts"),
        (numbers.integer(count["failed"]), "failed"),
        (numbers.integer(count["not measured"]), "not measured"),
    )
    return CheckTally(True, checks.because, counts, "bad" if count["failed"] else "good", sizes_text(checks.sizes))


def notes(verdicts: Sequence[Any]) -> list[str]:
    """The distinct notes on how quantities were measured; several verdicts may share one."""
    return list(dict.fromkeys(_note(verdict) for verdict in verdicts))


def row(verdict: Any, notes: Sequence[str]) -> CheckRow:
    """The row of one verdict: derived and measured value, difference, and the number of its note."""
    both = verdict.derived is not None and verdict.measured is not None
    return CheckRow(
        quantity=verdict.quantity,
        derived=or_unknown(verdict.derived),
        measured="not measured" if verdict.measured is None else numbers.integer(verdict.measured),
        difference=_difference(verdict) if both else "unknown",
        tolerance=str(verdict.tolerance) if verdict.measured is not None else "–",
        badge=badge_of(verdict),
        note=str(notes.index(_note(verdict)) + 1),
    )


def _difference(verdict: Any) -> str:
    """Derived − measured, and whether that is what the instrument cannot see."""
    difference = verdict.derived - verdict.measured
    written = numbers.signed(difference)
    if not verdict.expected:
        return written
    return f"{written}, as expected" if difference == verdict.expected else f"{written}; expected {numbers.signed(verdict.expected)}"


def _note(verdict: Any) -> str:
    because = verdict.because
    if not verdict.instrument and because.startswith("no instrument"):
        return str(because)
    return f"{verdict.instrument or 'no instrument'}; {because}" if because else str(verdict.instrument or "no instrument")
