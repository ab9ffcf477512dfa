"""The derivation of each quantity: closed form, steps with numbers substituted, terms, peak candidates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from calc.derive.quantities import applies
from calc.derive.result import Candidate, Derivation, Quantity, Step
from calc.derive.rules_of_thumb import RuleComparison
from calc.graph.folds import named_quotient
from calc.symbolic import branches
from calc.symbolic.exact import Exact
from calc.symbolic.expression import Expression, Piecewise, walk
from calc.symbolic.tree import displayed, factored, is_maximum
from reports.page.model import CandidateRow, Chapter, PageLink, StepView, TermRow, TypesetFormula
from reports.page.parts import alike_rows, at_hand, badge, capitalized, chapter_anchor, formula, reasons_once, several
from reports.page.peak_candidates import PeakCandidates, PeakCandidateView
from reports.page.steps import Anchors, StepNotation, merged, named, step_views
from reports.typeset import expressions, numbers
from reports.typeset.wording import in_case, largest_of
from reports.typeset.wording import place as place

# Quantities on which neither the parameters nor peak memory nor the matmuls of a step rest. A page that has to stay light leaves
# their steps to the other formats.
ASIDE = frozenset({
    "parameters.active", "parameters.non_embedding", "parameters.bytes", "gradients.bytes", "optimizer_state.bytes", "checkpoint.bytes",
    "memory.peak.first_step",
    "flops.forward.elementwise", "flops.backward.elementwise", "flops.optimizer.elementwise",
    "flops.forward.causal", "flops.backward.causal", "flops.backward.recompute",
    "bytes_moved.forward", "bytes_moved.backward", "bytes_moved.optimizer",
})  # fmt: skip


def sizes_with_quotients(of: Mapping[str, int], shown: Iterable[Expression]) -> dict[str, int]:
    """Sizes by name, with the quotients in the formulas that the trace named (``d_per_h`` is d/h)."""
    sizes = dict(of)
    for tree in shown:
        for name in expressions.names(tree) - set(sizes):
            quotient = named_quotient(name)
            if quotient is not None and sizes.keys() >= {*expressions.names(quotient)}:
                value = quotient.value_in(Exact(sizes))
                sizes |= {name: int(value)} if value == int(value) else {}
    return sizes


def trees(derivation: Derivation, comparisons: Iterable[RuleComparison] = ()) -> Iterator[Expression]:
    """Every formula of the derivation and of its rules of thumb."""
    for step in (*derivation.steps, *(step for comparison in comparisons for step in comparison.steps)):
        yield from (step.before, step.after)
    for name in derivation:
        quantity = derivation[name]
        if quantity.text is not None:
            yield at_hand(quantity.text, derivation)


def chapter(
    number: int,
    quantity: Quantity,
    derivation: Derivation,
    verdicts: Mapping[str, Any],
    sizes: Mapping[str, int],
    anchors: Anchors,
    all_moments: PeakCandidates,
) -> Chapter:
    """The chapter of a quantity; its steps take names in ``anchors`` and ``all_moments``."""
    steps, views, moments = _steps(number, quantity, derivation, sizes, anchors, all_moments)
    value = None if quantity.value is None else numbers.amount(quantity.value, quantity.unit)
    reasons = {t.because for t in quantity.terms}
    rows = alike_rows(quantity.terms, quantity.value, derivation)
    shared_reason = reasons.pop() if len(reasons) == 1 else ""
    roles, throughout = _roles(quantity)
    closed = _closed_form(quantity, steps, moments, derivation)
    return Chapter(
        number=str(number),
        anchor=chapter_anchor(quantity.name),
        quantity=quantity.name,
        aside=quantity.name in ASIDE,
        meaning=capitalized(quantity.meaning),
        formula=closed,
        at_sizes=_largest(quantity, derivation),
        note=_largest_note(quantity),
        where=_where(quantity, sizes),
        otherwise=_otherwise(quantity, derivation),
        value=value,
        unknown=quantity.unknown if quantity.value is None else quantity.reason,
        badge=badge(quantity.name, verdicts),
        compared=_compared(quantity, verdicts),
        steps=_closing(merged(number, views), closed, PageLink(str(number), target=chapter_anchor(quantity.name))),
        terms=rows if shared_reason else reasons_once(rows),
        shared_reason=shared_reason,
        total=value.text if value is not None else "unknown",
        candidates=tuple(_candidate(c, quantity, steps, views, moments, derivation, roles) for c in quantity.candidates),
        columns=(("Peak candidate", "text"), ("Value here", "number"), ("Live bytes", "math"), *((role, "number") for role in roles)),
        throughout=throughout,
        loops=_loops(quantity),
        titles={
            "steps": several(len(steps), "step"),
            "aside": f"{several(len(steps), 'step')}, in the Markdown report, or on a terminal with --explain {quantity.name}",
            "terms": several(len(quantity.terms), "term") + (", equal ones in one row" if len(rows) < len(quantity.terms) else ""),
            "table": _table_title(quantity, derivation, shared_reason),
            "candidates": several(len(quantity.candidates), "peak candidate"),
            "leading": f"The largest of {several(len(quantity.candidates), 'peak candidate')}; the Markdown report has all",
            "closing": "The maximum",
            "others": f"Steps of the other {several(len(quantity.candidates) - 1, 'peak candidate')}",
            "untabled": "Steps of the other peak candidates that the table does not write from another one",
        },
    )


def _closing(steps: tuple[StepView, ...], closed: TypesetFormula | None, equation: PageLink) -> tuple[StepView, ...]:
    """The steps; the last one refers to the ``equation`` that has its second side."""
    if not steps or steps[-1].after != closed or steps[-1].same or steps[-1].folded or len(steps[-1].after.plain) < _LONG_SUM:
        return steps
    return (*steps[:-1], replace(steps[-1], equation=equation))


_LONG_SUM = 5  # terms that a line refers to rather than repeats


def _table_title(quantity: Quantity, derivation: Derivation, shared_reason: str) -> str:
    """The caption of the terms: those of a total are quantities themselves. What all terms are is in parentheses."""
    by = "quantity" if any(term.module_path in derivation for term in quantity.terms) else "module path"
    return f"{quantity.name} by {by}" + (f" ({shared_reason})" if shared_reason else "")


def without_steps(full: Chapter) -> Chapter:
    """The chapter without its steps, and without the names that they give to peak candidates."""
    return replace(full, formula=full.at_sizes or full.formula, at_sizes=None, steps=())


def with_tables_once(chapters: Iterable[Chapter]) -> Iterator[Chapter]:
    """The chapters; one whose table by part has the rows of an earlier one refers to it. A reason that all rows share is in its title."""
    earlier: dict[tuple[TermRow, ...], Chapter] = {}
    for each in chapters:
        rows = tuple(replace(row, because="") for row in each.terms) if each.shared_reason else each.terms
        first = earlier.setdefault(rows, each) if rows else each
        yield each if first is each else replace(each, same_table=PageLink(first.quantity, target=first.anchor))


def _steps(
    number: int, quantity: Quantity, derivation: Derivation, sizes: Mapping[str, int], anchors: Anchors, all_moments: PeakCandidates
) -> tuple[list[Step], tuple[StepView, ...], Mapping[Expression, PeakCandidateView]]:
    """(steps of a quantity in the order of the report, their views, the peak candidates that they name)."""
    steps = steps_of(derivation, quantity.name)
    moments = all_moments.of(steps)
    steps = _largest_first(steps, moments)
    places = _places(steps, moments)
    views = step_views(number, steps, StepNotation(quantity.unit, sizes, anchors, moments))
    folded = (replace(view, folded=0 < place < len(moments)) for view, place in zip(views, places, strict=True))
    return steps, tuple(folded), moments


def steps_of(derivation: Derivation, name: str) -> list[Step]:
    """The steps that derive a quantity."""
    return [step for step in derivation.steps if step.quantity == name]


@dataclass(frozen=True, slots=True)
class Explanation:
    """The steps of one quantity and its closed form. For a maximum, ``at_sizes`` is the largest candidate at the derivation's sizes and
    ``note`` names it."""

    steps: tuple[StepView, ...]
    formula: TypesetFormula | None
    at_sizes: TypesetFormula | None
    note: str


def explanation(derivation: Derivation, name: str) -> Explanation:
    """The explanation of one quantity, with the step numbers of the whole report."""
    names = reported(derivation)
    moments = PeakCandidates()
    for earlier in names[: names.index(name)]:
        moments.of(steps_of(derivation, earlier))
    quantity = derivation[name]
    sizes = sizes_with_quotients(derivation.sizes, (side for step in steps_of(derivation, name) for side in (step.before, step.after)))
    number = names.index(name) + 1
    steps, views, named_ = _steps(number, quantity, derivation, sizes, Anchors(), moments)
    closed_form = _closed_form(quantity, steps, named_, derivation)
    return Explanation(merged(number, views), closed_form, _largest(quantity, derivation), _largest_note(quantity))


def reported(derivation: Derivation) -> list[str]:
    """The quantities of a report, in its order."""
    return sorted((name for name in derivation if applies(name, derivation[name].unknown, derivation.options)), key=place)


def answer(derivation: Derivation, name: str) -> tuple[TypesetFormula | None, str]:
    """(closed form in the table of answers, note on it); for a maximum, the form of the largest candidate."""
    quantity = derivation[name]
    closed_form = _largest(quantity, derivation) or _closed_form(quantity, (), {}, derivation)
    where = _where(quantity, derivation.sizes)
    return closed_form, "; ".join(filter(None, (_largest_note(quantity), f"where {where}" if where else "")))


def _compared(quantity: Quantity, verdicts: Mapping[str, Any]) -> str:
    """The derived and the measured value of a check, as text; empty without one."""
    verdict = verdicts.get(quantity.name)
    if verdict is None or verdict.derived is None or verdict.measured is None:
        return ""
    derived, measured = (numbers.amount(n, quantity.unit).text for n in (verdict.derived, verdict.measured))
    return f"at the sizes of the real run: derived {derived}, measured {measured}"


def _where(quantity: Quantity, sizes: Mapping[str, int]) -> str:
    """The case of the form that holds at these sizes, as text: ``B = 1``; empty for the general form."""
    return in_case(branches.case_at(quantity.text, sizes)) if quantity.text is not None else ""


def _otherwise(quantity: Quantity, derivation: Derivation) -> TypesetFormula | None:
    """The general form if a special case holds at these sizes; ``None`` for a maximum, which would be too long."""
    general = branches.general_case(quantity.text, derivation.sizes) if quantity.text is not None else None
    if general is None or any(isinstance(node, Piecewise) or is_maximum(node) for node in walk(general)):
        return None
    return formula(factored(displayed(general), derivation.trip_counts))


def _closed_form(
    quantity: Quantity, steps: Sequence[Step], moments: Mapping[Expression, PeakCandidateView], derivation: Derivation
) -> TypesetFormula | None:
    """The form in the last step, which keeps like terms together; else the text of the quantity."""
    if quantity.text is None:
        return None
    if steps and steps[-1].value == quantity.value:
        return formula(named(steps[-1].after, moments))
    return formula(at_hand(quantity.text, derivation))


def _largest(quantity: Quantity, derivation: Derivation) -> TypesetFormula | None:
    """The candidate that is the maximum at the derivation's sizes."""
    candidate = quantity.largest_candidate
    return formula(at_hand(candidate.expr, derivation)) if candidate and len(quantity.candidates) > 1 else None


