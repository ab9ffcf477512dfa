"""Walks a program from its draws to its loss and gives every value its moments.

A value whose operator has no rule is ``Unknown`` with the reason, and so is whatever hangs on it: never a guess.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sympy import prime

from calc.algebra import evaluate_text
from calc.initialisation import rules
from calc.initialisation.laws import Law
from calc.initialisation.rules import State, Step
from calc.initialisation.state import APART, FLAT, Fixed, Moments, Table, Unknown
from calc.program import Amount, Instruction, Program, Ref


@dataclass(frozen=True, slots=True)
class Draws:
    """Laws of the parameters by name and of the inputs by position, ``None`` where there is none; and E[w²] of each parameter as
    an expression in the sizes, or as a number."""

    parameters: Mapping[str, Law | None]
    inputs: Mapping[str, Law | None]
    texts: Mapping[str, str]


def moments_of(program: Program, draws: Draws, sizes: Mapping[str, int]) -> list[State]:
    """Each value's state, by index; ``sizes`` are of the basis symbols."""
    walk = _Walk(program, draws, {**sizes, **program.fixed})
    for leaf in program.leaves:
        walk.states[leaf.value] = walk.leaf(leaf.value, leaf.role, leaf.name, leaf.data)
    for instruction in program.instructions:
        walk.take(instruction)
    return [walk.states.get(value.index, Unknown("nothing makes it")) for value in program.values]


_OTHERS = tuple(tuple(prime(start + i) for i in range(60)) for start in (5, 90))


class _Walk:
    def __init__(self, program: Program, draws: Draws, sizes: Mapping[str, int]) -> None:
        self.program, self.draws, self.sizes = program, draws, sizes
        self.states: dict[int, State] = {}
        self.used: set[str] = set()
        self.made: dict[str, int] = {}
        self._shapes = {v.index: tuple(self.number(s) for s in v.shape) for v in program.values}

    def written(self, size: int | str) -> str:
        """A size as a person writes it: as one of the model's dimensions where it equals one at any sizes."""
        if isinstance(size, int) or size.isidentifier():
            return str(size)
        others = [dict(zip(self.program.symbols, primes, strict=False)) for primes in _OTHERS]
        for name, text in self.program.define.items():
            if all(evaluate_text(text, at) == evaluate_text(size, at) for at in others):
                return name
        return f"({size})"

    def number(self, size: Any) -> int:
        return size if isinstance(size, int) else int(evaluate_text(size, self.sizes))

    def leaf(self, value: int, role: str, name: str, data: Any) -> State:
        if role == "parameter":
            law = self.draws.parameters.get(name)
            if law is None:
                return Unknown(f"parameter {name} is made by operators that have no law here")
            return Table(name, law.mean, law.second, self._shapes[value], self.draws.texts.get(name, f"{law.second:.6g}"))
        if role == "input":
            law = self.draws.inputs.get(name)
            if law is None:
                return Fixed()  # numbers of tokens and the like
            text = f"drawn from {law.text}"
            found = Moments(law.mean, law.second, law.mean**2, law.mean == 0, frozenset({value}), text, (), f"input {name}")
            return found.saying(f"{law.second:.6g}")
        return Fixed(float(data) if isinstance(data, int | float) else None)

    def take(self, instruction: Instruction) -> None:
        step = self._step(instruction)
        unknown = next((a for a in _flat(step.args.values()) if isinstance(a, Unknown)), None)
        found = unknown if unknown is not None and step.name not in _PASS_UNKNOWN else _result(step)
        each_one = found if isinstance(found, list) else [found] * len(instruction.outputs)
        self.states.update(zip(instruction.outputs, each_one, strict=False))
        for name, argument in instruction.args:
            if name in instruction.mutates and isinstance(argument, Ref):
                self.states[argument.value] = self.states[instruction.outputs[0]] if instruction.outputs else step.refuse()

    def _step(self, instruction: Instruction) -> Step:
        args: dict[str, Any] = {}
        shapes: dict[str, tuple[int, ...]] = {}
        texts: dict[str, tuple[str, ...]] = {}
        for name, argument in instruction.args:
            args[name] = self._looked_up(argument)
            if isinstance(argument, Ref):
                shapes[name] = self._shapes[argument.value]
                texts[name] = tuple(self.written(s) for s in self.program.values[argument.value].shape)
        refs = {name: a.value for name, a in instruction.args if isinstance(a, Ref)}
        args = {k: replace(v, again=True) if isinstance(v, Table) and v.name in self.used else v for k, v in args.items()}
        bare = instruction.name.removeprefix("aten.").partition(".")[0]
        if bare in _PRODUCTS:
            self.used.update(a.name for a in args.values() if isinstance(a, Table))
        results = tuple(self._shapes[o] for o in instruction.outputs)
        joined = next((a for _, a in instruction.args if isinstance(a, tuple)), ())
        parts = tuple(self._shapes[a.value] for a in joined if isinstance(a, Ref))
        fresh = instruction.outputs[0] if instruction.outputs else -1
        return Step(bare, instruction.site, args, shapes, texts, results, fresh, refs, self.label(instruction), parts)

    def label(self, instruction: Instruction) -> str:
        """What a result is called: its module, and where that has made others before, which of them."""
        if not instruction.outputs or instruction.name.removeprefix("aten.").partition(".")[0] in _SAME | _PARTS:
            return instruction.site
        self.made[instruction.site] = self.made.get(instruction.site, 0) + 1
        return f"{instruction.site} #{self.made[instruction.site]}"

    def _looked_up(self, argument: Any) -> Any:
        if isinstance(argument, Ref):
            return self.states.get(argument.value, Unknown("nothing makes it"))
        if isinstance(argument, Amount):
            return _amount(argument.text, self.sizes)
        if isinstance(argument, tuple):
            return tuple(self._looked_up(a) for a in argument)
        return argument


