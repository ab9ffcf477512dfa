"""Short calculations with their steps: given numbers, and lines that each follow from what stands above, exactly.

A line is an expression in letters, its unit and the reason for it; its value is a fraction, never a rounded number. What a model
takes is derived from its record; these say what follows from such numbers: how long, how many, how large.
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
    """A number that is put in: positive, in its ``unit``, with where it comes from."""

    letter: str
    value: Fraction
    unit: str
    meaning: str
    source: str = "as asked"


@dataclass(frozen=True, slots=True)
class WorkedStep:
    """``letter`` = ``expr`` in letters that stand above, because of one reason. Not ``exact`` where a root was cut off."""

    letter: str
    expr: str
    unit: str
    meaning: str
    because: str
    value: Fraction = Fraction(0)
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Reckoning:
    """Given numbers and what follows from them. The last line is the answer."""

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
        """All numbers by letter."""
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
    """A positive number; a float counts as the decimal that it is written as (0.1 is a tenth)."""
    try:
        exact = Fraction(str(value)) if isinstance(value, float) else Fraction(value)
    except (ValueError, TypeError):
        raise BadInputError(f"{meaning} = {value!r} is no number") from None
    if exact <= 0:
        raise BadInputError(f"{meaning} = {value} must be more than 0")
    return WorkedInput(letter, exact, unit, meaning, source)


def reckon(name: str, givens: Sequence[WorkedInput], lines: Sequence[WorkedStep], notes: Sequence[str] = ()) -> Reckoning:
    """The lines evaluated one after another."""
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
