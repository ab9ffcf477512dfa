"""Steps as a report shows them: short names for peak candidates, sizes substituted, equal steps and reasons once."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from calc.derive.names import StepPlace
from calc.derive.result import PARTS, SUBSTITUTION, Step
from calc.graph.step import ITERATION, LOSS, OPTIMIZER, TOP, bare_name
from calc.symbolic import tree as display
from calc.symbolic.exact import evaluate_text
from calc.symbolic.expression import Expression, FunctionCall, Labelled, Number, Product, Sum, bare
from calc.symbolic.tree import is_maximum, maximum
from calc.units import Unit
from reports.page.model import Badge, Chapter, PageLink, StepView
from reports.page.parts import formula, rule_anchor, sentence
from reports.page.peak_candidates import PeakCandidateView
from reports.typeset import expressions, numbers, paths
from reports.typeset.escape import slug

_STEP_BADGES = {"symbolic": Badge("∎", "proved symbolically", "proved"), "random points": Badge("∴", "checked at random points", "open")}


class Anchors:
    """Name → anchor: a legal id, unique on the page."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def __call__(self, name: str) -> str:
        base = slug(name) or "step"
        anchor, count = base, 2
        while anchor in self._taken:
            anchor, count = f"{base}-{count}", count + 1
        self._taken.add(anchor)
        return anchor


@dataclass(frozen=True, slots=True)
class StepNotation:
    """What the steps of a quantity are written in: its unit, the sizes, the ids of the page, and the short names of peak candidates."""

    unit: Unit
    sizes: Mapping[str, int]
    anchors: Anchors
    moments: Mapping[Expression, PeakCandidateView] = field(default_factory=dict)


def step_views(number: int | str, steps: Sequence[Step], notation: StepNotation) -> list[StepView]:
    """The views of a chapter's steps. Raises ``ValueError`` if a substituted formula does not equal its value."""
    return [_step_view(f"{number}.{i}", step, notation, last=step is steps[-1]) for i, step in enumerate(steps, 1)]


def _step_view(number: str, step: Step, notation: StepNotation, *, last: bool) -> StepView:
    moments = notation.moments
    moment = moments.get(step.after)
    before, after = _sides(step, moments, moment)
    product = _reordered(before, after)
    numbers_in = _numbers_in(product or after, {**notation.sizes, **_values(moments)})
    _require_equal(step, numbers_in)
    before = _without_prefix(before, step.place.path) if isinstance(step.place, StepPlace) else before
    before = by_operator(before, of_equals=step.rule in _OF_EQUALS)
    return StepView(
        number=number,
        anchor=notation.anchors(_called(step)),
        title=step.title if moment is None else f"{moment.text}: {step.title}",
        rule=PageLink(step.rule, target=rule_anchor(step.rule)),
        badge=_STEP_BADGES.get(step.check.kind, Badge("○", step.check.kind, "open")),
        before=formula(before, braces=moment is None),
        after=formula(after),
        because=sentence(step.because if moment is None or moment.base is None else moment.because),
        substituted=formula(numbers_in),
        value=numbers.amount(step.value, notation.unit),
        checked=_how_checked(step),
        last=last,
        tabled=moment is not None and moment.base is not None,
        same=product is not None or bare(before) == after,
    )


def _reordered(before: Expression, after: Expression) -> Expression | None:
    """``before`` as one product, if ``after`` has the same factors in another order: V (h k) for h k V, which needs no line."""
    factors = _factors(before)
    return Product(factors) if len(factors) > 1 and Counter(factors) == Counter(_factors(after)) else None


def _factors(tree: Expression) -> tuple[Expression, ...]:
    inner = bare(tree)
    return tuple(factor for part in inner.factors for factor in _factors(part)) if isinstance(inner, Product) else (inner,)