def _amount(text: str, sizes: Mapping[str, int]) -> float:
    """A number made of sizes; its text holds names, numbers, + * / ** and three functions."""
    allowed = {"sqrt": math.sqrt, "exp": math.exp, "log": math.log, **sizes}
    return float(eval(compile(text, "<amount>", "eval"), {"__builtins__": {}}, allowed))


def _flat(values: Any) -> list[Any]:
    return [each for value in values for each in (_flat(value) if isinstance(value, tuple) else [value])]


# -- one operator -----------------------------------------------------------------------------------------------------

_SAME = frozenset(
    """view _unsafe_view reshape transpose t permute expand clone detach alias contiguous unsqueeze squeeze _to_copy lift_fresh
    flatten unflatten _reshape_alias copy_ movedim""".split()  # noqa: SIM905  # names of operators
)
_PARTS = frozenset("split split_with_sizes chunk unbind slice select narrow roll flip".split())  # noqa: SIM905  # names of operators
_PRODUCTS = frozenset("mm addmm matmul linear convolution bmm".split())  # noqa: SIM905  # names of operators


def _result(step: Step) -> State | list[State]:
    states = [a for a in _flat(step.args.values()) if isinstance(a, Moments | Table | Unknown)]
    if not states:
        return _fixed(step)
    if step.name in _SAME:
        return _carried(step)
    if step.name in _PARTS:
        return _parts(step)
    if step.name in _RULES:
        return _RULES[step.name](step)
    f = rules.function_of(step.name, step.args)
    x = step.args.get("self")
    if f is not None and isinstance(x, Moments):
        return rules.activation(step, x, f)
    return step.refuse()


def _fixed(step: Step) -> State:
    if step.name in ("cos", "sin"):
        return Fixed(angle=(step.name, step.refs["self"]))
    if step.name == "arange":
        return Fixed(distinct=True)
    before = next((a for a in step.args.values() if isinstance(a, Fixed)), None)
    if step.name in _SAME | _PARTS and before is not None:
        return before
    return Fixed()


def _carried(step: Step) -> State:
    x = step.args.get("src" if step.name == "copy_" else "self")
    if isinstance(x, Table):
        shape = step.results[0]
        return replace(x, shape=shape)
    return x if isinstance(x, Moments | Fixed | Unknown) else step.refuse()


def _parts(step: Step) -> State | list[State]:
    x = step.args.get("self")
    if isinstance(x, Table):
        return [replace(x, shape=shape) for shape in step.results]
    if not isinstance(x, Moments):
        return step.refuse()
    # Other features of one draw are other draws.
    return [replace(x, sources=frozenset({step.fresh + i}), because="a part of it") for i in range(len(step.results))]


def _joined(step: Step) -> State:
    """Parts side by side: an element picked at random is of each as often as it is large."""
    tensors = step.args.get("tensors", ())
    if not all(isinstance(each, Moments | Table) for each in tensors):
        return step.refuse("joins values of which one is not drawn")
    parts = [_drawn(each, step.fresh + i) for i, each in enumerate(tensors)]
    if len({(p.second, p.mean, p.shared) for p in parts}) == 1:
        return replace(parts[0], sources=frozenset({step.fresh}), because="parts alike, joined", normal=all(p.normal for p in parts))
    sizes = [math.prod(shape) for shape in step.parts]
    shares = [size / sum(sizes) for size in sizes]
    mean, second, shared = (sum(w * getattr(p, of) for w, p in zip(shares, parts, strict=True)) for of in ("mean", "second", "shared"))
    text = " + ".join(f"{w:.6g} × {p.second:.6g}" for w, p in zip(shares, parts, strict=True))
    found = Moments(mean, second, shared, all(p.normal for p in parts), frozenset({step.fresh}), text, (), step.label)
    names = {f"p{i}": part for i, part in enumerate(parts)}
    return found.saying(" + ".join(f"{w:.6g}*({{p{i}}})" for i, w in enumerate(shares)), **names).resting(FLAT)


