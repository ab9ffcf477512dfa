"""An answer with its derivation, as data and as the ``"schema": 2`` document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from calc.capacity.questions.question import Equation
from calc.platform.reading import clipped
from calc.platform.tables import text_table
from calc.symbolic.worked import WorkedCalculation, WorkedStep
from calc.units import number

_LONGEST = 48  # characters of a formula in the table that Python prints


@dataclass(frozen=True, slots=True)
class Input:
    """The input under ``key``: a number with its unit, or the name of a device, a model, a choice."""

    key: str
    symbol: str
    value: Fraction | str
    unit: str
    meaning: str
    source: str


@dataclass(frozen=True, slots=True)
class FurtherResult:
    """An additional result shown with the answer. ``exact`` is False where a root was truncated."""

    label: str
    value: Fraction
    unit: str
    because: str
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Bound:
    """The limit of a rounded answer, its value at the answer, and its value one step further, where it is exceeded."""

    key: str
    unit: str
    limit: Fraction
    value: Fraction
    further: int
    further_value: Fraction

    @property
    def keeps_below(self) -> bool:
        """Whether valid answers lie below the limit. An answer exactly on the limit counts with the side away from the next value."""
        return self.value < self.limit or self.further_value > self.limit


@dataclass(frozen=True, slots=True)
class RuleOfThumbAnswer:
    """The answer by the rule of thumb, shown when the answer itself uses the exact counts of the model. The rule is ``equations``, or
    ``words`` where several equations have a short description."""

    equations: tuple[Equation, ...]
    value: Fraction
    words: str = ""

    @property
    def rule(self) -> str:
        """The rule in one line: ``C = 6*N*D``."""
        return self.words or "; ".join(f"{equation.symbol} = {equation.expr}" for equation in self.equations)

    def off(self, exact: Fraction) -> Fraction:
        """The error of the rule of thumb: rule ÷ exact − 1."""
        return (self.value - exact) / exact


@dataclass(frozen=True, slots=True, repr=False)
class Answer:
    """``expr`` gives the answer in the variables of ``inputs``; None if a search computed it. ``unrounded`` is the value before rounding.

    ``also`` are additional results; ``beside`` are their steps, which the answer does not use.
    """

    question: str
    summary: str
    key: str
    symbol: str
    value: Fraction
    unit: str
    meaning: str
    expr: str | None
    unrounded: Fraction
    inputs: tuple[Input, ...]
    calculation: WorkedCalculation
    flags: tuple[str, ...]
    notes: tuple[str, ...]
    exact: bool = True
    bound: Bound | None = None
    rule_of_thumb: RuleOfThumbAnswer | None = None
    also: tuple[FurtherResult, ...] = ()
    beside: tuple[WorkedStep, ...] = ()
    rows: tuple[FurtherResult, ...] = ()
    source: str = ""

    def __repr__(self) -> str:
        """The answer, then its steps, a line each; a long formula is clipped, so that its value is on the line."""
        steps = (*self.calculation.steps, *self.beside)
        rows = [(s.symbol, clipped(f"= {s.expr}", _LONGEST), f"= {float(s.value):,.6g} {s.unit}", s.because) for s in steps]
        return text_table(f"{self.question}: {self.key} = {float(self.value):,.6g} {self.unit} ({self.meaning})", rows)

    def __getitem__(self, name: str) -> Fraction:
        """The value of a variable, or of an input by its key."""
        values = self.calculation.values | {line.symbol: line.value for line in self.beside}
        if name in values:
            return values[name]
        return next(values[i.symbol] for i in self.inputs if i.key == name and i.symbol in values)

    def to_json(self) -> dict[str, Any]:
        """Plain data. A value is a whole number (a string beyond 2⁵³) or the nearest double, with the fraction beside it as ``exact``."""
        return {
            "schema": 2,
            "question": self.question,
            "inputs": {i.key: _input(i) for i in self.inputs},
            "answer": {
                "name": self.key,
                "symbol": self.symbol,
                "expr": self.expr,
                **({} if self.expr is not None else {"expr_unknown": "solved by search: no equation can be rearranged for it"}),
                **valued(self.value, self.exact),
                **({} if self.unrounded == self.value else {"unrounded": valued(self.unrounded, self.calculation.steps[-1].exact)}),
                "unit": self.unit,
                "meaning": self.meaning,
            },
            "steps": [_step(line) for line in self.calculation.steps],
            "bound": None if self.bound is None else _bound(self.bound),
            "rule_of_thumb": None if self.rule_of_thumb is None else _rule_of_thumb(self.rule_of_thumb, self.value),
            "also": [_row(row) for row in self.also],
            "also_steps": [_step(line) for line in self.beside],
            "rows": [_row(row) for row in self.rows],
            "flags": list(self.flags),
            "notes": list(self.notes),
            "source": self.source or None,
        }


def valued(value: Fraction, exact: bool = True) -> Mapping[str, Any]:
    """A value as JSON number, with the exact fraction unless a root was rounded."""
    plain = number(int(value)) if value.denominator == 1 else float(value)
    return {"value": plain, "exact": str(value) if exact else None}


def _input(item: Input) -> dict[str, Any]:
    value = {"value": item.value} if isinstance(item.value, str) else valued(item.value)
    return {"symbol": item.symbol or None, **value, "unit": item.unit or None, "meaning": item.meaning, "source": item.source}


def _step(x: WorkedStep) -> dict[str, Any]:
    return {"symbol": x.symbol, "expr": x.expr, **valued(x.value, x.exact), "unit": x.unit, "meaning": x.meaning, "because": x.because}


def _row(row: FurtherResult) -> dict[str, Any]:
    return {"what": row.label, **valued(row.value, row.exact), "unit": row.unit, "because": row.because}


def _bound(bound: Bound) -> dict[str, Any]:
    return {
        "name": bound.key,
        "unit": bound.unit,
        "limit": valued(bound.limit),
        "here": valued(bound.value),
        "further": number(bound.further),
        "there": valued(bound.further_value),
    }


def _rule_of_thumb(answer: RuleOfThumbAnswer, exact: Fraction) -> dict[str, Any]:
    return {"rule": answer.rule, **valued(answer.value), "off": valued(answer.off(exact))}
