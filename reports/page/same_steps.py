"""Chapters whose steps are those of an earlier chapter but for labels and reasons: gradients have the shapes of their parameters, and of a
dense model every parameter is active. Such a chapter names the other one and what differs, in place of the steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from calc.derive.result import PARTS, SUBSTITUTION
from calc.symbolic.marks import as_latex
from reports.page.model import Chapter, PageLink, SameSteps, StepDifference, StepView

_MOST = 2  # differences that are read more easily than the steps
_FEWEST = 4  # steps that are worth a reference
_OF_SEVERAL = frozenset({"sum", PARTS, "sum over layers", SUBSTITUTION})  # rules of steps that are of no single tensor


def with_steps_once(chapters: Iterable[Chapter]) -> Iterator[Chapter]:
    """The chapters; one with the steps of an earlier one has a reference to it in their place."""
    earlier: dict[object, Chapter] = {}
    for each in chapters:
        steps = tuple(_formulas(step, each.quantity) for step in each.steps)
        first = earlier.setdefault(steps, each) if len(steps) >= _FEWEST and not each.candidates else each
        differences = _differences(each.steps, first.steps)
        if first is each or len(differences) > _MOST:
            yield each
        else:
            same = SameSteps(PageLink(first.quantity, target=first.anchor), each.count, differences)
            yield replace(each, steps=(), same_steps=same)


def _formulas(step: StepView, quantity: str) -> object:
    """All of a step but its labels and its reason."""
    before = step.before
    rows = tuple(tuple(map(as_latex, pieces)) for pieces, _ in before.rows) or before.plain
    return step.title.removeprefix(quantity), step.alike, rows, step.after, step.substituted, step.value


def _differences(steps: Sequence[StepView], first: Sequence[StepView]) -> tuple[StepDifference, ...]:
    """What distinguishes the steps from those with the same formulas: labels and reasons, each with the steps that it is of."""
    differing: dict[StepDifference, list[str]] = {}
    for step, earlier in zip(steps, first, strict=True):
        labels = tuple(dict.fromkeys(pair for pair in zip(_labels(step), _labels(earlier), strict=True) if pair[0] != pair[1]))
        if labels or (step.because, step.rule, step.badge) != (earlier.because, earlier.rule, earlier.badge):
            difference = StepDifference((), labels, step.because, step.rule, step.badge, step.checked)
            differing.setdefault(difference, []).append(step.title)
    tensors = [step.title for step in steps if step.rule.words not in _OF_SEVERAL]
    return tuple(_of(titles, difference, tensors) for difference, titles in differing.items())


def _of(titles: Sequence[str], difference: StepDifference, tensors: Sequence[str]) -> StepDifference:
    """The difference with the steps that it is of; without any where those are all tensors."""
    return difference if titles == tensors else replace(difference, titles=tuple(titles))


def _labels(step: StepView) -> tuple[str, ...]:
    return tuple(label for _, label in step.before.rows)
