"""Convolutions: every output position is a product of a patch with the kernel, so 2 FLOP per multiply-add."""

from __future__ import annotations

from calc.rules.registry import Cost, Operator, Term, rule
from calc.rules.shapes import each, optional, reducing, whole

SOURCE = "a matrix multiplication of patches by the kernel; one multiply-add = 2 FLOP"
CONVENTION = "positions in the padding are counted; a group sees only its own channels, forward and backward"


@rule(
    "aten.convolution.default",
    statement="y = x ⋆ w + b",
    source=SOURCE,
    elementwise="the bias is one addition per result element",
    convention=CONVENTION,
    shapes="x (batch, channels in, *s), w (channels out, channels in / groups, *kernel), b (channels out) → y (batch, channels"
    " out, *t); transposed: w (channels in, channels out / groups, *kernel).",
)
def convolution(op: Operator) -> Cost:
    batch, _, *positions = op.shape("input") if op.value("transposed") else op.out.shape
    bias = (each("+ b", op.out.shape),) if op.has("bias") else ()
    return Cost(matmul=(Term("x ⋆ w", (2, batch, *positions, *op.shape("weight")), is_convolution=True),), elementwise=bias)


@rule(
    "aten.convolution_backward.default",
    statement="dx = dy ⋆ᵀ w, dw = x ⋆ dy, db = Σ dy",
    source=SOURCE,
    elementwise="the sum db of n elements is n − 1 additions",
    convention=CONVENTION,
    shapes="dy (batch, channels out, *t), x (batch, channels in, *s), w (channels out, channels in / groups, *kernel) → dx, dw,"
    " db as output_mask requests.",
)
def convolution_backward(op: Operator) -> Cost:
    dy = op.tensor("grad_output")
    batch, _, *positions = op.shape("input") if op.value("transposed") else dy.shape
    of_input, of_weight, of_bias = op.value("output_mask")
    requested = (("dx", "dy ⋆ᵀ w", of_input), ("dw", "x ⋆ dy", of_weight))
    factors = (2, batch, *positions, *op.shape("weight"))
    dims = [d for d in range(len(dy.shape)) if d != 1]
    return Cost(
        matmul=tuple(Term(f"{of} = {product}", factors, of, is_convolution=True) for of, product, needed in requested if needed),
        elementwise=(reducing("db = Σ dy", dy.shape, dims),) if of_bias else (),
        reads=whole(dy, optional(op, "weight") if of_input else None, optional(op, "input") if of_weight else None),
    )
