"""The derivation of each quantity: its steps with numbers put in, its terms, its candidates, its closed form."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from calc import branches, display
from calc.derivation import Candidate, Derivation, Quantity, Step
from calc.display import Display, Labelled, Maximum, Sum
from calc.exact import evaluate_text
from calc.textbook import Comparison
from calc.units import Unit
from reports import expressions, numbers
from reports.escape import slug
from reports.page import Badge, CandidateRow, Chapter, Formula, Link, StepView
from reports.parts import badge, chapter_anchor, formula, rule_anchor, sentence, several, term_row
from reports.saying import in_case, largest_of
from reports.saying import place as place

_STEP_BADGES = {"symbolic": Badge("∎", "proved symbolically", "proved"), "random points": Badge("∴", "checked at random points", "open")}


def known_sizes(derivation: Derivation, shown: Iterable[Display]) -> dict[str, int]:
    """Sizes by name, with those quotients that a trace names itself (``d_per_h`` is d/h) and that the formulas show."""
    sizes = dict(derivation.sizes)
    for tree in shown:
        for name in expressions.names(tree) - set(sizes):
            whole, _, part = name.partition("_per_")
            divisor = int(part) if part.isdigit() else sizes.get(part, 0)
            if whole in sizes and divisor and sizes[whole] % divisor == 0:
                sizes[name] = sizes[whole] // divisor
    return sizes


def trees(derivation: Derivation, comparisons: Iterable[Comparison] = ()) -> Iterator[Display]:
    """Every formula that the derivation and its comparisons show."""
    for step in (*derivation.steps, *(step for comparison in comparisons for step in comparison.steps)):
        yield from (step.before, step.after)
    for name in derivation:
        quantity = derivation[name]
        if quantity.text is not None:
            yield expressions.parse(branches.at_hand(quantity.text, derivation.sizes))


class Anchors:
    """Ids made of names: legal, and each given once."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def __call__(self, name: str) -> str:
        base = slug(name) or "step"
        anchor, count = base, 2
        while anchor in self._taken:
            anchor, count = f"{base}-{count}", count + 1
        self._taken.add(anchor)
        return anchor


def chapter(
    number: int,
    quantity: Quantity,
    derivation: Derivation,
    verdicts: Mapping[str, Any],
    sizes: Mapping[str, int],
    anchors: Anchors,
) -> Chapter:
    steps = [s for s in derivation.steps if s.quantity == quantity.name]
    moments = _moments(steps)
    views = tuple(
        step_view(f"{number}.{i}", s, quantity.unit, sizes, moments, anchors, last=s is steps[-1]) for i, s in enumerate(steps, 1)
    )
    value = None if quantity.value is None else numbers.amount(quantity.value, quantity.unit)
    return Chapter(
        number=str(number),
        anchor=chapter_anchor(quantity.name),
        quantity=quantity.name,
        meaning=quantity.meaning,
        formula=_closed_form(quantity, steps, moments, sizes),
        here=_largest(quantity, sizes),
        note=_largest_note(quantity),
        where=_where(quantity, sizes),
        otherwise=_otherwise(quantity, sizes),
        value=value,
        unknown=quantity.unknown,
        badge=badge(quantity.name, verdicts),
        compared=_compared(quantity, verdicts),
        steps=_once(number, views),
        terms=tuple(term_row(t.site, t.expr, t.value, quantity.value, t.because, sizes) for t in quantity.terms),
        total=value.text if value is not None else "unknown",
        candidates=tuple(_candidate(c, quantity, steps, views, moments, sizes) for c in quantity.candidates),
        titles={
            "steps": several(len(steps), "step"),
            "terms": f"{several(len(quantity.terms), 'term')} by site",
            "table": f"{quantity.name} by site",
            "candidates": f"{several(len(quantity.candidates), 'moment')} at which memory can peak",
        },
    )


