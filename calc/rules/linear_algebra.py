"""Triangular systems and factorizations of n x n matrices, by the textbook algorithms.

Multiply-adds are counted as in matmuls, divisions and roots as elementwise work. Iterative algorithms (eigenvalues, singular values, a
matrix's exponential) have no count that follows from sizes, so they have no rule.
"""

from __future__ import annotations

import math
from typing import Any

from calc.errors import NapkinError
from calc.rules.registry import Cost, Factor, Operator, Term, free, rule, term
from calc.rules.shapes import each, reductions

GOLUB = "Golub & Van Loan, Matrix Computations, 4th ed., "
SUBSTITUTION = GOLUB + "section 3.1: n(n − 1)/2 multiply-adds and n divisions for each right-hand side"
ELIMINATION = GOLUB + "section 3.2: (n − k)² multiply-adds and n − k divisions for each column k"
BATCHED = "each multiply-add = 2 FLOP; row exchanges are 0"

free("aten._linalg_check_errors.default", because="tests whether a factorization failed: no arithmetic", moves=True)


def _part(value: Factor, of: int) -> Factor:
    """``value / of`` of an integer or a polynomial; it must be an integer for every size."""
    return value // of if isinstance(value, int) else value.quo_ground(of)


def _substitution(name: str, batch: tuple[Any, ...], n: Factor, right: Factor) -> Term:
    return term(name, *batch, right, n, n - 1)


def _elimination(batch: tuple[Any, ...], n: Factor) -> Term:
    return term("L U = A", *batch, _part(n * (n - 1) * (2 * n - 1), 3))


def _pivots(batch: tuple[Any, ...], n: Factor) -> Term:
    return term("divisions by the pivots", *batch, _part(n * (n - 1), 2))


@rule(
    "aten.linalg_solve_triangular.default",
    statement="X with T X = B (or X T = B), T triangular",
    source=SUBSTITUTION,
    convention="half of T is read, but all of it is counted; " + BATCHED,
    shapes="T (*, n, n), B (*, n, m) → X (*, n, m); from the right B (*, m, n) → X (*, m, n).",
)
def solve_triangular(op: Operator) -> Cost:
    *batch, rows, columns = op.out.shape
    n, right = (rows, columns) if op.value("left", True) else (columns, rows)
    divided = () if op.value("unitriangular", False) else (each("/ T[i,i]", op.out.shape),)
    return Cost(matmul=(_substitution("Σ T[i,k] X[k]", tuple(batch), n, right),), elementwise=divided)


@rule(
    "aten.linalg_inv_ex.default",
    statement="A⁻¹, by L U = A and the solution for every column of 1",
    source=ELIMINATION,
    convention=BATCHED,
    shapes="A (*, n, n) → A⁻¹ (*, n, n), errors (*).",
)
def inverse(op: Operator) -> Cost:
    *batch, n, _ = op.shape("A")
    return Cost(
        matmul=(
            _elimination(tuple(batch), n),
            _substitution("Σ L[i,k] Y[k]", tuple(batch), n, n),
            _substitution("Σ U[i,k] X[k]", tuple(batch), n, n),
        ),
        elementwise=(_pivots(tuple(batch), n), each("/ U[i,i]", op.out.shape)),
    )


@rule(
    "aten._linalg_solve_ex.default",
    statement="X with A X = B, by L U = A",
    source=ELIMINATION,
    convention=BATCHED,
    shapes="A (*, n, n), B (*, n, m) → X (*, n, m), L U (*, n, n), exchanges (*, n), errors (*).",
)
def solve(op: Operator) -> Cost:
    *batch, n, _ = op.shape("A")
    right = math.prod(op.out.shape[len(batch) + 1 :])
    return Cost(
        matmul=(
            _elimination(tuple(batch), n),
            _substitution("Σ L[i,k] Y[k]", tuple(batch), n, right),
            _substitution("Σ U[i,k] X[k]", tuple(batch), n, right),
        ),
        elementwise=(_pivots(tuple(batch), n), each("/ U[i,i]", op.out.shape)),
    )


