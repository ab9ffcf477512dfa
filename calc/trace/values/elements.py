"""Facts about a tensor's elements that hold at all sizes: an affine index, a comparison with one, or a triangular matrix.

Constant propagation has the elements at the hint sizes only. The facts here hold at all sizes, so a branch on them is a guard on sizes or
always has the same outcome. ``affine_indices`` and ``causal_masks`` have the rules that propagate them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy as sp
import torch

from calc.trace.values.facts import WHOLE, fact_of, note, registering

EXACT = (0, 1, float("inf"), float("-inf"))  # exact in every floating-point format
RELATIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "gt": operator.gt,
    "ge": operator.ge,
    "lt": operator.lt,
    "le": operator.le,
    "eq": operator.eq,
    "ne": operator.ne,
}


@dataclass(frozen=True, slots=True)
class AffineIndex:
    """Elements ``first + step*i`` at index i of an axis of that ``length``, equal along all other axes.

    The axis is counted from the last (-1), so that it stays the same where axes are added in front. Numbers may be symbolic.
    """

    first: Any
    step: int = 0
    axis: int = -1
    length: Any = 1

    def ends(self) -> tuple[Any, Any]:
        """The least and the largest element."""
        last = self.first + self.step * (self.length - 1) if self.step else self.first
        return (last, self.first) if self.step < 0 else (self.first, last)


@dataclass(frozen=True, slots=True)
class ComparedElements:
    """Truth values: whether ``relation`` (greater, say) holds between each element of ``index`` and the size ``bound``."""

    index: AffineIndex
    relation: str
    bound: Any


@dataclass(frozen=True, slots=True)
class Triangle:
    """Elements of the last two axes: ``above`` where column - row >= ``diagonal``, ``below`` elsewhere."""

    diagonal: int
    above: Any
    below: Any

    @property
    def is_one_number(self) -> bool:
        return bool(self.above == self.below)


Elements = AffineIndex | ComparedElements | Triangle

_NOTED = "napkin_elements"

# For each operator, a function from its arguments by name and its result to the fact about the result.
ELEMENT_RULES: dict[str, Callable[[Mapping[str, Any], torch.Tensor], Elements | None]] = {}
element_rule = registering(ELEMENT_RULES)


def elements_of(value: Any) -> Elements | None:
    """The fact about a tensor's elements, or None; a number is an affine index without a step."""
    if whole(value):
        return AffineIndex(value)
    if isinstance(value, float):
        return AffineIndex(int(value)) if value.is_integer() else None
    return fact_of(value, _NOTED)  # type: ignore[no-any-return]  # what is noted under that name


def elements_before(value: torch.Tensor) -> Elements | None:
    """The fact about a tensor's elements before the one operator that has just written to it."""
    return fact_of(value, _NOTED, writes=1)  # type: ignore[no-any-return]  # as above


def same(a: Any, b: Any) -> bool:
    """Whether two sizes are equal at all values of the symbols."""
    left, right = (v.node.expr if isinstance(v, torch.SymInt) else sp.Integer(v) for v in (a, b))
    return bool(sp.expand(left - right) == 0)


def whole(*values: Any) -> bool:
    """Whether all values are integers."""
    return all(isinstance(v, int | torch.SymInt) and not isinstance(v, bool) for v in values)


def note_elements(out: torch.Tensor, fact: Elements) -> None:
    """Note the fact about ``out`` if its dtype represents such elements exactly."""
    if out.dtype in WHOLE or _is_representable(fact, out.dtype):
        note(out, fact, _NOTED)


def _is_representable(fact: Elements, dtype: torch.dtype) -> bool:
    if isinstance(fact, Triangle):
        return fact.above in EXACT and fact.below in EXACT
    if not dtype.is_floating_point:
        return is_zero_or_one(fact)  # -1 is 255 as a byte
    return isinstance(fact, AffineIndex) and not fact.step and isinstance(fact.first, int) and abs(fact.first) <= 256


def is_zero_or_one(fact: Elements) -> bool:
    """Whether all elements are 0, or all are 1: exact in every dtype."""
    return isinstance(fact, AffineIndex) and not fact.step and isinstance(fact.first, int) and fact.first in (0, 1)
