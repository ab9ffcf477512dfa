"""Moments of an operator's result from those of its operands, one function for each family.

A matrix is drawn independently of what it multiplies and has mean 0, so E[(Wx)ᵢ²] = Σⱼ E[Wᵢⱼ²] E[xⱼ²] exactly: fan-in × E[w²] × E[x²]
(Glorot and Bengio 2010; He et al. 2015, arXiv:1502.01852). Results that are not exact list their assumptions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from calc.mathematics.initialization import spread
from calc.mathematics.initialization.moments import GELU, GELU_TANH, RELU, SIGMOID, SILU, TANH, Activation
from calc.mathematics.initialization.state import FLAT, REUSED_MATRIX, TIED_TABLE, VARIES, WIDE, Fixed, Moments, Unknown, WeightLaw

State = Moments | Fixed | WeightLaw | Unknown


@dataclass(frozen=True, slots=True)
class BoundInstruction:
    """An instruction with its operands looked up: ``args`` by name, ``shapes`` and ``refs`` (values) of tensor operands, sizes as
    numbers and as text, ``parts`` the shapes of a list of them. ``fresh`` names the parameters that are used here first."""

    name: str
    module_path: str
    args: dict[str, Any]
    shapes: dict[str, tuple[int, ...]]
    texts: dict[str, tuple[str, ...]]
    results: tuple[tuple[int, ...], ...]
    fresh: int
    refs: Mapping[str, int] = field(default_factory=dict)
    label: str = ""
    parts: tuple[tuple[int, ...], ...] = ()

    @property
    def same(self) -> bool:
        """Whether both operands are one value."""
        return "other" in self.refs and self.refs.get("self") == self.refs["other"]

    def refuse(self, why: str = "has no rule for moments") -> Unknown:
        return Unknown(f"aten.{self.name} at {self.module_path} {why}")


def affine(step: BoundInstruction, x: Moments | Unknown, weight: WeightLaw, fan_in: float, fan_text: str, bias: State | None) -> State:
    """y = W x + b, the matrix drawn with mean 0."""
    if abs(weight.mean) > 1e-12 * math.sqrt(weight.second):
        return step.refuse(f"multiplies by {weight.name}, whose mean is not 0")
    plus = 0.0
    if isinstance(bias, WeightLaw):
        if bias.mean:
            return step.refuse(f"adds {bias.name}, whose mean is not 0")
        plus = bias.second
    elif bias is not None:
        return step.refuse("adds something other than a parameter")
    if isinstance(x, Unknown):
        return Unknown(x.why, True, frozenset({step.fresh}))
    gain = fan_in * weight.second
    text = f"fan-in {fan_in:g} × E[w²] {weight.second:.6g} × E[x²] {x.second:.6g}" + (f" + E[b²] {plus:.6g}" if plus else "")
    rests = (*x.rests, *((REUSED_MATRIX,) if weight.reused else ()), *((TIED_TABLE,) if weight.table else ()))
    moments = Moments(0.0, gain * x.second + plus, gain * x.shared + plus, True, frozenset({step.fresh}), text, rests, step.label)
    if isinstance(bias, WeightLaw) and plus:
        return moments.saying("n*w*x + b", n=fan_text, w=weight, x=x, b=bias)
    return moments.saying("n*w*x", n=fan_text, w=weight, x=x)


def activation(step: BoundInstruction, x: Moments, f: Activation) -> State:
    """f(x) of a normal x."""
    if not x.normal or abs(x.mean) > 1e-9:
        return step.refuse("is applied to a value that is not close to normal with mean 0")
    mean, second = f.mean_at(x.second), f.second_at(x.second)
    text = f"E[{f.name}{f.variant}(x)²], x ~ N(0, {x.second:.6g})" + (f" = {f.second}" if f.second else "")
    moments = Moments(mean, second, f.cross_at(x.second, min(max(x.shared, 0.0), x.second)), False, x.sources, text, x.rests, step.label)
    moments = moments.resting(WIDE)
    return moments.saying(f.second, q=x) if f.second else moments.saying(f"second_moment_{f.name}(q)", q=x).without_closed_form()


def added(step: BoundInstruction, x: Moments, y: Moments, sign: float = 1.0) -> State:
    """x ± y, independent."""
    rotated = _rotated(x, y)
    if rotated is not None:
        return rotated
    if step.same:
        times = f"{(1 + sign) ** 2:g}"
        return replace(x.scaled(1 + sign), because=f"{times} × E[x²]", module_path=step.label).saying(f"{times}*x", x=x)
    if x.sources & y.sources:
        return step.refuse("adds two values that depend on the same draw")
    cross = sign * x.mean * y.mean
    second = x.second + y.second + 2 * cross
    text = f"E[x²] {x.second:.6g} + E[y²] {y.second:.6g}" + (f" + 2 E[x] E[y] {2 * cross:.6g}" if cross else "")
    rests = tuple(dict.fromkeys((*x.rests, *y.rests)))
    normal = x.normal and y.normal
    shared = x.shared + y.shared + 2 * cross
    moments = Moments(x.mean + sign * y.mean, second, shared, normal, x.sources | y.sources, text, rests, step.label)
    if cross:
        return moments.saying(f"x + y + {2 * cross:.6g}", x=x, y=y).without_closed_form()
    return moments.saying("x + y", x=x, y=y)


def _rotated(x: Moments, y: Moments) -> Moments | None:
    """x cos φ ± y sin φ keeps the second moment for every φ."""
    if x.angle is None or y.angle is None or x.angle[1] != y.angle[1] or {x.angle[0], y.angle[0]} != {"cos", "sin"}:
        return None
    if not math.isclose(x.angle[2], y.angle[2], rel_tol=1e-9):
        return None
    text = f"(cos² φ + sin² φ) × E[x²] {x.angle[2]:.6g}"
    return replace(x, second=x.angle[2], shared=0.0, angle=None, sources=x.sources | y.sources, because=text)


def multiplied(step: BoundInstruction, x: Moments, y: Moments) -> State:
    """x y, independent; x² of a normal x."""
    if step.same:
        return squared(step, x)
    if x.even or y.even:
        return _by_even(step, *((y, x) if x.even else (x, y)))
    if x.sources & y.sources:
        return step.refuse("multiplies two values that depend on the same draw")
    text = f"E[x²] {x.second:.6g} × E[y²] {y.second:.6g}"
    rests = tuple(dict.fromkeys((*x.rests, *y.rests)))
    moments = Moments(x.mean * y.mean, x.second * y.second, x.shared * y.shared, False, x.sources | y.sources, text, rests, step.label)
    return moments.saying("x*y", x=x, y=y)


def _by_even(step: BoundInstruction, x: Moments, rate: Moments) -> Moments:
    """Times a nearly constant number."""
    moments = replace(x.scaled(rate.mean), because=f"{rate.mean:.6g}² × E[x²] {x.second:.6g}", module_path=step.label, even=x.even)
    return moments.saying("x*r", x=x, r=rate).resting(*rate.rests, WIDE)


def mean_of(step: BoundInstruction, x: Moments, over: int) -> Moments:
    """A mean over ``over`` features of one position."""
    second = x.mean**2 + (x.second - x.mean**2) / over
    text = f"mean of {over}: E = {x.mean:.6g}"
    moments = replace(x, second=second, shared=x.mean**2, normal=False, even=True, because=text, module_path=step.label)
    return moments.saying("x", x=x).resting(WIDE)


def of_even(step: BoundInstruction, x: Moments, f: Callable[[float], float]) -> State:
    """A function of a nearly constant value."""
    if not x.even or x.mean <= 0:
        return step.refuse("is applied to a value that is not a mean over features")
    value = f(x.mean)
    moments = replace(x, mean=value, second=value**2, shared=value**2, because=f"of {x.mean:.6g}", module_path=step.label)
    return moments.saying(f"{value**2:.6g}").without_closed_form()


def squared(step: BoundInstruction, x: Moments) -> State:
    """The moments of the square of normal values: E[x⁴] = 3·E[x²]²."""
    if not x.normal:
        return step.refuse("squares a value that is not close to normal")
    q, c = x.second, x.shared
    moments = Moments(q, 3 * q**2, q**2 + 2 * c**2, False, x.sources, f"E[x⁴] = 3 × {q:.6g}²", x.rests, step.label)
    return moments.resting(WIDE).saying("3*x**2", x=x)


def scaled_by_table(x: Moments, table: WeightLaw) -> Moments:
    """An elementwise weight, as a norm's."""
    text = f"E[w²] {table.second:.6g} × E[x²] {x.second:.6g}"
    return replace(x, mean=x.mean * table.mean, second=x.second * table.second, shared=x.shared * table.second, because=text, angle=None)