@rule(
    "aten.linalg_lu_solve.default",
    statement="X with L U X = B",
    source=SUBSTITUTION + ", twice",
    convention=BATCHED,
    shapes="L U (*, n, n), exchanges (*, n), B (*, n, m) → X (*, n, m).",
)
def lu_solve(op: Operator) -> Cost:
    *batch, rows, columns = op.out.shape
    n, right = (rows, columns) if op.value("left", True) else (columns, rows)
    return Cost(
        matmul=(_substitution("Σ L[i,k] Y[k]", tuple(batch), n, right), _substitution("Σ U[i,k] X[k]", tuple(batch), n, right)),
        elementwise=(each("/ U[i,i]", op.out.shape),),
    )


@rule(
    "aten._linalg_det.default",
    statement="det A = ± Π U[i,i], by L U = A",
    source=ELIMINATION,
    convention=BATCHED,
    shapes="A (*, n, n) → det (*), L U (*, n, n), exchanges (*, n).",
)
def determinant(op: Operator) -> Cost:
    *batch, n, _ = op.shape("A")
    return Cost(
        matmul=(_elimination(tuple(batch), n),),
        elementwise=(_pivots(tuple(batch), n), term("Π U[i,i]", *op.out.shape, reductions(n))),
    )


@rule(
    "aten._linalg_slogdet.default",
    statement="log |det A| = Σ log |U[i,i]| and its sign, by L U = A",
    source=ELIMINATION,
    convention=BATCHED + "; the sign of an element is 0",
    shapes="A (*, n, n) → sign (*), log |det| (*), L U (*, n, n), exchanges (*, n).",
)
def logarithm_of_determinant(op: Operator) -> Cost:
    *batch, n, _ = op.shape("A")
    diagonal = (term("|U[i,i]|", *batch, n), term("log |U[i,i]|", *batch, n))
    folded = (term("Σ log |U[i,i]|", *op.out.shape, reductions(n)), term("Π sign U[i,i]", *op.out.shape, reductions(n)))
    return Cost(matmul=(_elimination(tuple(batch), n),), elementwise=(_pivots(tuple(batch), n), *diagonal, *folded))


def _reflected(m: Factor, columns: Factor, k: Factor) -> Factor:
    """Σ (m − j)(columns − j) over j < k: the elements to which the reflections are applied, each to one row and one column less."""
    return m * columns * k - _part((m + columns) * k * (k - 1), 2) + _part(k * (k - 1) * (2 * k - 1), 6)


@rule(
    "aten.linalg_qr.default",
    statement="Q R = A, by a reflection 1 − τ v vᵀ for each column",
    source=GOLUB + "section 5.2: a reflection takes 2 multiply-adds for each element of the rows and columns that are left of A, and of Q",
    convention=BATCHED + "; a reflection of j elements takes j products, j − 1 sums and j divisions by itself",
    shapes="A (*, m, n) → Q (*, m, q), R (*, q, n), q = min(m, n); no Q in the mode without it.",
)
def qr(op: Operator) -> Cost:
    *batch, m, n = op.shape("A")
    mode, k = op.value("mode", "reduced"), op.outputs[1].shape[-2]
    if mode == "complete":
        raise NapkinError(f"{op.name} in mode complete has no rule: use mode reduced")
    on_a = term("R = A − τ v (vᵀ A)", 4, *batch, _reflected(m, n - 1, k))
    on_q = () if mode == "r" else (term("Q − τ v (vᵀ Q)", 4, *batch, _reflected(m, k, k)),)
    elements = m * k - _part(k * (k - 1), 2)
    lengths = (term("x²", *batch, elements), term("Σ x²", *batch, elements - k), term("v / v[1]", *batch, elements))
    return Cost(matmul=(on_a, *on_q), elementwise=lengths)


