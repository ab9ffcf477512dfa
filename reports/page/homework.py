"""The sheet of exercises on a model's accounting, or their solutions: every number written."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from calc.capacity.exercise import Exercise, ExerciseResult, ExerciseRow, ExerciseTable, largest_parts
from calc.derive.result import Derivation
from calc.options import Options
from calc.symbolic import tree
from calc.units import Unit
from reports.page.conventions import STEPS, options_in_words
from reports.page.inputs import Inputs
from reports.page.model import TypesetFormula
from reports.page.parts import formula, meaning_in
from reports.typeset.numbers import amount, integer, percent, significant
from reports.typeset.wording import sentence, several, sizes_text, undivided

SECTIONS = {"given": "Given", "exercises": "Exercises"}
_LISTED = 3  # parts of a sentence


@dataclass(frozen=True, slots=True)
class ResultRow:
    label: str
    value: str
    formula: TypesetFormula | None
    because: str


@dataclass(frozen=True, slots=True)
class PartsTable:
    """Parts with their formulas, and with amount and share in each column; the total as the last row."""

    caption: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, tuple[TypesetFormula | None, ...], tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class ExerciseView:
    """A question; in the sheet of exercises without all else."""

    number: str
    anchor: str
    title: str
    question: str
    results: tuple[ResultRow, ...] = ()
    tables: tuple[PartsTable, ...] = ()
    sentences: tuple[str, ...] = ()
    command: str = ""


@dataclass(frozen=True, slots=True)
class HomeworkPage:
    """The whole page. ``inputs``: the line from which ``napkin verify`` makes it again."""

    model: str
    step: str
    subtitle: str
    sizes: str
    date: str
    given: tuple[tuple[TypesetFormula, str, str], ...]
    conventions: tuple[str, ...]
    exercises: tuple[ExerciseView, ...]
    sections: Mapping[str, str]
    inputs: str


_TITLES = {
    "parameters": "Parameters",
    "matmuls": "Matrix multiplications",
    "parts": "The largest parts",
    "sizes": "Model sizes",
    "context": "A longer sequence",
    "memory": "Memory of training",
    "largest-batch": "The largest batch",
    "optimizer": "FLOPs of the optimizer",
    "days": "Time of training",
}


def build(derivation: Derivation, exercises: Sequence[Exercise], inputs: Inputs, *, solved: bool) -> HomeworkPage:
    """The sheet with its solutions, or without; the derivation is of one sequence."""
    commands = (_command(derivation, inputs, dict(exercise.at)) for exercise in exercises)
    views = (_view(str(i), *each, solved) for i, each in enumerate(zip(exercises, commands, strict=True), 1))
    return HomeworkPage(
        model=derivation.model,
        step=f"{'solved exercises' if solved else 'exercises'} on {STEPS[derivation.options['mode']]}",
        subtitle=f"{several(len(exercises), 'question')} on resources, each with its answer" if solved else "Questions on resources",
        sizes=sizes_text(derivation.sizes),
        date=inputs.noted,
        given=tuple((formula(tree.parse(dim.name)), meaning_in(dim, derivation), integer(dim.value)) for dim in derivation.dims),
        conventions=tuple(_conventions(derivation)),
        exercises=tuple(views),
        sections=SECTIONS,
        inputs=inputs.text(),
    )


def _conventions(derivation: Derivation) -> Iterator[str]:
    if "B" in derivation.sizes:
        yield "B is 1, unless a question says otherwise."
    attention = ", attention over the full T²" if "T" in derivation.sizes else ""
    yield f"A multiply-add is 2 FLOP; FLOPs are those of matrix multiplications{attention}, unless a question says otherwise."
    yield f"The step: {options_in_words(derivation)}."


def _command(derivation: Derivation, inputs: Inputs, at: Mapping[str, int]) -> str:
    """The command that derives the model at these sizes and ``at`` others, to which a quantity to explain is added."""
    usual = Options().to_json()
    chosen = [dim for dim in derivation.dims if not dim.tied and (dim.name in at or dim.name in inputs.options)]
    sizes = [f"{dim.name}={at.get(dim.name, dim.value)}" for dim in chosen]
    options = [f"--{name.replace('_', '-')} {value}" for name, value in derivation.options.items() if value != usual.get(name)]
    return " ".join(["napkin derive", shlex.quote(inputs.model), *sizes, *options])


def _view(number: str, exercise: Exercise, command: str, solved: bool) -> ExerciseView:
    title, anchor = _TITLES.get(exercise.name, exercise.name), f"exercise-{exercise.name.replace('.', '-')}"
    view = ExerciseView(number, anchor, title, exercise.question)
    if not solved:
        return view
    return replace(
        view,
        results=tuple(map(_result, exercise.results)),
        tables=tuple(map(_table, exercise.tables)),
        sentences=tuple(sentence(words) for words in _sentences(exercise) if words),
        command=f"{command} --explain {exercise.explained}",
    )


def _result(result: ExerciseResult) -> ResultRow:
    value = _value(result.value, result.unit)
    return ResultRow(result.label, value, None if result.expr is None else formula(tree.parse(result.expr)), result.because)


def _value(value: Fraction, unit: str) -> str:
    if unit in _UNITS and value.denominator == 1:
        written = amount(int(value), _UNITS[unit])
        return f"{written.text} ({', '.join(written.readings)})" if written.readings else written.text
    number = integer(int(value)) if value.denominator == 1 else significant(value)
    return number if unit == "1" else f"{number} {unit}"


_PLURALS = {"element": "Elements", "FLOP": "FLOP", "byte": "Bytes"}
_UNITS = {unit.value: unit for unit in Unit}


_ONCE, _CLOSED_FORM = "One layer, from the shapes", "Closed form"


def _table(table: ExerciseTable) -> PartsTable:
    heads = [head for column in table.columns for head in ((column or _PLURALS[table.unit], "number"), ("Share", "number"))]
    formulas = {
        head: [None if expr is None else formula(expr) for expr in column]
        for head, column in (
            (_ONCE, [row.once for row in table.rows]),
            (_CLOSED_FORM, [None if row.expr is None else tree.parse(row.expr) for row in table.rows]),
        )
        if any(expr is not None for expr in column)
    }
    rows = [
        (row.part, tuple(column[i] for column in formulas.values()), tuple(_cells(row.values, row.shares)))
        for i, row in enumerate(table.rows)
    ]
    all_of_it = ("all", (None,) * len(formulas), tuple(_cells(table.totals, [Fraction(1)] * len(table.columns))))
    return PartsTable(table.caption, (("Part", "text"), *((head, "math") for head in formulas), *heads), (*rows, all_of_it))


def _cells(values: Sequence[int], shares: Sequence[Fraction]) -> Sequence[str]:
    return [cell for value, share in zip(values, shares, strict=True) for cell in (integer(value), percent(share))]


def _sentences(exercise: Exercise) -> list[str]:
    """What the tables say, in words."""
    if exercise.name == "parts":
        rows = list(largest_parts(exercise.tables[0]))[:_LISTED]
        listed = ", ".join(f"{row.part} with {percent(row.shares[0])}" for row in rows)
        return [f"The largest {'parts are' if len(rows) > 1 else 'part is'} {listed}"]
    if exercise.name == "memory":
        return [undivided(row.part for row in exercise.tables[0].rows)]
    if exercise.name in ("sizes", "context"):
        words = []
        for names, begin in ((exercise.rising, "The share grows for"), (exercise.falling, "The share shrinks for")):
            listed = ", ".join(f"{row.part} from {_changed(row)}" for row in exercise.tables[0].rows if row.part in names)
            words += [f"{begin} {listed}"] if names else []
        mixed = [row for row in exercise.tables[0].rows if row.part in exercise.mixed]
        listed = "; ".join(f"{row.part} with {', '.join(map(percent, row.shares))}" for row in mixed)
        return [*words, f"The share grows and shrinks for {listed}"] if mixed else words
    return []


def _changed(row: ExerciseRow) -> str:
    """The first share and the last, with more digits where both would look alike."""
    first, last = row.shares[0], row.shares[-1]
    if percent(first) != percent(last):
        return f"{percent(first)} to {percent(last)}"
    return " to ".join(f"{float(100 * share):.3f}\u00a0%" for share in (first, last))
