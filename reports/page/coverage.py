"""The coverage section: operators counted, free and refused, then every operator with its calls and FLOPs."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from calc.graph.coverage import COUNTED, FREE, KINDS, REFUSED, CoverageRow, Ledger, times
from reports.page import rules
from reports.page.model import TypesetFormula
from reports.page.parts import formula, or_unknown, several
from reports.typeset import expressions, numbers, plain
from reports.typeset.escape import slug


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """An operator of the step, with its shares of all calls and FLOPs. ``places``: where a refused operator runs."""

    operator: str
    anchor: str
    runs: TypesetFormula | None
    value: str
    share: str
    flops: str
    flops_share: str
    kind: str
    because: str
    source: str
    places: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KindRow:
    """Totals of the operators of one kind: counted, free or refused."""

    kind: str
    operators: str
    calls: str
    share: str
    flops: str
    flops_share: str


@dataclass(frozen=True, slots=True)
class CoverageSection:
    """The coverage section: how many operators, calls and FLOPs are counted."""

    summary: str
    kinds: tuple[KindRow, ...]
    rows: tuple[LedgerRow, ...]
    title: str
    accepted: bool


_WORDS = {COUNTED: "counted by a rule", FREE: "declared free, with a reason", REFUSED: "refused: not counted"}


def coverage(ledger: Ledger) -> CoverageSection:
    """The coverage section of a step's operators."""
    return CoverageSection(
        summary=summary(ledger),
        kinds=tuple(_kind(kind, ledger) for kind in KINDS),
        rows=tuple(_row(row, ledger) for row in ledger.rows),
        title=several(len(ledger.rows), "operator") + ", each with its calls and FLOPs",
        accepted=ledger.accepted,
    )


def summary(ledger: Ledger) -> str:
    """How many operators and calls are counted, free and refused, in a sentence without a full stop."""
    names = {kind: len({row.operator for row in ledger.of(kind)}) for kind in KINDS}
    uncounted = f"{several(names[REFUSED], 'operator')}, {several(ledger.calls_of(REFUSED), 'call')}"
    uncounted += f" ({_share(ledger.share_of_calls(*ledger.of(REFUSED)))} of all)" if names[REFUSED] else ", 0 FLOP"
    operators = several(len({row.operator for row in ledger.rows}), "operator")
    counted = f"{operators}, {several(ledger.calls, 'call')}: {names[COUNTED]} counted, {names[FREE]} free, {names[REFUSED]} refused"
    return f"{counted}. Not counted: {uncounted}"


def _kind(kind: str, ledger: Ledger) -> KindRow:
    rows = ledger.of(kind)
    flops = [row.flops_value for row in rows]
    return KindRow(
        kind=_WORDS[kind],
        operators=numbers.integer(len({row.operator for row in rows})),
        calls=numbers.integer(ledger.calls_of(kind)),
        share=_share(ledger.share_of_calls(*rows)),
        flops=or_unknown(None if None in flops else sum(n for n in flops if n is not None)),
        flops_share=_share(ledger.share_of_flops(*rows)),
    )


def _row(row: CoverageRow, ledger: Ledger) -> LedgerRow:
    entry = rules.find(row.operator)
    return LedgerRow(
        operator=row.operator,
        anchor=f"op-{slug(row.operator)}",
        runs=_count(row.runs),
        value=numbers.integer(row.value),
        share=_share(ledger.share_of_calls(row)),
        flops=or_unknown(row.flops_value),
        flops_share=_share(ledger.share_of_flops(row)),
        kind=row.kind,
        because=row.because,
        source=entry.source if entry else "",
        places=tuple(
            f"{place.module_path or 'the top level'}: {place.inputs or 'no inputs'}, {times(plain.plain_text(place.runs), place.value)}"
            for place in row.places
        ),
    )


def _share(share: Fraction | None) -> str:
    """A share in percent; ``–`` if the total is unknown or 0."""
    return "–" if share is None else numbers.percent(share)


def _count(text: str) -> TypesetFormula | None:
    try:
        return formula(expressions.parse(text))
    except (SyntaxError, ValueError):
        return None
