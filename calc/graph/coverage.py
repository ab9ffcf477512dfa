"""The ledger of a step's operators: counted, free or refused, each with its calls and FLOPs, so that the part that is not counted is a
number.

A successful derivation has no refused operators. The ledger of a refused one names the operators that prevent it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

COUNTED, FREE, REFUSED = "counted", "free", "refused"
KINDS = (COUNTED, FREE, REFUSED)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a refused operator runs: its module path (loop indices as ``*``), its inputs in the model's dimensions, and its number of
    calls."""

    module_path: str
    inputs: str
    runs: str
    value: int


@dataclass(frozen=True, slots=True)
class CoverageRow:
    """One operator of the step: its number of calls, whether it is counted, free or refused and why, and its FLOPs.

    ``flops`` is a closed form like ``runs``; ``None`` where it is unknown. ``unstated`` marks an operator without any rule, as opposed to
    one whose rule does not support the call. ``places`` are those of a refused operator.
    """

    operator: str
    runs: str
    value: int
    kind: str
    because: str
    flops: str | None = None
    flops_value: int | None = None
    unstated: bool = False
    places: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class Ledger:
    """All rows, with their totals."""

    rows: tuple[CoverageRow, ...]

    def of(self, kind: str) -> tuple[CoverageRow, ...]:
        return tuple(row for row in self.rows if row.kind == kind)

    @property
    def accepted(self) -> bool:
        """Whether every operator is counted or free."""
        return not self.of(REFUSED)

    @property
    def calls(self) -> int:
        return sum(row.value for row in self.rows)

    @property
    def flops(self) -> int | None:
        """FLOPs of the step; None while an operator is refused."""
        counts = [row.flops_value for row in self.rows]
        return sum(n for n in counts if n is not None) if None not in counts else None

    def calls_of(self, kind: str) -> int:
        return sum(row.value for row in self.of(kind))

    def share_of_calls(self, *rows: CoverageRow) -> Fraction | None:
        """The fraction of all calls in ``rows``; None for a step without calls."""
        return Fraction(sum(row.value for row in rows), self.calls) if self.calls else None

    def share_of_flops(self, *rows: CoverageRow) -> Fraction | None:
        """The fraction of all FLOPs, where these are known and not 0."""
        counts = [row.flops_value for row in rows]
        if not self.flops or None in counts:
            return None
        return Fraction(sum(n for n in counts if n is not None), self.flops)


# -- error message ---------------------------------------------------------------------------------------------------------


def refusal(ledger: Ledger, operators: Iterable[str]) -> str:
    """One line about all refused operators: which, where, with which shapes, how often, and what to do."""
    unstated = [row for row in ledger.of(REFUSED) if row.unstated]
    unsupported = [row for row in ledger.of(REFUSED) if not row.unstated]
    sentences = [*_unstated(unstated), *(f"{row.because} ({_places(row)})." for row in unsupported)]
    sentences.append(f"Not counted: {_part(ledger, ledger.of(REFUSED))}.")
    sentences += _hints(unstated, list(operators))
    return " ".join(sentences)


def _unstated(rows: list[CoverageRow]) -> Iterator[str]:
    if len(rows) == 1:
        yield f"no cost rule for operator {rows[0].operator} {_places(rows[0])}."
    elif rows:
        yield f"no cost rule for {len(rows)} operators: {'; '.join(f'{row.operator} {_places(row)}' for row in rows)}."


def _places(row: CoverageRow) -> str:
    """The first place in full, and the number of the others, which the ledger lists."""
    first, further = row.places[0], row.places[1:]
    text = f"at {first.module_path or 'the top level'}, inputs: {first.inputs or 'none'}, {times(first.runs, first.value)}"
    if not further:
        return text
    several = f"{len(further)} more module path{'s' if len(further) > 1 else ''}"
    return f"{text}, and at {several}, {times(row.runs, row.value)} in all"


def times(runs: str, value: int) -> str:
    """``once``, ``3 times``, ``4*L times (48)``."""
    if runs == "1":
        return "once"
    return f"{runs} times" + ("" if runs.isdigit() else f" ({value:,})")


def _part(ledger: Ledger, rows: tuple[CoverageRow, ...]) -> str:
    share = ledger.share_of_calls(*rows)
    percent = "" if share is None else f" ({float(share):.1%})"
    return f"{sum(row.value for row in rows):,} of {ledger.calls:,} calls{percent}"


def _hints(unstated: list[CoverageRow], operators: list[str]) -> Iterator[str]:
    if not unstated:
        return
    first = unstated[0].operator
    near = [name for row in unstated for name in difflib.get_close_matches(row.operator, operators, n=2)]
    if near:
        yield f"Nearest known: {', '.join(dict.fromkeys(near))}."
    yield (
        f"An operator without a rule is never counted as zero: state its cost with @calc.rules.rule({first!r}, …), or, if it truly costs"
        f" nothing, state the reason with calc.rules.free({first!r}, because=…)."
    )