@rule(
    "aten.linalg_cholesky_ex.default",
    statement="L with L Lᵀ = A",
    source=GOLUB + "section 4.2: n(n² − 1)/6 multiply-adds, n(n − 1)/2 divisions, n roots",
    convention=BATCHED,
    shapes="A (*, n, n) → L (*, n, n), errors (*).",
)
def cholesky(op: Operator) -> Cost:
    *batch, n, _ = op.shape("self")
    return Cost(
        matmul=(term("A − L Lᵀ", *batch, _part(n * (n - 1) * (n + 1), 3)),),
        elementwise=(term("/ L[i,i]", *batch, _part(n * (n - 1), 2)), term("√", *batch, n)),
    )


@rule(
    "aten.cholesky_solve.default",
    statement="X with L Lᵀ X = B",
    source=SUBSTITUTION + ", twice",
    convention=BATCHED,
    shapes="B (*, n, m), L (*, n, n) → X (*, n, m).",
)
def cholesky_solve(op: Operator) -> Cost:
    *batch, n, right = op.out.shape
    return Cost(
        matmul=(_substitution("Σ L[i,k] Y[k]", tuple(batch), n, right), _substitution("Σ L[k,i] X[k]", tuple(batch), n, right)),
        elementwise=(each("Y / L[i,i]", op.out.shape), each("X / L[i,i]", op.out.shape)),
    )


# -- products that have an operator of their own -------------------------------------------------------------------------------


@rule(
    "aten._trilinear.default",
    statement="y = Σ i1 i2 i3, each with its missing axes added",
    source="torch's kernel: i1 i2, and their product with i3; one multiply-add = 2 FLOP",
    shapes="i1, i2, i3 with axes of 1 put in at expand1, expand2, expand3 broadcast to (n) → y (n without sumdim).",
)
def trilinear(op: Operator) -> Cost:
    shapes = [_expanded(op.shape(name), op.value(axes)) for name, axes in (("i1", "expand1"), ("i2", "expand2"), ("i3", "expand3"))]
    terms = tuple(next((s for s in axis if s != 1), 1) for axis in zip(*shapes, strict=True))
    return Cost(matmul=(term("Σ (i1 i2) i3", 2, *terms),), elementwise=(each("i1 i2", terms),))


def _expanded(shape: tuple[Factor, ...], axes: tuple[int, ...]) -> tuple[Factor, ...]:
    sizes = list(shape)
    for axis in axes:
        sizes.insert(axis, 1)
    return tuple(sizes)


@rule(
    "aten.addr.default",
    statement="y = β x + α a bᵀ",
    reference="torch._refs.addr",
    source="multiplies by β and α even if they are 1",
    shapes="x (m, n) or broadcast to it, a (m), b (n) → y (m, n).",
)
def addr(op: Operator) -> Cost:
    old = (each("β x", op.out.shape), each("+ β x", op.out.shape)) if op.value("beta", 1) != 0 else ()
    return Cost(elementwise=(each("a bᵀ", op.out.shape), each("α a bᵀ", op.out.shape), *old))


@rule(
    "aten.linalg_cross.default",
    statement="y[i] = a[i+1] b[i+2] − a[i+2] b[i+1]",
    source="the definition, operation by operation",
    shapes="a and b broadcast to (*, 3) → y (*, 3).",
)
def cross(op: Operator) -> Cost:
    names = ("a[i+1] b[i+2]", "a[i+2] b[i+1]", "their difference")
    return Cost(elementwise=tuple(each(name, op.out.shape) for name in names))


# -- distances between rows ----------------------------------------------------------------------------------------------------


def _pairs(op: Operator) -> tuple[tuple[Factor, ...], Factor]:
    """(sizes of all pairs of rows, elements of a row)."""
    x, y = op.shape("x1"), op.shape("x2")
    batch = tuple(next((s for s in axis if s != 1), 1) for axis in zip(x[:-2], y[:-2], strict=True))
    return (*batch, x[-2], y[-2]), x[-1]


