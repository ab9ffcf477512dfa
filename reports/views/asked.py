"""``napkin ask`` on a terminal: the answer first, then its steps with letters, numbers and reasons, the inputs, and notes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from calc.capacity.questions import Answer
from calc.capacity.questions.answer import Bound, RuleOfThumbAnswer
from calc.capacity.questions.quantities import all_digits, as_typed, exactly_shown, quantity, short
from calc.symbolic.parser import parse
from calc.symbolic.readable import MINUS, ReadableWriter, readable
from calc.symbolic.worked import WorkedStep
from reports.writers.terminal import Terminal


def show(answer: Answer, out: Terminal) -> None:
    """The answer, its steps, and what was put in."""
    out.line(f"{quantity(answer.value, answer.unit)}: {answer.meaning} ({answer.question}: {answer.summary})")
    out.lines(*(f"{quantity(row.value, row.unit)}: {row.label}" for row in answer.also))
    if answer.bound is not None and _differs_as_shown(answer.bound):
        out.line(_bound(answer.bound, answer))
    if answer.rule_of_thumb is not None:
        out.line(_rule_of_thumb(answer.rule_of_thumb, answer))
    out.lines(*(f"flag: {flag}" for flag in answer.flags))
    out.line()
    out.lines(*_steps(answer))
    out.line()
    if answer.rows:
        out.table((), [(f"  {row.label}", quantity(row.value, row.unit), row.because) for row in answer.rows])
        out.line()
    out.line("given")
    for put in answer.inputs:
        value = put.value if isinstance(put.value, str) else as_typed(put.value, put.unit)
        name = f"{put.symbol} = {value}" if put.symbol else f"{put.key} {value}"
        about = put.meaning if put.meaning not in (put.unit, put.key) else ""
        out.line(f"  {name}{f', {about}' if about else ''} [{put.source}]", hang=4)
    out.lines(*(f"note: {note}" for note in answer.notes))
    if answer.source:
        out.line(f"source: {answer.source}")


def _steps(answer: Answer) -> Iterator[str]:
    lines, values = answer.calculation.steps, answer.calculation.values
    yield from _numbered(lines, values, 1)
    if answer.unrounded != answer.value:
        yield f"     rounded {'up' if answer.value > answer.unrounded else 'down'} to {quantity(answer.value, answer.unit)}"
    beside = {line.symbol: line.value for line in answer.beside}
    yield from _numbered(answer.beside, {**values, answer.symbol: answer.value, **beside}, len(lines) + 1)


def _numbered(lines: Sequence[WorkedStep], values: Mapping[str, Fraction], first: int) -> Iterator[str]:
    """Symbols = numbers = result, and the reason below."""
    for place, line in enumerate(lines, first):
        substituted = _substituted(line.expr, values)
        sign = "=" if line.exact and exactly_shown(line.value, line.unit) else "≈"
        repeats = substituted.replace(" ", "") in (readable(line.expr).replace(" ", ""), short(line.value))
        between = "" if repeats else f" = {substituted}"
        shown = line.symbol if line.expr in (line.symbol, str(line.value)) else f"{line.symbol} = {readable(line.expr)}"
        yield f"  {place}. {shown}{between} {sign} {quantity(line.value, line.unit)}"
        yield f"     {line.meaning}: {line.because}"


def _rule_of_thumb(by_rule: RuleOfThumbAnswer, answer: Answer) -> str:
    rule = by_rule.words or "; ".join(f"{equation.symbol} = {readable(equation.expr)}" for equation in by_rule.equations)
    error = f"{100 * float(by_rule.off(answer.value)):+.2f} %".replace("-", MINUS)
    return f"by the rule of thumb {rule}: {quantity(by_rule.value, answer.unit)}, error {error}"


def _differs_as_shown(bound: Bound) -> bool:
    """Whether the digits that are shown tell the value at one further from the limit: with one of billions of parameters, not."""
    return quantity(bound.further_value, bound.unit) != quantity(bound.limit, bound.unit)


def _bound(bound: Bound, answer: Answer) -> str:
    holds, fails = ("≤", ">") if bound.keeps_below else ("≥", "<")
    limit = quantity(bound.limit, bound.unit)
    return (
        f"bound by {bound.key}: {quantity(bound.value, bound.unit)} {holds} {limit};"
        f" {answer.key} = {bound.further:,} gives {quantity(bound.further_value, bound.unit)} {fails} {limit}"
    )


def _substituted(expr: str, values: Mapping[str, Fraction]) -> str:
    """The formula with numbers in the place of its names."""
    written = {name: all_digits(value) for name, value in values.items()}
    return ReadableWriter(" · ", " / ", written).written(parse(expr))[0]