def _once(number: int, views: Sequence[StepView]) -> tuple[StepView, ...]:
    """Steps that differ in their places alone are shown once, where the first of them stands, with all their places.

    The last one is the total, and is never one of several.
    """
    alike: dict[object, list[StepView]] = {}
    for view in views:
        said = (view.rule, view.badge, view.before, view.after, view.because, view.substituted, view.value, view.checked)
        alike.setdefault(view.anchor if view.last else said, []).append(view)
    return tuple(
        replace(
            first,
            number=f"{number}.{i}",
            alike=tuple(v.title for v in others),
            more=f"and {numbers.integer(len(others))} alike" if others else "",
        )
        for i, (first, *others) in enumerate(alike.values(), 1)
    )


def _compared(quantity: Quantity, verdicts: Mapping[str, Any]) -> str:
    """The two numbers of a check, which ran at sizes of its own."""
    verdict = verdicts.get(quantity.name)
    if verdict is None or verdict.derived is None or verdict.measured is None:
        return ""
    derived, measured = (numbers.amount(n, quantity.unit).text for n in (verdict.derived, verdict.measured))
    return f"at the sizes of the check: derived {derived}, measured {measured}"


def _where(quantity: Quantity, sizes: Mapping[str, int]) -> str:
    """The case in force of a form by cases, as words: ``B = 1``."""
    condition = branches.condition_at(quantity.text, sizes) if quantity.text is not None else ""
    return in_case(dict(re.findall(r"Eq\((\w+), (\w+)\)", condition)))


def _otherwise(quantity: Quantity, sizes: Mapping[str, int]) -> Formula | None:
    """The general form beside the case in force. A general maximum is too long to stand beside anything."""
    others = branches.other_cases(quantity.text, sizes) if quantity.text is not None else []
    general = [expr for expr, condition in others if condition == "True"]
    return formula(expressions.parse(general[0])) if general and "Max(" not in general[0] and "Piecewise" not in general[0] else None


def _closed_form(
    quantity: Quantity, steps: Sequence[Step], moments: Mapping[Display, Display], sizes: Mapping[str, int]
) -> Formula | None:
    """As the last step leaves it, which keeps like terms together; else as the quantity writes itself."""
    if quantity.text is None:
        return None
    if steps and steps[-1].value == quantity.value:
        return formula(_named(steps[-1].after, moments))
    return formula(expressions.parse(branches.at_hand(quantity.text, sizes)))


def _largest(quantity: Quantity, sizes: Mapping[str, int]) -> Formula | None:
    """The candidate that is the maximum at the derivation's sizes."""
    here = [c for c in quantity.candidates if c.value == quantity.value]
    return formula(expressions.parse(branches.at_hand(here[0].expr, sizes))) if here and len(quantity.candidates) > 1 else None


def _largest_note(quantity: Quantity) -> str:
    here = [c for c in quantity.candidates if c.value == quantity.value]
    return largest_of(len(quantity.candidates), here[0].at) if here and len(quantity.candidates) > 1 else ""


def is_maximum(step: Step) -> bool:
    return isinstance(step.after, Maximum)


def moment_symbol(number: int) -> Display:
    return display.Name(f"M_{number}")


def _subscripted(name: str) -> str:
    """``M_12`` as text: M₁₂."""
    letter, _, digits = name.partition("_")
    return letter + digits.translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))


def _moments(steps: Sequence[Step]) -> dict[Display, Display]:
    """The candidates of a maximum, each under the short name that its own step gives it (M₁, M₂, …).

    Written out, a maximum of twenty sums would be read by nobody; each of them is derived in the step it is named by.
    """
    found: dict[Display, Display] = {}
    for step in steps:
        if isinstance(step.after, Maximum):
            own = {s.after for s in steps if not is_maximum(s)}
            for item in step.after.items:
                if item in own:
                    found.setdefault(item, moment_symbol(len(found) + 1))
    return found


def _named(tree: Display, moments: Mapping[Display, Display]) -> Display:
    return Maximum(tuple(moments.get(item, item) for item in tree.items)) if isinstance(tree, Maximum) else tree


