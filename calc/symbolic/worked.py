"""Worked calculations: inputs, and steps that each follow exactly from those before.

A step is an expression in variables, with its unit and the reason for it; its value is an exact fraction. A worked calculation computes
times, counts and sizes from numbers such as FLOPs and bytes, which come from a trace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from calc.errors import BadInputError
from calc.symbolic.arithmetic import evaluate

Number = int | float | Fraction


@dataclass(frozen=True, slots=True)
class WorkedInput:
    """An input: a positive number in ``unit``, with its source."""

    symbol: str
    value: Fraction
    unit: str
    meaning: str
    source: str = "as given"


@dataclass(frozen=True, slots=True)
class WorkedStep:
    """``symbol`` = ``expr`` in variables of earlier steps and inputs, for one reason. ``exact`` is False where a root was truncated."""

    symbol: str
    expr: str
    unit: str
    meaning: str
    because: str
    value: Fraction = Fraction(0)
    exact: bool = True


@dataclass(frozen=True, slots=True)
class WorkedCalculation:
    """A worked calculation: inputs, and steps that follow from them. The last step is the answer."""

    name: str
    inputs: tuple[WorkedInput, ...]
    steps: tuple[WorkedStep, ...]
    notes: tuple[str, ...] = ()

    @property
    def value(self) -> Fraction:
        return self.steps[-1].value

    @property
    def unit(self) -> str:
        return self.steps[-1].unit

    def __getitem__(self, symbol: str) -> Fraction:
        return self.values[symbol]

    @property
    def values(self) -> dict[str, Fraction]:
        """The value of each input and step, by its symbol."""
        return {**{g.symbol: g.value for g in self.inputs}, **{step.symbol: step.value for step in self.steps}}

    def to_json(self) -> dict[str, Any]:
        """Plain data; values are exact fractions as text."""
        return {
            "name": self.name,
            "inputs": [
                {"symbol": g.symbol, "value": str(g.value), "unit": g.unit, "meaning": g.meaning, "source": g.source} for g in self.inputs
            ],
            "steps": [
                {"symbol": i.symbol, "expr": i.expr, "value": str(i.value), "unit": i.unit, "meaning": i.meaning, "because": i.because}
                for i in self.steps
            ],
            "notes": list(self.notes),
        }


def worked_input(symbol: str, value: Number, unit: str, meaning: str, source: str = "as given") -> WorkedInput:
    """An input. A float counts as the decimal that it prints as (0.1 is 1/10). Raises BadInputError unless the value is positive."""
    try:
        exact = Fraction(str(value)) if isinstance(value, float) else Fraction(value)
    except (ValueError, TypeError):
        raise BadInputError(f"{meaning} = {value!r} is not a number") from None
    if exact <= 0:
        raise BadInputError(f"{meaning} = {value} must be more than 0")
    return WorkedInput(symbol, exact, unit, meaning, source)


def worked_calculation(
    name: str, inputs: Sequence[WorkedInput], steps: Sequence[WorkedStep], notes: Sequence[str] = ()
) -> WorkedCalculation:
    """The calculation with its steps evaluated in order. Raises BadInputError for a missing or repeated variable or a division by 0."""
    values: dict[str, Any] = {g.symbol: g.value for g in inputs}
    evaluated: list[WorkedStep] = []
    for step in steps:
        value = values[step.symbol] = _value(name, step, values)
        evaluated.append(replace(step, value=value))
    return WorkedCalculation(name, tuple(inputs), tuple(evaluated), tuple(notes))


def _value(name: str, step: WorkedStep, values: Mapping[str, Any]) -> Fraction:
    if step.symbol in values:
        raise BadInputError(f"{name}: {step.symbol} has a value already, and a second one from {step.expr}")
    try:
        return evaluate(step.expr, values)
    except KeyError as error:
        raise BadInputError(f"{name}: {step.symbol} = {step.expr} needs {error.args[0]}, which is not given") from None
    except ZeroDivisionError:
        raise BadInputError(f"{name}: {step.symbol} = {step.expr} divides by 0") from None
