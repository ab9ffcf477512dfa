"""Losses and their gradients. ``reduction`` is 0 for none, 1 for the mean, 2 for the sum."""

from __future__ import annotations

from calc.rules.registry import DECOMPOSITION, Cost, Factor, Operator, Term, rule
from calc.rules.shapes import Shape, broadcast, each, optional, reducing, reductions, whole

NONE, MEAN, SUM = 0, 1, 2


def reduction(op: Operator, shape: Shape) -> tuple[Term, ...]:
    """Σ loss, and the division by n of a mean."""
    kind = op.value("reduction", MEAN)
    added = () if kind == NONE else (reducing("Σ loss", shape, None),)
    return (*added, each("/ n", ())) if kind == MEAN else added


def _weighted(op: Operator, shape: Shape) -> tuple[Term, ...]:
    return (each("· weight", shape),) if op.has("weight") else ()


@rule(
    "aten.mse_loss.default",
    statement="ℒ = mean (x − t)²",
    reference=DECOMPOSITION + "mse_loss",
    shapes="x (*), t (*) → ℒ (), or (*) without reduction.",
)
def mse_loss(op: Operator) -> Cost:
    shape = broadcast(op.shape("self"), op.shape("target"))
    return Cost(elementwise=(each("x − t", shape), each("(x − t)²", shape), *reduction(op, shape)))


@rule(
    "aten.mse_loss_backward.default",
    statement="dx = 2/n (x − t) dℒ",
    reference=DECOMPOSITION + "mse_loss_backward",
    shapes="dℒ () or (*), x (*), t (*) → dx (*).",
)
def mse_loss_backward(op: Operator) -> Cost:
    shape = broadcast(op.shape("self"), op.shape("target"))
    return Cost(elementwise=(each("x − t", shape), each("2/n (x − t)", shape), each("2/n (x − t) dℒ", shape)))


def _picked(op: Operator) -> tuple[tuple[Factor, str], ...]:
    """Reads of one score and one class weight per target, and of the targets."""
    target, weight = op.tensor("target"), optional(op, "weight")
    weights = ((target.numel, weight.dtype),) if weight is not None else ()
    return ((target.numel, op.tensor("self").dtype), *whole(target), *weights)


@rule(
    "aten.nll_loss_forward.default",
    "aten.nll_loss2d_forward.default",
    statement="ℒ = Σ −x[i, t[i]] / number of targets that are not ignored",
    reference=DECOMPOSITION + "_nll_loss_forward",
    convention="reads one score per target; all positions are counted, ignored ones too; class weights multiply every score",
    shapes="x (batch, classes, *) or (classes), t (batch, *) → ℒ () or (batch, *), total weight ().",
)
def nll_loss(op: Operator) -> Cost:
    scores, targets = op.shape("self"), op.shape("target")
    kind = op.value("reduction", MEAN)
    terms = (*_weighted(op, scores), each("−x[i, t[i]]", targets))
    if kind != NONE or len(scores) == 1:
        total = reducing("total weight = Σ over targets", targets, None)
        losses = () if kind == NONE else (reducing("Σ loss", targets, None),)
        mean = (each("/ total weight", ()),) if kind == MEAN else ()
        terms = (*terms, total, *losses, *mean)
    return Cost(elementwise=terms, reads=_picked(op))


@rule(
    "aten.nll_loss_backward.default",
    "aten.nll_loss2d_backward.default",
    statement="dx[i, c] = −[c = t[i]] weight[c] dℒ / total weight",
    reference=DECOMPOSITION + "_nll_loss_backward",
    convention="the scores are not read, their gradient is written in full",
    shapes="dℒ () or (batch, *), x (batch, classes, *), t (batch, *), total weight () → dx (batch, classes, *).",
)
def nll_loss_backward(op: Operator) -> Cost:
    scores, upstream = op.tensor("self"), op.tensor("grad_output")
    target, weight = op.tensor("target"), optional(op, "weight")
    mean = (each("dℒ / total weight", upstream.shape),) if op.value("reduction", MEAN) == MEAN else ()
    scaled = () if weight is None else (each("dℒ · weight", scores.shape if upstream.shape else weight.shape),)
    return Cost(
        elementwise=(*mean, *scaled, each("−dℒ where c = t", scores.shape)),
        reads=(*whole(upstream, target, op.tensor("total_weight")), *(((target.numel, weight.dtype),) if weight is not None else ())),
    )


