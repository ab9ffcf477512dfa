"""Reductions: n elements into one take n - 1 operations."""

from __future__ import annotations

import math
from typing import Any

from calc.errors import NapkinError
from calc.rules.registry import Cost, Operator, Term, rule, term
from calc.rules.shapes import Shape, broadcast, each, reducing, reductions, slices, split

REDUCTION = "a reduction of n elements is n − 1 operations"


@rule("aten.sum.default", "aten.sum.dim_IntList", statement="y = Σ x over dim", source=REDUCTION, shapes="x (*) → y (* without dim).")
def sum_(op: Operator) -> Cost:
    return Cost(elementwise=(reducing("Σ x", op.shape("self"), op.value("dim")),))


@rule("aten.prod.default", "aten.prod.dim_int", statement="y = Π x over dim", source=REDUCTION, shapes="x (*) → y (* without dim).")
def prod(op: Operator) -> Cost:
    return Cost(elementwise=(reducing("Π x", op.shape("self"), op.value("dim")),))


@rule(
    "aten.amax.default",
    "aten.amin.default",
    "aten.max.default",
    "aten.min.default",
    "aten.max.dim",
    "aten.min.dim",
    statement="y = max x over dim (or min), and its position",
    source=REDUCTION,
    shapes="x (*) → y (* without dim), positions of the same shape.",
)
def extremum(op: Operator) -> Cost:
    return Cost(elementwise=(reducing("max x", op.shape("self"), op.value("dim")),))


@rule(
    "aten.mean.default",
    "aten.mean.dim",
    statement="y = (Σ x over dim) / n",
    reference="torch._refs.mean",
    shapes="x (*) → y (* without dim).",
)
def mean(op: Operator) -> Cost:
    return Cost(elementwise=mean_of(op.shape("self"), op.value("dim")))


def mean_of(shape: tuple[object, ...], dims: object) -> tuple[Term, ...]:
    """A mean: the sum, and one division per result."""
    return reducing("Σ x", shape, dims), each("/ n", split(shape, dims)[0])


@rule(
    "aten.var.correction",
    statement="y = Σ (x − mean)² / (n − c)",
    reference="torch._refs.var",
    source="its prim is one reduction: n − 1",
    shapes="x (*) → y (* without dim).",
)
def var(op: Operator) -> Cost:
    return Cost(elementwise=(reducing("variance of x", op.shape("self"), op.value("dim")),))


@rule(
    "aten.std.correction",
    statement="y = √(Σ (x − mean)² / (n − c))",
    reference="torch._refs.std",
    source="a variance is one reduction",
    shapes="x (*) → y (* without dim).",
)
def std(op: Operator) -> Cost:
    shape, dims = op.shape("self"), op.value("dim")
    return Cost(elementwise=(reducing("variance of x", shape, dims), each("√", split(shape, dims)[0])))


@rule(
    "aten.var_mean.correction",
    statement="the variance and the mean over dim",
    reference="torch._refs.var_mean",
    shapes="x (*) → variance and mean (* without dim).",
)
def var_mean(op: Operator) -> Cost:
    shape, dims = op.shape("self"), op.value("dim")
    return Cost(elementwise=(reducing("variance of x", shape, dims), *mean_of(shape, dims)))


@rule(
    "aten.logsumexp.default",
    statement="y = log Σ exp(x − max x) + max x",
    reference="torch._refs.logsumexp",
    shapes="x (*) → y (* without dim).",
)
def logsumexp(op: Operator) -> Cost:
    shape, dims = op.shape("self"), op.value("dim")
    remaining, _ = split(shape, dims)
    if math.prod(shape) == 0:  # the reference then takes no maximum
        return Cost(elementwise=(each("log", remaining),))
    return Cost(
        elementwise=(
            reducing("max x", shape, dims),
            each("|max x|, to find infinities", remaining),
            each("x − max x", shape),
            each("exp", shape),
            reducing("Σ exp", shape, dims),
            each("log", remaining),
            each("+ max x", remaining),
        )
    )


@rule(
    "aten.linalg_vector_norm.default",
    statement="y = (Σ |x|ᵖ)^(1/p) over dim",
    reference="torch._refs.linalg.vector_norm",
    shapes="x (*) → y (* without dim). Order p = 2 unless given.",
)
def vector_norm(op: Operator) -> Cost:
    return Cost(elementwise=norms(op.shape("self"), op.tensor("self").dtype, op.value("dim"), float(op.value("ord", 2))))


def norms(shape: Shape, dtype: str, dims: Any, order: float) -> tuple[Term, ...]:
    """The addends of the norms of that order over ``dims``; of one element it is its absolute value."""
    remaining, reduced = split(shape, dims)
    if order == 0:
        return (reducing("Σ [x ≠ 0]", shape, dims),)
    if math.isinf(order):
        return (each("|x|", shape), reducing("max |x|", shape, dims))
    if math.prod(reduced) == 1:
        return (each("|x|", shape),)
    real = not dtype.startswith("complex")
    size = () if order % 2 == 0 and real else (each("|x|", shape),)
    power = () if order == 1 else (each("|x|ᵖ", shape),)
    root = () if order == 1 else (each("(…)^(1/p)", remaining),)
    return (*size, *power, reducing("Σ |x|ᵖ", shape, dims), *root)


