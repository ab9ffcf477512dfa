"""The truth value that a data-dependent check must have for the step to continue: an ``assert``, or an ``if`` that only raises.

A step that ends without an error has passed all of them, whatever the data are, so such a check does not split the step into two cases.
"""

from __future__ import annotations

import ast
import functools
import linecache
import sys
from collections.abc import Iterator
from types import FrameType

from calc.trace.source_lines import is_foreign

_Place = tuple[int | None, int | None, int | None, int | None]
# Calls that return the tensor's truth value; the result of any other call is unknown.
_GIVING = ("all", "any", "is_nonzero", "item", "bool")


def required() -> bool | None:
    """The truth value that the check at the innermost user line needs, or None where that line is not a check."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_foreign(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return None
    places, at = [*frame.f_code.co_positions()], frame.f_lasti // 2
    truths = _required_in(frame.f_code.co_filename)
    # A jump on the result of a call has another position: the instruction before it is the call.
    return next((truths[place] for place in (places[at - 1], places[at]) if place in truths), None)


@functools.cache
def _required_in(file: str) -> dict[_Place, bool]:
    """The truth values that the checks of a file need, by the positions of their expressions."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):  # no source
        return {}
    truths: dict[_Place, bool] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            truths |= dict(_needed(node.test, True))
        elif isinstance(node, ast.If) and all(isinstance(part, ast.Raise) for part in node.body):
            truths |= dict(_needed(node.test, False))
    return truths


def _needed(test: ast.expr, truth: bool) -> Iterator[tuple[_Place, bool]]:
    """The truth values that parts of ``test`` must have for it to be ``truth``, where there is only one way."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _needed(test.operand, not truth)
    elif isinstance(test, ast.BoolOp):
        # Of ``and`` that must be false, or ``or`` that must be true, only the last operand is determined, once evaluated.
        for part in test.values if isinstance(test.op, ast.And) is truth else test.values[-1:]:
            yield from _needed(part, truth)
    elif not isinstance(test, ast.Call) or _name(test.func) in _GIVING:
        yield _place(test), truth


def _place(node: ast.expr) -> _Place:
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