def rotated(x: Moments, angle: tuple[str, int]) -> Moments:
    """x cos φ: known together with its partner."""
    return replace(x, angle=(*angle, x.second), second=x.second / 2, normal=False)


def normalized_unknown(step: BoundInstruction, x: Unknown, weight: State | None, bias: State | None) -> State:
    """The result of a norm of a value that is normal and otherwise unknown: second moment 1, times its weight, plus its bias."""
    if not x.normal:
        return x
    moments = Moments(0.0, 1.0, 0.0, True, x.sources, "a norm's result", (VARIES,), step.label).saying("1")
    if isinstance(weight, WeightLaw) and (weight.second, weight.mean) != (1.0, 1.0):
        moments = scaled_by_table(moments, weight).saying("w", w=weight)
    if isinstance(bias, WeightLaw) and bias.second:
        moments = replace(moments, second=moments.second + bias.second, shared=moments.shared + bias.second, mean=moments.mean + bias.mean)
    return moments


def normalized(
    step: BoundInstruction, x: Moments, over: tuple[int, str], eps: float, weight: State | None, bias: State | None, centered: bool
) -> State:
    """(x - mean)/√(variance + ε) over so many features, or x/√(E[x²] + ε); then the norm's own weight and bias. ``over`` is their number,
    and the same as text in sizes."""
    count, in_sizes = over
    of_mean = (x.second - x.mean**2) / count if centered else 0.0
    spread_ = x.second - (x.mean**2 if centered else 0.0) - of_mean
    if spread_ <= 0:
        return step.refuse("normalizes a constant")
    shrink = 1 / (spread_ + eps)
    second = spread_ * shrink
    shared = (x.shared - (x.mean**2 if centered else 0.0)) * (1 - 1 / count if centered else 1.0) * shrink
    text = f"v/(v + ε), v = {spread_:.6g}"
    mean = 0.0 if centered else x.mean * math.sqrt(shrink)
    moments = Moments(mean, second, shared, x.normal, x.sources, text, x.rests, step.label).resting(WIDE)
    inside = "x*(1 - 1/n)" if centered else "x"
    template = f"({inside}/({inside} + {eps:g}))"
    parts: dict[str, Moments | WeightLaw | str] = {"x": x, "n": in_sizes}
    if isinstance(weight, WeightLaw) and (weight.second, weight.mean) != (1.0, 1.0):
        moments, template = scaled_by_table(moments, weight), f"w*{template}"
        parts["w"] = weight
    if isinstance(bias, WeightLaw) and bias.second:
        moments = replace(moments, second=moments.second + bias.second, shared=moments.shared + bias.second, mean=moments.mean + bias.mean)
        template += " + b"
        parts["b"] = bias
    return replace(moments, because=text).saying(template, **parts)


