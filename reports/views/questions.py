"""What ``napkin list questions`` shows: every question with its keys, their units and what they are. Torch-free and SymPy-free."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from calc.capacity.questions.equation_solver import example_inputs
from calc.capacity.questions.question import Question
from calc.capacity.questions.registry import all_questions
from calc.capacity.questions.registry import question as find
from reports.writers.terminal import Terminal, bold, dim

_OF_DEVICE = "with gpu: dtype = format of its peak, sparse = yes for that with 2:4 sparsity, hardware = file with devices of your own"
_OF_MODEL = "with model: its own sizes, e.g. T=4096"


def rows() -> Iterator[tuple[str, str, str]]:
    """Name, what it answers, and the names of its keys and of their choices: what a search goes through."""
    for question in all_questions():
        keys = [name for x in question.variables for name in x.names]
        choices = [f"{choice.key} = {option}" for choice in question.choices for option in choice.options]
        yield question.name, question.summary, "; ".join((*keys, *choices))


def show(name: str, out: Terminal) -> None:
    """One question: a table of its keys, what else may be given, and a command that answers it."""
    question = find(name)
    out.line(bold(question.name), f": {question.summary}")
    out.table(("Key", "Symbol", "Unit", "Default", "Given by", "Meaning"), [*_keys(question)])
    out.lines(*_choices(question), *_sources(question), style="dim")
    out.line(dim("Example: "), question.command(example_inputs(question)), fold=False)


def document() -> list[dict[str, Any]]:
    """The same as plain data."""
    return [
        {
            "name": q.name,
            "summary": q.summary,
            "answer": q.variable(q.answer).key,
            "keys": [
                {
                    "key": x.key,
                    "names": list(x.names),
                    "unit": x.unit,
                    "meaning": x.meaning,
                    "whole": bool(x.rounding),
                    "default": x.default or None,
                    "device": x.device or None,
                    "model": x.model or None,
                }
                for x in q.variables
            ],
            "choices": {c.key: list(c.options) for c in q.choices},
            "equations": [{"symbol": e.symbol, "expr": e.expr, "because": e.because} for e in q.equations],
            "source": q.source or None,
        }
        for q in all_questions()
    ]


def _keys(question: Question) -> Iterator[tuple[str, ...]]:
    for x in question.variables:
        sources = [*(["gpu"] if x.device else []), *(["model"] if x.model else [])]
        unit = "" if x.unit in ("1", x.key) else x.unit
        yield " or ".join((x.key, *x.also)), x.symbol, unit, x.default, ", ".join(sources), x.meaning


def _choices(question: Question) -> Iterator[str]:
    for choice in question.choices:
        yield f"{choice.key} = {' | '.join(choice.options)}: {choice.meaning}; {choice.default} by default"


def _sources(question: Question) -> Iterator[str]:
    if question.of_device:
        yield _OF_DEVICE
    if question.of_model or question.fills:
        yield f"{_OF_MODEL}{'; the peak of its own step replaces the equations' if question.fills else ''}"
        if question.laid:
            yield "with model: micro, batch"
