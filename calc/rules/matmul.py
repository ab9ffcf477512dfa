"""Matrix multiplications, including those with vectors: 2 FLOP per multiply-add."""

from __future__ import annotations

from calc.rules.registry import Cost, Operator, Term, rule, term
from calc.rules.shapes import each, given_number

PRODUCT = "matrix multiplication, a multiply-add for each result element and inner index; one multiply-add = 2 FLOP"
BIAS = "the bias is one addition per result element"


@rule("aten.mm.default", statement="y = a b", source=PRODUCT, shapes="a (p, q), b (q, r) → y (p, r).")
def mm(op: Operator) -> Cost:
    (m, k), (_, n) = op.shape("self"), op.shape("mat2")
    return Cost(matmul=(term("x W", 2, m, k, n),))


@rule(
    "aten.bmm.default",
    statement="y[i] = a[i] b[i]",
    source=PRODUCT,
    shapes="a (i, p, q), b (i, q, r) → y (i, p, r).",
)
def bmm(op: Operator) -> Cost:
    (b, m, k), (_, _, n) = op.shape("self"), op.shape("mat2")
    return Cost(matmul=(term("x W", 2, b, m, k, n),))


@rule(
    "aten.addmm.default",
    statement="y = β z + α (a b)",
    source=PRODUCT,
    elementwise=BIAS,
    shapes="z (p, r) or broadcast to it, a (p, q), b (q, r) → y (p, r).",
)
def addmm(op: Operator) -> Cost:
    (m, k), (_, n) = op.shape("mat1"), op.shape("mat2")
    return Cost(matmul=(term("x W", 2, m, k, n),), elementwise=_bias(op))


@rule(
    "aten.baddbmm.default",
    statement="y[i] = β z[i] + α (a[i] b[i])",
    source=PRODUCT,
    elementwise=BIAS,
    shapes="z (i, p, r) or broadcast to it, a (i, p, q), b (i, q, r) → y (i, p, r).",
)
def baddbmm(op: Operator) -> Cost:
    (b, m, k), (_, _, n) = op.shape("batch1"), op.shape("batch2")
    return Cost(matmul=(term("x W", 2, b, m, k, n),), elementwise=_bias(op))


def _bias(op: Operator) -> tuple[Term, ...]:
    beta = op.value("beta", 1)
    scaled = (each("β z", op.shape("self")),) if beta != 0 and beta != 1 else ()
    added = (each("+ β z", op.out.shape),) if beta != 0 else ()
    product = (each("α (x W)", op.out.shape),) if given_number(op, "alpha") else ()
    return (*product, *scaled, *added)


@rule("aten.mv.default", statement="y = W x", source=PRODUCT, shapes="W (p, q), x (q) → y (p).")
def mv(op: Operator) -> Cost:
    m, k = op.shape("self")
    return Cost(matmul=(term("W x", 2, m, k),))


@rule(
    "aten.addmv.default",
    statement="y = β z + α W x",
    source=PRODUCT,
    elementwise=BIAS,
    shapes="z (p) or broadcast to it, W (p, q), x (q) → y (p).",
)
def addmv(op: Operator) -> Cost:
    m, k = op.shape("mat")
    return Cost(matmul=(term("W x", 2, m, k),), elementwise=_bias(op))


@rule(
    "aten.addbmm.default",
    statement="y = β z + α Σᵢ x[i] W[i]",
    source=PRODUCT,
    elementwise=BIAS,
    shapes="z (p, r) or broadcast to it, x (i, p, q), W (i, q, r) → y (p, r).",
)
def addbmm(op: Operator) -> Cost:
    (b, m, k), (_, _, n) = op.shape("batch1"), op.shape("batch2")
    return Cost(matmul=(term("x W", 2, b, m, k, n),), elementwise=_bias(op))


@rule("aten.dot.default", "aten.vdot.default", statement="y = Σᵢ w[i] x[i]", source=PRODUCT, shapes="w (q), x (q) → y ().")
def dot(op: Operator) -> Cost:
    (k,) = op.shape("self")
    return Cost(matmul=(term("w x", 2, k),))


@rule(
    "aten._grouped_mm.default",
    statement="each row of x is multiplied by the matrix of its group",
    source=PRODUCT,
    convention="2·p·q·r for p rows, however they are routed",
    shapes="x (p, q), W (i, q, r) → (p, r), i groups of rows; x (q, p), W (p, r) → (i, q, r); x (i, p, q), W (q, r) → (p, r).",
)
def grouped_mm(op: Operator) -> Cost:
    a, b = op.shape("self"), op.shape("mat2")
    if len(a) == 3 and len(b) == 2:
        a = a[1:]  # each column of W belongs to one group, so one of the matrices multiplies it
    return Cost(matmul=(term("x W", 2, *a, b[-1]),))


_SCALED = "elementwise as in torch's reference (_scaled_mm_out_cpu_emulated in aten/src/ATen/native/Blas.cpp)"


@rule(
    "aten._scaled_mm.default",
    "aten._scaled_mm_v2.default",
    statement="y = ((s x) (t W) + z) / u",
    source=PRODUCT,
    elementwise=_SCALED,
    convention="one multiplication for each element of x and of W, though a fused kernel may scale the result instead",
    shapes="x (p, q) and W (q, r) in fp8, s () or (p, 1), t () or (1, r), z (r), u () → y (p, r).",
)
def scaled_mm(op: Operator) -> Cost:
    x, weight = op.shape("self"), op.shape("mat2")
    bias = (each("+ z", op.out.shape),) if op.has("bias") else ()
    divided = (each("/ u", op.out.shape),) if op.has("scale_result") and op.out.dtype.startswith("float8") else ()
    return Cost(matmul=(term("x W", 2, *x, weight[-1]),), elementwise=(each("s x", x), each("t W", weight), *bias, *divided))
