"""Layer, RMS, batch and group normalization, forward and backward, as their references define them.

M is the number of normalized rows, N the elements of each; for batch normalization C channels of m elements.
"""

from __future__ import annotations

import math

from calc.rules.registry import DECOMPOSITION, Cost, Factor, Operator, Term, rule, term
from calc.rules.shapes import Shape, each, optional, reducing, reductions, whole


def _rows(op: Operator, name: str) -> tuple[Shape, Shape]:
    """(sizes of the rows, normalized sizes). The normalized sizes are the last ``len(normalized_shape)`` axes."""
    shape = op.shape(name)
    last = len(op.value("normalized_shape"))
    return shape[: len(shape) - last], shape[len(shape) - last :]


def _row_sum(name: str, rows: Shape, row: Shape) -> Term:
    return term(name, *rows, reductions(math.prod(row)))


def _affine(op: Operator, shape: Shape) -> tuple[Term, ...]:
    """The learned scale and shift, where given."""
    weight = (each("· weight", shape),) if op.has("weight") else ()
    bias = (each("+ bias", shape),) if op.has("bias") else ()
    return (*weight, *bias)


@rule(
    "aten.native_layer_norm.default",
    statement="y = (x − mean) / √(variance + ε) · weight + bias",
    reference="torch._refs.native_layer_norm",
    source="its variance is one reduction",
    shapes="x (*M, *N), weight (*N), bias (*N) → y (*M, *N), mean (*M, 1), rstd (*M, 1).",
)
def layer_norm(op: Operator) -> Cost:
    rows, row = _rows(op, "input")
    shape = (*rows, *row)
    return Cost(
        elementwise=(
            _row_sum("variance", rows, row),
            _row_sum("Σ x", rows, row),
            each("mean = Σ x / N", rows),
            each("variance + ε", rows),
            each("rstd = 1/√", rows),
            each("x − mean", shape),
            each("· rstd", shape),
            *_affine(op, shape),
        )
    )


@rule(
    "aten.native_layer_norm_backward.default",
    statement="dx = rstd/N (N g − Σ g − x̂ Σ g x̂) with g = dy · weight; dweight = Σ dy x̂; dbias = Σ dy",
    reference=DECOMPOSITION + "native_layer_norm_backward",
    convention="the bias itself is not read",
    shapes="dy (*M, *N), x (*M, *N), mean (*M, 1), rstd (*M, 1), weight (*N) → dx, dweight, dbias as output_mask requests.",
)
def layer_norm_backward(op: Operator) -> Cost:
    rows, row = _rows(op, "input")
    shape = (*rows, *row)
    of_input, of_weight, of_bias = op.value("output_mask")
    scaled = (each("g = dy · weight", shape),) if op.has("weight") else ()
    input_gradient = (each("rstd / N", rows), each("dx = rstd/N (…)", shape))
    down = tuple(range(len(rows)))
    weight_gradient = (each("dy x̂", shape), *_down("dweight = Σ dy x̂", shape, down))
    return Cost(
        elementwise=(
            each("x − mean", shape),
            each("x̂ = (x − mean) rstd", shape),
            *scaled,
            each("N g", shape),
            _row_sum("Σ g", rows, row),
            each("g x̂", shape),
            _row_sum("Σ g x̂", rows, row),
            each("x̂ Σ g x̂", shape),
            each("N g − Σ g", shape),
            each("− x̂ Σ g x̂", shape),
            *(input_gradient if of_input else ()),
            *(weight_gradient if of_weight and op.has("weight") else ()),
            *(_down("dbias = Σ dy", shape, down) if of_bias and op.has("bias") else ()),
        ),
        reads=whole(*(view for name, view in op.tensors() if name != "bias")),
    )


def _down(name: str, shape: Shape, dims: tuple[int, ...]) -> tuple[Term, ...]:
    """A sum over all rows; there is none if the whole tensor is one row."""
    return (reducing(name, shape, dims),) if dims else ()


@rule(
    "aten._fused_rms_norm.default",
    statement="y = x / √(mean(x²) + ε) · weight",
    reference=DECOMPOSITION + "_fused_rms_norm",
    shapes="x (*M, *N), weight (*N) → y (*M, *N), rstd (*M, 1).",
)
def rms_norm(op: Operator) -> Cost:
    rows, row = _rows(op, "input")
    shape = (*rows, *row)
    return Cost(
        elementwise=(
            each("x²", shape),
            _row_sum("Σ x²", rows, row),
            each("mean = Σ x² / N", rows),
            each("mean + ε", rows),
            each("rstd = 1/√", rows),
            each("x rstd", shape),
            *_affine(op, shape),
        )
    )


