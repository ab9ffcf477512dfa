"""Embeddings: rows of a table gathered by index, and their gradients added back."""

from __future__ import annotations

import math

from calc.rules.registry import Cost, Factor, Operator, rule, term
from calc.rules.shapes import each, reductions, whole

GATHER = "reads one table element per result element, and the indices"


@rule(
    "aten.embedding.default",
    statement="y[i] = weight[indices[i]]",
    source="moves elements: no arithmetic",
    convention=GATHER,
    shapes="weight (rows, width), indices (*) → y (*, width).",
)
def embedding(op: Operator) -> Cost:
    return Cost(reads=((op.out.numel, op.tensor("weight").dtype), *whole(op.tensor("indices"))))


@rule(
    "aten.embedding_dense_backward.default",
    statement="dweight[indices[i]] += dy[i]",
    reference="torch._decomp.decompositions.embedding_dense_backward",
    elementwise="one addition per source element",
    convention="writes all of the gradient, which starts at zero",
    shapes="dy (*, width), indices (*) → dweight (rows, width).",
)
def embedding_backward(op: Operator) -> Cost:
    shape = op.shape("grad_output")
    scaling = (each("count each word", op.shape("indices")), each("dy / count", shape)) if op.value("scale_grad_by_freq") else ()
    return Cost(elementwise=(*scaling, each("dweight[indices] += dy", shape)))


# -- bags ------------------------------------------------------------------------------------------------------------------------

SUM, MEAN, MAX = 0, 1, 2
BAGS = "each row that is looked up is added to its bag, which starts at zero"
NO_EMPTY = "as if no bag were empty and no index were left out"


def _looked_up(op: Operator, width: Factor) -> tuple[Factor, ...]:
    return (*op.shape("indices"), width)


@rule(
    "aten._embedding_bag.default",
    "aten._embedding_bag_forward_only.default",
    statement="y[b] = Σ weight[indices[i]] (or its mean, or largest) over the indices of bag b",
    source=BAGS,
    convention=GATHER + "; " + NO_EMPTY,
    shapes="weight (rows, width), indices (n), offsets (bags) → y (bags, width), and which index is of which bag.",
)
def embedding_bag(op: Operator) -> Cost:
    weight = op.tensor("weight")
    rows, mode = _looked_up(op, weight.shape[-1]), op.value("mode", SUM)
    weighted = (each("w · row", rows),) if op.has("per_sample_weights") else ()
    mean = (each("/ n", op.out.shape),) if mode == MEAN else ()
    views = (view for name, view in op.tensors() if name != "weight")
    return Cost(elementwise=(*weighted, each("y[b] += row", rows), *mean), reads=((math.prod(rows), weight.dtype), *whole(*views)))


@rule(
    "aten._embedding_bag_backward.default",
    statement="dweight[indices[i]] += dy[bag of i] (divided for a mean, times the weight of i)",
    source=BAGS + ": its gradient goes to each of them",
    convention="writes all of the gradient; " + NO_EMPTY,
    shapes="dy (bags, width), indices (n) → dweight (rows, width).",
)
def embedding_bag_backward(op: Operator) -> Cost:
    dy, mode = op.tensor("grad"), op.value("mode")
    if mode == MAX:
        return Cost(elementwise=(each("dweight[largest] += dy", dy.shape),))
    rows = _looked_up(op, dy.shape[-1])
    mean = (each("dy / n", rows),) if mode == MEAN else ()
    weighted = (each("w · dy", rows),) if op.has("per_sample_weights") else ()
    return Cost(elementwise=(*mean, *weighted, each("dweight[index] += dy", rows)))


@rule(
    "aten._embedding_bag_per_sample_weights_backward.default",
    statement="dw[i] = dy[bag of i] · weight[indices[i]]",
    source="one product of two rows for each index",
    convention=GATHER,
    shapes="dy (bags, width), weight (rows, width), indices (n) → dw (n).",
)
def embedding_bag_weights_backward(op: Operator) -> Cost:
    weight = op.tensor("weight")
    rows = _looked_up(op, weight.shape[-1])
    views = (view for name, view in op.tensors() if name != "weight")
    return Cost(
        elementwise=(each("dy row", rows), term("Σ dy row", *op.shape("indices"), reductions(weight.shape[-1]))),
        reads=((math.prod(rows), weight.dtype), *whole(*views)),
    )
