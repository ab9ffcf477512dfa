"""Worked calculations: inputs, and steps that each follow exactly from those before.

A step is an expression in variables, with its unit and the reason for it; its value is a fraction, not rounded. What a model takes is
derived from its trace; a worked calculation says what follows from such numbers: how long, how many, how large.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from calc.errors import BadInputError
from calc.symbolic.arithmetic import evaluate

Number = int | float | Fraction


@dataclass(frozen=True, slots=True)
class WorkedInput:
    """An input: a positive number in ``unit``, with its source."""

    letter: str
    value: Fraction
    unit: str
    meaning: str
    source: str = "as asked"


@dataclass(frozen=True, slots=True)
class WorkedStep:
    """``letter`` = ``expr`` in variables of earlier steps and inputs, for one reason. ``exact`` is False where a root was truncated."""

    letter: str
    expr: str
    unit: str
    meaning: str
    because: str
    value: Fraction = Fraction(0)
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Reckoning:
    """A worked calculation: inputs, and steps that follow from them. The last step is the answer."""

    name: str
    givens: tuple[WorkedInput, ...]
    lines: tuple[WorkedStep, ...]
    notes: tuple[str, ...] = ()

    @property
    def value(self) -> Fraction:
        return self.lines[-1].value

    @property
    def unit(self) -> str:
        return self.lines[-1].unit

    def __getitem__(self, letter: str) -> Fraction:
        return self.values[letter]

    @property
    def values(self) -> dict[str, Fraction]:
        """The value of each input and step, by its variable."""
        return {**{g.letter: g.value for g in self.givens}, **{line.letter: line.value for line in self.lines}}

    def to_json(self) -> dict[str, Any]:
        """Plain data; values are exact fractions as text."""
        return {
            "name": self.name,
            "inputs": [
                {"letter": g.letter, "value": str(g.value), "unit": g.unit, "meaning": g.meaning, "source": g.source} for g in self.givens
            ],
            "steps": [
                {"letter": i.letter, "expr": i.expr, "value": str(i.value), "unit": i.unit, "meaning": i.meaning, "because": i.because}
                for i in self.lines
            ],
            "notes": list(self.notes),
        }


def given(letter: str, value: Number, unit: str, meaning: str, source: str = "as asked") -> WorkedInput:
    """An input. A float counts as the decimal that it prints as (0.1 is 1/10). Raises BadInputError unless the value is positive."""
    try:
        exact = Fraction(str(value)) if isinstance(value, float) else Fraction(value)
    except (ValueError, TypeError):
        raise BadInputError(f"{meaning} = {value!r} is no number") from None
    if exact <= 0:
        raise BadInputError(f"{meaning} = {value} must be more than 0")
    return WorkedInput(letter, exact, unit, meaning, source)


def reckon(name: str, givens: Sequence[WorkedInput], lines: Sequence[WorkedStep], notes: Sequence[str] = ()) -> Reckoning:
    """The calculation with its steps evaluated in order. Raises BadInputError for a missing or repeated variable or a division by 0."""
    values: dict[str, Any] = {g.letter: g.value for g in givens}
    done: list[WorkedStep] = []
    for line in lines:
        value = _value(name, line, values)
        values[line.letter] = value
        done.append(WorkedStep(line.letter, line.expr, line.unit, line.meaning, line.because, value))
    return Reckoning(name, tuple(givens), tuple(done), tuple(notes))


def _value(name: str, line: WorkedStep, values: Mapping[str, Any]) -> Fraction:
    if line.letter in values:
        raise BadInputError(f"{name}: {line.letter} is given already, and follows again from {line.expr}")
    try:
        return evaluate(line.expr, values)
    except KeyError as error:
        raise BadInputError(f"{name}: {line.letter} = {line.expr} needs {error.args[0]}, which is not given") from None
    except ZeroDivisionError:
        raise BadInputError(f"{name}: {line.letter} = {line.expr} divides by 0") from None
