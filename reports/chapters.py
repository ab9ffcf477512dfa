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
from reports.moments import BECAUSE, Moment, Moments, subscripted
from reports.page import Badge, CandidateRow, Chapter, Formula, Link, StepView
from reports.parts import badge, chapter_anchor, formula, rule_anchor, sentence, several, term_row
from reports.saying import in_case, largest_of
from reports.saying import place as place

# What neither the parameters nor peak memory nor the matrix products of a step rest on. A page that has to stay light leaves their steps
# to the other formats.
ASIDE = frozenset({
    "parameters.bytes", "checkpoint.bytes", "flops.forward.elementwise", "flops.backward.elementwise", "flops.optimizer.elementwise",
    "flops.forward.causal", "flops.backward.causal", "flops.backward.recompute",
    "bytes_moved.forward", "bytes_moved.backward", "bytes_moved.optimizer",
})  # fmt: skip
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
    named: Moments,
) -> Chapter:
    steps = [s for s in derivation.steps if s.quantity == quantity.name]
    moments = named.of(steps)
    steps = _largest_first(steps, moments)
    views = tuple(
        step_view(f"{number}.{i}", s, quantity.unit, sizes, moments, anchors, last=s is steps[-1]) for i, s in enumerate(steps, 1)
    )
    value = None if quantity.value is None else numbers.amount(quantity.value, quantity.unit)
    reasons = {t.because for t in quantity.terms}
    what = reasons.pop() if len(reasons) == 1 else ""
    roles = list(dict.fromkeys(role for c in quantity.candidates for role in c.parts))
    return Chapter(
        number=str(number),
        anchor=chapter_anchor(quantity.name),
        quantity=quantity.name,
        aside=quantity.name in ASIDE,
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
        what=what,
        total=value.text if value is not None else "unknown",
        candidates=tuple(_candidate(c, quantity, steps, views, moments, sizes, roles) for c in quantity.candidates),
        columns=(("Moment", "text"), ("Live bytes", "math"), ("Value here", "number"), *((role, "number") for role in roles)),
        titles={
            "steps": several(len(steps), "step"),
            "aside": f"{several(len(steps), 'step')}, in the report's Markdown file and, with --explain {quantity.name}, on a terminal",
            "terms": f"{several(len(quantity.terms), 'term')} by site",
            "table": f"{quantity.name} by site" + (f": {what}" if what else ""),
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


def referred(chapters: Iterable[Chapter]) -> tuple[Chapter, ...]:
    """The chapters, in which a step that stands in an earlier one refers to it, and a reason is given once for those steps in a row that
    share it."""
    told: dict[object, StepView] = {}
    found: list[Chapter] = []
    for each in chapters:
        shown: list[StepView] = []
        for view in each.steps:
            said = (view.title, view.alike, view.rule, view.before, view.after, view.because, view.value)
            first = told.get(said, view) if each.aside or view.last else told.setdefault(said, view)
            if first is not view and not view.last:
                shown.append(replace(view, told=Link(first.number, target=first.anchor)))
            else:
                before = shown[-1] if shown and shown[-1].told is None else None
                shown.append(replace(view, again=before is not None and before.because == view.because))
        found.append(replace(each, steps=tuple(shown)))
    return tuple(found)


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
    quantity: Quantity, steps: Sequence[Step], moments: Mapping[Display, Moment], sizes: Mapping[str, int]
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


def _largest_first(steps: Sequence[Step], moments: Mapping[Display, Moment]) -> list[Step]:
    """In the order in which the moments are named, so that each is told by what stands before it. A step that leads to a moment's own goes
    with it."""
    order = {form: place for place, form in enumerate(moments)}
    place, places = len(order), [0] * len(steps)
    for i, step in reversed(list(enumerate(steps))):
        place = places[i] = len(order) if is_maximum(step) else order.get(step.after, place)
    return [steps[i] for i in sorted(range(len(steps)), key=places.__getitem__)]


def _named(tree: Display, moments: Mapping[Display, Moment]) -> Display:
    """Of a maximum, the moments by name and in the order of their names."""
    if not isinstance(tree, Maximum):
        return tree
    known = [m.name for form, m in moments.items() if form in tree.items]
    return Maximum((*known, *(item for item in tree.items if item not in moments)))


def step_view(
    number: str,
    step: Step,
    unit: Unit,
    sizes: Mapping[str, int],
    moments: Mapping[Display, Moment],
    anchors: Anchors,
    *,
    last: bool,
) -> StepView:
    """A step as it is shown, refused if its numbers do not hold."""
    moment = moments.get(step.after)
    before, after = _sides(step, moments, moment)
    numbers_in = _numbers_in(_named(step.after, moments) if is_maximum(step) else after, {**sizes, **_values(moments)})
    _require_equal(step, numbers_in)
    before = _said_once(_without_prefix(before, _place_of(step).partition(", ")[0]))
    left, right = formula(before, braces=moment is None), formula(after)
    return StepView(
        number=number,
        anchor=anchors(step.id),
        title=step.title if moment is None else f"{subscripted(moment.name.name)}: {step.title}",
        rule=Link(step.rule, target=rule_anchor(step.rule)),
        badge=_STEP_BADGES.get(step.check.kind, Badge("○", step.check.kind, "open")),
        before=left,
        after=right,
        because=sentence(step.because if moment is None or moment.base is None else BECAUSE),
        substituted=formula(numbers_in),
        value=numbers.amount(step.value, unit),
        checked=_how_checked(step),
        last=last,
        short=not last and len(left.pieces) == len(right.pieces) == 1,
        tabled=moment is not None and moment.base is not None,
        same=display.bare(before) == after,
    )


def _sides(step: Step, moments: Mapping[Display, Moment], moment: Moment | None) -> tuple[Display, Display]:
    """The two sides as they are shown: what another step derives stands under its short name."""
    if moment is not None and moment.base is not None:
        base = moment.base.name
        return Sum((Labelled(base, "as there"), *moment.by_role)), Sum((base, *moment.change))
    if not (isinstance(step.before, Maximum) and isinstance(step.after, Maximum)) or len(step.before.items) != len(step.after.items):
        return step.before, _named(step.after, moments)
    unnamed = tuple(before for before, after in zip(step.before.items, step.after.items, strict=True) if after not in moments)
    known = tuple(m.name for form, m in moments.items() if form in step.after.items)
    return Maximum((*known, *unnamed)), _named(step.after, moments)


def _values(moments: Mapping[Display, Moment]) -> dict[str, int]:
    """What the short names of moments stand for, those of other chapters too."""
    found: dict[str, int] = {}
    for moment in moments.values():
        found[moment.name.name] = moment.step.value
        if moment.base is not None:
            found[moment.base.name.name] = moment.base.step.value
    return found


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


def _said_once(tree: Display) -> Display:
    """Of labels in a row that name the same operator (``mul: a · b``), the later ones leave its name out."""
    if not isinstance(tree, Sum):
        return tree
    terms: list[Display] = []
    last = ""
    for term in tree.terms:
        name, colon, rest = term.label.partition(": ") if isinstance(term, Labelled) else ("", "", "")
        terms.append(Labelled(term.body, rest) if isinstance(term, Labelled) and colon and name == last else term)
        last = name if colon else ""
    return Sum(tuple(terms))


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
    moments: Mapping[Display, Moment],
    sizes: Mapping[str, int],
    roles: Sequence[str],
) -> CandidateRow:
    parts = tuple(numbers.integer(candidate.part_values.get(role, 0)) for role in roles)
    value = numbers.amount(candidate.value, quantity.unit)
    largest = candidate.value == quantity.value
    for step, view in zip(steps, views, strict=True):
        if step.after in moments and _place_of(step) == candidate.at and step.value == candidate.value:
            told = view.after if view.tabled else None
            return CandidateRow(candidate.at, subscripted(moments[step.after].name.name), view.anchor, told, value, parts, largest)
    return CandidateRow(candidate.at, "", "", formula(expressions.parse(branches.at_hand(candidate.expr, sizes))), value, parts, largest)
