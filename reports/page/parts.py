"""Helpers for several sections of a report: formulas, verdicts, anchors, small texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from calc.dimensions import MEANINGS
from calc.symbolic import branches
from calc.symbolic.expression import Expression, Labelled, Number, Product, Sum, walk
from calc.symbolic.tree import factored, parse
from reports.page.conventions import attends
from reports.page.model import Badge, FormulaPieces, TermRow, TypesetFormula
from reports.typeset import expressions, numbers, paths, plain
from reports.typeset.escape import slug
from reports.typeset.wording import ANSWERS as ANSWERS
from reports.typeset.wording import capitalized as capitalized
from reports.typeset.wording import searched_sizes as searched_sizes
from reports.typeset.wording import sentence as sentence
from reports.typeset.wording import several as several
from reports.typeset.wording import sizes_text as sizes_text

if TYPE_CHECKING:
    from calc.derive.compare import Comparison
    from calc.derive.result import Derivation, QuantityTerm
    from calc.graph.guards import TracedDim

_OF_ATTENTION = ("h", "g", "k")  # letters whose usual meanings are of attention: its heads and their width


def meaning_in(dim: TracedDim, derivation: Derivation) -> str:
    """What a dimension means. In a step without attention a letter of attention has no usual meaning: h can be the width of an LSTM."""
    usual = dim.name in _OF_ATTENTION and dim.meaning == MEANINGS[dim.name]
    return f"dimension {dim.name}" if usual and not attends(derivation) else dim.meaning


BADGES = {
    "exact": Badge("✓", "measured, equal", "good"),
    "within": Badge("≈", "measured, within tolerance", "good"),
    "in parts": Badge("✓", "measured in parts, equal", "good"),
    "failed": Badge("×", "failed", "bad"),
    "not measured": Badge("○", "not measured", "open"),
}
_MANY = 30  # rows of a table by part
UNCHECKED = Badge("○", "not measured", "open")


def badge(name: str, verdicts: Mapping[str, Any]) -> Badge:
    """The badge of a quantity's verdict; "not measured" if it has none."""
    return badge_of(verdicts[name]) if name in verdicts else UNCHECKED


def badge_of(verdict: Any) -> Badge:
    """The badge of a verdict; it names the difference that is expected, if there is one."""
    shown = BADGES[verdict.verdict]
    return replace(shown, words=f"{shown.words} but for recomputation") if verdict.passed and verdict.expected else shown


def formula(tree: Expression, *, braces: bool = True) -> TypesetFormula:
    """A formula for all writers. Without ``braces``, labels are beside the terms instead of under them."""
    labelled = isinstance(tree, Sum) and any(isinstance(node, Labelled) for term in tree.terms for node in walk(term))
    return TypesetFormula(plain.terms(tree), partial(_pieces, tree, braces), labelled)


def stated_formula(expr: str | None) -> TypesetFormula | None:
    """The formula of a closed form in text, if there is one."""
    return None if expr is None else formula(parse(expr))


def _pieces(tree: Expression, braces: bool) -> FormulaPieces:
    from calc.symbolic import latex, marks  # what only prints text does without them

    rows = latex.labelled_rows(tree, braces=braces)
    pieces = tuple(piece for row, _ in rows for piece in row) if rows else latex.pieces(tree)
    return FormulaPieces(pieces, any(marks.width(p) > latex.WIDE for p in pieces), rows)


def term_row(module_path: str, tree: Expression, value: int, total: int | None, because: str) -> TermRow:
    """The row of an addend: its form, value, and share of ``total`` (empty if ``total`` is 0 or unknown)."""
    return TermRow(module_path, formula(tree), numbers.integer(value), share_if_known(value, total), because)


def alike_rows(terms: Sequence[QuantityTerm], total: int | None, derivation: Derivation) -> tuple[TermRow, ...]:
    """The rows of addends; of many, those with one closed form and reason are one row, which is their sum."""
    alike: dict[object, list[QuantityTerm]] = {}
    for i, t in enumerate(terms):
        alike.setdefault((t.expr, t.value, t.because) if len(terms) > _MANY else i, []).append(t)
    return tuple(_row(group, total, derivation) for group in alike.values())


def reasons_once(rows: Sequence[TermRow]) -> tuple[TermRow, ...]:
    """The rows, in which a long reason that is that of the row above is not repeated."""
    repeated = (before.because == row.because and len(row.because) > _LONG for before, row in pairwise(rows))
    return (*rows[:1], *(replace(row, because=_ABOVE) if same else row for row, same in zip(rows[1:], repeated, strict=True)))


_ABOVE, _LONG = "as above", 20


def _row(alike: Sequence[QuantityTerm], total: int | None, derivation: Derivation) -> TermRow:
    first, number = alike[0], len(alike)
    module_paths = paths.pattern([t.module_path for t in alike])
    return term_row(module_paths, times(number, at_hand(first.expr, derivation)), number * first.value, total, first.because)


def at_hand(expr: str, derivation: Derivation) -> Expression:
    """The closed form ``expr`` of a derivation as it holds at its sizes."""
    return factored(expressions.parse(branches.at_hand(expr, derivation.sizes)), derivation.trip_counts)


def times(number: int, tree: Expression) -> Expression:
    """The expression ``number`` times ``tree``, the number in front."""
    return tree if number == 1 else Product((Number(number), tree))


def chapter_anchor(name: str) -> str:
    """The anchor of a quantity's chapter."""
    return f"q-{slug(name)}"


def rule_anchor(rule: str) -> str:
    """The anchor of a rule's row."""
    return f"rule-{slug(rule.replace(' ', '-'))}"


def share(value: int, total: int) -> str:
    """``value`` in percent of ``total``; a dash where the total is 0."""
    return numbers.percent(Fraction(value, total)) if total else "–"


def share_if_known(value: int, total: int | None) -> str:
    """``value`` in percent of ``total``; empty where the total is 0 or unknown."""
    return share(value, total) if total else ""


def or_unknown(value: int | None) -> str:
    """The integer as text; "unknown" for ``None``."""
    return "unknown" if value is None else numbers.integer(value)


def in_cases(contrast: Comparison) -> list[str]:
    """The cases for which the two sides' closed forms hold, as text; empty if both are general."""
    one, two = (" and ".join(case) for case in contrast.cases)
    if one == two:
        return [f"the closed forms of both sides are those for {one}"] if one else []
    forms = [f"the one for {case}" if case else "the general one" for case in (one, two)]
    return [f"the closed form of the left side is {forms[0]}, of the right side {forms[1]}: the step runs differently there"]
