"""Weight normalization: a weight from a direction and a length."""

from __future__ import annotations

from calc.rules.reduction import norms
from calc.rules.registry import DECOMPOSITION, Cost, Operator, rule, term
from calc.rules.shapes import each, reducing, slices


@rule(
    "aten._weight_norm_interface.default",
    statement="w = g v / |v|",
    reference=DECOMPOSITION + "_weight_norm_interface",
    shapes="v (*), g (n along dim, 1 elsewhere) → w (*), |v| like g.",
)
def weight_norm(op: Operator) -> Cost:
    shape = slices(op.shape("v"), op.value("dim", 0))
    return Cost(
        elementwise=(
            *norms(shape, op.tensor("v").dtype, 1, 2),
            term("g / |v|", shape[0]),
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
    shape = slices(op.shape("saved_v"), op.value("dim"))
    return Cost(
        elementwise=(
            each("dw v", shape),
            reducing("Σ dw v", shape, 1),
            term("dg = Σ dw v / |v|", shape[0]),
            term("dg / |v|", shape[0]),
            each("v dg/|v|", shape),
            each("dw − v dg/|v|", shape),
            term("g / |v|", shape[0]),
            each("dv = g/|v| (…)", shape),
        )
    )