def _largest_note(quantity: Quantity) -> str:
    candidate = quantity.largest_candidate
    return largest_of(len(quantity.candidates), str(candidate.at)) if candidate and len(quantity.candidates) > 1 else ""


def _loops(quantity: Quantity) -> str:
    """What the name of a peak candidate in a loop means; empty where none is in one."""
    looped = [candidate.at for candidate in quantity.candidates if "*" in candidate.at.module_path]
    if not looped:
        return ""
    backward = any(at.phase == "backward" for at in looped)
    order = " The backward goes through a loop from its end: its first iteration is the last layer." if backward else ""
    return f"A module path with * runs in a loop: a candidate there is in its first iteration, unless its name says which.{order}"


def _largest_first(steps: Sequence[Step], moments: Mapping[Expression, PeakCandidateView]) -> list[Step]:
    """The steps in the order of the names of their peak candidates, so that each refers to an earlier one; a step that leads to a
    candidate's step stays with it."""
    places = _places(steps, moments)
    return [steps[i] for i in sorted(range(len(steps)), key=places.__getitem__)]


def _places(steps: Sequence[Step], moments: Mapping[Expression, PeakCandidateView]) -> list[int]:
    """For each step the place of the peak candidate that it leads to; that of the maximum is the last."""
    order = {form: place for place, form in enumerate(moments)}
    place, places = len(order), [0] * len(steps)
    for i, step in reversed(list(enumerate(steps))):
        place = places[i] = len(order) if is_maximum(step.after) else order.get(step.after, place)
    return places


