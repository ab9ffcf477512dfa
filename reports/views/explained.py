"""``napkin derive --explain``: the steps of one quantity or rule of thumb on a terminal, each readable from the first to its total."""

from __future__ import annotations

from collections.abc import Sequence

from calc.derive.result import Derivation, Quantity
from calc.derive.rules_of_thumb import RuleComparison
from calc.derive.sensitivity import shares
from calc.graph.exchanges import headlines
from reports.page.chapters import Explanation, explanation, sizes_with_quotients
from reports.page.conventions import applied_options
from reports.page.coverage import CoverageSection, LedgerRow
from reports.page.model import StepView, TypesetFormula
from reports.page.parts import at_hand, term_row
from reports.page.sensitivity import assumption_row, rule_verdict
from reports.page.steps import Anchors, StepNotation, step_views
from reports.typeset import numbers
from reports.typeset.numbers import PrintedAmount, percent
from reports.typeset.wording import unbroken, undivided
from reports.views.answers import amount, show_heading
from reports.writers.terminal import Cell, Styled, Terminal, bold, dim, right

TONES = {"good": "green", "proved": "cyan", "bad": "bold red", "open": "yellow"}
_SIDE_BY_SIDE = 60  # columns of a sum with labels beyond which its terms are written one under another


def show_quantity(derivation: Derivation, name: str, out: Terminal) -> None:
    """Every step of one quantity, then its closed form and its value."""
    heading(derivation, out)
    quantity = derivation[name]
    out.line(bold(name), f": {quantity.meaning}")
    if quantity.value is None:
        out.line(f"unknown: {quantity.unknown}")
        return
    value = numbers.amount(quantity.value, quantity.unit)
    if quantity.text is None:
        out.line(*amount(value), f" {quantity.reason}")
        return
    explained = explanation(derivation, name)
    _show_steps(explained.steps, out)
    out.line()
    _show_total(name, explained, value, out)
    _show_parts(quantity, derivation, out)


def _show_parts(quantity: Quantity, derivation: Derivation, out: Terminal) -> None:
    """The parts of the model, or of live bytes by role, with shares."""
    rows = [term_row(s.part, at_hand(s.expr, derivation), s.value, quantity.value, "") for s in shares(quantity)]
    if rows:
        out.line()
        out.table(("Part", *right("Value", "Share"), "Closed form"), [(r.module_path, r.value, r.share, text(r.formula)) for r in rows])
        if note := undivided(r.module_path for r in rows):
            out.line(note)


def show_rule_of_thumb(derivation: Derivation, comparison: RuleComparison, out: Terminal) -> None:
    """The steps from a rule of thumb to the exact count, or why it does not apply."""
    heading(derivation, out)
    rule = comparison.rule
    if not comparison.applies:
        out.line(bold(rule.name), f": {rule.statement}. It {comparison.reason}.")
        return
    out.line(bold(rule.name), f": {rule.statement} ({unbroken(rule.letters)})")
    out.line(f"It estimates {rule.stands_for}. Source: {rule.source}.", style="dim")
    for row in map(assumption_row, comparison.assumptions):
        why = ", ".join(filter(None, (row.effect, row.because)))
        out.line(f"assumes {row.statement}: {row.met}{f' ({why})' if why else ''}", style="dim")
    if comparison.ratio is not None:
        out.line(f"error {percent(comparison.ratio - 1, signed=True)}: {rule_verdict(comparison.ratio, comparison.gross)}")
    steps = comparison.steps
    sizes = sizes_with_quotients(derivation.sizes, (side for step in steps for side in (step.before, step.after)))
    _show_steps(step_views(1, steps, StepNotation(rule.unit, sizes, Anchors())), out)
    if not steps and comparison.value is not None and comparison.exact is not None:
        both = (amount(numbers.amount(n, rule.unit)) for n in (comparison.value, comparison.exact))
        estimate, exact = both
        out.line("estimate ", *estimate, ", exact ", *exact)


def heading(derivation: Derivation, out: Terminal) -> None:
    """Which step is meant."""
    exchanged = headlines(derivation.assumptions)
    show_heading(derivation.model, applied_options(derivation), derivation.sizes, derivation.specialization_reasons, exchanged, out)


def text(formula: TypesetFormula) -> str:
    """A formula on one line."""
    return " ".join(formula.plain)


def _show_steps(steps: Sequence[StepView], out: Terminal) -> None:
    for step in steps:
        out.line()
        _show_step(step, out)


def _show_step(step: StepView, out: Terminal) -> None:
    out.line(dim(f"{step.number}  "), bold(step.title))
    if step.alike:
        out.line(f"    also {', '.join(step.alike)}", style="dim")
    for sign, formula in step.lines:
        for line in (text(formula),) if sign else _lines(formula):
            out.line("  = " if sign else "    ", line, hang=4)
    out.line("  = ", *amount(step.value), hang=4)
    out.line(f"    because {step.because}", style="dim")
    checked = f": {step.checked}" if step.checked else ""
    badge = Styled(f"    {step.badge.sign} {step.badge.words}", TONES[step.badge.tone])
    out.line(badge, dim(f"{checked}, rule {step.rule.words}"))


def _lines(formula: TypesetFormula) -> Sequence[str]:
    """A long sum with labels in a line for each term."""
    joined = text(formula)
    return formula.plain if len(joined) > _SIDE_BY_SIDE and formula.labelled else (joined,)


def _show_total(name: str, explained: Explanation, value: PrintedAmount, out: Terminal) -> None:
    """The closed form behind the quantity's name, and its value."""
    assert explained.formula is not None
    equal, indent = " " * len(name) + " = ", len(name) + 3
    out.line(bold(name), " = ", text(explained.formula), hang=indent)
    if explained.at_sizes is not None:
        out.line(equal, text(explained.at_sizes), *noted(explained.note), hang=indent)
    out.line(equal, *amount(value), hang=indent)


def noted(note: str) -> tuple[Styled, ...]:
    """A note in parentheses behind a formula, if there is one."""
    return (dim(f"  ({note})"),) if note else ()


# -- napkin derive --coverage -----------------------------------------------------------------------------------------


_KINDS = ("Kind", *right("Operators", "Calls", "Of all calls", "FLOP", "Of all FLOP"))
_OPERATORS = ("Operator", "Kind", "Runs", *right("Calls", "Of all", "FLOP", "Of all"), "Because")


def show(model: str, section: CoverageSection, out: Terminal) -> None:
    """The verdict, what each kind of operators adds up to, and a row for each operator."""
    out.line(bold(model), ": ", Styled("accepted", TONES["good"]) if section.accepted else Styled("refused", TONES["bad"]))
    out.line(f"{section.summary}.")
    out.line()
    out.table(_KINDS, [(kind.kind, kind.operators, kind.calls, kind.share, kind.flops, kind.flops_share) for kind in section.kinds])
    out.line()
    out.table(_OPERATORS, [_operator(row) for row in section.rows])
    for row in section.rows:
        if row.places:
            out.line()
            out.line(bold(f"{row.operator} runs"))
            out.lines(*(f"  at {place}" for place in row.places))


def _operator(row: LedgerRow) -> tuple[Cell, ...]:
    kind = Styled(row.kind, TONES["bad"] if row.places else "")
    runs = "unknown" if row.runs is None else text(row.runs)
    return row.operator, kind, runs, row.value, row.share, row.flops, row.flops_share, dim(row.because)