@rule(
    "aten.smooth_l1_loss.default",
    statement="ℒ = mean of |x − t| < β: (x − t)²/2β, else |x − t| − β/2",
    reference=DECOMPOSITION + "smooth_l1_loss",
    shapes="x (*), t (*) → ℒ (), or (*) without reduction.",
)
def smooth_l1_loss(op: Operator) -> Cost:
    shape = broadcast(op.shape("self"), op.shape("target"))
    names = ("x − t", "|x − t|", "(x − t)²", "(x − t)²/2", "(x − t)²/2β", "|x − t| − β/2")
    return Cost(elementwise=(*(each(name, shape) for name in names), *reduction(op, shape)))


@rule(
    "aten.smooth_l1_loss_backward.default",
    statement="dx = dℒ/n · ((x − t)/β or sign(x − t))",
    reference=DECOMPOSITION + "smooth_l1_loss_backward",
    shapes="dℒ () or (*), x (*), t (*) → dx (*).",
)
def smooth_l1_loss_backward(op: Operator) -> Cost:
    shape = broadcast(op.shape("self"), op.shape("target"))
    names = ("x − t", "|x − t|", "dℒ/n · (x − t)", "dℒ/n · (x − t)/β", "dℒ/n · sign(x − t)")
    return Cost(elementwise=(each("dℒ / n", op.shape("grad_output")), *(each(name, shape) for name in names)))


@rule(
    "aten.huber_loss.default",
    statement="ℒ = mean of |x − t| < δ: (x − t)²/2, else δ(|x − t| − δ/2)",
    reference="torch._refs.nn.functional.huber_loss",
    shapes="x (*), t (*) → ℒ (), or (*) without reduction.",
)
def huber_loss(op: Operator) -> Cost:
    shape = broadcast(op.shape("self"), op.shape("target"))
    names = ("x − t", "z = |x − t|", "z/2", "z²/2", "z − δ/2", "δ(z − δ/2)")
    return Cost(elementwise=(*(each(name, shape) for name in names), *reduction(op, shape)))


@rule(
    "aten.huber_loss_backward.default",
    statement="dx = dℒ/n · (x − t clipped to ±δ)",
    reference=DECOMPOSITION + "huber_loss_backward",
    shapes="dℒ () or (*), x (*), t (*) → dx (*).",
)
def huber_loss_backward(op: Operator) -> Cost:
    shape, upstream = broadcast(op.shape("self"), op.shape("target")), op.shape("grad_output")
    return Cost(
        elementwise=(
            each("x − t", shape),
            each("−dℒ/n", upstream),
            each("−δ dℒ/n", upstream),
            each("dℒ/n", upstream),
            each("δ dℒ/n", upstream),
            each("(x − t)/n", shape),
            each("(x − t) dℒ/n", shape),
        )
    )


@rule(
    "aten.binary_cross_entropy.default",
    statement="ℒ = mean of (t − 1) log(1 − x) − t log x",
    reference=DECOMPOSITION + "binary_cross_entropy",
    shapes="x (*), t (*), weight (*) → ℒ (), or (*) without reduction.",
)
def binary_cross_entropy(op: Operator) -> Cost:
    shape = op.shape("self")
    names = ("t − 1", "−x", "log(1 − x)", "(t − 1) log(1 − x)", "log x", "t log x", "(t − 1) log(1 − x) − t log x")
    return Cost(elementwise=(*(each(name, shape) for name in names), *_weighted(op, shape), *reduction(op, shape)))


@rule(
    "aten.binary_cross_entropy_backward.default",
    statement="dx = dℒ (x − t) / (x (1 − x)) / n",
    reference=DECOMPOSITION + "binary_cross_entropy_backward",
    shapes="dℒ () or (*), x (*), t (*), weight (*) → dx (*).",
)
def binary_cross_entropy_backward(op: Operator) -> Cost:
    shape = op.shape("self")
    names = ("x − t", "dℒ (x − t)", "1 − x", "x (1 − x)", "dℒ (x − t) / (x (1 − x))")
    mean = (each("/ n", shape),) if op.value("reduction", MEAN) == MEAN else ()
    return Cost(elementwise=(*(each(name, shape) for name in names), *_weighted(op, shape), *mean))


