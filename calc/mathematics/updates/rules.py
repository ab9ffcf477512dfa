"""The data of an update rule: equations in execution order, their variables, their state, their source.

Variables: theta a parameter, g its gradient, t the number of the step from 1. The others belong to each rule; values that torch takes come
from calc.options, which has the classes' defaults. An equation assigns to the variable on its left.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from calc.options import NAMED_OPTIMIZERS, NamedOptimizer


@dataclass(frozen=True, slots=True)
class UpdateEquation:
    """``target = text``, in Python's notation, with its meaning."""

    target: str
    text: str
    about: str


@dataclass(frozen=True, slots=True)
class UpdateRule:
    """One optimizer.

    ``letters``  keyword of torch's class → the letters it sets: ``betas`` sets ``beta1`` and ``beta2``.
    ``state``    letter → what it is before the first step, an expression of letters, for each element of the parameter.
    ``single``   the same of numbers that a whole tensor shares.
    ``of_matrix``  the parameter is a matrix, and means over its rows and columns come up: there are no counts of one element.
    ``keys``     letter → what torch calls it in the optimizer's state.
    ``values``   letters that no class of torch sets (the lecture's AdaGrad), with their defaults.
    """

    name: str
    equations: tuple[UpdateEquation, ...]
    letters: Mapping[str, tuple[str, ...]]
    source: str
    state: Mapping[str, str]
    single: Mapping[str, str]
    values: Mapping[str, float]
    keys: Mapping[str, str]
    of_matrix: bool = False

    @property
    def kind(self) -> str:
        """The class of torch.optim; empty if torch has none."""
        return NAMED_OPTIMIZERS[self.name].kind if self.name in NAMED_OPTIMIZERS else ""

    def defaults(self) -> dict[str, float]:
        """Every letter with its default."""
        if self.name not in NAMED_OPTIMIZERS:
            return dict(self.values)
        keyword_values = keywords(NAMED_OPTIMIZERS[self.name])
        defaults: dict[str, float] = {}
        for keyword, letters in self.letters.items():
            values = keyword_values[keyword] if len(letters) > 1 else (keyword_values[keyword],)
            # None stands for the epsilon of the parameter's format: rules are carried out in fp64.
            defaults |= dict(zip(letters, (2.0**-52 if value is None else float(value) for value in values), strict=True))
        return defaults

    def given(self, values: Mapping[str, float]) -> dict[str, float | tuple[float, ...]]:
        """The keywords of torch's class for values of the letters."""
        picked = {keyword: tuple(values[letter] for letter in letters) for keyword, letters in self.letters.items()}
        return {keyword: numbers if len(numbers) > 1 else numbers[0] for keyword, numbers in picked.items()}


def keywords(entry: NamedOptimizer) -> dict[str, Any]:
    """The keyword arguments of torch's class, parsed from the text of the call."""
    call = ast.parse(entry.call, mode="eval").body
    assert isinstance(call, ast.Call)
    return {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
