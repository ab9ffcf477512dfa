"""Pooling: every window is a reduction of the whole kernel, its padding included."""

from __future__ import annotations

import math
from typing import Any

from calc.rules.registry import Cost, Factor, Operator, free, rule, term
from calc.rules.shapes import Shape, each, whole

REDUCTION = "each window of n elements is a reduction: n − 1 operations"
CONVENTION = "a window at the border is counted with its padding"
ADAPTIVE = "windows of an axis of n elements and m windows have n + m − 1 elements together, as if neighbors always shared one"
GATHERED = "one addition per source element"


def _window(op: Operator) -> int:
    """Elements of the kernel; one size stands for all axes."""
    kernel = op.value("kernel_size")
    return math.prod(kernel if len(kernel) > 1 else kernel * (3 if "3d" in op.name else 2))


@rule(
    "aten.max_pool2d_with_indices.default",
    "aten.max_pool3d_with_indices.default",
    "aten.fractional_max_pool2d.default",
    "aten.fractional_max_pool3d.default",
    statement="y = max x over each window, and its position",
    source=REDUCTION,
    convention=CONVENTION,
    shapes="x (batch, channels, *s) → y (batch, channels, *t), positions of the same shape.",
)
def max_pool(op: Operator) -> Cost:
    return Cost(elementwise=(term("max of each window", *op.out.shape, _window(op) - 1),))


@rule(
    "aten.max_pool2d_with_indices_backward.default",
    "aten.max_pool3d_with_indices_backward.default",
    "aten.adaptive_max_pool2d_backward.default",
    "aten.adaptive_max_pool3d_backward.default",
    "aten.fractional_max_pool2d_backward.default",
    "aten.fractional_max_pool3d_backward.default",
    statement="dx[position[i]] += dy[i]",
    reference="torch._decomp.decompositions.max_pool2d_with_indices_backward",
    elementwise=GATHERED,
    convention="the input is not read",
    shapes="dy (batch, channels, *t), positions of the same shape → dx (batch, channels, *s).",
)
def max_pool_backward(op: Operator) -> Cost:
    dy = op.tensor("grad_output")
    return Cost(elementwise=(each("dx[position] += dy", dy.shape),), reads=whole(dy, op.tensor("indices")))


@rule(
    "aten.avg_pool2d.default",
    "aten.avg_pool3d.default",
    statement="y = mean of x over each window",
    source=REDUCTION + ", and one division",
    convention=CONVENTION,
    shapes="x (batch, channels, *s) → y (batch, channels, *t).",
)
def average_pool(op: Operator) -> Cost:
    return Cost(elementwise=(term("Σ of each window", *op.out.shape, _window(op) - 1), each("/ n", op.out.shape)))


@rule(
    "aten.avg_pool2d_backward.default",
    "aten.avg_pool3d_backward.default",
    statement="dx += dy / n over each window",
    source="one division per source element and one addition per element of its window",
    convention=CONVENTION + "; the input is not read",
    shapes="dy (batch, channels, *t) → dx (batch, channels, *s).",
)
def average_pool_backward(op: Operator) -> Cost:
    dy = op.tensor("grad_output")
    return Cost(elementwise=(each("dy / n", dy.shape), term("dx += dy / n", *dy.shape, _window(op))), reads=whole(dy))


def _in_windows(op: Operator, large: Shape, small: Shape) -> tuple[Any, ...]:
    """Factors of the number of elements in all adaptive windows together."""
    axes = 3 if "3d" in op.name else 2
    lengths: tuple[Factor, ...] = tuple(n + m - 1 if n != 0 and m != 0 else 0 for n, m in zip(large[-axes:], small[-axes:], strict=True))
    return (*large[:-axes], *lengths)


@rule(
    "aten.adaptive_max_pool2d.default",
    "aten.adaptive_max_pool3d.default",
    statement="y = max x over each of the given number of windows, and its position",
    source=REDUCTION,
    convention=ADAPTIVE,
    shapes="x (batch, channels, *s) → y (batch, channels, *t), positions of the same shape.",
)
def adaptive_max_pool(op: Operator) -> Cost:
    elements = math.prod(_in_windows(op, op.shape("self"), op.out.shape))
    return Cost(elementwise=(term("max of each window", elements - op.out.numel),))


@rule(
    "aten._adaptive_avg_pool2d.default",
    "aten._adaptive_avg_pool3d.default",
    statement="y = mean of x over each of the given number of windows",
    source=REDUCTION + ", and one division",
    convention=ADAPTIVE,
    shapes="x (batch, channels, *s) → y (batch, channels, *t).",
)
def adaptive_average_pool(op: Operator) -> Cost:
    elements = math.prod(_in_windows(op, op.shape("self"), op.out.shape))
    return Cost(elementwise=(term("Σ of each window", elements - op.out.numel), each("/ n", op.out.shape)))


@rule(
    "aten._adaptive_avg_pool2d_backward.default",
    "aten._adaptive_avg_pool3d_backward.default",
    statement="dx += dy / n over each window",
    source="one division per source element and one addition per element of its window",
    convention=ADAPTIVE + "; the input is not read",
    shapes="dy (batch, channels, *t) → dx (batch, channels, *s).",
)
def adaptive_average_pool_backward(op: Operator) -> Cost:
    dy = op.tensor("grad_output")
    return Cost(elementwise=(each("dy / n", dy.shape), term("dx += dy / n", *_in_windows(op, op.shape("self"), dy.shape))), reads=whole(dy))


free(
    "aten.max_unpool2d.default",
    "aten.max_unpool3d.default",
    because="moves elements back to their positions before pooling: no arithmetic",
    moves=True,
)
