"""What ``napkin derive`` answers on a terminal, from a fresh derivation or from a stored form: one screen, in the same words.

How long this takes is the time of the command for a stored form, so that nothing is imported here that its table of integers does without.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from calc.derive.quantities import PLACEHOLDERS, applies, has_attention
from calc.graph.exchanges import headlines, in_force
from calc.options import TRAIN
from calc.symbolic.exact import evaluate_text
from calc.symbolic.tree import factored, parse
from calc.units import Unit
from reports.page.conventions import STEPS, applied_options, without_idle
from reports.typeset import numbers
from reports.typeset.numbers import PrintedAmount
from reports.typeset.plain import plain
from reports.typeset.wording import (
    ANSWERS,
    Stated,
    declared,
    headline,
    in_case,
    largest_of,
    place,
    remark,
    several,
    sizes_text,
    stated,
)
from reports.views.model_parts import TOTALS, PartColumn
from reports.views.model_parts import show as show_parts
from reports.writers.terminal import Line, Part, Terminal, bold, dim

if TYPE_CHECKING:
    from calc.derive.result import Derivation, Quantity
    from calc.derive.rules_of_thumb import RuleComparison
    from calc.graph.guards import Assumption, TracedDim
    from calc.pipeline.precomputed import Stored, StoredQuantity
    from calc.symbolic.polynomials import Polynomial

_RULES_OF_THUMB = ("Rule of thumb", ("Estimate", "right"), ("Exact", "right"), ("Error", "right"), "Estimates")


@dataclass(frozen=True, slots=True)
class AnswerLine:
    """One quantity: its value, or none with the reason; its closed form, or why there is none, with a note on it."""

    quantity: str
    value: PrintedAmount | None
    because: str
    closed_form: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Answers:
    """All that the screen shows. ``rules_of_thumb`` are rows of five texts, ``parts`` totals by part of the model."""

    model: str
    options: Mapping[str, str]
    sizes: Mapping[str, int]
    specialized: Mapping[str, str]
    exchanged: tuple[str, ...]
    lines: tuple[AnswerLine, ...]
    coverage: str
    assumptions: tuple[Stated, ...]
    notes: tuple[str, ...]
    rules_of_thumb: tuple[Sequence[str], ...]
    parts: tuple[PartColumn, ...] = ()


def show(answers: Answers, out: Terminal) -> None:
    """The three questions of the first screen, every quantity with its closed form, totals by part, what is counted and assumed."""
    show_heading(answers.model, answers.options, answers.sizes, answers.specialized, answers.exchanged, out)
    by_name = {line.quantity: line for line in answers.lines}
    out.table((), [(question, _answer(by_name.get(name))) for name, question in ANSWERS])
    out.line()
    rows = [(line.quantity, "unknown" if line.value is None else line.value.text, _closed_form(line)) for line in answers.lines]
    out.table(("Quantity", ("Value", "right"), "Closed form"), rows)
    show_parts(answers.parts, out)
    out.line(f"coverage: {answers.coverage}", style="dim")
    for assumption in answers.assumptions:
        out.line(f"assumes {assumption.words}: {assumption.because}", style="dim")
    for note in answers.notes:
        out.line(f"note: {remark(note)}", style="dim")
    if answers.rules_of_thumb:
        out.line()
        out.table(_RULES_OF_THUMB, [(*cells, dim(estimates)) for *cells, estimates in answers.rules_of_thumb])


def show_heading(
    model: str,
    options: Mapping[str, str],
    sizes: Mapping[str, int],
    specialized: Mapping[str, str],
    exchanged: Iterable[str],
    out: Terminal,
) -> None:
    """Which step is meant, and what a reader must know before any number."""
    first = headline(specialized, sizes)
    if first:
        out.line(first, style="yellow")
    written = ", ".join(f"{name} {value}" for name, value in options.items())
    out.line(bold(model), f", {STEPS[options.get('mode', TRAIN)]}: {written}")
    out.line(sizes_text(sizes), style="dim")
    out.lines(*exchanged)
    out.line()


def amount(value: PrintedAmount) -> tuple[Part, ...]:
    """An exact number in bold, with its readings."""
    return bold(value.text), *(f"  {reading}" for reading in value.readings)


def _answer(line: AnswerLine | None) -> Line:
    if line is None:
        return "unknown: this derivation does not state it"
    return f"unknown: {line.because}" if line.value is None else amount(line.value)


def _closed_form(line: AnswerLine) -> Line:
    if not line.closed_form:
        return dim(line.because)
    return (line.closed_form, dim(f"  ({line.note})")) if line.note else line.closed_form


def _assumptions(dims: Iterable[TracedDim], assumptions: Sequence[Assumption]) -> tuple[Stated, ...]:
    exchanged = [exchange.assumption for exchange in in_force(assumptions)]
    remaining = [assumption for assumption in assumptions if assumption not in exchanged]
    return tuple(stated((*declared(dims, remaining), *remaining)))


# -- from a derivation -----------------------------------------------------------------------------------------------------------------


def of_derivation(derivation: Derivation, comparisons: Iterable[RuleComparison] = ()) -> Answers:
    """The answers of a derivation at its sizes, beside the rules of thumb that apply to its model."""
    from reports.page.chapters import reported
    from reports.page.coverage import summary

    return Answers(
        model=derivation.model,
        options=applied_options(derivation),
        sizes=derivation.sizes,
        specialized=derivation.specialization_reasons,
        exchanged=tuple(headlines(derivation.assumptions)),
        lines=tuple(_derived(derivation, name) for name in reported(derivation)),
        coverage=summary(derivation.ledger),
        assumptions=_assumptions(derivation.dims, derivation.assumptions),
        notes=derivation.notes,
        rules_of_thumb=tuple(_compared(comparison) for comparison in comparisons if comparison.applies),
        parts=tuple(_column(derivation[name]) for name in TOTALS if name in derivation),
    )


def _column(quantity: Quantity) -> PartColumn:
    return PartColumn(quantity.name, quantity.unit, {part.part: part.value for part in quantity.parts})


def _derived(derivation: Derivation, name: str) -> AnswerLine:
    from reports.page.chapters import answer

    quantity = derivation[name]
    value = None if quantity.value is None else numbers.amount(quantity.value, quantity.unit)
    formula, note = answer(derivation, name)
    because = quantity.unknown if quantity.value is None else quantity.reason
    return AnswerLine(name, value, because, "" if formula is None else " ".join(formula.plain), note)


def _compared(comparison: RuleComparison) -> tuple[str, ...]:
    rule, ratio = comparison.rule, comparison.ratio
    assert comparison.value is not None  # it applies
    assert comparison.exact is not None
    error = "unknown" if ratio is None else numbers.percent(ratio - 1, signed=True)
    both = (numbers.amount(value, rule.unit).text for value in (comparison.value, comparison.exact))
    return rule.name, *both, error, rule.stands_for


# -- from a stored form ----------------------------------------------------------------------------------------------------------------


def of_stored(form: Stored, chosen: Mapping[str, int]) -> Answers:
    """The answers of a stored form at the ``chosen`` sizes, the others being the model's own."""
    sizes = form.sizes(chosen)
    names = sorted((name for name, q in form.quantities.items() if applies(name, q.unknown, form.options)), key=place)
    values = {name: None if form.quantity(name).unknown else form.quantity(name).value(sizes) for name in names}
    assumptions = form.assumed(sizes)
    attention = has_attention(part for name in names for part, _ in form.quantity(name).parts)
    return Answers(
        model=form.model,
        options=without_idle(form.options, attention, attention),
        sizes=sizes,
        specialized={name: why for name, (_, why) in form.specialized.items()},
        exchanged=tuple(headlines(assumptions)),
        lines=tuple(_stored(form.quantity(name), values[name], sizes) for name in names),
        coverage=_coverage(form, sizes),
        assumptions=_assumptions(form.dims, assumptions),
        notes=form.notes,
        rules_of_thumb=tuple(_rule_of_thumb(rule, values, sizes) for rule in form.rules_of_thumb),
        parts=tuple(
            PartColumn(name, q.definition.unit, q.values_of_parts(sizes)) for name in TOTALS if (q := form.quantities.get(name)) is not None
        ),
    )


