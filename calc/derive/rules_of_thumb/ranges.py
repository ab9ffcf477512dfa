"""The sizes at which a rule of thumb is near the exact count: one dimension varies, and defaults that depend on it follow."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from calc import dimensions as dims_
from calc.derive.result import Derivation
from calc.derive.rules_of_thumb.differences import NEAR, Difference, gross_errors, values_at
from calc.derive.rules_of_thumb.exact import ExactCount
from calc.derive.size_steps import valid_step
from calc.dimensions import Dim
from calc.errors import DimensionError, NapkinError
from calc.graph.guards import dimensions
from calc.symbolic.exact import evaluate_text
from calc.symbolic.parser import free_names
from calc.symbolic.search import last, last_alike

FARTHEST = 2**20


@dataclass(frozen=True, slots=True)
class ValidRanges:
    """The ranges along one dimension in which the rule is within 5 %, the other dimensions fixed. ``ranges`` may be empty.

    Sizes go in steps of ``step``. ``by_cancellation`` are those parts of them in which the errors of one sign alone are more than 5 %.
    """

    dim: str
    ranges: tuple[tuple[int, int], ...]
    searched: tuple[int, int]
    by_cancellation: tuple[tuple[int, int], ...] = ()
    step: int = 1


class _Nearness(Enum):
    FAR = "not within 5 %"
    CANCELS = "within 5 %, by cancellation"
    NEAR = "within 5 %"


def scanned(expr: str, exact: ExactCount, derivation: Derivation) -> list[str]:
    """Dimensions to vary: free ones in the expressions that no other dimension must be divisible by."""
    texts = [expr, *(term.expr for term in exact.addends())]
    occur = {name for text in texts for name in free_names(text)}
    divisors = {dim.multiple_of for dim in derivation.dims}
    return [dim.name for dim in derivation.dims if dim.name in occur and dim.expr is None and dim.name not in divisors]


def within(name: str, expr: str, exact: ExactCount, derivation: Derivation, differences: Sequence[Difference] | None) -> ValidRanges:
    """Ranges of ``name`` where rule and exact differ by at most 5 %: powers of two, then bisection between them."""
    dims = dimensions(derivation)
    step = valid_step(derivation, name)
    plus = derivation.sizes[name] % step
    current = (derivation.sizes[name] - plus) // step
    listed = differences if differences and _explain(differences, expr, exact, derivation) else None
    near = _Memo(lambda i: _nearness(_moved(dims, name, i * step + plus, derivation), dims, expr, exact, derivation, listed))
    low, high = _accepted(near, current, 1, max(FARTHEST // step, current, 1))
    runs = _runs(near, sorted({low, high, current, *(2**i for i in range(64) if low <= 2**i <= high)}))
    sized = [(nearness, (a * step + plus, b * step + plus)) for nearness, a, b in runs]
    return ValidRanges(
        name,
        _joined([run for nearness, run in sized if nearness is not _Nearness.FAR], step),
        (low * step + plus, high * step + plus),
        tuple(run for nearness, run in sized if nearness is _Nearness.CANCELS),
        step,
    )


def _runs(near: _Memo, points: Sequence[int]) -> list[tuple[_Nearness, int, int]]:
    """The runs of equal nearness from the first to the last of ``points``, located by bisection between neighbors."""
    runs: list[tuple[_Nearness, int, int]] = []
    start = points[0]
    for a, b in itertools.pairwise(points):
        while near(a) is not near(b):
            edge = last_alike(near, a, b)
            runs.append((near(a), start, edge))
            start = a = edge + 1
    return [*runs, (near(points[-1]), start, points[-1])]


def _joined(runs: Sequence[tuple[int, int]], step: int) -> tuple[tuple[int, int], ...]:
    """Runs with those that touch made one."""
    joined: list[tuple[int, int]] = []
    for low, high in runs:
        if joined and joined[-1][1] + step == low:
            joined[-1] = (joined[-1][0], high)
        else:
            joined.append((low, high))
    return tuple(joined)


def _accepted(near: _Memo, start: int, low: int, high: int) -> tuple[int, int]:
    """The part of ``low … high`` around ``start`` at which the closed forms hold; at its ends the step may run other operators."""
    first, final = (end if near.accepts(end) else last(near.accepts, start, end) for end in (min(low, start), max(high, start)))
    return first, final


def _moved(dims: Mapping[str, Dim], name: str, size: int, derivation: Derivation) -> dict[str, int]:
    """All sizes with ``name`` at ``size``, the others fixed except those that follow it (``f = 4*d``)."""
    sizes = {d.name: d.value for d in derivation.dims if isinstance(dims[d.name].default, int)}
    return dims_.resolve(dims, {**sizes, name: size})


def _nearness(
    sizes: Mapping[str, int],
    dims: Mapping[str, Dim],
    expr: str,
    exact: ExactCount,
    derivation: Derivation,
    differences: Sequence[Difference] | None,
) -> _Nearness:
    """Whether the rule is within 5 % at ``sizes``. The rule may use tied dimensions; quantities are evaluated at the free ones.

    Raises ``DimensionError`` at sizes where the closed forms do not hold: a search never traces the step. Those of the ``differences`` are
    those of a special case, such as B = 1, where the derivation is one: elsewhere they do not add up to the error.
    """
    free = {name: size for name, size in sizes.items() if not dims[name].tied}
    if derivation.other_sizes is not None and not derivation.holds_at(free):
        raise DimensionError("the closed forms do not hold at these sizes")
    true = exact.at(free)
    error = int(evaluate_text(expr, sizes)) - true
    if abs(error) > NEAR * true:
        return _Nearness.FAR
    listed = values_at(differences, sizes) if differences else []
    if listed and sum(listed) != error:
        raise DimensionError("the terms of the error do not hold at these sizes")
    cancels = bool(listed) and gross_errors(listed, true).cancel
    return _Nearness.CANCELS if cancels else _Nearness.NEAR


def _explain(differences: Sequence[Difference], expr: str, exact: ExactCount, derivation: Derivation) -> bool:
    """Whether the differences add up to the error at the derivation's sizes."""
    sizes = derivation.sizes
    return sum(values_at(differences, sizes)) == int(evaluate_text(expr, sizes)) - exact.at({})


class _Memo:
    """A function of sizes, cached. At a size where it raises (B = 1, where the step runs other operators), it returns the value at the
    next size."""

    def __init__(self, function: Callable[[int], _Nearness]) -> None:
        self._function = function
        self._answers: dict[int, _Nearness | None] = {}

    def accepts(self, size: int) -> bool:
        return self._answer(size) is not None

    def __call__(self, size: int) -> _Nearness:
        answer = self._answer(size)
        return (self._answer(size + 1) or _Nearness.FAR) if answer is None else answer

    def _answer(self, size: int) -> _Nearness | None:
        if size not in self._answers:
            try:
                self._answers[size] = self._function(size)
            except NapkinError:
                self._answers[size] = None
        return self._answers[size]