@rule(
    "aten.renorm.default",
    statement="y[i] = x[i] min(1, c/n[i]), n[i] the norm of slice x[i] along dim",
    reference="torch._refs.renorm",
    shapes="x (*) → y (*).",
)
def renorm(op: Operator) -> Cost:
    shape = slices(op.shape("self"), op.value("dim"))
    of_slices = norms(shape, op.tensor("self").dtype, 1, float(op.value("p")))
    factors = (term(name, shape[0]) for name in ("n[i] + ε", "1/(n[i] + ε)", "c/(n[i] + ε)"))
    return Cost(elementwise=(*of_slices, *factors, each("x[i] c/(…)", shape)))


@rule(
    "aten.cumsum.default",
    "aten.cumprod.default",
    statement="y[i] = y[i−1] + x[i] along dim (or the product)",
    source=REDUCTION + ", and so is a running one",
    shapes="x (*) → y (*).",
)
def cumulative(op: Operator) -> Cost:
    return Cost(elementwise=(reducing("y[i−1] + x[i]", op.shape("self"), op.value("dim")),))


@rule(
    "aten.logcumsumexp.default",
    statement="y[i] = log(exp y[i−1] + exp x[i]) along dim",
    source="torch._refs.logaddexp for each element of a line but the first: 4 operations",
    shapes="x (*) → y (*).",
)
def log_cumulative(op: Operator) -> Cost:
    remaining, reduced = split(op.shape("self"), op.value("dim"))
    names = ("x[i] − y[i−1]", "exp(−|…|)", "log(1 + …)", "max + log(…)")
    return Cost(elementwise=tuple(term(name, *remaining, reductions(math.prod(reduced))) for name in names))


@rule(
    "aten.norm.ScalarOpt_dim",
    "aten.dist.default",
    statement="y = (Σ |x|ᵖ)^(1/p) over dim; for dist of x = a − b",
    reference="torch._refs.norm",
    shapes="x (*) → y (* without dim). Order p = 2 unless given.",
)
def norm(op: Operator) -> Cost:
    x, order = op.tensor("self"), op.value("p", 2)
    shape = broadcast(x.shape, op.shape("other")) if op.has("other") else x.shape
    difference = (each("a − b", shape),) if op.has("other") else ()
    return Cost(elementwise=(*difference, *norms(shape, x.dtype, op.value("dim"), 2.0 if order is None else float(order))))


@rule(
    "aten.aminmax.default",
    statement="the least and the largest x over dim",
    source="two " + REDUCTION,
    shapes="x (*) → least and largest (* without dim).",
)
def extrema(op: Operator) -> Cost:
    shape, dims = op.shape("self"), op.value("dim")
    return Cost(elementwise=(reducing("min x", shape, dims), reducing("max x", shape, dims)))


@rule(
    "aten.nansum.default",
    "aten.count_nonzero.default",
    "aten.count_nonzero.dim_IntList",
    statement="y = Σ x without NaN, or of [x ≠ 0]",
    source=REDUCTION,
    shapes="x (*) → y (* without dim).",
)
def sum_of_some(op: Operator) -> Cost:
    return Cost(elementwise=(reducing("Σ x", op.shape("self"), op.value("dim")),))


@rule(
    "aten.std_mean.correction",
    statement="the standard deviation and the mean over dim",
    reference="torch._refs.std_mean",
    shapes="x (*) → deviation and mean (* without dim).",
)
def std_mean(op: Operator) -> Cost:
    shape, dims = op.shape("self"), op.value("dim")
    remaining, _ = split(shape, dims)
    return Cost(elementwise=(reducing("variance of x", shape, dims), *mean_of(shape, dims), each("√", remaining)))


@rule("aten.trace.default", statement="y = Σ x[i,i]", source=REDUCTION, shapes="x (n, n) → y ().")
def trace(op: Operator) -> Cost:
    n, columns = op.shape("self")
    if n != columns:
        raise NapkinError(f"{op.name} of a matrix that is not square has no rule: sum its diagonal with torch.diagonal(x).sum()")
    return Cost(elementwise=(term("Σ x[i,i]", reductions(n)),))


# -- rows reduced segment by segment -------------------------------------------------------------------------------------------

JOINED = "every element is joined to its segment's initial value"


@rule(
    "aten.segment_reduce.default",
    statement="y[s] = Σ x[i] over the rows i of segment s, or their mean, product, maximum or minimum",
    source=JOINED + "; a mean divides once per result element",
    shapes="x (n, *), lengths (s) → y (s, *).",
)
def segments(op: Operator) -> Cost:
    mean = (each("Σ x / length", op.out.shape),) if op.value("reduce") == "mean" else ()
    return Cost(elementwise=(each("y[s] joined with x[i]", op.shape("data")), *mean))


@rule(
    "aten._segment_reduce_backward.default",
    statement="dx[i] = dy[s], divided by the length for a mean, times y/x for a product",
    source="the derivative, operation by operation",
    convention="the position of a maximum or minimum is a comparison, and elements that share it are 0; every argument is read",
    shapes="dy (s, *), y (s, *), x (n, *), lengths (s) → dx (n, *).",
)
def segments_backward(op: Operator) -> Cost:
    match op.value("reduce"):
        case "mean":
            return Cost(elementwise=(each("dy / length", op.shape("grad")),))
        case "prod":
            return Cost(elementwise=(each("dy y", op.shape("grad")), each("dy y / x", op.shape("data"))))
    return Cost()
