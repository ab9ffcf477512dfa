"""Updates of whole lists of tensors: operators repeated for every tensor, and optimizers in one operator."""

from __future__ import annotations

import math
from typing import Any

from calc.rules import comparisons, functions, optimizer, pointwise  # noqa: F401  # whose rules are repeated here
from calc.rules.reduction import vector_norm
from calc.rules.registry import REGISTRY, Cost, Factor, Free, Operator, Rule, View, rule, term
from calc.rules.shapes import whole

UNARY = (
    "abs neg exp sqrt rsqrt reciprocal sign acos asin atan ceil cos cosh erf erfc expm1 floor frac lgamma log log10 log1p log2 round"
    " sigmoid sin sinh tan tanh trunc"
)

# List operators → the operator that each repeats for every tensor. NEW_NAMES: argument of the list operator → {operator: its argument}.
REPEATED = {
    "add.List add.Tensor": "add.Tensor",
    "add.Scalar add.ScalarList": "add.Scalar",
    "sub.List": "sub.Tensor",
    "sub.Scalar sub.ScalarList": "sub.Scalar",
    "mul.List mul.Tensor": "mul.Tensor",
    "mul.Scalar mul.ScalarList": "mul.Scalar",
    "div.List div.Tensor": "div.Tensor",
    "div.Scalar div.ScalarList": "div.Scalar",
    "pow.Scalar pow.ScalarList": "pow.Tensor_Scalar",
    "addcdiv.Scalar addcdiv.ScalarList": "addcdiv.default",
    "addcmul.Scalar addcmul.ScalarList": "addcmul.default",
    "lerp.Scalar lerp.ScalarList": "lerp.Scalar",
    "lerp.List": "lerp.Tensor",
    "pow.List": "pow.Tensor_Tensor",
    "maximum.List minimum.List maximum.Scalar minimum.Scalar maximum.ScalarList minimum.ScalarList": "maximum.default",
    "clamp_min.Scalar clamp_min.ScalarList clamp_min.List": "clamp_min.default",
    "clamp_max.Scalar clamp_max.ScalarList clamp_max.List": "clamp_max.default",
    **{f"{name}.default": f"{name}.default" for name in UNARY.split()},
}
NEW_NAMES = {
    "scalar": {"add": "other", "sub": "other", "mul": "other", "div": "other", "lerp": "weight", "clamp_min": "min", "clamp_max": "max"},
    "scalars": {"add": "other", "sub": "other", "mul": "other", "div": "other", "lerp": "weight", "addcdiv": "value", "addcmul": "value"},
    "exponent": {"pow": "exponent"},
    "tensors1": {"lerp": "end"},
    "weights": {"lerp": "weight"},
}
EACH = "the operator of that name, once for every tensor of the list"


def _one(op: Operator, single: str, i: int) -> Operator:
    """The call of ``single`` for tensor ``i`` of the lists."""
    packet = single.split(".")[0]
    args = {NEW_NAMES.get(name, {}).get(packet, name): _item(value, i) for name, value in op.args.items()}
    target = args["self"]
    return Operator(f"aten.{single}", args, (target,), op.mutates)


def _item(value: Any, i: int) -> Any:
    return value[i] if isinstance(value, tuple) else value


def _register(listed: str, single: str) -> None:
    entry = REGISTRY.find(f"aten.{single}")
    assert entry is not None, single
    names = [f"aten._foreach_{name.split('.')[0]}{way}.{name.split('.')[1]}" for name in listed.split() for way in ("", "_")]

    @rule(
        *names,
        statement=entry.statement if isinstance(entry, Rule) else "y = max(x, bound), or min",
        source=EACH,
        shapes="lists of tensors (*) → a list of tensors (*), or in place.",
    )
    def repeated(op: Operator) -> Cost:
        if isinstance(entry, Free):
            return Cost()
        costs = [entry.function(_one(op, single, i)) for i in range(len(op.value("self")))]
        return Cost(elementwise=tuple(t for cost in costs for t in cost.elementwise))


for _listed, _single in REPEATED.items():
    _register(_listed, _single)


@rule(
    "aten._foreach_norm.Scalar",
    statement="y = (Σ |x|ᵖ)^(1/p), for every tensor",
    source=EACH,
    shapes="a list of tensors (*) → a list of numbers, as gradients are clipped by. Order p = 2 unless given.",
)
def foreach_norm(op: Operator) -> Cost:
    args = {"ord": op.value("ord", 2), "dim": None}
    calls = [
        Operator("aten.linalg_vector_norm.default", {"self": x, **args}, (y,)) for x, y in zip(op.value("self"), op.outputs, strict=True)
    ]
    return Cost(elementwise=tuple(t for call in calls for t in vector_norm(call).elementwise))


@rule(
    "aten._foreach_copy_.default",
    statement="x = source, for every tensor",
    source="moves elements: no arithmetic",
    convention="x is only written",
    shapes="lists of tensors (*).",
)
def foreach_copy(op: Operator) -> Cost:
    return Cost(reads=_all(op, "src"))


