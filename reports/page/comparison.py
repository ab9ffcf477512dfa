"""The page that compares two steps: quantities on both sides, the totals by part, and each difference by terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from calc.derive.compare import Change, Comparison, size_or_none
from calc.derive.side_by_side import USUAL
from reports.page.inputs import Inputs
from reports.page.model import TypesetFormula
from reports.page.parts import in_cases, sizes_text, stated_formula
from reports.page.side_by_side import QuantityView, quantity_view
from reports.typeset.numbers import PrintedAmount, amount, signed, significant
from reports.typeset.wording import sentence

SECTIONS = {
    "differing": "What is compared",
    "quantities": "Quantities",
    "parts": "Totals by part",
    "terms": "Where the differences come from",
}


@dataclass(frozen=True, slots=True)
class QuantityRow:
    """A quantity on both sides. ``target``: the anchor of its difference by terms; empty if the sides are equal or one is unknown."""

    quantity: str
    meaning: str
    target: str
    left: str
    right: str
    difference: str
    share: str


@dataclass(frozen=True, slots=True)
class DifferenceTermRow:
    module_path: str
    formula: TypesetFormula | None
    value: str
    because: str


@dataclass(frozen=True, slots=True)
class DifferenceView:
    """The difference in one quantity: closed form, value, and terms by module path. ``at_sizes`` is always empty."""

    number: str
    anchor: str
    quantity: str
    meaning: str
    formula: TypesetFormula | None
    note: str
    value: PrintedAmount
    terms: tuple[DifferenceTermRow, ...]
    at_sizes: None = None


@dataclass(frozen=True, slots=True)
class ComparisonPage:
    """The whole page, with every number written. ``inputs``: the line from which ``napkin verify`` makes it again."""

    model: str
    step: str
    subtitle: str
    sizes: str
    date: str
    settings: tuple[tuple[str, str, str], ...]
    rows: tuple[QuantityRow, ...]
    by_part: tuple[QuantityView, ...]
    parts: tuple[DifferenceView, ...]
    sections: Mapping[str, str]
    inputs: str
    cases: tuple[str, ...] = ()


def build(contrast: Comparison, inputs: Inputs) -> ComparisonPage:
    """The page of a comparison of two steps."""
    totals = [table for table in contrast.by_part if table.quantity in USUAL]
    sized = {name: (size_or_none(one), size_or_none(two)) for name, (one, two) in contrast.sizes.items()}
    return ComparisonPage(
        model=f"{contrast.left} → {contrast.right}",
        step="two steps and their difference",
        subtitle="Difference = right − left. Sizes that both sides share are symbols; sizes that differ are numbers.",
        sizes=f"both: {sizes_text(contrast.same)}" if contrast.same else "the two sides have no size in common",
        date=inputs.noted,
        settings=tuple((name, one, two) for name, (one, two) in {**contrast.options, **sized}.items()),
        rows=tuple(_row(change) for change in contrast.changes),
        by_part=tuple(quantity_view(str(i), table, ("Left", "Right")) for i, table in enumerate(totals, 1)),
        parts=tuple(_part(str(i), change) for i, change in enumerate((c for c in contrast.changes if c.value), 1)),
        sections=SECTIONS,
        inputs=inputs.text(),
        cases=tuple(sentence(f"{words[0].upper()}{words[1:]}") for words in in_cases(contrast)),
    )


def _anchor(change: Change) -> str:
    return f"d-{change.quantity}"


def _row(change: Change) -> QuantityRow:
    left, right = ("unknown" if n is None else amount(n, change.unit).text for n in (change.left, change.right))
    difference = "unknown" if change.value is None else signed(change.value)
    share = significant(_ratio(change)) if change.left and change.right is not None else "–"
    return QuantityRow(change.quantity, change.meaning, _anchor(change) if change.value else "", left, right, difference, share)


def _ratio(change: Change) -> Fraction:
    return Fraction(change.right or 0, change.left or 1)


def _part(number: str, change: Change) -> DifferenceView:
    assert change.value is not None  # only what differs has a part
    value = replace(amount(change.value, change.unit), exact=signed(change.value))
    terms = tuple(DifferenceTermRow(t.module_path, stated_formula(t.expr), signed(t.value), t.because) for t in change.terms)
    return DifferenceView(number, _anchor(change), change.quantity, change.meaning, stated_formula(change.expr), change.note, value, terms)
