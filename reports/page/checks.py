"""The checks of a derivation: counts by verdict, a row for each quantity, and the notes that the rows refer to by number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reports.page.model import Badge
from reports.page.parts import BADGES, badge_of, or_unknown, sizes_text
from reports.typeset import numbers


@dataclass(frozen=True, slots=True)
class CheckTally:
    """Counts of checks by verdict. ``tone``: bad if one failed. ``why``: why none ran, or why they ran at these ``sizes``."""

    ran: bool
    why: str
    counts: tuple[tuple[str, str], ...]
    tone: str
    sizes: str
    unmeasured: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckRow:
    quantity: str
    derived: str
    measured: str
    difference: str
    tolerance: str
    badge: Badge
    note: str


def tally(checks: Any, unchecked: str, sizes: Mapping[str, int] | None = None) -> CheckTally:
    """The counts by verdict. ``unchecked``: why there are no ``checks``; ``sizes``: those of the run to name, else all."""
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
    tone = "bad" if count["failed"] else "good"
    at = sizes_text(checks.sizes if sizes is None else sizes)
    return CheckTally(True, checks.because, counts, tone, at, tuple(unmeasured(checks.verdicts)))


def unmeasured(verdicts: Iterable[Any]) -> Iterator[str]:
    """Each quantity that is derived but not measured, with the reason."""
    for verdict in verdicts:
        if verdict.verdict == "not measured" and verdict.derived is not None:
            yield f"{verdict.quantity} is derived but not measured ({verdict.because or 'no instrument'})."


def notes(verdicts: Sequence[Any]) -> list[str]:
    """The distinct notes on how quantities were measured: each instrument and each reason once, however many verdicts share it."""
    return list(dict.fromkeys(note for verdict in verdicts for note in _notes(verdict)))


def row(verdict: Any, notes: Sequence[str]) -> CheckRow:
    """The row of one verdict: derived and measured value, difference, and the numbers of its notes."""
    both = verdict.derived is not None and verdict.measured is not None
    return CheckRow(
        quantity=verdict.quantity,
        derived=or_unknown(verdict.derived),
        measured="not measured" if verdict.measured is None else numbers.integer(verdict.measured),
        difference=_difference(verdict) if both else "unknown",
        tolerance=str(verdict.tolerance) if verdict.measured is not None else "–",
        badge=badge_of(verdict),
        note=", ".join(str(number) for number in sorted(notes.index(note) + 1 for note in set(_notes(verdict)))),
    )


def _difference(verdict: Any) -> str:
    """Derived − measured, and whether that is what the instrument cannot see."""
    difference = verdict.derived - verdict.measured
    written = numbers.signed(difference)
    if not verdict.expected:
        return written
    return f"{written}, as expected" if difference == verdict.expected else f"{written}; expected {numbers.signed(verdict.expected)}"


def _notes(verdict: Any) -> tuple[str, ...]:
    """The instruments of a verdict and its reasons, each a note. Texts are never split: what is in them may be a user's."""
    if verdict.notes:
        return tuple(verdict.notes)
    if not verdict.instrument:
        return (f"no instrument; {verdict.because}" if verdict.because else "no instrument",)
    return (verdict.instrument, *([verdict.because] if verdict.because else ()))
