"""The layout of a tensor in its storage, and whether another shape is a view of it. Sizes and strides are in elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StridedLayout:
    """Element (i, j, …) lies at ``offset + i*strides[0] + j*strides[1] + …`` of the storage. Sizes are 1 or more."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def contiguous(self) -> bool:
        """Whether the elements are contiguous in row-major order; the stride of a dimension of size 1 does not matter."""
        strides = row_major(self.shape)
        return all(size == 1 or a == b for size, a, b in zip(self.shape, self.strides, strides, strict=True))

    @property
    def dense(self) -> bool:
        """Whether the elements are distinct and fill a contiguous block, in any order (torch: non-overlapping and dense)."""
        expected = 1
        for stride, size in sorted((s, n) for n, s in zip(self.shape, self.strides, strict=True) if n > 1):
            if stride != expected:
                return False
            expected *= size
        return True

    def place(self, index: Sequence[int]) -> int:
        """The storage index of an element."""
        return self.offset + sum(i * stride for i, stride in zip(index, self.strides, strict=True))


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a contiguous tensor: (12, 4, 1) for (2, 3, 4)."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def fresh(shape: Sequence[int]) -> StridedLayout:
    """A new tensor."""
    return StridedLayout(tuple(shape), row_major(shape))


def alike(layout: StridedLayout) -> StridedLayout:
    """A new tensor in the order of another: torch keeps the strides of a dense one, and closes the gaps of one that is not.

    Source: at::infer_dense_strides in ATen/ExpandUtils.cpp, which sorts dimensions by stride; one of 0 is in no order.
    """
    return StridedLayout(layout.shape, layout.strides) if layout.dense else by_stride(layout)


def by_stride(layout: StridedLayout) -> StridedLayout:
    """A new tensor without gaps, whose dimensions lie in the order of another's strides."""
    order = list(reversed(range(len(layout.shape))))
    for start in range(1, len(order)):
        at = start
        for before in range(start - 1, -1, -1):
            compared = _compare(layout, order[before], order[at])
            if compared < 0:
                break
            if compared > 0:
                order[before], order[at] = order[at], order[before]
                at = before
    strides, step = [0] * len(order), 1
    for dim in order:
        strides[dim] = step
        step *= layout.shape[dim]
    return StridedLayout(layout.shape, tuple(strides))


def _compare(layout: StridedLayout, a: int, b: int) -> int:
    first, second = layout.strides[a], layout.strides[b]
    if not first or not second:
        return 0
    if first != second:
        return 1 if first > second else -1
    return int(layout.shape[a] > layout.shape[b])


def viewed(layout: StridedLayout, shape: Sequence[int]) -> StridedLayout | None:
    """The layout of the same elements under another shape, or ``None`` if no strides give it.

    Dimensions that are contiguous with each other form a run, whose stride is that of its last one; every new dimension must be within one
    run. Source: at::detail::computeStride in ATen/TensorUtils.cpp.
    """
    strides: list[int] = [0] * len(shape)
    new = len(shape) - 1
    run_stride, run = layout.strides[-1] if layout.strides else 1, 1
    for dim in range(len(layout.shape) - 1, -1, -1):
        run *= layout.shape[dim]
        ends = dim == 0 or (layout.shape[dim - 1] != 1 and layout.strides[dim - 1] != run * run_stride)
        if not ends:
            continue
        covered = 1
        while new >= 0 and (covered < run or shape[new] == 1):
            strides[new] = covered * run_stride
            covered *= shape[new]
            new -= 1
        if covered != run:
            return None
        if dim > 0:
            run_stride, run = layout.strides[dim - 1], 1
    if not layout.shape:
        strides = list(row_major(shape))
        new = -1
    return StridedLayout(tuple(shape), tuple(strides), layout.offset) if new < 0 else None
