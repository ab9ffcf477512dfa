"""Pooling: every window is a reduction of the whole kernel, its padding included."""

from __future__ import annotations

import math

from calc.cost import Cost, Operator, rule, term
from calc.rules.shapes import each, whole

REDUCTION = "each window of n elements is a reduction: n - 1 operations"
CONVENTION = "a window at the border is counted with its padding"


def _window(op: Operator) -> int:
    """Elements of the kernel; one size stands for both axes."""
    kernel = op.value("kernel_size")
    return math.prod(kernel if len(kernel) > 1 else kernel * 2)


@rule(
    "aten.max_pool2d_with_indices.default",
    statement="y = max x over each window, and where it stands",
    source=REDUCTION,
    convention=CONVENTION,
)
def max_pool(op: Operator) -> Cost:
    """Shapes: x (B, C, H, W) → y (B, C, H', W'), positions of the same shape."""
    return Cost(elementwise=(term("max of each window", *op.out.shape, _window(op) - 1),))


@rule(
    "aten.max_pool2d_with_indices_backward.default",
    statement="dx[position[i]] += dy[i]",
    source="torch._decomp.decompositions.max_pool2d_with_indices_backward: one addition per source element",
    convention="the input is not read",
)
def max_pool_backward(op: Operator) -> Cost:
    """Shapes: dy (B, C, H', W'), positions of the same shape → dx (B, C, H, W)."""
    dy = op.tensor("grad_output")
    return Cost(elementwise=(each("dx[position] += dy", dy.shape),), reads=whole(dy, op.tensor("indices")))


@rule("aten.avg_pool2d.default", statement="y = mean of x over each window", source=REDUCTION + ", and one division", convention=CONVENTION)
def average_pool(op: Operator) -> Cost:
    """Shapes: x (B, C, H, W) → y (B, C, H', W')."""
    return Cost(elementwise=(term("Σ of each window", *op.out.shape, _window(op) - 1), each("/ n", op.out.shape)))


@rule(
    "aten.avg_pool2d_backward.default",
    statement="dx += dy / n over each window",
    source="one division per source element and one addition per element of its window",
    convention=CONVENTION + "; the input is not read",
)
def average_pool_backward(op: Operator) -> Cost:
    """Shapes: dy (B, C, H', W') → dx (B, C, H, W)."""
    dy = op.tensor("grad_output")
    return Cost(elementwise=(each("dy / n", dy.shape), term("dx += dy / n", *dy.shape, _window(op))), reads=whole(dy))
