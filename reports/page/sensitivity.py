"""The parts of each answer, how it grows with each size, and the errors of rules of thumb."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from calc.derive import sensitivity
from calc.derive.result import Derivation
from calc.derive.rules_of_thumb import GrossErrors, JudgedAssumption, RuleComparison, ValidRanges
from calc.derive.rules_of_thumb.corrections import NAMED
from calc.derive.sensitivity import Doubling
from calc.symbolic.expression import Name
from reports.page.model import PageLink, StepView, TypesetFormula
from reports.page.parts import ANSWERS, at_hand, formula, searched_sizes, several, share_if_known
from reports.page.steps import Anchors, StepNotation, step_views
from reports.typeset import expressions, numbers
from reports.typeset.escape import slug
from reports.typeset.numbers import NBSP, PrintedAmount


@dataclass(frozen=True, slots=True)
class DoublingTable:
    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[TypesetFormula, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class CrossoverView:
    """For sizes from ``at``, ``fast`` is at least as large as ``slow``."""

    quantity: str
    dim: TypesetFormula
    fast: TypesetFormula
    slow: TypesetFormula
    at: str


@dataclass(frozen=True, slots=True)
class DifferenceRow:
    """``more``: how many module paths there are beside those named."""

    formula: TypesetFormula
    value: str
    kind: str
    module_paths: tuple[str, ...]
    more: int
    because: str


@dataclass(frozen=True, slots=True)
class RuleAssumptionRow:
    """An assumption of a rule of thumb: whether this step meets it, what the difference does to the rule, and why."""

    statement: str
    met: str
    effect: str
    because: str


@dataclass(frozen=True, slots=True)
class LargestPartRow:
    """A part of a quantity with its share; or all small ones together, without a ``formula``."""

    part: str
    value: str
    share: str
    formula: TypesetFormula | None


@dataclass(frozen=True, slots=True)
class RangeRow:
    dim: TypesetFormula
    ranges: str
    searched: str


@dataclass(frozen=True, slots=True)
class RuleOfThumbView:
    """A rule of thumb, the exact count, and the steps from the rule to the count."""

    number: str
    name: str
    anchor: str
    statement: str
    letters: str
    assumes: tuple[RuleAssumptionRow, ...]
    stands_for: str
    source: PageLink
    value: PrintedAmount
    exact: PrintedAmount
    off: str
    verdict: str
    differences: tuple[DifferenceRow, ...]
    closes: str
    steps: tuple[StepView, ...]
    steps_title: str
    outside: tuple[tuple[str, PrintedAmount], ...]
    ranges: tuple[RangeRow, ...]


@dataclass(frozen=True, slots=True)
class InapplicableRuleOfThumb:
    """A rule of thumb that does not apply to this model, and why."""

    name: str
    statement: str
    source: PageLink
    reason: str


_ALSO_BY_PART = ("flops.forward.matmul", "activations.bytes")
_SMALL_PART = Fraction(1, 200)
Doubled = Mapping[str, tuple[Doubling, ...]]


def _answered(derivation: Derivation) -> list[str]:
    return [name for name, _ in ANSWERS if name in derivation.quantities and derivation[name].value]


def dominant(derivation: Derivation, chosen: Collection[str] = ()) -> Iterator[tuple[str, tuple[LargestPartRow, ...]]]:
    """Quantity → its parts, the largest first: of the model, or of live bytes by role. Those below 0.5 % are one row. Of the answers and
    ``_ALSO_BY_PART``, or of the ``chosen`` quantities."""
    for name in (name for name in chosen or (*_answered(derivation), *_ALSO_BY_PART) if name in derivation):
        total, parts = derivation[name].value, sensitivity.shares(derivation[name])
        small = [part for part in parts if total and abs(part.value) < total * _SMALL_PART]
        large = [part for part in parts if part not in small] if len(small) > 1 else parts
        rows = [_part_row(p.part, p.value, total, formula(at_hand(p.expr, derivation))) for p in large]
        if len(large) < len(parts):
            rows.append(_part_row(", ".join(part.part for part in small), sum(part.value for part in small), total, None))
        if rows:
            yield name, tuple(rows)


def _part_row(part: str, value: int, total: int | None, closed: TypesetFormula | None) -> LargestPartRow:
    return LargestPartRow(part, numbers.integer(value), share_if_known(value, total), closed)


def doubled(derivation: Derivation) -> Doubled:
    """Answer → factors by which it grows when one size doubles."""
    return {name: sensitivity.doublings(derivation, name) for name in _answered(derivation)}


def doublings(derivation: Derivation, by_quantity: Doubled) -> DoublingTable:
    """A row for each size: the factor by which each answer grows when the size doubles, or why it cannot double."""
    by_dim: dict[str, dict[str, str]] = {}
    for name, doublings_of in by_quantity.items():
        for d in doublings_of:
            by_dim.setdefault(d.dim, {})[name] = numbers.times(d.factor) if d.factor is not None else f"cannot double: {d.because}"
    order = [dim.name for dim in derivation.dims if dim.name in by_dim]
    rows = tuple((formula(Name(dim)), tuple(by_dim[dim].get(name, "no effect") for name in by_quantity)) for dim in order)
    return DoublingTable((("Size", "text"), *((name, "number") for name in by_quantity)), rows)


def crossover(derivation: Derivation) -> CrossoverView | None:
    """From where on another addend of the forward's matmul FLOPs dominates; ``None`` where none overtakes."""
    crossing = sensitivity.crossover(derivation, "flops.forward.matmul")
    if crossing is None:
        return None
    first = numbers.integer(-(-crossing.at.numerator // crossing.at.denominator))
    fast, slow = (formula(expressions.parse(text)) for text in (crossing.fast, crossing.slow))
    return CrossoverView(crossing.quantity, formula(Name(crossing.dim)), fast, slow, f"{crossing.dim}{NBSP}={NBSP}{first}")


def thumbs(
    comparisons: Sequence[RuleComparison], derivation: Derivation, sizes: Mapping[str, int], anchors: Anchors
) -> Iterator[RuleOfThumbView]:
    """The rules of thumb that apply to this model, each with the steps from rule to exact count."""
    for number, comparison in enumerate((c for c in comparisons if c.applies), 1):
        yield _thumb(str(number), comparison, derivation, sizes, anchors)


def inapplicable(comparisons: Sequence[RuleComparison]) -> Iterator[InapplicableRuleOfThumb]:
    """The rules of thumb that do not apply, each with the reason."""
    for c in comparisons:
        if not c.applies:
            yield InapplicableRuleOfThumb(c.rule.name, c.rule.statement, PageLink(c.rule.source, address=c.rule.link), c.reason)


def _thumb(number: str, comparison: RuleComparison, derivation: Derivation, sizes: Mapping[str, int], anchors: Anchors) -> RuleOfThumbView:
    rule, ratio, steps = comparison.rule, comparison.ratio, comparison.steps
    assert comparison.value is not None  # it applies
    assert comparison.exact is not None
    views = step_views(number, steps, StepNotation(rule.unit, sizes, anchors))
    return RuleOfThumbView(
        number=number,
        name=rule.name,
        anchor=f"thumb-{slug(rule.name)}",
        statement=rule.statement,
        letters=rule.letters,
        assumes=tuple(map(assumption_row, comparison.assumptions)),
        stands_for=rule.stands_for,
        source=PageLink(rule.source, address=rule.link),
        value=numbers.amount(comparison.value, rule.unit),
        exact=numbers.amount(comparison.exact, rule.unit),
        off="unknown" if ratio is None else numbers.percent(ratio - 1, signed=True),
        verdict=rule_verdict(ratio, comparison.gross),
        differences=tuple(_difference(d) for d in comparison.differences),
        closes=numbers.signed(comparison.value - comparison.exact),
        steps=tuple(views),
        steps_title=f"{several(len(steps), 'step')} from {rule.name} to the exact count",
        outside=tuple((name, numbers.amount(value, derivation[name].unit)) for name, value in comparison.outside),
        ranges=tuple(_range(w) for w in comparison.within),
    )


def assumption_row(assumption: JudgedAssumption) -> RuleAssumptionRow:
    """A rule's assumption, whether this step meets it, and the rule's error in percent if it does not."""
    judgment = assumption.judgment
    met = {True: "met", False: "not met", None: "unknown"}[judgment.met]
    effect = "" if judgment.effect is None else numbers.percent(judgment.effect, signed=True)
    return RuleAssumptionRow(assumption.statement, met, effect, judgment.because)


def rule_verdict(ratio: Fraction | None, gross: GrossErrors | None) -> str:
    """How near a rule is here. Nearness that only the errors' signs make is called cancellation."""
    if ratio is None:
        return "cannot be compared"
    if ratio == 1:
        return "equal here"
    if gross is not None and gross.cancel:
        high, low = (numbers.percent(error, signed=True) for error in (gross.high, gross.low))
        return f"within 5{NBSP}% here, but only by cancellation: errors of {high} and {low}"
    return f"{'within' if abs(ratio - 1) <= Fraction(1, 20) else 'not within'} 5{NBSP}% here"


def _difference(difference: Any) -> DifferenceRow:
    return DifferenceRow(
        formula(expressions.parse(difference.expr)),
        numbers.signed(difference.value),
        difference.kind,
        difference.module_paths[:NAMED],
        max(len(difference.module_paths) - NAMED, 0),
        difference.because,
    )


def _range(within: ValidRanges) -> RangeRow:
    if within.ranges == (within.searched,):
        text = "everywhere"
    elif not within.ranges:
        text = "nowhere"
    else:
        text = ", ".join(_interval(a, b, within.searched[1]) for a, b in within.ranges)
    if within.by_cancellation == within.ranges != ():
        text += ", by cancellation"
    elif within.by_cancellation:
        text += f"; by cancellation {', '.join(_interval(a, b, within.searched[1]) for a, b in within.by_cancellation)}"
    return RangeRow(formula(Name(within.dim)), text, searched_sizes(*within.searched, within.step))


def _interval(a: int, b: int, high: int) -> str:
    if a == b:
        return f"at {numbers.integer(a)}"
    return f"from {numbers.integer(a)}" if b == high else f"{numbers.integer(a)}{NBSP}…{NBSP}{numbers.integer(b)}"