def _roles(quantity: Quantity) -> tuple[list[str], tuple[tuple[str, str], ...]]:
    """(roles whose live bytes differ between the peak candidates, (role, bytes) of the others)."""
    bytes_of = {
        role: {c.part_values.get(role, 0) for c in quantity.candidates}
        for role in dict.fromkeys(role for c in quantity.candidates for role in c.parts)
    }
    same = {role: values.pop() for role, values in bytes_of.items() if len(values) == 1 and len(quantity.candidates) > 1}
    return [role for role in bytes_of if role not in same], tuple((role, numbers.amount(n, quantity.unit).text) for role, n in same.items())


def _candidate(
    candidate: Candidate,
    quantity: Quantity,
    steps: Sequence[Step],
    views: Sequence[StepView],
    moments: Mapping[Expression, PeakCandidateView],
    derivation: Derivation,
    roles: Sequence[str],
) -> CandidateRow:
    parts = tuple(numbers.integer(candidate.part_values.get(role, 0)) for role in roles)
    value = numbers.amount(candidate.value, quantity.unit)
    largest, at = candidate.value == quantity.value, str(candidate.at)
    for step, view in zip(steps, views, strict=True):
        if step.after in moments and step.place == candidate.at and step.value == candidate.value:
            change = view.after if view.tabled else None
            return CandidateRow(at, moments[step.after].text, view.anchor, change, value, parts, largest)
    return CandidateRow(at, "", "", formula(at_hand(candidate.expr, derivation)), value, parts, largest)
