"""Which rule of moments each operator has.

A view or a copy has its operand's moments; an operator without a rule is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from calc.mathematics.initialization import rules
from calc.mathematics.initialization.rules import BoundInstruction, State
from calc.mathematics.initialization.state import DISTINCT_ROWS, FLAT, Fixed, Moments, Unknown, WeightLaw


def flat(values: Any) -> list[Any]:
    """The values of nested tuples, in order."""
    return [each for value in values for each in (flat(value) if isinstance(value, tuple) else [value])]


SAME = frozenset(
    """view _unsafe_view reshape transpose t permute expand clone detach alias contiguous unsqueeze squeeze _to_copy lift_fresh
    flatten unflatten _reshape_alias copy_ movedim""".split()  # noqa: SIM905  # names of operators
)
PARTS = frozenset("split split_with_sizes chunk unbind slice select narrow roll flip".split())  # noqa: SIM905  # names of operators
PRODUCTS = frozenset("mm addmm matmul linear convolution bmm".split())  # noqa: SIM905  # names of operators


def result(step: BoundInstruction) -> State | list[State]:
    """The moments of an operator's result, or of each of its results."""
    states = [a for a in flat(step.args.values()) if isinstance(a, Moments | WeightLaw | Unknown)]
    if not states:
        return _fixed(step)
    if step.name in SAME:
        return _carried(step)
    if step.name in PARTS:
        return _parts(step)
    if step.name in _RULES:
        return _RULES[step.name](step)
    f = rules.function_of(step.name, step.args)
    x = step.args.get("self")
    if f is not None and isinstance(x, Moments):
        return rules.activation(step, x, f)
    return step.refuse()


def _fixed(step: BoundInstruction) -> State:
    if step.name in ("cos", "sin"):
        return Fixed(angle=(step.name, step.refs["self"]))
    if step.name == "arange":
        return Fixed(distinct=True)
    before = next((a for a in step.args.values() if isinstance(a, Fixed)), None)
    if step.name in SAME | PARTS and before is not None:
        return before
    return Fixed()


def _carried(step: BoundInstruction) -> State:
    x = step.args.get("src" if step.name == "copy_" else "self")
    if isinstance(x, WeightLaw):
        shape = step.results[0]
        return replace(x, shape=shape)
    return x if isinstance(x, Moments | Fixed | Unknown) else step.refuse()


def _parts(step: BoundInstruction) -> State | list[State]:
    x = step.args.get("self")
    if isinstance(x, WeightLaw):
        return [replace(x, shape=shape) for shape in step.results]
    if not isinstance(x, Moments):
        return step.refuse()
    # Other features of one draw are other draws.
    return [replace(x, sources=frozenset({step.fresh + i}), because="a part of it") for i in range(len(step.results))]


def _joined(step: BoundInstruction) -> State:
    """A concatenation: a random element is from each part with probability proportional to its size."""
    tensors = step.args.get("tensors", ())
    if not all(isinstance(each, Moments | WeightLaw) for each in tensors):
        return step.refuse("joins values of which one is not random")
    parts = [_drawn(each, step.fresh + i) for i, each in enumerate(tensors)]
    if len({(p.second, p.mean, p.shared) for p in parts}) == 1:
        return replace(
            parts[0], sources=frozenset({step.fresh}), because="parts with equal moments, joined", normal=all(p.normal for p in parts)
        )
    sizes = [math.prod(shape) for shape in step.parts]
    shares = [size / sum(sizes) for size in sizes]
    mean, second, shared = (sum(w * getattr(p, of) for w, p in zip(shares, parts, strict=True)) for of in ("mean", "second", "shared"))
    text = " + ".join(f"{w:.6g} × {p.second:.6g}" for w, p in zip(shares, parts, strict=True))
    moments = Moments(mean, second, shared, all(p.normal for p in parts), frozenset({step.fresh}), text, (), step.label)
    names = {f"p{i}": part for i, part in enumerate(parts)}
    return moments.saying(" + ".join(f"{w:.6g}*p{i}" for i, w in enumerate(shares)), **names).without_closed_form().resting(FLAT)


def _product(step: BoundInstruction) -> State:
    left, right, bias = step.args.get("self"), step.args.get("mat2"), None
    if step.name == "addmm":
        left, right, bias = step.args.get("mat1"), step.args.get("mat2"), step.args.get("self")
    if step.name == "bmm" or not (isinstance(left, Moments | Unknown) and isinstance(right, WeightLaw)):
        return step.refuse("multiplies two values of which neither is an independent random matrix")
    return rules.affine(step, left, right, right.shape[0], f"({step.texts['mat2'][0]})", bias)