def _product(step: Step) -> State:
    left, right, bias = step.args.get("self"), step.args.get("mat2"), None
    if step.name == "addmm":
        left, right, bias = step.args.get("mat1"), step.args.get("mat2"), step.args.get("self")
    if step.name == "bmm" or not (isinstance(left, Moments | Unknown) and isinstance(right, Table)):
        return step.refuse("multiplies two values of which none is a fresh matrix")
    return rules.affine(step, left, right, right.shape[0], f"({step.texts['mat2'][0]})", bias)


def _linear(step: Step) -> State:
    x, weight = step.args.get("input"), step.args.get("weight")
    if not (isinstance(x, Moments | Unknown) and isinstance(weight, Table)):
        return step.refuse("multiplies two values of which none is a fresh matrix")
    return rules.affine(step, x, weight, weight.shape[-1], f"({step.texts['weight'][-1]})", step.args.get("bias"))


def _convolution(step: Step) -> State:
    x, weight = step.args.get("input"), step.args.get("weight")
    if not (isinstance(x, Moments | Unknown) and isinstance(weight, Table)) or step.args.get("transposed"):
        return step.refuse("is no convolution with a fresh kernel")
    taps = 1.0
    for axis, (side, kernel) in enumerate(zip(step.shapes["input"][2:], weight.shape[2:], strict=True)):
        stride, padding, dilation = (_at(step.args[k], axis) for k in ("stride", "padding", "dilation"))
        taps *= _inside(side, kernel, stride, padding, dilation, step.results[0][2 + axis])
    return rules.affine(step, x, weight, weight.shape[1] * taps, f"({step.texts['weight'][1]})*{taps:.6g}", step.args.get("bias"))


def _at(values: Any, axis: int) -> int:
    return int(values[axis] if len(values) > 1 else values[0])


def _inside(side: int, kernel: int, stride: int, padding: int, dilation: int, results: int) -> float:
    """Taps of one axis that meet the input rather than its padding, averaged over the outputs."""
    met = sum(0 <= i * stride - padding + j * dilation < side for i in range(results) for j in range(kernel))
    return met / results


def _embedding(step: Step) -> State:
    weight, indices = step.args.get("weight"), step.args.get("indices")
    if not isinstance(weight, Table) or not isinstance(indices, Fixed):
        return step.refuse()
    rows = weight.shape[0]
    distinct = indices.distinct
    shared = weight.mean**2 if distinct else weight.second / rows + weight.mean**2 * (1 - 1 / rows)
    text = f"E[w²] {weight.second:.6g} of {weight.name}"
    found = Moments(weight.mean, weight.second, shared, weight.mean == 0, frozenset({step.fresh}), text, (), step.label)
    found = found.saying("{w}", w=weight)
    return found if distinct else found.resting(APART)


def _add(step: Step, sign: float = 1.0) -> State:
    x, y, alpha = step.args.get("self"), step.args.get("other"), step.args.get("alpha", 1)
    if isinstance(y, int | float) and isinstance(x, Moments):
        return replace(x, mean=x.mean + sign * y * alpha, second=x.second + 2 * sign * x.mean * y * alpha + (y * alpha) ** 2, normal=False)
    if isinstance(x, Moments | Table) and isinstance(y, Moments | Table):
        return rules.added(step, _drawn(x, step.fresh), _drawn(y, step.fresh), sign * float(alpha))
    return step.refuse()


def _drawn(x: Any, fresh: int) -> Moments:
    """A parameter as a value: a position table that is added."""
    if isinstance(x, Moments):
        return x
    found = Moments(x.mean, x.second, x.mean**2, x.mean == 0, frozenset({-fresh}), f"E[w²] of {x.name}", (), x.name)
    return found.saying("{w}", w=x)


def _mul(step: Step) -> State:
    x, y = step.args.get("self"), step.args.get("other")
    if isinstance(y, Moments) and not isinstance(x, Moments):
        x, y = y, x
    if not isinstance(x, Moments):
        return step.refuse()
    if isinstance(y, int | float):
        return replace(x.scaled(y), because=f"{y:.6g}² × E[x²] {x.second:.6g}")
    if isinstance(y, Table):
        return rules.scaled_by_table(x, y)
    if isinstance(y, Fixed) and y.angle is not None:
        return rules.turned(x, y.angle)
    if isinstance(y, Fixed) and y.number is not None:
        return x.scaled(y.number)
    return rules.multiplied(step, x, y) if isinstance(y, Moments) else step.refuse("multiplies by fixed numbers that have no rule")