@rule(
    "aten._foreach_zero_.default",
    statement="x = 0, for every tensor",
    source="writes elements: no arithmetic",
    convention="x is only written",
    shapes="a list of tensors (*).",
)
def foreach_zero(op: Operator) -> Cost:
    return Cost(reads=())


# -- optimizers in one operator ------------------------------------------------------------------------------------------------

UPDATE = "the update as torch.optim documents it, operation by operation; a setting that is 0 has none"
COUNTERS = "counters and the scalars made of them are 0; gradients are only read, unless a scale is given: then each is divided by it"


def _all(op: Operator, *names: str) -> tuple[tuple[Factor, str], ...]:
    """Traffic of all tensors in the named lists."""
    return tuple((v.distinct, v.dtype) for name in names for v in op.value(name, ()) if isinstance(v, View))


def _update(op: Operator, addends: list[str], written: tuple[str, ...]) -> Cost:
    elements = sum(math.prod(v.shape) for v in op.value("self"))
    reads = tuple((v.distinct, v.dtype) for _, v in op.tensors())
    scaled = op.has("grad_scale")
    addends = ["g / scale", *addends] if scaled else addends
    written = (*written, "grads") if scaled else written
    return Cost(elementwise=tuple(term(name, elements) for name in addends), reads=reads, writes=_all(op, *written))


def _decay(op: Operator) -> list[str]:
    return ["decay · x", "g + decay · x"] if op.value("weight_decay") else []


MOMENTS = [
    "g − m",
    "(1 − β₁)(g − m)",
    "m + (1 − β₁)(g − m)",
    "β₂ v",
    "(1 − β₂) g",
    "(1 − β₂) g²",
    "β₂ v + (1 − β₂) g²",
    "√v",
    "√v / c₂",
    "√v / c₂ + ε",
    "step · m",
    "step · m / (…)",
    "x − step · m / (…)",
]


@rule(
    "aten._fused_adam_.default",
    statement="m = β₁ m + (1 − β₁) g, v = β₂ v + (1 − β₂) g², x = x − γ m̂ / (√v̂ + ε)",
    source=UPDATE,
    convention=COUNTERS,
    shapes="lists of x, g, m, v, each (*).",
)
def adam(op: Operator) -> Cost:
    return _update(op, [*_decay(op), *MOMENTS], ("self", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs"))


@rule(
    "aten._fused_adamw_.default",
    statement="x = (1 − γ λ) x, m = β₁ m + (1 − β₁) g, v = β₂ v + (1 − β₂) g², x = x − γ m̂ / (√v̂ + ε)",
    source=UPDATE,
    convention=COUNTERS,
    shapes="lists of x, g, m, v, each (*).",
)
def adamw(op: Operator) -> Cost:
    decay = ["(1 − γ λ) x"] if op.value("weight_decay") else []
    return _update(op, [*decay, *MOMENTS], ("self", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs"))


@rule(
    "aten._fused_sgd_.default",
    statement="b = μ b + (1 − τ) g, x = x − γ b",
    source=UPDATE,
    convention=COUNTERS,
    shapes="lists of x, g, b, each (*).",
)
def sgd(op: Operator) -> Cost:
    momentum: list[str] = []
    if op.value("momentum"):
        momentum = [] if op.value("is_first_step") else ["μ b", "(1 − τ) g", "μ b + (1 − τ) g"]
        momentum += ["μ b, a second time", "g + μ b"] if op.value("nesterov") else []
    return _update(op, [*_decay(op), *momentum, "γ b", "x − γ b"], ("self", "momentum_buffer_list"))


@rule(
    "aten._fused_adagrad_.default",
    statement="s = s + g², x = x − γ g / (√s + ε)",
    source=UPDATE,
    convention=COUNTERS,
    shapes="lists of x, g, s, each (*).",
)
def adagrad(op: Operator) -> Cost:
    addends = ["g²", "s + g²", "√s", "√s + ε", "γ g", "γ g / (…)", "x − γ g / (…)"]
    return _update(op, [*_decay(op), *addends], ("self", "state_sums"))


@rule(
    "aten._amp_foreach_non_finite_check_and_unscale_.default",
    statement="g = g · (1/scale), for every gradient, and whether one is not finite",
    source="one product per element; testing whether it is finite is a comparison",
    convention="gradients are read and written, and the flag found_inf is written",
    shapes="a list of gradients (*), two numbers ().",
)
def unscale(op: Operator) -> Cost:
    return Cost(elementwise=tuple(term("g · (1/scale)", *t.shape) for t in op.value("self")))


@rule(
    "aten._amp_update_scale_.default",
    statement="steps without overflow + 1; the scale grows after many of them",
    source="counts one addition: no gradient overflowed, and the scale does not grow in this step",
    shapes="three numbers ().",
)
def update_scale(op: Operator) -> Cost:
    changed = whole(op.tensor("self"), op.tensor("growth_tracker"))
    return Cost(elementwise=(term("steps + 1", 1),), reads=(*changed, *whole(op.tensor("found_inf"))), writes=changed)
