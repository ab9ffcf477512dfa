"""``napkin derive --coverage`` on a terminal: how much of a step is counted, then every operator; of what is refused, where it runs."""

from __future__ import annotations

from reports.page.coverage import CoverageSection, LedgerRow
from reports.views.explained import TONES, text
from reports.writers.terminal import Cell, Styled, Terminal, bold, dim, right

_KINDS = ("Kind", *right("Operators", "Calls", "Of all calls", "FLOP", "Of all FLOP"))
_OPERATORS = ("Operator", "Kind", "Runs", *right("Calls", "Of all", "FLOP", "Of all"), "Because")


def show(model: str, section: CoverageSection, out: Terminal) -> None:
    """The verdict, what each kind of operators adds up to, and a row for each operator."""
    out.line(bold(model), ": ", Styled("accepted", TONES["good"]) if section.accepted else Styled("refused", TONES["bad"]))
    out.line(f"{section.summary}.")
    out.line()
    out.table(_KINDS, [(kind.kind, kind.operators, kind.calls, kind.share, kind.flops, kind.flops_share) for kind in section.kinds])
    out.line()
    out.table(_OPERATORS, [_operator(row) for row in section.rows])
    for row in section.rows:
        if row.places:
            out.line()
            out.line(bold(f"{row.operator} runs"))
            out.lines(*(f"  at {place}" for place in row.places))


def _operator(row: LedgerRow) -> tuple[Cell, ...]:
    kind = Styled(row.kind, TONES["bad"] if row.places else "")
    runs = "unknown" if row.runs is None else text(row.runs)
    return row.operator, kind, runs, row.value, row.share, row.flops, row.flops_share, dim(row.because)
