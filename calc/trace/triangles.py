"""Matrices of one number from a diagonal on and of another before it: causal masks.

A library compares the mask that it is given with one of its own, to choose a kernel. Such a mask is the same at all sizes, so the answer
is too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

EXACT = (0, 1, float("inf"), float("-inf"))  # what every format holds as it is


@dataclass(frozen=True, slots=True)
class Triangle:
    """Elements of the last two axes: ``above`` where column - row >= ``diagonal``, ``below`` elsewhere."""

    diagonal: int
    above: Any
    below: Any

    @property
    def is_one_number(self) -> bool:
        return bool(self.above == self.below)


def upper(number: Any, diagonal: int) -> Triangle:
    """What ``triu`` leaves of ``number`` everywhere."""
    return Triangle(diagonal, number, 0)


def lower(number: Any, diagonal: int) -> Triangle:
    """What ``tril`` leaves of it."""
    return Triangle(diagonal + 1, 0, number)


def of_both(one: Triangle, other: Triangle, make: Callable[[Any, Any], Any]) -> Triangle | None:
    """What ``make`` gives element by element, where both change at the same diagonal."""
    if one.diagonal != other.diagonal and not one.is_one_number and not other.is_one_number:
        return None
    diagonal = other.diagonal if one.is_one_number else one.diagonal
    return Triangle(diagonal, make(one.above, other.above), make(one.below, other.below))
