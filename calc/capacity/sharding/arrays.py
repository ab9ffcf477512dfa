"""Expressions of one layout, for many layouts at once: the same text on arrays of doubles.

What is best by them is worked out again in fractions, so rounding decides nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calc.errors import NapkinError
from calc.symbolic.worked import WorkedStep

Array = NDArray[Any]
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: np.add, ast.Sub: np.subtract, ast.Mult: np.multiply, ast.Div: np.divide, ast.Mod: np.mod, ast.Pow: np.power,
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: np.equal, ast.NotEq: np.not_equal, ast.Lt: np.less, ast.LtE: np.less_equal, ast.Gt: np.greater, ast.GtE: np.greater_equal,
}  # fmt: skip


@lru_cache(maxsize=65536)
def _parsed(text: str) -> tuple[ast.expr, tuple[str, ...]]:
    tree = ast.parse(text, mode="eval").body
    functions = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in functions}
    return tree, tuple(sorted(names))


def names_in(text: str) -> set[str]:
    """The variables in an expression."""
    return set(_parsed(text)[1])


def holds(text: str, values: Mapping[str, Any]) -> Array:
    """A boolean array: where the condition holds."""
    mask: Array = _evaluate(_parsed(text)[0], values)
    return mask


def _evaluate(node: ast.expr, values: Mapping[str, Any]) -> Any:
    match node:
        case ast.Name(id=name):
            return values[name]
        case ast.Constant(value=int() as number):
            return float(number)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            return _ARITHMETIC[type(op)](_evaluate(left, values), _evaluate(right, values))
        case ast.Call(func=ast.Name(id=function), args=args):
            return _call(function, [_evaluate(x, values) for x in args])
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _COMPARE[type(op)](_evaluate(left, values), _evaluate(right, values))
        case ast.BoolOp(op=ast.And(), values=parts):
            return reduce(np.logical_and, (_evaluate(part, values) for part in parts))
        case ast.BoolOp(op=ast.Or(), values=parts):
            return reduce(np.logical_or, (_evaluate(part, values) for part in parts))
    raise NapkinError(f"cannot work {ast.unparse(node)!r} out on arrays")


def _call(function: str, args: Sequence[Any]) -> Any:
    match function:
        case "floor":
            return np.floor(args[0])
        case "ceiling":
            return np.ceil(args[0])
        case "Max":
            return reduce(np.maximum, args)
        case "Min":
            return reduce(np.minimum, args)
        case "Mod":
            return np.mod(args[0], args[1])
    raise NapkinError(f"there is no {function} on arrays")


class Sheet:
    """Evaluates expressions of many choices over the same arrays; common ones are evaluated once.

    A line is the same as another if its expression is and every letter in it stands for the same.
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = dict(given)
        self._done: dict[tuple[str, tuple[int, ...]], tuple[int, Any]] = {}
        self._numbers = {name: number for number, name in enumerate(given)}

    def work(self, lines: Sequence[WorkedStep], given: Mapping[str, tuple[int, Any]] | None = None) -> dict[str, tuple[int, Any]]:
        """Each line's number and value by its letter. ``given`` are further letters, from lines worked out before."""
        worked = {name: (number, self._given[name]) for name, number in self._numbers.items()} | dict(given or {})
        for line in lines:
            tree, names = _parsed(line.expr)
            key = (line.expr, tuple(worked[name][0] for name in names))
            if key not in self._done:
                value = _evaluate(tree, {name: worked[name][1] for name in names})
                self._done[key] = (len(self._numbers) + len(self._done), value)
            worked[line.letter] = self._done[key]
        return worked
