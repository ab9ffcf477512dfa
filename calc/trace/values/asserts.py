"""The truth value that a data-dependent check must have for the step to continue: an ``assert``, or an ``if`` that only raises.

A step that ends without an error has passed all of them, whatever the data are, so such a check does not split the step into two cases.
A check may also compare a number that it reads out of a tensor (``assert lengths.max().item() <= T``): any number may be read there,
since nothing but the comparison sees it, and the comparison has the required outcome.
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
    frame = _user_frame()
    if frame is None:
        return None
    places, at = [*frame.f_code.co_positions()], frame.f_lasti // 2
    truths = _required_in(frame.f_code.co_filename)
    # A jump on the result of a call has another position: the instruction before it is the call.
    return next((truths[place] for place in (places[at - 1], places[at]) if place in truths), None)


def only_compared() -> bool:
    """Whether the value of the running call is an operand of a comparison that a check needs, so that nothing else sees it."""
    frame = _user_frame()
    if frame is None:
        return False
    place = [*frame.f_code.co_positions()][frame.f_lasti // 2]
    return place in _compared_in(frame.f_code.co_filename)


def _user_frame() -> FrameType | None:
    """The innermost frame of the user's code."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_foreign(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


@functools.cache
def _required_in(file: str) -> dict[_Place, bool]:
    """The truth values that the checks of a file need, by the positions of their expressions."""
    return {_place(test): truth for test, truth in _checks_in(file)}


@functools.cache
def _compared_in(file: str) -> frozenset[_Place]:
    """The positions of the calls whose values the checks of a file compare by order or equality."""
    tests = [test for test, _ in _checks_in(file) if isinstance(test, ast.Compare)]
    comparisons = [test for test in tests if not any(isinstance(op, ast.In | ast.NotIn | ast.Is | ast.IsNot) for op in test.ops)]
    return frozenset(_place(part) for test in comparisons for part in (test.left, *test.comparators) if isinstance(part, ast.Call))


def _checks_in(file: str) -> Iterator[tuple[ast.expr, bool]]:
    """The expressions in the checks of a file, each with the truth value that it needs."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):  # no source
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            yield from _needed(node.test, True)
        elif isinstance(node, ast.If) and all(isinstance(part, ast.Raise) for part in node.body):
            yield from _needed(node.test, False)


def _needed(test: ast.expr, truth: bool) -> Iterator[tuple[ast.expr, bool]]:
    """The parts of ``test`` with the truth values that they must have for it to be ``truth``, where there is only one way."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _needed(test.operand, not truth)
    elif isinstance(test, ast.BoolOp):
        # Of ``and`` that must be false, or ``or`` that must be true, only the last operand is determined, once evaluated.
        for part in test.values if isinstance(test.op, ast.And) is truth else test.values[-1:]:
            yield from _needed(part, truth)
    elif isinstance(test, ast.Compare) and not truth and len(test.ops) > 1:
        return  # any one of a chain may be false
    elif not isinstance(test, ast.Call) or _name(test.func) in _GIVING:
        yield test, truth


def _place(node: ast.expr) -> _Place:
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