@rule(
    "aten.binary_cross_entropy_with_logits.default",
    statement="ℒ = mean of (1 − t) x − ((pos_weight − 1) t + 1) log σ(x)",
    reference=DECOMPOSITION + "binary_cross_entropy_with_logits",
    shapes="x (*), t (*), weight (*), pos_weight (*) → ℒ (), or (*) without reduction.",
)
def binary_cross_entropy_with_logits(op: Operator) -> Cost:
    shape = op.shape("self")
    names = (
        "1 − t",
        "(1 − t) x",
        "|x|",
        "−|x|",
        "exp(−|x|)",
        "log(1 + exp(−|x|))",
        "log σ(x) = min(0, x) − log(…)",
        "(1 − t) x − log σ(x)",
    )
    positive = optional(op, "pos_weight")
    by_class = (
        ()
        if positive is None
        else (
            each("pos_weight − 1", positive.shape),
            each("(pos_weight − 1) t", shape),
            each("(…) t + 1", shape),
            each("(…) log σ(x)", shape),
        )
    )
    return Cost(elementwise=(*by_class, *(each(name, shape) for name in names), *_weighted(op, shape), *reduction(op, shape)))


# -- connectionist temporal classification ----------

CTC = "aten/src/ATen/native/LossCTC.cpp, operation by operation"
PADDED = "all steps and all 2 · labels + 1 places are counted, whatever the lengths; maxima and comparisons are 0"


def _log_sum(over: str, count: int, shape: Shape) -> tuple[Term, ...]:
    """log Σ exp of ``count`` logarithms, for each element of ``shape``: their maximum is subtracted first and added back."""
    exponentials = tuple(each(f"{step} {over}{i + 1}", shape) for i in range(count) for step in ("− max,", "exp,"))
    sums = tuple(each(f"+ exp, {over}{i + 2}", shape) for i in range(count - 1))
    return (*exponentials, *sums, each(f"log, {over}", shape), each(f"+ max, {over}", shape))


@rule(
    "aten._ctc_loss.default",
    "aten._ctc_loss.Tensor",
    statement="α[t, s] = log Σ exp α[t − 1, s − {0, 1, 2}] + x[t, l[s]], ℒ = −log Σ exp of the last two places of α[steps]",
    source=CTC,
    convention=PADDED,
    shapes="x (steps, batch, classes), labels (batch, labels) or (all) → ℒ (batch), α (batch, steps, 2 · labels + 1).",
)
def ctc_loss(op: Operator) -> Cost:
    batch, steps, places = op.outputs[1].shape
    later = (batch, reductions(steps), places)
    ends = (*_log_sum("end", 2, (batch,)), each("−log Σ", (batch,)))
    return Cost(elementwise=(*_log_sum("α", 3, later), each("+ x[t, l[s]]", later), *ends))


@rule(
    "aten._ctc_loss_backward.default",
    "aten._ctc_loss_backward.Tensor",
    statement="dx[t, c] = (exp x[t, c] − exp(log Σ exp (α + β)[t, s: l[s] = c] + ℒ − x[t, c])) dℒ, β as α from the other end",
    source=CTC,
    convention=PADDED,
    shapes="dℒ (batch), x (steps, batch, classes), ℒ (batch), α (batch, steps, 2 · labels + 1) → dx (steps, batch, classes).",
)
def ctc_loss_backward(op: Operator) -> Cost:
    batch, steps, places = op.shape("log_alpha")
    earlier, scores = (batch, reductions(steps), places), op.shape("log_probs")
    names = ("exp x", "log Σ + ℒ", "− x", "exp(…)", "exp x − exp(…)", "· dℒ")
    return Cost(
        elementwise=(
            *_log_sum("β", 3, earlier),
            each("+ x[t, l[s]]", earlier),
            each("α + β", earlier),
            each("α + β at the two ends", (batch, 2)),
            *_log_sum("α + β", 2, earlier),
            *(each(name, scores) for name in names),
        )
    )