def _div(step: Step) -> State:
    x, y = step.args.get("self"), step.args.get("other")
    return x.scaled(1 / y) if isinstance(x, Moments) and isinstance(y, int | float) and y else step.refuse()


def _layer_norm(step: Step) -> list[State]:
    x, shape = step.args.get("input"), step.args.get("normalized_shape", ())
    if isinstance(x, Unknown):
        return [rules.normalised_unknown(step, x, step.args.get("weight"), step.args.get("bias")), x, x]
    if not isinstance(x, Moments):
        return [step.refuse()]
    over = math.prod([int(s) for s in shape])
    found = rules.normalised(step, x, over, step.args["eps"], step.args.get("weight"), step.args.get("bias"), centred=True)
    return [found, Unknown("the mean of a norm"), Unknown("the rate of a norm")]


def _rms_norm(step: Step) -> State:
    x = step.args.get("input")
    if isinstance(x, Unknown):
        return rules.normalised_unknown(step, x, step.args.get("weight"), None)
    if not isinstance(x, Moments):
        return step.refuse()
    over = math.prod([int(s) for s in step.args.get("normalized_shape", ())])
    eps = step.args.get("eps")
    return rules.normalised(step, x, over, 1.1920929e-07 if eps is None else eps, step.args.get("weight"), None, centred=False)


def _batch_norm(step: Step) -> State:
    x = step.args.get("input")
    if isinstance(x, Unknown):
        return rules.normalised_unknown(step, x, step.args.get("weight"), step.args.get("bias"))
    if not isinstance(x, Moments) or not step.args.get("training", step.args.get("train", True)):
        return step.refuse()
    shape = step.shapes["input"]
    over = math.prod(shape) // shape[1]
    # Over samples and positions, each feature by itself: what they share is its mean.
    varying = replace(x, second=x.second - x.shared, mean=0.0, shared=0.0)
    return rules.normalised(step, varying, over, step.args["eps"], step.args.get("weight"), step.args.get("bias"), centred=True)


def _pow(step: Step) -> State:
    x = step.args.get("self")
    if isinstance(x, Moments) and step.args.get("exponent") == 2:
        return rules.squared(step, x)
    if isinstance(x, Moments) and step.args.get("exponent") == -0.5:
        return rules.of_even(step, x, lambda v: v**-0.5)
    return step.refuse()


def _mean(step: Step) -> State:
    x, dims = step.args.get("self"), step.args.get("dim")
    shape = step.shapes["self"]
    if not isinstance(x, Moments) or not isinstance(dims, tuple) or {int(d) % len(shape) for d in dims} != {len(shape) - 1}:
        return step.refuse("averages over something else than features")
    return rules.mean_of(step, x, shape[-1])


def _root(step: Step) -> State:
    x = step.args.get("self")
    return rules.of_even(step, x, _ROOTS[step.name]) if isinstance(x, Moments) else step.refuse()


_ROOTS: dict[str, Callable[[float], float]] = {"rsqrt": lambda v: v**-0.5, "sqrt": math.sqrt, "reciprocal": lambda v: 1 / v}


def _attention(step: Step) -> State:
    scale = step.args.get("scale")
    if step.args.get("attn_mask") is not None or step.args.get("attn_bias") is not None:
        return step.refuse("has a mask that is data")
    if step.args.get("dropout_p"):
        return step.refuse("drops weights")
    width = step.shapes["query"][-1]
    q, k, v = (step.args[n] for n in ("query", "key", "value"))
    return rules.averaged(step, q, k, v, scale if isinstance(scale, int | float) else width**-0.5, bool(step.args.get("is_causal")))


def _dropout(step: Step) -> State:
    x, p = step.args.get("input"), step.args.get("p", step.args.get("prob"))
    if not isinstance(x, Moments) or not isinstance(p, int | float) or p >= 1:
        return step.refuse()
    return replace(x, second=x.second / (1 - p), normal=False, because=f"E[x²] {x.second:.6g} / (1 - {p:g})") if p else x


# Of an unknown value these know something nevertheless.
_PASS_UNKNOWN = frozenset(
    """mm addmm linear convolution native_layer_norm native_batch_norm _fused_rms_norm view _unsafe_view reshape transpose
    t permute""".split()  # noqa: SIM905  # names of operators
)

_RULES: dict[str, Callable[[Step], State | list[State]]] = {
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