def _called(step: Step) -> str:
    """A name of a step for citations: its quantity, its module path and what it does there. Unlike the step's number it does not change
    when a step is added before it."""
    place = step.place if isinstance(step.place, StepPlace) else StepPlace(step.place.phase, step.place.operation)
    path = "" if place.path == step.quantity else place.path
    module = ".".join(part for part in path.split(".") if part != "*")
    quantity = _SHORT.get(step.quantity, step.quantity.removeprefix("flops."))
    substitution = "substitute" if step.rule == SUBSTITUTION else ""
    action = "sum" if step.rule == PARTS else bare_name(step.rule) if path in (TOP, LOSS, OPTIMIZER, ITERATION) else ""
    words = f"{quantity} {module} {place.detail} {substitution} {step.case and f'at {step.case}'} {action}"
    return "-".join(re.findall(r"[\w.]+", words, re.ASCII))


_SHORT = {
    "activations.bytes": "saved",
    "gradients.bytes": "grad",
    "optimizer_state.bytes": "state",
    "checkpoint.bytes": "checkpoint",
    "memory.peak": "peak",
    "memory.peak.first_step": "first",
}


def _sides(step: Step, moments: Mapping[Expression, PeakCandidateView], moment: PeakCandidateView | None) -> tuple[Expression, Expression]:
    """The two sides of a step, with the short name of each form that another step derives."""
    if moment is not None and moment.base is not None:
        base = moment.base
        return Sum((Labelled(base.name, f"as at {base.text}"), *moment.by_role)), Sum((base.name, *moment.change))
    after = named(step.after, moments)
    if not (is_maximum(step.before) and is_maximum(step.after)) or len(step.before.arguments) != len(step.after.arguments):
        return step.before, after
    unnamed = (before for before, item in zip(step.before.arguments, step.after.arguments, strict=True) if item not in moments)
    return maximum((*_names_in(step.after, moments), *unnamed)), after


def _values(moments: Mapping[Expression, PeakCandidateView]) -> dict[str, int]:
    """Short name → value of the peak candidates, also of other chapters."""
    values: dict[str, int] = {}
    for moment in moments.values():
        values[moment.name.name] = moment.step.value
        if moment.base is not None:
            values[moment.base.name.name] = moment.base.step.value
    return values


def _without_prefix(tree: Expression, place: str) -> Expression:
    """The tree with labels relative to ``place``: beside ``h.*.ln_1.bias``, which becomes ``bias``, ``h.*.ln_1`` becomes ``itself``."""
    if isinstance(tree, Sum):
        parts = any(isinstance(t, Labelled) and t.label.startswith(f"{place}.") for t in tree.terms)
        return Sum(tuple(_relative(t, place, "itself" if parts else place) for t in tree.terms))
    return _relative(tree, place, place)


def _relative(tree: Expression, place: str, itself: str) -> Expression:
    if not isinstance(tree, Labelled) or tree.operator:
        return tree
    return Labelled(tree.body, itself if tree.label == place else tree.label.removeprefix(f"{place}."))


# Rules of steps that add tensors of one parameter, of which several have its shape, or parts of a module, of which several are alike.
_OF_EQUALS = ("optimizer state", "checkpoint", "correction", PARTS)


def by_operator(tree: Expression, *, of_equals: bool = False) -> Expression:
    """The tree with an operator's name (``mul: a · b``) only in the first of consecutive labels that have it, and with equal terms of one
    operator as one: ``3·V·d``, of end − x, w (end − x) and x + w (end − x). ``of_equals``: equal terms without an operator are one too."""
    if not isinstance(tree, Sum):
        return tree
    terms: list[Expression] = []
    last = ""
    for (operator, body), alike in itertools.groupby(tree.terms, _operator_and_body):
        group = [*alike]
        joined = operator or (of_equals and all(isinstance(term, Labelled) for term in group))
        if not joined:
            terms += group
        for some in _lines([term.label for term in group if joined and isinstance(term, Labelled)]):
            label = ", ".join(filter(None, some))
            terms.append(Labelled(_times(len(some), body), label, "" if operator == last and label else operator))
            last = operator
        last = operator
    return Sum(tuple(terms))


def _operator_and_body(term: Expression) -> tuple[str, Expression]:
    return (term.operator, term.body) if isinstance(term, Labelled) else ("", term)


def _lines(labels: Sequence[str]) -> Iterator[list[str]]:
    """The labels in order, as many together as a line has room for."""
    line: list[str] = []
    for label in labels:
        if line and len(", ".join([*line, label])) > _LINE:
            yield line
            line = []
        line.append(label)
    if line:
        yield line


