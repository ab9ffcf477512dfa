"""Which contractions are products of two matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Labels = Sequence[int]


@dataclass(frozen=True, slots=True)
class MatrixProduct:
    """The operands ``left`` and ``right`` (0 or 1) of a product of matrices; which of them is transposed; the labels in ``batch`` are
    those of each product."""

    left: int
    right: int
    transposed: tuple[bool, bool]
    batch: tuple[int, ...]


def matrix_product(a: Labels, b: Labels, rank: int) -> MatrixProduct | None:
    """A contraction to labels 0 … rank-1 as a product of matrices, if it is one: it sums over one axis, or over axes that both operands
    have side by side (the rows of B·T); of all other axes, those of the batch aside, the right operand has at most one, the left several
    only as its rows."""
    return _ordered(a, b, rank, (0, 1)) or _ordered(b, a, rank, (1, 0))


def _ordered(a: Labels, b: Labels, rank: int, order: tuple[int, int]) -> MatrixProduct | None:
    batch = tuple(label for label in range(rank) if label in a and label in b)
    rows, columns = _without(a, b), _without(b, a)
    summed = [label for label in a if label >= rank]
    if not _is_flat(rows, columns, summed, batch) or _without(range(rank), batch) != [*rows, *columns]:
        return None
    left, right = _is_transposed(_without(a, batch), rows, summed), _is_transposed(_without(b, batch), summed, columns)
    return None if left is None or right is None else MatrixProduct(*order, (left, right), batch)


def _without(labels: Labels, removed: Labels) -> list[int]:
    return [label for label in labels if label not in removed]


def _is_flat(rows: Labels, columns: Labels, summed: Labels, batch: Labels) -> bool:
    """Whether each product is of two matrices; without a batch also of a matrix and a vector."""
    if not summed or len(columns) > 1:
        return False
    return bool(rows and columns) or (not batch and len(summed) == 1)


def _is_transposed(own: Labels, rows: Labels, columns: Labels) -> bool | None:
    """Whether an operand is the transpose of the matrix it stands for; None if it is neither. A vector stands as a column."""
    if list(own) == [*rows, *columns] and (rows or not columns):
        return False
    return True if list(own) == [*columns, *rows] and len(rows) < 2 else None
