"""The fused updates that optimizers use (addcmul, addcdiv, lerp), as torch's references define them."""

from __future__ import annotations

from calc.rules.registry import Cost, Operator, View, rule
from calc.rules.shapes import broadcast, each


@rule(
    "aten.addcmul.default",
    "aten.addcmul_.default",
    statement="y = x + value · a · b",
    reference="torch._refs.addcmul",
    source="it multiplies by value even if that is 1",
    shapes="x (*), a (*), b (*) → y (*).",
)
def addcmul(op: Operator) -> Cost:
    a, b = op.shape("tensor1"), op.shape("tensor2")
    return Cost(elementwise=(each("value · a", a), each("value a · b", broadcast(a, b)), each("x + value a b", op.out.shape)))


@rule(
    "aten.addcdiv.default",
    "aten.addcdiv_.default",
    statement="y = x + value · a / b",
    reference="torch._refs.addcdiv",
    source="it multiplies by value even if that is 1",
    shapes="x (*), a (*), b (*) → y (*).",
)
def addcdiv(op: Operator) -> Cost:
    a, b = op.shape("tensor1"), op.shape("tensor2")
    return Cost(elementwise=(each("value · a", a), each("value a / b", broadcast(a, b)), each("x + value a / b", op.out.shape)))


@rule(
    "aten.lerp.Scalar",
    "aten.lerp_.Scalar",
    "aten.lerp.Tensor",
    "aten.lerp_.Tensor",
    statement="y = x + w (end − x), or end − (1 − w)(end − x) where |w| ≥ 1/2",
    reference="torch._refs.lerp",
    source="compares |w| once and computes both w and w − 1",
    shapes="x (*), end (*), w a number or (*) → y (*).",
)
def lerp(op: Operator) -> Cost:
    weight = op.value("weight")
    weights = weight.shape if isinstance(weight, View) else ()
    between = broadcast(op.shape("self"), op.shape("end"))
    return Cost(
        elementwise=(
            each("|w|", weights),
            each("w − 1", weights),
            each("end − x", between),
            each("w (end − x)", broadcast(between, weights)),
            each("x + w (end − x)", op.out.shape),
        )
    )
