"""The data of a page of capacity questions: each with the steps of its answer as expressions, which the page's script evaluates.

A question whose answer has a root or needs a search has no expression that is exact: the page names its command instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from calc.capacity.questions import Answer, answered
from calc.capacity.questions.equation_solver import example_inputs
from calc.capacity.questions.quantities import is_measured
from calc.capacity.questions.question import Question
from calc.errors import BadInputError
from calc.symbolic.parser import parse
from calc.symbolic.worked import WorkedStep
from reports.page.what_if import tree_of
from reports.typeset.plain import plain


@dataclass(frozen=True, slots=True)
class QuestionRow:
    """A question of the page. ``data`` is what the script evaluates, ``None`` where only the ``command`` answers; ``why`` says why."""

    name: str
    summary: str
    command: str
    data: Mapping[str, Any] | None
    why: str = ""


def question_row(question: Question) -> QuestionRow:
    """The row of a question, at example values of its inputs."""
    try:
        typed = example_inputs(question)
        answer = answered(question, typed)
        data = question_document(question, answer)
    except BadInputError as error:
        return QuestionRow(question.name, question.summary, f"napkin ask {question.name}", None, str(error))
    why = "" if data else "its answer has a root, or takes a search"
    return QuestionRow(question.name, question.summary, question.command(typed), data, why)


def question_document(question: Question, answer: Answer) -> dict[str, Any] | None:
    """The question as data, at an answer; ``None`` where a step of it has no exact expression."""
    steps = answer.calculation.steps
    if answer.expr is None or not all(step.exact for step in steps):
        return None
    try:
        trees = [tree_of(step.expr, as_written=True) for step in steps]
        conditions = list(_conditions(question, {*(i.symbol for i in answer.inputs), *(step.symbol for step in steps)}))
    except BadInputError:
        return None
    return {
        "name": question.name,
        "inputs": [
            [i.symbol, i.key, i.unit, i.meaning, _typed(i.value), bool(question.variable(i.symbol).rounding)]
            for i in answer.inputs
            if isinstance(i.value, Fraction)
        ],
        "fixed": [[i.key, i.value] for i in answer.inputs if isinstance(i.value, str) and i.key not in ("gpu", "dtype")],
        "steps": [_step(question, step, tree) for step, tree in zip(steps, trees, strict=True)],
        "answer": answer.symbol,
        "whole": question.variable(answer.symbol).rounding,
        "conditions": conditions,
        "notes": [*question.notes, *question.notes_without_model],
        "source": question.source,
    }


def _step(question: Question, step: WorkedStep, tree: Any) -> dict[str, Any]:
    forward = {(e.symbol, e.expr) for e in _equations(question)}
    return {
        "symbol": step.symbol,
        "tree": tree,
        "written": plain(parse(step.expr)),
        "unit": question.variable(step.symbol).unit,
        "meaning": step.meaning,
        "because": step.because,
        # An equation that was rearranged has positive solutions only.
        "positive": (step.symbol, step.expr) not in forward,
    }


def _equations(question: Question) -> Iterator[Any]:
    yield from question.equations
    for choice in question.choices:
        for equations in choice.options.values():
            yield from equations


def _conditions(question: Question, symbols: set[str]) -> Iterator[list[Any]]:
    """[tree, message, whether it refuses] of the conditions whose variables all have values."""
    for condition in question.conditions:
        if condition.variables <= symbols:
            message = condition.otherwise
            for variable in question.variables:
                if is_measured(variable.unit):
                    message = message.replace(f"{{{variable.symbol}}}", f"{{{variable.symbol}}} {variable.unit}")
            yield [tree_of(condition.holds, as_written=True), message, condition.refuse]


def _typed(value: Fraction) -> str:
    """A value as it is typed: a decimal where it is one, with an exponent where it is long: 9.895e14."""
    if value.denominator != 1:
        return str(float(value)) if Fraction(str(float(value))) == value else str(value)
    digits = str(value.numerator)
    figures = digits.rstrip("0")
    if len(digits) - len(figures) < 6:
        return digits
    return f"{figures[0]}{'.' if figures[1:] else ''}{figures[1:]}e{len(digits) - 1}"
