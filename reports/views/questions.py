"""What ``napkin list questions`` shows: every question with its keys, their units and what they are. Torch-free and SymPy-free."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from calc.capacity.questions.question import Question
from calc.capacity.questions.registry import all_questions

SOURCES = (
    "with gpu: dtype = format of its peak, sparse = yes for that with 2:4 sparsity, hardware = file with devices of your own",
    "with model: its own sizes, e.g. T = 4096",
)


def rows() -> Iterator[tuple[str, str, str]]:
    """Name, what it answers, and its keys: the letters with their units, choices with their options, then what may stand for several."""
    for question in all_questions():
        yield question.name, question.summary, "; ".join((*_letters(question), *_choices(question), *_sources(question)))


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


def _letters(question: Question) -> Iterator[str]:
    for x in question.variables:
        unit = "" if x.unit in ("1", x.key) else f" in {x.unit}"
        default = f", {x.default} if not said" if x.default else ""
        synonyms = f", or {' or '.join(x.also)}" if x.also else ""
        yield f"{x.key}{synonyms} ({x.symbol}{unit}{default})"


def _choices(question: Question) -> Iterator[str]:
    for choice in question.choices:
        yield f"{choice.key} = {' | '.join(choice.options)}"


def _sources(question: Question) -> Iterator[str]:
    if question.of_device:
        yield "gpu gives " + ", ".join(x.key for x in question.variables if x.device)
    if question.of_model or question.fills:
        keys = [x.key for x in question.variables if x.model]
        yield "model gives " + (", ".join(keys) if keys and not question.fills else "the peak of its own step")
        if question.laid:
            yield "with model: micro, batch"