@rule(
    "aten._fused_rms_norm_backward.default",
    statement="dx = (g − x̂/N Σ x̂ g) rstd with g = dy · weight; dweight = Σ dy x̂",
    reference=DECOMPOSITION + "_fused_rms_norm_backward",
    shapes="dy (*M, *N), x (*M, *N), rstd (*M, 1), weight (*N) → dx, dweight as output_mask requests.",
)
def rms_norm_backward(op: Operator) -> Cost:
    rows, row = _rows(op, "input")
    shape = (*rows, *row)
    of_input, of_weight = op.value("output_mask")
    scaled = (each("g = dy · weight", shape),) if op.has("weight") else ()
    input_gradient = (
        each("x̂ g", shape),
        _row_sum("Σ x̂ g", rows, row),
        each("x̂ / N", shape),
        each("x̂/N Σ x̂ g", shape),
        each("g − x̂/N Σ x̂ g", shape),
        each("dx = (…) rstd", shape),
    )
    weight_gradient = (each("dy x̂", shape), *_down("dweight = Σ dy x̂", shape, tuple(range(len(rows)))))
    return Cost(
        elementwise=(
            *scaled,
            each("x̂ = x rstd", shape),
            *(input_gradient if of_input else ()),
            *(weight_gradient if of_weight and op.has("weight") else ()),
        )
    )


def _channels(op: Operator, name: str) -> tuple[Factor, Factor]:
    """(channels, elements of each)."""
    batch, channels, *positions = op.shape(name)
    return channels, math.prod((batch, *positions))


@rule(
    "aten.native_batch_norm.default",
    statement="y = (x − mean) / √(variance + ε) · weight + bias, per channel; in training the batch's own mean and variance",
    reference=DECOMPOSITION + "native_batch_norm_helper",
    convention="in training the running statistics are read and written",
    shapes="x (batch, channels, *), weight, bias, running mean and variance (channels) → y (batch, channels, *), mean (channels),"
    " rstd (channels).",
)
def batch_norm(op: Operator) -> Cost:
    channels, size = _channels(op, "input")
    shape = op.shape("input")
    if not op.value("training"):
        statistics = (term("running variance + ε", channels), term("√", channels), term("1/√", channels), term("rstd = 1 · 1/√", channels))
        return Cost(elementwise=(*statistics, each("x − mean", shape), each("· rstd", shape), *_affine(op, shape)))
    running = tuple(optional(op, name) for name in ("running_mean", "running_var"))
    return Cost(
        elementwise=(
            term("variance", channels, reductions(size)),
            term("Σ x", channels, reductions(size)),
            term("mean = Σ x / m", channels),
            term("variance + ε", channels),
            term("rstd = 1/√", channels),
            each("x − mean", shape),
            each("· rstd", shape),
            *(_average("running mean", channels) if running[0] else ()),
            *((term("variance · m/(m−1)", channels), *_average("running variance", channels)) if running[1] else ()),
            *_affine(op, shape),
        ),
        writes=(*whole(*op.outputs), *whole(*running)),
    )


def _average(name: str, channels: Factor) -> tuple[Term, ...]:
    """momentum · new + (1 - momentum) · old."""
    return (term(f"momentum · new {name}", channels), term(f"(1 − momentum) · {name}", channels), term(f"new + old {name}", channels))