def _linear(step: BoundInstruction) -> State:
    x, weight = step.args.get("input"), step.args.get("weight")
    if not (isinstance(x, Moments | Unknown) and isinstance(weight, WeightLaw)):
        return step.refuse("multiplies two values of which neither is an independent random matrix")
    return rules.affine(step, x, weight, weight.shape[-1], f"({step.texts['weight'][-1]})", step.args.get("bias"))


def _convolution(step: BoundInstruction) -> State:
    x, weight = step.args.get("input"), step.args.get("weight")
    if not (isinstance(x, Moments | Unknown) and isinstance(weight, WeightLaw)) or step.args.get("transposed"):
        return step.refuse("is not a convolution with an independent random kernel")
    taps = 1.0
    for axis, (side, kernel) in enumerate(zip(step.shapes["input"][2:], weight.shape[2:], strict=True)):
        stride, padding, dilation = (_at(step.args[k], axis) for k in ("stride", "padding", "dilation"))
        taps *= _inside(side, kernel, stride, padding, dilation, step.results[0][2 + axis])
    result = rules.affine(step, x, weight, weight.shape[1] * taps, f"({step.texts['weight'][1]})*{taps:.6g}", step.args.get("bias"))
    padded = taps != math.prod(weight.shape[2:])  # the number of taps then depends on the sizes
    return result.without_closed_form() if padded and isinstance(result, Moments) else result


def _at(values: Any, axis: int) -> int:
    return int(values[axis] if len(values) > 1 else values[0])


def _inside(side: int, kernel: int, stride: int, padding: int, dilation: int, results: int) -> float:
    """Taps of one axis that meet the input rather than its padding, averaged over the outputs."""
    met = sum(0 <= i * stride - padding + j * dilation < side for i in range(results) for j in range(kernel))
    return met / results


def _embedding(step: BoundInstruction) -> State:
    weight, indices = step.args.get("weight"), step.args.get("indices")
    if not isinstance(weight, WeightLaw) or not isinstance(indices, Fixed):
        return step.refuse()
    rows = weight.shape[0]
    distinct = indices.distinct
    shared = weight.mean**2 if distinct else weight.second / rows + weight.mean**2 * (1 - 1 / rows)
    text = f"E[w²] {weight.second:.6g} of {weight.name}"
    moments = Moments(weight.mean, weight.second, shared, weight.mean == 0, frozenset({step.fresh}), text, (), step.label)
    moments = moments.saying("w", w=weight)
    return moments if distinct else moments.resting(DISTINCT_ROWS)


def _add(step: BoundInstruction, sign: float = 1.0) -> State:
    x, y, alpha = step.args.get("self"), step.args.get("other"), step.args.get("alpha", 1)
    if isinstance(y, int | float) and isinstance(x, Moments):
        return replace(x, mean=x.mean + sign * y * alpha, second=x.second + 2 * sign * x.mean * y * alpha + (y * alpha) ** 2, normal=False)
    if isinstance(x, Moments | WeightLaw) and isinstance(y, Moments | WeightLaw):
        return rules.added(step, _drawn(x, step.fresh), _drawn(y, step.fresh), sign * float(alpha))
    return step.refuse()


def _drawn(x: Any, fresh: int) -> Moments:
    """A parameter as a value: a position table that is added."""
    if isinstance(x, Moments):
        return x
    moments = Moments(x.mean, x.second, x.mean**2, x.mean == 0, frozenset({-fresh}), f"E[w²] of {x.name}", (), x.name)
    return moments.saying("w", w=x)


def _mul(step: BoundInstruction) -> State:
    x, y = step.args.get("self"), step.args.get("other")
    if isinstance(y, Moments) and not isinstance(x, Moments):
        x, y = y, x
    if not isinstance(x, Moments):
        return step.refuse()
    if isinstance(y, int | float):
        return replace(x.scaled(y), because=f"{y:.6g}² × E[x²] {x.second:.6g}")
    if isinstance(y, WeightLaw):
        return rules.scaled_by_table(x, y)
    if isinstance(y, Fixed) and y.angle is not None:
        return rules.rotated(x, y.angle)
    if isinstance(y, Fixed) and y.number is not None:
        return x.scaled(y.number)
    return rules.multiplied(step, x, y) if isinstance(y, Moments) else step.refuse("multiplies by fixed numbers that have no rule")


def _div(step: BoundInstruction) -> State:
    x, y = step.args.get("self"), step.args.get("other")
    return x.scaled(1 / y) if isinstance(x, Moments) and isinstance(y, int | float) and y else step.refuse()


def _layer_norm(step: BoundInstruction) -> list[State]:
    x, shape = step.args.get("input"), step.args.get("normalized_shape", ())
    if isinstance(x, Unknown):
        return [rules.normalized_unknown(step, x, step.args.get("weight"), step.args.get("bias")), x, x]
    if not isinstance(x, Moments):
        return [step.refuse()]
    over = _over(step, len(shape))
    normalized = rules.normalized(step, x, over, step.args["eps"], step.args.get("weight"), step.args.get("bias"), centered=True)
    return [normalized, Unknown("the mean of a norm"), Unknown("the rate of a norm")]


