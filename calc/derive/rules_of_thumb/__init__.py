"""Published rules of thumb compared with the exact count of this model: the error, the steps between the two, and the valid range of sizes.

A rule is an expression in the model's own dimensions. The listed differences to the exact count are polynomials that add up to the error
exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from calc.derive.result import Derivation, Step
from calc.derive.rules_of_thumb.assumptions import ComparedStep
from calc.derive.rules_of_thumb.assumptions import JudgedAssumption as JudgedAssumption
from calc.derive.rules_of_thumb.corrections import explained
from calc.derive.rules_of_thumb.differences import Difference as Difference
from calc.derive.rules_of_thumb.differences import GrossErrors as GrossErrors
from calc.derive.rules_of_thumb.differences import gross_errors
from calc.derive.rules_of_thumb.exact import ExactCount, inapplicable, incomparable, is_stated, written
from calc.derive.rules_of_thumb.ranges import ValidRanges as ValidRanges
from calc.derive.rules_of_thumb.ranges import scanned, within
from calc.derive.rules_of_thumb.rules import RULES as RULES
from calc.derive.rules_of_thumb.rules import RuleOfThumb as RuleOfThumb
from calc.platform.on_demand import OnDemand
from calc.symbolic import branches
from calc.symbolic.exact import evaluate_text


@dataclass(frozen=True, slots=True)
class RuleComparison:
    """One rule of thumb compared with this model; where it does not apply, ``reason`` says why and all else is empty.

    ``steps`` lead from the rule to the exact count; ``differences`` are the corrections among them, with opposite sign. ``assumptions`` are
    the rule's, judged at this step. ``gross``: the errors of both signs, ``None`` where the difference is not split.
    """

    rule: RuleOfThumb
    applies: bool
    reason: str
    expr: str | None = None
    value: int | None = None
    exact: int | None = None
    differences: tuple[Difference, ...] = ()
    steps: tuple[Step, ...] = ()
    outside: tuple[tuple[str, int], ...] = ()
    within: Sequence[ValidRanges] = ()
    assumptions: tuple[JudgedAssumption, ...] = ()
    gross: GrossErrors | None = None

    @property
    def ratio(self) -> Fraction | None:
        """Rule ÷ exact count: 1 is exact."""
        return Fraction(self.value, self.exact) if self.value is not None and self.exact else None


def compare(derivation: Derivation, rules: Sequence[RuleOfThumb] = RULES) -> tuple[RuleComparison, ...]:
    """Compare every rule of thumb with the exact count of ``derivation``."""
    return tuple(_compare(rule, derivation) for rule in rules)


def _compare(rule: RuleOfThumb, derivation: Derivation) -> RuleComparison:
    reason = inapplicable(rule, derivation) or incomparable(rule, derivation)
    if reason:
        return RuleComparison(rule, False, reason)
    exact, expr = ExactCount(rule, derivation), written(rule, derivation)
    applicable = branches.at_hand(expr, derivation.sizes)  # the number of parameters may be by cases
    count = exact.at({})
    bridge = explained(applicable, exact, derivation)
    step = ComparedStep(derivation, count, bridge.all)

    def ranges() -> tuple[ValidRanges, ...]:
        along = (within(dim, expr, exact, derivation, bridge.all) for dim in scanned(expr, exact, derivation))
        return tuple(each for each in along if each.searched[0] < each.searched[1])

    return RuleComparison(
        rule,
        True,
        "",
        expr=applicable,
        value=int(evaluate_text(expr, derivation.sizes)),
        exact=count,
        differences=bridge.differences,
        steps=bridge.steps,
        outside=tuple((name, derivation[name].value or 0) for name in rule.outside if is_stated(derivation, name)),
        within=OnDemand(ranges),
        assumptions=tuple(JudgedAssumption(a.statement, a.judge(step)) for a in rule.assumes),
        gross=gross_errors((d.value for d in bridge.all), count) if bridge.all is not None and count else None,
    )