@rule(
    "aten.native_batch_norm_backward.default",
    statement="dx = (dy − (x − mean) rstd² Σ dy (x − mean)/m − Σ dy/m) rstd weight; dweight = rstd Σ dy (x − mean); dbias = Σ dy",
    reference=DECOMPOSITION + "native_batch_norm_backward",
    convention="reads the statistics it uses: those of the batch in training, the running ones else; dx is counted, requested or not",
    shapes="dy (batch, channels, *), x (batch, channels, *), weight and statistics (channels) → dx, dweight, dbias as output_mask"
    " requests.",
)
def batch_norm_backward(op: Operator) -> Cost:
    channels, size = _channels(op, "input")
    shape = op.shape("input")
    train, of_weight = op.value("train"), op.value("output_mask")[1]
    statistics = () if train else (term("running variance + ε", channels), term("rstd = 1/√", channels))
    input_gradient = (
        (
            each("x − mean", shape),
            each("(x − mean) · projection", shape),
            each("dy − projection", shape),
            each("− mean of dy", shape),
            each("dx = (…) · scale", shape),
        )
        if train
        else (each("dx = dy · scale", shape),)
    )
    used = ("save_mean", "save_invstd") if train else ("running_mean", "running_var")
    return Cost(
        elementwise=(
            *statistics,
            term("Σ dy", channels, reductions(size)),
            each("x − mean, for Σ", shape),
            each("dy (x − mean)", shape),
            term("Σ dy (x − mean)", channels, reductions(size)),
            term("mean of dy = Σ dy / m", channels),
            term("Σ dy (x − mean) / m", channels),
            term("rstd²", channels),
            term("projection = rstd² Σ dy (x − mean) / m", channels),
            term("scale = rstd · weight", channels),
            *input_gradient,
            *((term("dweight = rstd Σ dy (x − mean)", channels),) if of_weight else ()),
        ),
        reads=whole(op.tensor("grad_out"), op.tensor("input"), optional(op, "weight"), *(optional(op, name) for name in used)),
    )


def _down_to(elements: Factor, groups: Factor) -> Factor:
    """Operations that reduce ``elements`` to one for each group: none where there are no elements."""
    return elements - groups if elements != 0 else 0


@rule(
    "aten.native_group_norm.default",
    statement="y = (x − mean) / √(variance + ε) · weight + bias, per group of channels",
    reference="torch._refs.native_group_norm",
    source="as written for devices other than CPU",
    shapes="x (batch, channels, *), weight (channels), bias (channels) → y (batch, channels, *), mean (batch, groups), rstd"
    " (batch, groups).",
)
def group_norm(op: Operator) -> Cost:
    shape = op.shape("input")
    groups = (shape[0], op.value("group"))
    whole_reduction = _down_to(math.prod(shape), math.prod(groups))
    return Cost(
        elementwise=(
            term("variance", whole_reduction),
            term("Σ x", whole_reduction),
            each("mean = Σ x / n", groups),
            each("variance + ε", groups),
            each("rstd = 1/√", groups),
            each("x − mean", shape),
            each("· rstd", shape),
            *_affine(op, shape),
        )
    )


@rule(
    "aten.native_group_norm_backward.default",
    statement="dx = dy rstd weight + x c₂ + c₃, c₂ and c₃ from Σ dy x weight and Σ dy weight of the group; dweight, dbias over the batch",
    reference=DECOMPOSITION + "native_group_norm_backward",
    shapes="dy (batch, channels, *), x (batch, channels, *), mean (batch, groups), rstd (batch, groups), weight (channels) → dx,"
    " dweight, dbias as output_mask requests.",
)
def group_norm_backward(op: Operator) -> Cost:
    shape = op.shape("input")
    batch, channels, *rest = shape
    count = op.value("group")
    planes, groups = (batch, channels), (batch, count)
    of_input, of_weight, of_bias = op.value("output_mask")
    per_group = _down_to(batch * channels, batch * count)
    weighted = (each("weight Σ dy x", planes), each("weight Σ dy", planes)) if op.has("weight") else ()
    input_gradient = (
        *weighted,
        term("Σ of the group, dy x", per_group),
        term("Σ of the group, dy", per_group),
        each("c₁ = rstd weight", planes),
        each("Σ dy · mean", groups),
        each("− Σ dy x", groups),
        each("· rstd", groups),
        each("· rstd²", groups),
        each("· rstd³", groups),
        each("c₂ = … / n", groups),
        each("−c₂", groups),
        each("−c₂ mean", groups),
        each("Σ dy · rstd", groups),
        each("Σ dy · rstd / n", groups),
        each("c₃ = −c₂ mean − …", groups),
        each("dy c₁", shape),
        each("x c₂", shape),
        each("dy c₁ + x c₂", shape),
        each("dx = … + c₃", shape),
    )
    weight_gradient = (
        each("Σ dy · mean, per channel", planes),
        each("Σ dy x − …", planes),
        each("(…) rstd", planes),
        term("dweight = Σ over the batch", reductions(batch), channels),
    )
    positions = reductions(math.prod(rest))
    return Cost(
        elementwise=(
            each("dy x", shape),
            term("Σ dy x", batch, channels, positions),
            term("Σ dy", batch, channels, positions),
            *(input_gradient if of_input else ()),
            *(weight_gradient if of_weight else ()),
            *((term("dbias = Σ over the batch", reductions(batch), channels),) if of_bias else ()),
        )
    )