def averaged(step: BoundInstruction, q: State, k: State, v: State, scale: float, causal: bool) -> State:
    """Attention: a weighted mean of the values."""
    if not (isinstance(q, Moments) and isinstance(k, Moments) and isinstance(v, Moments)):
        return step.refuse("attends to values without moments")
    width, keys = step.shapes["query"][-1], step.shapes["key"][-2]
    variance = width * scale**2 * (q.second * k.second - q.shared * k.shared)
    alone = v.second - v.shared
    second = v.shared + alone * spread.own(keys, variance, causal)
    shared = v.shared + alone * spread.common(keys, causal)
    text = f"E[Σ p²] × {alone:.6g} + {v.shared:.6g}: scores of variance {variance:.4g}, {keys} keys{', causal' if causal else ''}"
    rests = tuple(dict.fromkeys((*q.rests, *k.rests, *v.rests)))
    moments = Moments(v.mean, second, shared, False, frozenset({step.fresh}), text, rests, step.label)
    return moments.resting(FLAT).saying("v*P2 + (1 - P2)*S", v=v).without_closed_form()


ACTIVATIONS: dict[str, Activation | Callable[[dict[str, Any]], Activation]] = {
    "relu": RELU,
    "relu_": RELU,
    "silu": SILU,
    "silu_": SILU,
    "tanh": TANH,
    "sigmoid": SIGMOID,
    "gelu": lambda args: GELU_TANH if args.get("approximate") == "tanh" else GELU,
}


def function_of(name: str, args: dict[str, Any]) -> Activation | None:
    """The activation function of an operator with these arguments; ``None`` if it is none."""
    function = ACTIVATIONS.get(name)
    return function if function is None or isinstance(function, Activation) else function(args)