def step_view(
    number: str,
    step: Step,
    unit: Unit,
    sizes: Mapping[str, int],
    moments: Mapping[Display, Display],
    anchors: Anchors,
    *,
    last: bool,
) -> StepView:
    """A step as it is shown, refused if its numbers do not hold."""
    numbers_in = _numbers_in(step.after, sizes)
    _require_equal(step, numbers_in)
    moment = moments.get(step.after)
    before, after = _sides(step, moments)
    before = _without_prefix(before, _place_of(step).partition(", ")[0])
    return StepView(
        number=number,
        anchor=anchors(step.id),
        title=step.title if moment is None else f"{_subscripted(display.text(moment))}: {step.title}",
        rule=Link(step.rule, target=rule_anchor(step.rule)),
        badge=_STEP_BADGES.get(step.check.kind, Badge("○", step.check.kind, "open")),
        before=formula(before),
        after=formula(after),
        because=sentence(step.because),
        substituted=formula(numbers_in),
        value=numbers.amount(step.value, unit),
        checked=_how_checked(step),
        last=last,
    )


def _sides(step: Step, moments: Mapping[Display, Display]) -> tuple[Display, Display]:
    """The two sides as they are shown: in a maximum, what a step above derived stands under its short name."""
    if not (isinstance(step.before, Maximum) and isinstance(step.after, Maximum)) or len(step.before.items) != len(step.after.items):
        return step.before, _named(step.after, moments)
    named = Maximum(tuple(moments.get(after, before) for before, after in zip(step.before.items, step.after.items, strict=True)))
    return named, _named(step.after, moments)


def _place_of(step: Step) -> str:
    """A step's title without the case it is of: ``h.*.ln_1 (at B = 1)`` is about ``h.*.ln_1``."""
    return re.sub(r" \(at [^()]*\)$", "", step.title)


def _without_prefix(tree: Display, place: str) -> Display:
    """Labels that repeat the place the step is about lose it: under ``h.*.ln_1``, ``h.*.ln_1.bias`` is ``bias``."""
    if isinstance(tree, Sum):
        return Sum(tuple(_without_prefix(t, place) for t in tree.terms))
    if isinstance(tree, Labelled):
        return Labelled(tree.body, tree.label.removeprefix(f"{place}."))
    return tree


def _numbers_in(tree: Display, sizes: Mapping[str, int]) -> Display:
    """``tree`` with numbers put in; of a maximum, the value of each candidate."""
    put = expressions.substituted(tree, sizes)
    if isinstance(put, Maximum):
        return Maximum(tuple(display.Number(int(evaluate_text(display.text(item), {}))) for item in put.items))
    return put


def _require_equal(step: Step, numbers_in: Display) -> None:
    """A row that does not evaluate to the number beside it must never be printed."""
    value = evaluate_text(display.text(numbers_in), {})
    if value != step.value:
        raise ValueError(f"step {step.id}: the substituted row is {value}, the step says {step.value}")


def _how_checked(step: Step) -> str:
    """What the check found, where that says more than the badge does."""
    return "" if step.check.kind == "symbolic" and step.check.result in ("0", "holds", "") else step.check.result


def _candidate(
    candidate: Candidate,
    quantity: Quantity,
    steps: Sequence[Step],
    views: Sequence[StepView],
    moments: Mapping[Display, Display],
    sizes: Mapping[str, int],
) -> CandidateRow:
    parts = tuple((role, numbers.amount(candidate.part_values[role], quantity.unit).text) for role in candidate.parts)
    value = numbers.amount(candidate.value, quantity.unit)
    largest = candidate.value == quantity.value
    for step, view in zip(steps, views, strict=True):
        if step.after in moments and _place_of(step) == candidate.at:
            return CandidateRow(candidate.at, _subscripted(display.text(moments[step.after])), view.anchor, None, value, parts, largest)
    return CandidateRow(candidate.at, "", "", formula(expressions.parse(branches.at_hand(candidate.expr, sizes))), value, parts, largest)
