"""Embeddings: rows of a table taken by index, and their gradients added back."""

from __future__ import annotations

from calc.cost import Cost, Operator, rule
from calc.rules.shapes import each, whole

GATHER = "reads one table element per result element, and the indices"


@rule("aten.embedding.default", statement="y[i] = weight[indices[i]]", source="moves elements: no arithmetic", convention=GATHER)
def embedding(op: Operator) -> Cost:
    """Shapes: weight (V, d), indices (*) → y (*, d)."""
    return Cost(reads=((op.out.numel, op.tensor("weight").dtype), *whole(op.tensor("indices"))))


@rule(
    "aten.embedding_dense_backward.default",
    statement="dweight[indices[i]] += dy[i]",
    source="torch._decomp.decompositions.embedding_dense_backward: one addition per source element",
    convention="writes all of the gradient, which starts at zero",
)
def embedding_backward(op: Operator) -> Cost:
    """Shapes: dy (*, d), indices (*) → dweight (V, d)."""
    shape = op.shape("grad_output")
    scaling = (each("count each word", op.shape("indices")), each("dy / count", shape)) if op.value("scale_grad_by_freq") else ()
    return Cost(elementwise=(*scaling, each("dweight[indices] += dy", shape)))
