"""Softmax and its logarithm, forward and backward, along one dimension."""

from __future__ import annotations

from calc.rules.registry import DECOMPOSITION, Cost, Operator, Term, rule
from calc.rules.shapes import each, reducing, split


def _exponentials(op: Operator) -> tuple[Term, ...]:
    """exp(x − max x) and its sum along dim."""
    shape, dim = op.shape("self"), op.value("dim")
    return reducing("max x", shape, dim), each("x − max x", shape), each("exp", shape), reducing("Σ exp", shape, dim)


@rule(
    "aten._softmax.default",
    "aten._safe_softmax.default",
    statement="y = exp(x − max x) / Σ exp(x − max x) along dim",
    reference=DECOMPOSITION + "_softmax",
    shapes="x (*) → y (*).",
)
def softmax(op: Operator) -> Cost:
    return Cost(elementwise=(*_exponentials(op), each("/ Σ exp", op.shape("self"))))


@rule(
    "aten._softmax_backward_data.default",
    statement="dx = y dy − y Σ y dy along dim",
    reference=DECOMPOSITION + "_softmax_backward_data",
    shapes="dy (*), y (*) → dx (*).",
)
def softmax_backward(op: Operator) -> Cost:
    shape, dim = op.shape("output"), op.value("dim")
    return Cost(elementwise=(each("y dy", shape), reducing("Σ y dy", shape, dim), each("y Σ y dy", shape), each("y dy − y Σ y dy", shape)))


@rule(
    "aten._log_softmax.default",
    statement="y = (x − max x) − log Σ exp(x − max x) along dim",
    reference=DECOMPOSITION + "_log_softmax",
    shapes="x (*) → y (*).",
)
def log_softmax(op: Operator) -> Cost:
    remaining, _ = split(op.shape("self"), op.value("dim"))
    return Cost(elementwise=(*_exponentials(op), each("log Σ exp", remaining), each("− log Σ exp", op.shape("self"))))


@rule(
    "aten._log_softmax_backward_data.default",
    statement="dx = dy − exp(y) Σ dy along dim",
    reference=DECOMPOSITION + "_log_softmax_backward_data",
    shapes="dy (*), y (*) → dx (*).",
)
def log_softmax_backward(op: Operator) -> Cost:
    shape, dim = op.shape("output"), op.value("dim")
    return Cost(
        elementwise=(each("exp(y)", shape), reducing("Σ dy", shape, dim), each("exp(y) Σ dy", shape), each("dy − exp(y) Σ dy", shape))
    )
