"""Piecewise closed forms: the case that holds at given sizes, and the general one.

A step that runs differently at some sizes (B = 1) has the text ``Piecewise((special, Eq(B, 1)), (general, True))``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from calc.errors import NapkinError
from calc.symbolic.exact import Exact
from calc.symbolic.expression import Expression, FunctionCall, Name, Number, Piecewise, Truth, rewritten, walk
from calc.symbolic.parser import parse
from calc.symbolic.writer import as_text


def at_hand(text: str, sizes: Mapping[str, int]) -> str:
    """``text`` with each Piecewise replaced by its case that holds at ``sizes``."""
    return _chosen(text, sizes)[0]


def equalities_at(texts: Iterable[str], sizes: Mapping[str, int]) -> tuple[str, ...]:
    """The equalities, such as ``B = 1``, of the special cases that hold at ``sizes``; empty where the general forms hold."""
    sides = (pair for text in texts for condition in _chosen(text, sizes)[1] for pair in _equal_sides(condition))
    return tuple(dict.fromkeys(f"{as_text(left, spaced=True)} = {as_text(right, spaced=True)}" for left, right in sides))


def _chosen(text: str, sizes: Mapping[str, int]) -> tuple[str, list[Expression]]:
    """(the form that holds at ``sizes``, the conditions that selected it). Raises NapkinError if no case holds."""
    if "Piecewise" not in text:
        return text, []
    conditions: list[Expression] = []

    def choose(node: Expression) -> Expression | None:
        if not isinstance(node, Piecewise):
            return None
        for expr, condition in node.cases:
            if _holds(condition, sizes):
                conditions.append(condition)
                return rewritten(expr, choose)
        raise NapkinError(f"no case of {as_text(node, spaced=True)[:80]!r} holds at {dict(sizes)}")

    return as_text(rewritten(parse(text), choose), spaced=True), conditions


def _equal_sides(condition: Expression) -> Iterator[tuple[Expression, Expression]]:
    for node in walk(condition):
        match node:
            case FunctionCall("Eq", (left, right)):
                yield left, right


def general_case(text: str, sizes: Mapping[str, int]) -> Expression | None:
    """The general form where a special case of the outermost Piecewise holds at ``sizes``; None where it holds itself."""
    cases = _cases(text)
    special = any(_holds(condition, sizes) for _, condition in cases if condition != Truth(True))
    return next((expr for expr, condition in cases if condition == Truth(True)), None) if special else None


def case_at(text: str, sizes: Mapping[str, int]) -> dict[str, str]:
    """The sizes of the outermost case that holds, ``{"B": "1"}``, without products; empty for the general case, or a form without cases."""
    condition = next((condition for _, condition in _cases(text) if _holds(condition, sizes)), Truth(True))
    return {as_text(a): as_text(b) for a, b in _equal_sides(condition) if isinstance(a, Name) and isinstance(b, Name | Number)}


def _cases(text: str) -> tuple[tuple[Expression, Expression], ...]:
    """The cases of a closed form that is a Piecewise; else empty."""
    tree = parse(text) if text.startswith("Piecewise") else None
    return tree.cases if isinstance(tree, Piecewise) else ()


def _holds(condition: Expression, sizes: Mapping[str, int]) -> bool:
    """Whether a case's condition, in SymPy's notation, holds at ``sizes``."""
    if not isinstance(condition, FunctionCall | Truth):
        raise NapkinError(f"cannot read the condition {as_text(condition, spaced=True)!r} of a closed form by cases")
    return bool(condition.holds_in(Exact(sizes)))
