"""Counts over shapes, from which rules are built."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from calc.rules.registry import Factor, Operator, Term, View, term

Shape = tuple[Factor, ...]


def each(name: str, shape: Sequence[Factor]) -> Term:
    """One operation for each element of ``shape``."""
    return term(name, *(shape or (1,)))


def reductions(n: Factor) -> Factor:
    """Operations that reduce ``n`` elements to one: n - 1, and none where there are no elements."""
    return n - 1 if n != 0 else 0


def reducing(name: str, shape: Shape, dims: Any) -> Term:
    """A reduction over ``dims``: n - 1 operations for each of the lines of n elements that it reduces."""
    remaining, reduced = split(shape, dims)
    return term(name, *remaining, reductions(math.prod(reduced)))


def split(shape: Shape, dims: Any) -> tuple[Shape, Shape]:
    """``shape`` as (remaining sizes, reduced sizes). ``None`` and an empty list of dims mean all of them."""
    listed = (dims,) if isinstance(dims, int) else tuple(dims or range(len(shape)))
    chosen = {d % len(shape) for d in listed} if shape else set()
    return tuple(s for i, s in enumerate(shape) if i not in chosen), tuple(s for i, s in enumerate(shape) if i in chosen)


def slices(shape: Shape, dim: int) -> Shape:
    """``shape`` as (number of slices, elements of each), with one slice for each index along ``dim``."""
    return shape[dim], math.prod(size for d, size in enumerate(shape) if d != dim % len(shape))


def broadcast(*shapes: Shape) -> Shape:
    """The shape of a pointwise result: at each axis the size that is not 1."""
    rank = max(len(s) for s in shapes)
    padded = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]
    return tuple(next((size for size in axis if size != 1), 1) for axis in zip(*padded, strict=True))


def whole(*views: View | None) -> tuple[tuple[Factor, str], ...]:
    """Traffic of every distinct element of the tensors that are not None: (elements, dtype) each."""
    return tuple((v.distinct, v.dtype) for v in views if v is not None)


def optional(operator: Operator, name: str) -> View | None:
    """The tensor argument ``name``, or None if it was not given."""
    return operator.tensor(name) if operator.has(name) else None


def given_number(operator: Operator, name: str) -> bool:
    """Whether a scale such as ``alpha`` was given and is not 1: multiplying by 1 is not an operation."""
    return bool(operator.value(name, 1) != 1)


def indices_of(operator: Operator) -> tuple[View | None, ...]:
    """The index tensors of ``index`` and ``index_put``; ``None`` stands for a whole axis."""
    return tuple(operator.value("indices", ()))


def is_mask(index: View | None) -> bool:
    """Whether an index is a mask, with one truth value per position."""
    return index is not None and index.dtype in ("bool", "uint8")
