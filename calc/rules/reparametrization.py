"""Weight normalization: a weight from a direction and a length."""

from __future__ import annotations

import math

from calc.rules.reduction import norms
from calc.rules.registry import DECOMPOSITION, Cost, Factor, Operator, rule, term
from calc.rules.shapes import Shape, each, reductions


def _slices(shape: Shape, dim: int) -> tuple[Factor, Factor]:
    """(number of slices, elements of each): one slice, with its length, for each index along ``dim``."""
    axis = dim % len(shape)
    return shape[axis], math.prod(s for i, s in enumerate(shape) if i != axis)


@rule(
    "aten._weight_norm_interface.default",
    statement="w = g v / |v|",
    reference=DECOMPOSITION + "_weight_norm_interface",
    shapes="v (*), g (n along dim, 1 elsewhere) → w (*), |v| like g.",
)
def weight_norm(op: Operator) -> Cost:
    shape = op.shape("v")
    axis = op.value("dim", 0) % len(shape)
    return Cost(
        elementwise=(
            *norms(shape, op.tensor("v").dtype, [i for i in range(len(shape)) if i != axis], 2),
            term("g / |v|", shape[axis]),
            each("v g / |v|", shape),
        )
    )


@rule(
    "aten._weight_norm_interface_backward.default",
    statement="dg = Σ dw v / |v|, dv = g/|v| (dw − v dg/|v|)",
    source="the derivative, operation by operation",
    shapes="dw (*), v (*), g and |v| (n along dim, 1 elsewhere) → dv (*), dg like g.",
)
def weight_norm_backward(op: Operator) -> Cost:
    shape = op.shape("saved_v")
    slices, elements = _slices(shape, op.value("dim"))
    return Cost(
        elementwise=(
            each("dw v", shape),
            term("Σ dw v", slices, reductions(elements)),
            term("dg = Σ dw v / |v|", slices),
            term("dg / |v|", slices),
            each("v dg/|v|", shape),
            each("dw − v dg/|v|", shape),
            term("g / |v|", slices),
            each("dv = g/|v| (…)", shape),
        )
    )
