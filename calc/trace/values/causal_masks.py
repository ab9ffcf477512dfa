"""Causal masks: matrices with one number on and after a diagonal and another before it.

A library compares its input mask with one of its own to choose a kernel. Such masks are the same at all sizes, and so is the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from calc.trace.values.elements import (
    EXACT,
    AffineIndex,
    ComparedElements,
    Elements,
    Triangle,
    element_rule,
    elements_before,
    elements_of,
    same,
)


def _of_upper(number: Any, diagonal: int) -> Triangle:
    """``triu`` of a matrix with ``number`` everywhere."""
    return Triangle(diagonal, number, 0)


def _of_lower(number: Any, diagonal: int) -> Triangle:
    """``tril`` of a matrix with ``number`` everywhere."""
    return Triangle(diagonal + 1, 0, number)


@element_rule("triu")
def _upper(given: Mapping[str, Any], out: torch.Tensor) -> Triangle | None:
    return _triangle(_of_upper, given)


@element_rule("tril")
def _lower(given: Mapping[str, Any], out: torch.Tensor) -> Triangle | None:
    return _triangle(_of_lower, given)


def _triangle(make: Callable[[Any, int], Triangle], given: Mapping[str, Any]) -> Triangle | None:
    triangle, diagonal = _as_triangle(elements_of(given["self"])), given.get("diagonal", 0)
    return make(triangle.above, diagonal) if triangle is not None and triangle.is_one_number and type(diagonal) is int else None


_OPPOSITE = {"gt": "le", "le": "gt", "ge": "lt", "lt": "ge", "eq": "ne", "ne": "eq"}


@element_rule("logical_not", "bitwise_not")
def _negated(given: Mapping[str, Any], out: torch.Tensor) -> Elements | None:
    compared = elements_of(given["self"])
    if isinstance(compared, ComparedElements):
        return replace(compared, relation=_OPPOSITE[compared.relation])
    triangle = _as_triangle(compared)
    if triangle is None or given["self"].dtype is not torch.bool:
        return None
    return _number(replace(triangle, above=1 - triangle.above, below=1 - triangle.below))


@element_rule("masked_fill", "masked_fill_")
def _masked(given: Mapping[str, Any], out: torch.Tensor) -> AffineIndex | Triangle | None:
    mask, filled, value = given["mask"], given["self"], given["value"]
    if not isinstance(value, int | float) or value not in EXACT:
        return None
    value = int(bool(value)) if out.dtype is torch.bool else value
    elements = elements_before(filled) if filled is out else elements_of(filled)
    return by_triangles((mask, elements_of(mask)), (filled, elements), out, lambda hidden, element: value if hidden else element)


def _of_both(a: Triangle, b: Triangle, make: Callable[[Any, Any], Any]) -> Triangle | None:
    """``make`` applied elementwise, where both triangles have the same diagonal or one is constant."""
    if a.diagonal != b.diagonal and not a.is_one_number and not b.is_one_number:
        return None
    diagonal = b.diagonal if a.is_one_number else a.diagonal
    return Triangle(diagonal, make(a.above, b.above), make(a.below, b.below))


def by_triangles(
    a: tuple[Any, Any], b: tuple[Any, Any], out: torch.Tensor, make: Callable[[Any, Any], Any]
) -> AffineIndex | Triangle | None:
    """``make`` applied elementwise to two (value, facts) pairs, where both are triangles or constants."""
    first, second = _as_triangle(a[1]), _as_triangle(b[1])
    if first is None or second is None:
        return None
    if any(not triangle.is_one_number and not is_square_of(value, out) for value, triangle in ((a[0], first), (b[0], second))):
        return None
    combined = _of_both(first, second, make)
    return None if combined is None else _number(combined)


def _as_triangle(fact: Elements | None) -> Triangle | None:
    """The fact as a triangle; a constant matrix is one with equal halves."""
    if isinstance(fact, AffineIndex):
        return Triangle(0, fact.first, fact.first) if not fact.step and isinstance(fact.first, int) else None
    return fact if isinstance(fact, Triangle) else None


def _number(fact: Triangle) -> AffineIndex | Triangle:
    return AffineIndex(fact.above) if fact.is_one_number and isinstance(fact.above, int) else fact


def is_square_of(value: torch.Tensor, out: torch.Tensor) -> bool:
    """Whether the last two axes of ``value`` are those of ``out``, so that neither is broadcast."""
    return value.dim() >= 2 and all(same(value.shape[axis], out.shape[axis]) for axis in (-1, -2))
