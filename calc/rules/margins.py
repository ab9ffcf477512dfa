"""Losses by margins. ``reduction`` is 0 for none, 1 for the mean, 2 for the sum."""

from __future__ import annotations

from calc.rules.loss import MEAN, NONE, reduction
from calc.rules.registry import DECOMPOSITION, Cost, Operator, Term, rule, term
from calc.rules.shapes import Shape, each, reducing, reductions

RECOMPUTED = "the margins recomputed, one addition for each to its class and one to the target's"


@rule(
    "aten.soft_margin_loss.default",
    statement="ℒ = mean of log(1 + exp(−t x))",
    reference=DECOMPOSITION + "soft_margin_loss",
    shapes="x (*), t (*) → ℒ (), or (*) without reduction.",
)
def soft_margin_loss(op: Operator) -> Cost:
    shape = op.shape("self")
    names = ("−x", "−t x", "exp(−t x)", "log(1 + exp(−t x))")
    return Cost(elementwise=(*(each(name, shape) for name in names), *reduction(op, shape)))


@rule(
    "aten.soft_margin_loss_backward.default",
    statement="dx = −t dℒ exp(−t x)/(1 + exp(−t x)) / n",
    reference=DECOMPOSITION + "soft_margin_loss_backward",
    shapes="dℒ () or (*), x (*), t (*) → dx (*).",
)
def soft_margin_loss_backward(op: Operator) -> Cost:
    shape = op.shape("self")
    names = ("t dℒ", "t x", "−t x", "exp(−t x)", "1 + exp(−t x)", "1/(1 + exp(−t x))", "σ − 1", "t dℒ (σ − 1)")
    mean = (each("/ n", shape),) if op.value("reduction", MEAN) == MEAN else ()
    return Cost(elementwise=(*(each(name, shape) for name in names), *mean))


@rule(
    "aten.multi_margin_loss.default",
    statement="ℒ = mean over rows of Σⱼ max(0, margin − x[t] + x[j])ᵖ / classes, j ≠ t",
    reference=DECOMPOSITION + "multi_margin_loss",
    shapes="x (batch, classes), t (batch) → ℒ (), or (batch) without reduction.",
)
def multi_margin_loss(op: Operator) -> Cost:
    scores, targets = op.shape("self"), op.shape("target")
    power = (each("zᵖ", scores),) if op.value("p", 1) == 2 else ()
    weight = (each("· weight[t]", scores),) if op.has("weight") else ()
    unreduced = targets if op.value("reduction", MEAN) == NONE else ()
    return Cost(
        elementwise=(
            each("margin − x[t]", targets),
            each("z = margin − x[t] + x[j]", scores),
            *power,
            *weight,
            *_summed(scores, unreduced),
        )
    )


def _summed(scores: Shape, unreduced: Shape) -> tuple[Term, ...]:
    """The mean over the classes, and over all rows at once where they are reduced too."""
    if unreduced:
        return reducing("Σⱼ z", scores, 1), each("/ C", unreduced)
    return reducing("Σ z", scores, None), each("/ C", ())


@rule(
    "aten.multi_margin_loss_backward.default",
    statement="dx[j] = [z > 0] p zᵖ⁻¹ dℒ / classes / n, dx[t] = −Σ of them",
    source=RECOMPUTED,
    shapes="dℒ () or (batch), x (batch, classes), t (batch) → dx (batch, classes).",
)
def multi_margin_loss_backward(op: Operator) -> Cost:
    scores, targets = op.shape("self"), op.shape("target")
    power = (each("p z", scores), each("p z / C", scores)) if op.value("p") == 2 else ()
    weight = (each("· weight[t]", scores),) if op.has("weight") else ()
    return Cost(
        elementwise=(
            each("margin − x[t]", targets),
            each("z = margin − x[t] + x[j]", scores),
            *power,
            *weight,
            each("dx[t] −= dx[j]", scores),
            each("· dℒ", scores),
        )
    )


@rule(
    "aten.multilabel_margin_loss_backward.default",
    statement="dx[j] += [z > 0] dℒ / classes, dx[t] −= the same, for every target t and class j",
    source=RECOMPUTED,
    convention="as if every class were a target",
    shapes="dℒ () or (batch), x (batch, classes), targets (batch, classes) → dx (batch, classes).",
)
def multilabel_margin_loss_backward(op: Operator) -> Cost:
    scores = op.shape("self")
    pairs = (*scores, scores[-1])
    return Cost(
        elementwise=(
            each("1 − x[t]", scores),
            each("z = 1 − x[t] + x[j]", pairs),
            each("dx[j] += dℒ / C", pairs),
            each("dx[t] −= dℒ / C", pairs),
            each("· dℒ", scores),
        )
    )


@rule(
    "aten.multilabel_margin_loss_forward.default",
    statement="ℒ = mean over rows of Σ max(0, 1 − x[t] + x[j]) / classes over targets t and other classes j",
    reference=DECOMPOSITION + "multilabel_margin_loss_forward",
    convention="as if every class were a target",
    shapes="x (batch, classes) or (classes), targets (batch, classes) → ℒ () or (batch), which classes are targets (batch, classes).",
)
def multilabel_margin_loss(op: Operator) -> Cost:
    scores = op.shape("self")
    *rows, classes = scores
    pairs = (*scores, classes)
    summed = (term("Σ z / C over pairs", *rows, reductions(classes * classes)), *reduction(op, tuple(rows)))
    return Cost(
        elementwise=(
            term("where the targets end", *rows, reductions(classes)),
            each("1 − x[t]", scores),
            each("z = 1 − x[t] + x[j]", pairs),
            each("z / C", pairs),
            *summed,
        )
    )