_LINE = 60  # characters of the labels of equal terms that are written as one


def _times(count: int, body: Expression) -> Expression:
    if count == 1:
        return body
    factors = body.factors if isinstance(body, Product) else (body,)
    return Product((Number(count), *factors))


def _numbers_in(tree: Expression, sizes: Mapping[str, int]) -> Expression:
    """``tree`` with sizes substituted; a maximum has the value of each candidate."""
    put = expressions.substituted(tree, sizes)
    if is_maximum(put):
        return maximum(Number(int(evaluate_text(display.text(item), {}))) for item in put.arguments)
    return put


def _require_equal(step: Step, numbers_in: Expression) -> None:
    """Raise ``ValueError`` if the substituted row does not equal the value of the step."""
    value = evaluate_text(display.text(numbers_in), {})
    if value != step.value:
        raise ValueError(f"step {step.id}: the substituted row is {value}, the value is {step.value}")


def _how_checked(step: Step) -> str:
    """The result of the step's check, if it adds to the badge."""
    return "" if step.check.kind == "symbolic" and step.check.result in ("0", "holds", "") else step.check.result


def named(tree: Expression, moments: Mapping[Expression, PeakCandidateView]) -> Expression:
    """A maximum with its peak candidates by short name, in the order of the names; other trees unchanged."""
    if not is_maximum(tree):
        return tree
    return maximum((*_names_in(tree, moments), *(item for item in tree.arguments if item not in moments)))


def _names_in(tree: FunctionCall, moments: Mapping[Expression, PeakCandidateView]) -> tuple[Expression, ...]:
    return tuple(m.name for form, m in moments.items() if form in tree.arguments)


def merged(number: int, views: Sequence[StepView]) -> tuple[StepView, ...]:
    """The steps, numbered, with those that differ only in their module path merged into the first of them.

    The last step is the total and is never merged.
    """
    alike: dict[object, list[StepView]] = {}
    for view in views:
        alike.setdefault(view.anchor if view.last else _content(view), []).append(view)
    return tuple(
        replace(
            first,
            number=f"{number}.{i}",
            alike=paths.patterns([v.title for v in alike_views]),
            others=len(alike_views),
            more=f"and {numbers.integer(len(alike_views))} alike" if alike_views else "",
        )
        for i, (first, *alike_views) in enumerate(alike.values(), 1)
    )


def _content(view: StepView) -> object:
    """Everything of a step except its module path and number."""
    return view.before, view.after, view.substituted, view.value, *_reason(view)


_LONG = 40  # characters of a reason that is written once in a chapter


def _reason(view: StepView) -> tuple[object, ...]:
    """Reason, rule and check, whichever part of the model they are of: the parts of every module are disjoint."""
    because = "" if view.rule.words == PARTS else view.because
    return because, view.rule, view.badge, view.checked


def with_references(chapters: Iterable[Chapter]) -> tuple[Chapter, ...]:
    """The chapters with references: a step of an earlier chapter is referred to, and a reason is given once."""
    earlier: dict[object, StepView] = {}
    deduplicated: list[Chapter] = []
    for each in chapters:
        shown: list[StepView] = []
        reasons: dict[object, StepView] = {}
        for view in each.steps:
            content = (view.title, view.alike, _content(view))
            first = earlier.get(content, view) if each.aside or view.last else earlier.setdefault(content, view)
            if first is not view and not view.last:
                shown.append(replace(view, same_as=PageLink(first.number, target=first.anchor)))
            else:
                before = shown[-1] if shown and shown[-1].same_as is None else None
                first_view = reasons.setdefault(_reason(view), view)
                first_link = PageLink(first_view.number, target=first_view.anchor, title=first_view.title)
                reason_of = first_link if first_view is not view and len(view.because) > _LONG else None
                shown.append(replace(view, same_reason=before is not None and _reason(before) == _reason(view), reason_of=reason_of))
        deduplicated.append(replace(each, steps=tuple(shown)))
    return tuple(deduplicated)
