"""What several chapters of a report are written with: formulas, verdicts, ids and small words."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

from calc.symbolic import branches
from calc.symbolic.tree import Display
from reports.page.model import Badge, LatexFormula, TermRow, TypesetFormula
from reports.typeset import expressions, numbers, plain
from reports.typeset.escape import slug
from reports.typeset.wording import ANSWERS as ANSWERS
from reports.typeset.wording import sentence as sentence
from reports.typeset.wording import several as several
from reports.typeset.wording import sizes_text as sizes_text

if TYPE_CHECKING:
    from calc.derive.compare import Contrast

BADGES = {
    "exact": Badge("✓", "measured, equal", "good"),
    "within": Badge("≈", "measured, within tolerance", "good"),
    "proved": Badge("∎", "proved, not measured", "proved"),
    "failed": Badge("×", "failed", "bad"),
    "not measured": Badge("○", "not measured", "open"),
}
UNCHECKED = Badge("○", "not measured", "open")


def badge(name: str, verdicts: Mapping[str, Any]) -> Badge:
    """The verdict on a quantity; without one it is not measured."""
    return BADGES[verdicts[name].verdict] if name in verdicts else UNCHECKED


def formula(tree: Display, *, braces: bool = True) -> TypesetFormula:
    """A tree in the forms that the writers need. Without ``braces``, its labels stand beside its terms and not under them."""
    return TypesetFormula(plain.terms(tree), partial(_latex, tree, braces), braces)


def _latex(tree: Display, braces: bool) -> LatexFormula:
    from reports.typeset import latex  # what only prints text does without it

    rows = latex.labelled_rows(tree, braces=braces)
    pieces = tuple(piece for row, _ in rows for piece in row) if rows else latex.pieces(tree)
    return LatexFormula(pieces, any(latex.width(p) > latex.WIDE for p in pieces), rows)


def term_row(site: str, expr: str, value: int, whole: int | None, because: str, sizes: Mapping[str, int]) -> TermRow:
    """An addend by site, with its part of the whole; of a form by cases, the case in force."""
    share = numbers.percent(Fraction(value, whole)) if whole else ""
    return TermRow(site, formula(expressions.parse(branches.at_hand(expr, sizes))), numbers.integer(value), share, because)


def chapter_anchor(name: str) -> str:
    """The id of a quantity's derivation."""
    return f"q-{slug(name)}"


def rule_anchor(rule: str) -> str:
    """The id of a rule's row."""
    return f"rule-{slug(rule.replace(' ', '-'))}"


def or_unknown(value: int | None) -> str:
    """The number, or the word unknown."""
    return "unknown" if value is None else numbers.integer(value)


def in_cases(contrast: Contrast) -> list[str]:
    """Where the closed forms of the sides hold, as words, unless both are general."""
    one, two = (" and ".join(case) for case in contrast.cases)
    if one == two:
        return [f"closed forms of the case {one}, on both sides"] if one else []
    named = [f"of the case {case}" if case else "general" for case in (one, two)]
    return [f"closed forms on the left {named[0]}, on the right {named[1]}: there the step runs otherwise"]
