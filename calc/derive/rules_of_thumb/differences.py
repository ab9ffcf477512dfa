"""The terms in which a rule of thumb and the exact count differ, and whether the rule is near only because they cancel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from calc.symbolic.exact import evaluate_text

NEAR = Fraction(1, 20)  # "within 5 %"

DROPPED, ADDED, OTHERWISE, NOT_COMPUTED = "dropped", "added", "counted differently", "not computed"
REUSED = "applied more often"  # a weight that N counts once, and that a layer applies at several positions


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between rule and exact count. ``value`` is its share of rule − exact."""

    expr: str
    value: int
    kind: str
    module_paths: tuple[str, ...]
    because: str


@dataclass(frozen=True, slots=True)
class GrossErrors:
    """The differences that make a rule too high and those that make it too low, each added up, relative to the exact count."""

    high: Fraction
    low: Fraction

    @property
    def cancel(self) -> bool:
        """Whether the rule is within 5 % although the errors of one sign alone are more."""
        return abs(self.high + self.low) <= NEAR < max(self.high, -self.low)


def gross_errors(values: Iterable[int], exact: int) -> GrossErrors:
    """The errors of both signs of differences ``values``."""
    listed = list(values)
    high, low = (sum(v for v in listed if v * sign > 0) for sign in (1, -1))
    return GrossErrors(Fraction(high, exact), Fraction(low, exact))


def values_at(differences: Sequence[Difference], sizes: Mapping[str, int]) -> list[int]:
    """The differences at other sizes, where the same closed forms hold."""
    return [int(evaluate_text(d.expr, sizes)) for d in differences]
