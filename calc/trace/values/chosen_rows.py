"""Whether any row chose an expert: a step that routes tokens skips experts that none of them chose.

An expert is skipped on a count or a truth that is read out of a mask (``if mask.any()``, ``if counts[i] == 0: continue``). With balanced
routing, which gives each expert its expected number of rows, none is skipped: so a trace reads that at least one row chose each expert, and
states this as an assumption. A real run with fewer experts reaches the lines of an expert fewer times, which its check sees.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Never

import torch

from calc.errors import DataDependentError
from calc.trace.source_lines import user_line
from calc.trace.values.facts import Between, OneIn, fact_of, given_to, name_of, note, registering
from calc.trace.values.true_counts import COUNT

_FACT = "napkin_rows"
_RULES: dict[str, Callable[[Mapping[str, Any], Any], None]] = {}
_rule = registering(_RULES)
_numbers = itertools.count(1)
_SAME = ("clone", "detach", "alias", "view", "squeeze", "unsqueeze", "_to_copy")


@dataclass(frozen=True, slots=True)
class Rows:
    """Each element counts the rows that chose one expert. Of a vector, which has a ``number``, ``counted`` rows are divided among
    ``experts``; a single element of it is the count of ``expert``."""

    counted: Any = None
    experts: Any = None
    number: int = 0
    expert: int | None = None


@dataclass(frozen=True, slots=True)
class Marked:
    """A mask of rows and experts that is 1 where a row chose an expert."""


@dataclass(frozen=True, slots=True)
class Taken:
    """``truth`` if at least one row chose an expert."""

    truth: bool


class RowsRead:
    """The number of rows that chose one expert, read out of a tensor. Compared with 0 it is more; ``size()`` is a size of its own."""

    def __init__(self, size: Callable[[], Any] | None = None) -> None:
        self._size = size

    def size(self) -> Any:
        """The number as a size; the counts of all experts add up to the rows that there are."""
        return self._refused() if self._size is None else self._size()

    def _against(self, number: object, of_zero: bool, of_one: bool | None = None) -> bool:
        answer = {0: of_zero, 1: of_one}.get(number) if type(number) is int else None
        return self._refused() if answer is None else answer

    def _refused(self, *_: object) -> Never:
        raise DataDependentError(
            f"the step computes with the number of rows that chose an expert, at {user_line()}: it depends on the data, so no closed form"
            " follows; compare it with 0, or choose the rows with a mask"
        )

    def __add__(self, other: Any) -> Any:
        return self.size() + other

    def __sub__(self, other: Any) -> Any:
        return self.size() - other

    __radd__ = __add__

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return self._against(other, of_zero=False)

    def __ne__(self, other: object) -> bool:
        return self._against(other, of_zero=True)

    def __gt__(self, other: object) -> bool:
        return self._against(other, of_zero=True)

    def __ge__(self, other: object) -> bool:
        return self._against(other, of_zero=True, of_one=True)

    def __lt__(self, other: object) -> bool:
        return self._against(other, of_zero=False, of_one=False)

    def __le__(self, other: object) -> bool:
        return self._against(other, of_zero=False)

    __hash__ = object.__hash__
    __index__ = __int__ = __float__ = _refused
    __rsub__ = __mul__ = __rmul__ = __floordiv__ = __truediv__ = __mod__ = _refused


def fact(tensor: Any) -> Rows | Marked | Taken | None:
    """The fact about ``tensor``, if there is one."""
    noted: Rows | Marked | Taken | None = fact_of(tensor, _FACT)
    return noted


def follow(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> None:
    """Note the fact about the result of ``func``."""
    name = name_of(func)
    if name in _RULES:
        _RULES[name](given_to(func, args, kwargs), out)
    elif name in _SAME and args:
        note(out, fact_of(args[0], _FACT), _FACT)


def _by_a_router(mask: torch.Tensor) -> bool:
    """Whether ``mask`` is true where rows chose one of several experts."""
    odds = fact_of(mask)
    return isinstance(odds, OneIn) and odds.chosen


@_rule("any")
def _any(given: Mapping[str, Any], out: Any) -> None:
    if _by_a_router(given["self"]) and out.dim() == 0:
        note(out, Taken(True), _FACT)


@_rule("sum", "count_nonzero")
def _counted(given: Mapping[str, Any], out: Any) -> None:
    mask = given["self"]
    if _by_a_router(mask) and out.dim() == 0:
        note(out, Rows(), _FACT)
    elif out.dim() == 1 and fact(mask) == Marked() and (total := fact_of(mask, COUNT)) is not None:
        note(out, Rows(total, out.shape[0], next(_numbers)), _FACT)


@_rule("scatter")
def _marked(given: Mapping[str, Any], out: Any) -> None:
    places = fact_of(given["index"])
    if isinstance(places, Between) and places.chosen and fact_of(out, COUNT) is not None:
        note(out, Marked(), _FACT)


@_rule("bincount")
def _of_each(given: Mapping[str, Any], out: Any) -> None:
    chosen = fact_of(given["self"])
    if isinstance(chosen, Between) and chosen.chosen:
        note(out, Rows(given["self"].numel(), out.shape[0], next(_numbers)), _FACT)


@_rule("select")
def _one_of(given: Mapping[str, Any], out: Any) -> None:
    rows = fact(given["self"])
    if isinstance(rows, Rows) and given["self"].dim() == 1 and isinstance(given["index"], int):
        note(out, replace(rows, expert=given["index"]) if rows.number else rows, _FACT)


@_rule("unbind")
def _apart(given: Mapping[str, Any], out: Any) -> None:
    rows = fact(given["self"])
    if isinstance(rows, Rows) and given["self"].dim() == 1:
        for expert, element in enumerate(out):
            note(element, replace(rows, expert=expert), _FACT)


def _comparing(of_zero: bool) -> Callable[[Mapping[str, Any], Any], None]:
    def compared(given: Mapping[str, Any], out: Any) -> None:
        nothing = type(given["other"]) is int and given["other"] == 0
        if isinstance(fact(given["self"]), Rows) and nothing and out.dim() == 0:
            note(out, Taken(of_zero), _FACT)

    return compared


for _names, _of_zero in ((("eq", "le"), False), (("ne", "gt"), True)):
    _rule(*_names)(_comparing(_of_zero))


@_rule("logical_not", "bitwise_not")
def _not(given: Mapping[str, Any], out: Any) -> None:
    taken = fact(given["self"])
    if isinstance(taken, Taken):
        note(out, Taken(not taken.truth), _FACT)
