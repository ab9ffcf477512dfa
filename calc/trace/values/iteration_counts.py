"""Declared numbers of iterations as the traced code sees them: integers that note what they are compared with.

A depth is traced at a few small numbers. A model that compares it with another number, as in ``if depth > 8``, may run other operators at
the requested depth, although every trace and certificate is one of a shallow model: the comparison is a guard, like those of sizes.
"""

from __future__ import annotations

import operator
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from calc.graph.guards import Guard
from calc.trace.source_lines import user_line

_OWN = tuple(f"{Path(__file__).parents[2]}/{room}/" for room in ("trace", "graph", "symbolic"))
_RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_LARGE = 2**63  # no number that a model compares with is as large

Terms = tuple[tuple[str, int], ...]
"""Names of numbers of iterations, in alphabetical order, each with its factor, which is not 0."""


@dataclass(frozen=True, slots=True)
class CountComparison:
    """The sum of ``terms`` compared with the number ``bound``: the outcome, and the line that compared. The first factor is positive."""

    terms: Terms
    relation: str
    bound: int
    outcome: bool
    where: str

    def holds_at(self, counts: Mapping[str, int]) -> bool:
        """Whether the comparison has the same outcome at these numbers of iterations."""
        return _RELATIONS[self.relation](_total(self.terms, counts), self.bound) is self.outcome

    def changes_from(self, counts: Mapping[str, int]) -> bool:
        """Whether it has another outcome at some larger number of iterations; of two of them it may have."""
        (name, factor), *others = self.terms
        near = self.bound // factor
        return bool(others) or not all(self.holds_at({name: max(counts[name], at)}) for at in (near, near + 1, near + 2, _LARGE))

    def with_more(self, iterations: Mapping[str, int]) -> CountComparison:
        """The comparison whose bound has that many iterations more."""
        return replace(self, bound=self.bound + _total(self.terms, iterations))

    @property
    def guard(self) -> Guard:
        """The comparison as a guard of sizes, with positive factors on both sides."""
        left, right = (_text((name, sign * factor) for name, factor in self.terms if sign * factor > 0) for sign in (1, -1))
        bound = f" {'-' if self.bound < 0 else '+'} {abs(self.bound)}" if self.bound else ""
        return Guard(f"{left} {self.relation} {f'{right}{bound}' if right else self.bound}", self.outcome, self.where)


def _total(terms: Terms, counts: Mapping[str, int]) -> int:
    return sum(factor * counts[name] for name, factor in terms)


def _text(terms: Iterable[tuple[str, int]]) -> str:
    return " + ".join(name if factor == 1 else f"{factor}*{name}" for name, factor in terms)


Comparisons = dict[CountComparison, None]
"""The comparisons of a trace, each once, in order."""


class IterationCount(int):
    """The sum of ``terms`` and ``offset`` at the numbers of iterations of one trace. What it is compared with is added to ``noted``."""

    noted: Comparisons
    terms: Terms
    offset: int

    def __new__(cls, value: int, noted: Comparisons, terms: Terms, offset: int = 0) -> Self:
        count = super().__new__(cls, value)
        count.noted, count.terms, count.offset = noted, terms, offset
        return count

    def _made(self, value: int, factors: Mapping[str, int], offset: int) -> int:
        terms = tuple(sorted((name, factor) for name, factor in factors.items() if factor))
        return IterationCount(value, self.noted, terms, offset) if terms else value

    def _plus(self, other: Any, sign: int) -> Any:
        parts = _parts(other)
        if parts is None:
            return NotImplemented
        factors = Counter(dict(self.terms))
        factors.update({name: sign * factor for name, factor in parts[0]})
        return self._made(int(self) + sign * int(other), factors, self.offset + sign * parts[1])

    def __add__(self, other: Any) -> Any:
        return self._plus(other, 1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._plus(other, -1)

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __neg__(self) -> int:
        negative: int = self * -1
        return negative

    def __mul__(self, other: Any) -> Any:
        parts = _parts(other)
        if parts is None:
            return NotImplemented
        value = int(self) * int(other)
        if parts[0]:
            return value  # a product of two is no sum of terms
        return self._made(value, {name: factor * parts[1] for name, factor in self.terms}, self.offset * parts[1])

    __rmul__ = __mul__

    def _compared(self, relation: str, other: Any) -> Any:
        parts = _parts(other)
        if parts is None:
            return NotImplemented
        outcome = _RELATIONS[relation](int(self), int(other))
        difference = self - other
        if isinstance(difference, IterationCount) and not sys._getframe(2).f_code.co_filename.startswith(_OWN):
            terms, bound = difference.terms, -difference.offset
            if terms[0][1] < 0:
                terms, bound, relation = tuple((name, -factor) for name, factor in terms), -bound, _TURNED.get(relation, relation)
            self.noted[CountComparison(terms, relation, bound, outcome, user_line())] = None
        return outcome

    def __eq__(self, other: object) -> Any:
        return self._compared("==", other)

    def __ne__(self, other: object) -> Any:
        return self._compared("!=", other)

    def __lt__(self, other: Any) -> Any:
        return self._compared("<", other)

    def __le__(self, other: Any) -> Any:
        return self._compared("<=", other)

    def __gt__(self, other: Any) -> Any:
        return self._compared(">", other)

    def __ge__(self, other: Any) -> Any:
        return self._compared(">=", other)

    def __hash__(self) -> int:
        return int.__hash__(self)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return int, (int(self),)


def _parts(other: Any) -> tuple[Terms, int] | None:
    """Terms and offset of an operand; None for what is no integer."""
    if type(other) is IterationCount:
        return other.terms, other.offset
    return ((), int(other)) if type(other) in (int, bool) else None


def counted(counts: Mapping[str, int], noted: Comparisons) -> dict[str, int]:
    """Numbers of iterations by name, each one that adds to ``noted`` what it is compared with."""
    return {name: IterationCount(count, noted, ((name, 1),)) for name, count in counts.items()}


Compared = tuple[Collection[CountComparison], Mapping[str, int]]
"""What one trace compared, and its numbers of iterations."""


def guards_of(runs: Sequence[Compared]) -> list[Guard]:
    """The comparisons that have one outcome in all traces and another with more iterations.

    Left out are those about a single iteration, as ``i >= depth - 2``: certificates verify what such iterations do.
    """
    noted = [({*comparisons}, counts) for comparisons, counts in runs]
    deciding = (one for ones, counts in runs for one in ones if _decides(one, runs) and not _is_of_an_iteration(one, counts, noted))
    return list({one.guard.expr: one.guard for one in deciding}.values())


def _decides(one: CountComparison, runs: Sequence[Compared]) -> bool:
    return all(one.holds_at(counts) for _, counts in runs) and any(one.changes_from(counts) for _, counts in runs)


def _is_of_an_iteration(one: CountComparison, counts: Mapping[str, int], noted: Sequence[Compared]) -> bool:
    """Whether the line compares with one more in a trace with one more iteration."""
    further = [(ones, {name: others[name] - counts[name] for name, _ in one.terms}) for ones, others in noted]
    return any(any(more.values()) for _, more in further) and all(one.with_more(more) in ones for ones, more in further)
