"""The sizes at which a rule of thumb is near the exact count: one dimension varies, and defaults that depend on it follow."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from calc import dimensions as dims_
from calc.derive.result import Derivation
from calc.derive.rules_of_thumb.exact import ExactCount
from calc.dimensions import Dim
from calc.errors import DimensionError, NapkinError
from calc.graph.guards import dimensions
from calc.symbolic.exact import evaluate_text
from calc.symbolic.parser import free_names

NEAR = Fraction(1, 20)  # "within 5 %"
FARTHEST = 2**20


@dataclass(frozen=True, slots=True)
class ValidRanges:
    """The ranges along one dimension in which the rule is within 5 %, the other dimensions fixed. ``ranges`` may be empty."""

    dim: str
    ranges: tuple[tuple[int, int], ...]
    searched: tuple[int, int]


def scanned(expr: str, exact: ExactCount, derivation: Derivation) -> list[str]:
    """Dimensions to vary: free ones in the expressions that no other dimension must be divisible by."""
    texts = [expr, *(term.expr for term in exact.addends())]
    occur = {name for text in texts for name in free_names(text)}
    divisors = {dim.multiple_of for dim in derivation.dims}
    return [dim.name for dim in derivation.dims if dim.name in occur and dim.expr is None and dim.name not in divisors]


def within(name: str, expr: str, exact: ExactCount, derivation: Derivation) -> ValidRanges:
    """Ranges of ``name`` where rule and exact differ by at most 5 %: powers of two, then bisection between them."""
    dims = dimensions(derivation)
    unit, plus = dims[name].multiple_of, dims[name].plus
    step = derivation.sizes[unit] if isinstance(unit, str) else unit or 1
    here = (derivation.sizes[name] - plus) // step
    near = _Memo(lambda i: _is_near(_moved(dims, name, i * step + plus, derivation), dims, expr, exact, derivation))
    low, high = _accepted(near, here, 1, max(FARTHEST // step, here, 1))
    points = sorted({low, high, here, *(2**i for i in range(64) if low <= 2**i <= high)})
    ranges: list[tuple[int, int]] = []
    start = points[0] if near(points[0]) else None
    for a, b in itertools.pairwise(points):
        if near(a) == near(b):
            continue
        edge = _bisect(near, a, b)
        if start is None:
            start = edge + 1
        else:
            ranges.append((start, edge))
            start = None
    if start is not None:
        ranges.append((start, points[-1]))
    return ValidRanges(name, tuple((a * step + plus, b * step + plus) for a, b in ranges), (low * step + plus, high * step + plus))


def _accepted(near: _Memo, here: int, low: int, high: int) -> tuple[int, int]:
    """The part of ``low … high`` around ``here`` at which the closed forms hold; at its ends the step may run other operators."""
    ends = []
    for end in (min(low, here), max(high, here)):
        good, bad = here, end
        if near.accepts(end):
            good = end
        while abs(good - bad) > 1 and good != end:
            middle = (good + bad) // 2
            good, bad = (middle, bad) if near.accepts(middle) else (good, middle)
        ends.append(good)
    return ends[0], ends[1]


def _moved(dims: Mapping[str, Dim], name: str, size: int, derivation: Derivation) -> dict[str, int]:
    """All sizes with ``name`` at ``size``, the others fixed except those that follow it (``f = 4*d``)."""
    sizes = {d.name: d.value for d in derivation.dims if isinstance(dims[d.name].default, int)}
    return dims_.resolve(dims, {**sizes, name: size})


def _is_near(sizes: Mapping[str, int], dims: Mapping[str, Dim], expr: str, exact: ExactCount, derivation: Derivation) -> bool:
    """Whether the rule is within 5 % at ``sizes``. The rule may use tied dimensions; quantities are evaluated at the free ones.

    Raises ``DimensionError`` at sizes where the closed forms do not hold: a search never traces the step.
    """
    free = {name: size for name, size in sizes.items() if not dims[name].tied}
    if derivation.other_sizes is not None and not derivation.holds_at(free):
        raise DimensionError("the closed forms do not hold at these sizes")
    true = exact.at(free)
    return abs(int(evaluate_text(expr, sizes)) - true) <= NEAR * true


def _bisect(near: Callable[[int], bool], a: int, b: int) -> int:
    """The last point from ``a`` on with the same outcome as ``a``; that of ``b`` differs."""
    while b - a > 1:
        middle = (a + b) // 2
        a, b = (middle, b) if near(middle) == near(a) else (a, middle)
    return a


class _Memo:
    """A predicate on sizes, cached. At a size where it raises (B = 1, where the step runs other operators), it returns the value at the
    next size."""

    def __init__(self, predicate: Callable[[int], bool]) -> None:
        self._predicate = predicate
        self._answers: dict[int, bool | None] = {}

    def accepts(self, size: int) -> bool:
        return self._answer(size) is not None

    def __call__(self, size: int) -> bool:
        answer = self._answer(size)
        return bool(self._answer(size + 1) if answer is None else answer)

    def _answer(self, size: int) -> bool | None:
        if size not in self._answers:
            try:
                self._answers[size] = self._predicate(size)
            except NapkinError:
                self._answers[size] = None
        return self._answers[size]
