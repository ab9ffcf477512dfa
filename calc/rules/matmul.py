"""Matrix multiplications, including those with vectors: 2 FLOP per multiply-add."""

from __future__ import annotations

from calc.rules.registry import Cost, Operator, Term, rule, term
from calc.rules.shapes import each, given_number

PRODUCT = "matrix multiplication; one multiply-add = 2 FLOP"


@rule("aten.mm.default", statement="C[i,j] = Σₖ A[i,k] B[k,j]", source=PRODUCT, shapes="A (m, k), B (k, n) → C (m, n).")
def mm(op: Operator) -> Cost:
    (m, k), (_, n) = op.shape("self"), op.shape("mat2")
    return Cost(matmul=(term("A B", 2, m, k, n),))


@rule(
    "aten.bmm.default",
    statement="C[b,i,j] = Σₖ A[b,i,k] B[b,k,j]",
    source=PRODUCT,
    shapes="A (b, m, k), B (b, k, n) → C (b, m, n).",
)
def bmm(op: Operator) -> Cost:
    (b, m, k), (_, _, n) = op.shape("self"), op.shape("mat2")
    return Cost(matmul=(term("A B", 2, b, m, k, n),))


@rule(
    "aten.addmm.default",
    statement="D = β C + α A B",
    source=PRODUCT + "; the bias is one addition per result element",
    shapes="C (m, n) or broadcast to it, A (m, k), B (k, n) → D (m, n).",
)
def addmm(op: Operator) -> Cost:
    (m, k), (_, n) = op.shape("mat1"), op.shape("mat2")
    return Cost(matmul=(term("A B", 2, m, k, n),), elementwise=_bias(op))


@rule(
    "aten.baddbmm.default",
    statement="D[b] = β C[b] + α A[b] B[b]",
    source=PRODUCT + "; the bias is one addition per result element",
    shapes="C (b, m, n) or broadcast to it, A (b, m, k), B (b, k, n) → D (b, m, n).",
)
def baddbmm(op: Operator) -> Cost:
    (b, m, k), (_, _, n) = op.shape("batch1"), op.shape("batch2")
    return Cost(matmul=(term("A B", 2, b, m, k, n),), elementwise=_bias(op))


def _bias(op: Operator) -> tuple[Term, ...]:
    beta = op.value("beta", 1)
    scaled = (each("β C", op.shape("self")),) if beta != 0 and beta != 1 else ()
    added = (each("+ β C", op.out.shape),) if beta != 0 else ()
    product = (each("α (A B)", op.out.shape),) if given_number(op, "alpha") else ()
    return (*product, *scaled, *added)


@rule("aten.mv.default", statement="y[i] = Σₖ A[i,k] x[k]", source=PRODUCT, shapes="A (m, k), x (k) → y (m).")
def mv(op: Operator) -> Cost:
    m, k = op.shape("self")
    return Cost(matmul=(term("A x", 2, m, k),))


@rule(
    "aten.addmv.default",
    statement="y = β z + α A x",
    source=PRODUCT + "; the bias is one addition per result element",
    shapes="z (m) or broadcast to it, A (m, k), x (k) → y (m).",
)
def addmv(op: Operator) -> Cost:
    m, k = op.shape("mat")
    return Cost(matmul=(term("A x", 2, m, k),), elementwise=_bias(op))


@rule(
    "aten.addbmm.default",
    statement="D = β C + α Σ_b A[b] B[b]",
    source=PRODUCT + "; the bias is one addition per result element",
    shapes="C (m, n) or broadcast to it, A (b, m, k), B (b, k, n) → D (m, n).",
)
def addbmm(op: Operator) -> Cost:
    (b, m, k), (_, _, n) = op.shape("batch1"), op.shape("batch2")
    return Cost(matmul=(term("A B", 2, b, m, k, n),), elementwise=_bias(op))


@rule("aten.dot.default", "aten.vdot.default", statement="y = Σₖ a[k] x[k]", source=PRODUCT, shapes="a (k), x (k) → y ().")
def dot(op: Operator) -> Cost:
    (k,) = op.shape("self")
    return Cost(matmul=(term("a x", 2, k),))


@rule(
    "aten._grouped_mm.default",
    statement="each row of A is multiplied by the matrix of its group",
    source=PRODUCT,
    convention="2·M·K·N for M rows, however they are routed",
    shapes="A (M, K), B (E, K, N) → (M, N), groups of rows; A (K, M), B (M, N) → (E, K, N); A (E, M, K), B (K, N) → (M, N).",
)
def grouped_mm(op: Operator) -> Cost:
    a, b = op.shape("self"), op.shape("mat2")
    if len(a) == 3 and len(b) == 2:
        a = a[1:]  # each column of B belongs to one group, so one of the E matrices multiplies it
    return Cost(matmul=(term("A B", 2, *a, b[-1]),))
