"""Evaluates the expressions of one layout for many layouts at once: the same text on arrays of doubles.

The best candidates are then evaluated exactly in fractions, so rounding decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calc.symbolic.evaluation import PythonOperators
from calc.symbolic.expression import Expression, FunctionCall, Number, Quotient
from calc.symbolic.parser import free_names, parse
from calc.symbolic.worked import WorkedStep

Array = NDArray[Any]


def holds(text: str, values: Mapping[str, Any]) -> Array:
    """A boolean array: where the condition is true."""
    mask: Array = parse(text).holds_in(Doubles(values))
    return mask


class Doubles(PythonOperators):
    """Arrays of doubles."""

    def number(self, node: Number) -> Any:
        return float(node.value)

    def quotient(self, node: Quotient) -> Any:
        return np.divide(node.top.value_in(self), node.bottom.value_in(self))

    def call(self, node: FunctionCall) -> Any:
        arguments = [argument.value_in(self) for argument in node.arguments]
        match node.function, arguments:
            case "floor", [x]:
                return np.floor(x)
            case "ceiling", [x]:
                return np.ceil(x)
            case "Max", [_, *_]:
                return reduce(np.maximum, arguments)
            case "Min", [_, *_]:
                return reduce(np.minimum, arguments)
            case "Mod", [x, y]:
                return np.mod(x, y)
        raise self.refused(node)

    def all_hold(self, conditions: Sequence[Expression]) -> Any:
        return reduce(np.logical_and, (condition.holds_in(self) for condition in conditions))

    def any_holds(self, conditions: Sequence[Expression]) -> Any:
        return reduce(np.logical_or, (condition.holds_in(self) for condition in conditions))


@lru_cache(maxsize=1 << 16)
def _variables(text: str) -> tuple[str, ...]:
    return tuple(sorted(free_names(text)))


class Sheet:
    """Evaluates expressions of many choices over the same arrays; common ones are evaluated once.

    Two steps are the same if their expressions match and every variable in them has the same meaning.
    """

    def __init__(self, inputs: Mapping[str, Any]) -> None:
        self._given = dict(inputs)
        self._done: dict[tuple[str, tuple[int, ...]], tuple[int, Any]] = {}
        self._numbers = {name: number for number, name in enumerate(inputs)}

    def work(self, lines: Sequence[WorkedStep], additional: Mapping[str, tuple[int, Any]] | None = None) -> dict[str, tuple[int, Any]]:
        """The number and value of each step by its variable. ``additional`` are variables from steps evaluated before."""
        worked = {name: (number, self._given[name]) for name, number in self._numbers.items()} | dict(additional or {})
        for line in lines:
            names = _variables(line.expr)
            key = (line.expr, tuple(worked[name][0] for name in names))
            if key not in self._done:
                value = parse(line.expr).value_in(Doubles({name: worked[name][1] for name in names}))
                self._done[key] = (len(self._numbers) + len(self._done), value)
            worked[line.symbol] = self._done[key]
        return worked