def _stored(quantity: StoredQuantity, value: int | None, sizes: Mapping[str, int]) -> AnswerLine:
    if value is None:
        return AnswerLine(quantity.name, None, quantity.unknown, "")
    form, case = quantity.form, quantity.form.case_at(sizes)
    note = ""
    if case is not None and quantity.name in case.differing:
        quantity, form, note = case.form.quantity(quantity.name), case.form, f"where {in_case(case.equal)}"
    point = form.point(sizes)
    largest = next(p for p in quantity.polynomials if point(p) == value)
    if len(quantity.candidates) > 1:
        at = next(str(m.at) for m in quantity.candidates if m.polynomial is largest)
        note = "; ".join(filter(None, (largest_of(len(quantity.candidates), at), note)))
    return AnswerLine(quantity.name, numbers.amount(value, quantity.definition.unit), "", _written(form, largest), note)


def _written(form: Stored, polynomial: Polynomial) -> str:
    """A stored closed form as a reader sees it."""
    return plain(factored(parse(form.table.text(polynomial)), form.trip_counts))


def _coverage(form: Stored, sizes: Mapping[str, int]) -> str:
    calls = form.calls_at(sizes)
    of_kind = {kind: operators for kind, operators, _ in calls}
    several_calls = f"{several(sum(of_kind.values()), 'operator')}, {several(sum(count for _, _, count in calls), 'call')}"
    kinds = f"{of_kind.get('counted', 0)} counted, {of_kind.get('free', 0)} free, 0 refused"
    return f"{several_calls}: {kinds}. Not counted: 0 operators, 0 calls, 0 FLOP"


def _rule_of_thumb(rule: Mapping[str, object], values: Mapping[str, int | None], sizes: Mapping[str, int]) -> tuple[str, ...]:
    """A rule of thumb, and the sum of quantities that it estimates."""
    unit, size, exact = Unit(rule["unit"]), rule["size"], rule["exact"]
    assert isinstance(size, int)
    assert isinstance(exact, list)
    expr = str(rule["expr"])
    for letter, name in PLACEHOLDERS.items():
        expr = expr.replace(letter, str(values[name]))
    estimate = int(evaluate_text(expr, sizes))
    truth = sum(sign * (values[name] or 0) for sign, name in exact) // size
    error = numbers.percent(Fraction(estimate, truth) - 1, signed=True) if truth else "unknown"
    return str(rule["name"]), numbers.amount(estimate, unit).text, numbers.amount(truth, unit).text, error, str(rule["stands_for"])