def _over(step: BoundInstruction, axes: int) -> tuple[int, str]:
    """Number of the features that a norm averages over, and the same in sizes: the last ``axes`` axes of its input."""
    return math.prod(step.shapes["input"][-axes:]), "*".join(step.texts["input"][-axes:])


def _rms_norm(step: BoundInstruction) -> State:
    x = step.args.get("input")
    if isinstance(x, Unknown):
        return rules.normalized_unknown(step, x, step.args.get("weight"), None)
    if not isinstance(x, Moments):
        return step.refuse()
    over = _over(step, len(step.args.get("normalized_shape", ())))
    eps = step.args.get("eps")
    return rules.normalized(step, x, over, 1.1920929e-07 if eps is None else eps, step.args.get("weight"), None, centered=False)


def _batch_norm(step: BoundInstruction) -> State:
    x = step.args.get("input")
    if isinstance(x, Unknown):
        return rules.normalized_unknown(step, x, step.args.get("weight"), step.args.get("bias"))
    if not isinstance(x, Moments) or not step.args.get("training", step.args.get("train", True)):
        return step.refuse()
    shape = step.shapes["input"]
    texts = step.texts["input"]
    over = math.prod(shape) // shape[1], "*".join((texts[0], *texts[2:]))
    # Over samples and positions, each feature by itself: what they share is its mean.
    varying = replace(x, second=x.second - x.shared, mean=0.0, shared=0.0)
    return rules.normalized(step, varying, over, step.args["eps"], step.args.get("weight"), step.args.get("bias"), centered=True)


def _pow(step: BoundInstruction) -> State:
    x = step.args.get("self")
    if isinstance(x, Moments) and step.args.get("exponent") == 2:
        return rules.squared(step, x)
    if isinstance(x, Moments) and step.args.get("exponent") == -0.5:
        return rules.of_even(step, x, lambda v: v**-0.5)
    return step.refuse()


def _mean(step: BoundInstruction) -> State:
    x, dims = step.args.get("self"), step.args.get("dim")
    shape = step.shapes["self"]
    if not isinstance(x, Moments) or not isinstance(dims, tuple) or {int(d) % len(shape) for d in dims} != {len(shape) - 1}:
        return step.refuse("averages over something other than features")
    return rules.mean_of(step, x, shape[-1])


def _root(step: BoundInstruction) -> State:
    x = step.args.get("self")
    return rules.of_even(step, x, _ROOTS[step.name]) if isinstance(x, Moments) else step.refuse()


_ROOTS: dict[str, Callable[[float], float]] = {"rsqrt": lambda v: v**-0.5, "sqrt": math.sqrt, "reciprocal": lambda v: 1 / v}


def _attention(step: BoundInstruction) -> State:
    scale = step.args.get("scale")
    if step.args.get("attn_mask") is not None or step.args.get("attn_bias") is not None:
        return step.refuse("has a data-dependent mask")
    if step.args.get("dropout_p"):
        return step.refuse("drops weights")
    width = step.shapes["query"][-1]
    q, k, v = (step.args[n] for n in ("query", "key", "value"))
    return rules.averaged(step, q, k, v, scale if isinstance(scale, int | float) else width**-0.5, bool(step.args.get("is_causal")))


def _dropout(step: BoundInstruction) -> State:
    x, p = step.args.get("input"), step.args.get("p", step.args.get("prob"))
    if not isinstance(x, Moments) or not isinstance(p, int | float) or p >= 1:
        return step.refuse()
    return replace(x, second=x.second / (1 - p), normal=False, because=f"E[x²] {x.second:.6g} / (1 - {p:g})") if p else x


# Operators with a known result for an unknown input.
OF_UNKNOWN = frozenset(
    """mm addmm linear convolution native_layer_norm native_batch_norm _fused_rms_norm view _unsafe_view reshape transpose
    t permute""".split()  # noqa: SIM905  # names of operators
)

_RULES: dict[str, Callable[[BoundInstruction], State | list[State]]] = {
    "mm": _product,
    "addmm": _product,
    "bmm": _product,
    "matmul": _product,
    "linear": _linear,
    "convolution": _convolution,
    "embedding": _embedding,
    "add": _add,
    "add_": _add,
    "sub": lambda step: _add(step, -1.0),
    "mul": _mul,
    "mul_": _mul,
    "div": _div,
    "cat": _joined,
    "pow": _pow,
    "mean": _mean,
    "rsqrt": _root,
    "sqrt": _root,
    "reciprocal": _root,
    "native_layer_norm": _layer_norm,
    "_fused_rms_norm": _rms_norm,
    "native_batch_norm": _batch_norm,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention": _attention,
    "native_dropout": _dropout,
}