@rule(
    "aten._cdist_forward.default",
    statement="d[i,j] = (Σ |x[i] − y[j]|ᵖ)^(1/p)",
    source="the definition, operation by operation",
    shapes="x (*, m, q), y (*, n, q) → d (*, m, n).",
)
def distance(op: Operator) -> Cost:
    return _distances(*_pairs(op), float(op.value("p")))


def _distances(pairs: tuple[Factor, ...], width: Factor, order: float) -> Cost:
    powers = order not in (0.0, math.inf)
    return Cost(
        elementwise=(
            term("x − y", *pairs, width),
            *((term("|x − y|ᵖ", *pairs, width),) if powers else ()),
            term("Σ |x − y|ᵖ", *pairs, reductions(width)),
            *((each("(…)^(1/p)", pairs),) if powers and order != 1 else ()),
        )
    )


@rule(
    "aten._pdist_forward.default",
    statement="d[i,j] = (Σ |x[i] − x[j]|ᵖ)^(1/p) for i < j",
    source="the definition, operation by operation",
    shapes="x (m, q) → d (m(m − 1)/2).",
)
def own_distance(op: Operator) -> Cost:
    return _distances(op.out.shape, op.shape("self")[-1], float(op.value("p", 2)))


@rule(
    "aten._cdist_backward.default",
    statement="dx[i] = Σⱼ dd (x − y)|x − y|ᵖ⁻² / dᵖ⁻¹",
    source="the derivative, operation by operation; for the sum of sizes (p = 1) only signs",
    shapes="dd (*, m, n), x (*, m, q), y (*, n, q), d (*, m, n) → dx (*, m, q).",
)
def distance_backward(op: Operator) -> Cost:
    return _gradients_of_distances(*_pairs(op), float(op.value("p")), ("dx += …",))


def _gradients_of_distances(pairs: tuple[Factor, ...], width: Factor, order: float, added: tuple[str, ...]) -> Cost:
    each_element = ("x − y", "dd sign" if order == 1 else "(x − y) dd / d", *added)
    powers = () if order in (1.0, 2.0) else ("|x − y|ᵖ⁻²", "· |x − y|ᵖ⁻²")
    divided = () if order == 1 else (each("dd / dᵖ⁻¹", pairs),)
    return Cost(elementwise=(*divided, *(term(name, *pairs, width) for name in (*each_element, *powers))))


@rule(
    "aten._pdist_backward.default",
    statement="dx[i] += dd (x[i] − x[j])|x[i] − x[j]|ᵖ⁻² / dᵖ⁻¹, and dx[j] −= the same, for i < j",
    source="the derivative, operation by operation; for the sum of sizes (p = 1) only signs",
    shapes="dd (m(m − 1)/2), x (m, q), d of dd's shape → dx (m, q).",
)
def own_distance_backward(op: Operator) -> Cost:
    dd = op.shape("grad")
    return _gradients_of_distances(dd, op.shape("self")[-1], float(op.value("p")), ("dx[i] += …", "dx[j] −= …"))


@rule(
    "aten._euclidean_dist.default",
    statement="d[i,j] = √(|x[i]|² − 2 x[i]·y[j] + |y[j]|²)",
    source="torch._decomp.decompositions._euclidean_dist: one product of rows that are 2 longer; one multiply-add = 2 FLOP",
    shapes="x (*, m, q), y (*, n, q) → d (*, m, n).",
)
def euclidean(op: Operator) -> Cost:
    x, y = op.shape("x1"), op.shape("x2")
    return Cost(
        matmul=(term("(−2x, |x|², 1) (y, 1, |y|²)", 2, *x[:-2], x[-2], y[-2], x[-1] + 2),),
        elementwise=(
            each("x²", x),
            term("|x|² = Σ x²", *x[:-1], reductions(x[-1])),
            each("y²", y),
            term("|y|² = Σ y²", *y[:-1], reductions(y[-1])),
            each("−2x", x),
            each("√", op.out.shape),
        ),
    )
