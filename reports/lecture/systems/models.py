"""Systems about gradients and whole models: a scalar model, two layers, the deep linear network, a transformer."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import numpy as np
import sympy as sp

from calc.derive.rules_of_thumb import compare
from calc.symbolic.readable import readable
from reports.lecture.cruncher import all_bytes, saved_tensors
from reports.lecture.gradients import shared_matrix_flops
from reports.lecture.lab import Lab, closed_form
from reports.lecture.runs import experiment
from reports.lecture.system import LectureSystem, SystemAnswer, SystemResult, equal, from_autograd, from_run, steps_of
from reports.lecture.training import MODEL_FLOPS, per_parameter_and_token

_FORWARD, _BACKWARD = "flops.forward.matmul", "flops.backward.matmul"
_TINY = {"B": 2, "D": 4, "L": 2}


def _scalar(lab: Lab) -> SystemResult:
    equations, differentiated = lab.gradients("scalar")
    x, w = np.array([1.0, 2.0, 3.0]), np.ones(3)
    loss, gradient = equations.values({"n": 3}, {("input", "0"): x, ("parameter", "w"): w})
    measured, has_x = experiment("scalar_model")
    rows = (
        SystemAnswer("u = x·w", float(x @ w), "", "1·1 + 2·1 + 3·1"),
        SystemAnswer("ℒ = ½(u − 5)²", loss, "", "½ · 1²"),
        SystemAnswer("dℒ/du = u − 5", float(x @ w) - 5, "", "the outer derivative"),
        SystemAnswer("dℒ/dw = (u − 5)·x", _tuple(gradient["w"]), "", "chain rule: du/dw = x, at x = (1, 2, 3), w = (1, 1, 1)"),
    )
    checks = (
        equal("gradient of w", _tuple(gradient["w"]), _tuple(measured), "autograd"),
        equal("gradient of x", "none", "one" if has_x else "none", "x.grad"),
        *from_autograd("the scalar model", differentiated),
    )
    return SystemResult(rows, equations=(equations,), checks=checks)


def _tuple(values: Iterable[float]) -> str:
    return f"({', '.join(f'{value:g}' for value in values)})"


def _two_layer(lab: Lab) -> SystemResult:
    at = {"B": 16384, "D": 32768, "K": 8192}
    forward, backward = (lab.value("two-layer", q, at) for q in (_FORWARD, _BACKWARD))
    b, d, k = at.values()
    texts = {q: closed_form(lab.derive("two-layer", at)[q]) for q in (_FORWARD, _BACKWARD)}
    ratios = {t: per_parameter_and_token(lab, "gpt2", {"B": 8, "T": t}, *MODEL_FLOPS) for t in (64, 1024)}
    shared = {"B": 64, "D": 16, "L": 8}
    times = Fraction(
        sum(lab.value("shared", q, shared) for q in (_FORWARD, _BACKWARD)), shared["B"] * lab.value("shared", "parameters", shared)
    )
    narrow = per_parameter_and_token(lab, "gpt2", {"B": 8, "T": 1024, "d": 48}, *MODEL_FLOPS)
    equations, differentiated = lab.gradients("two-layer")
    with_input = int(equations.backward_flops_with_inputs.subs({sp.Symbol(n, positive=True, integer=True): v for n, v in at.items()}))
    rows = (
        SystemAnswer("forward", forward, "FLOP", texts[_FORWARD]),
        SystemAnswer(
            "backward as executed",
            backward,
            "FLOP",
            f"{texts[_BACKWARD]}: both matmuls of the second layer, one of the first, whose input is data",
        ),
        SystemAnswer(
            "backward if the input needed its gradient",
            with_input,
            "FLOP",
            f"{readable(str(equations.backward_flops_with_inputs))}, of the derived equations",
        ),
        SystemAnswer(
            "forward and backward",
            Fraction(forward + backward, b * (d * d + d * k)),
            "FLOP per parameter and point",
            "below 6, because the backward of the first layer computes no gradient of the input",
        ),
        SystemAnswer("one matrix used 8 times", times, "FLOP per parameter and point", shared_matrix_flops(shared["L"])),
        *(
            SystemAnswer(f"GPT-2 at T = {t}", r, "FLOP per parameter and token", "the matmuls of attention grow with T, parameters do not")
            for t, r in ratios.items()
        ),
        SystemAnswer(
            "GPT-2 of width 48 at T = 1024",
            narrow,
            "FLOP per parameter and token",
            "the narrower the model, the larger the share of attention",
        ),
    )
    checks = from_run(lab.check("two-layer", {"B": 3, "D": 7, "K": 5}), _FORWARD, _BACKWARD, "flops.backward.elementwise")
    forms = experiment("two_layer_gradients", 3, 5, 7)
    right = ("w2.grad = h1.T @ h2.grad", "h1.grad = h2.grad @ w2.T", "w1.grad = x.T @ h1.grad", "x.grad = h1.grad @ w1.T")
    checks = (
        *checks,
        *from_autograd("two-layer", differentiated),
        *(equal(form, "equal", "equal" if forms[form] is True else "not equal", "autograd") for form in right),
    )
    return SystemResult(rows, (), steps_of(lab, "two-layer", at, _FORWARD, _BACKWARD), checks, equations=(equations,))


def _cruncher(lab: Lab) -> SystemResult:
    options = {"optimizer": "spec"}
    derivation = lab.derive("cruncher", _TINY, **options)
    forward, backward = (derivation[q].at() for q in (_FORWARD, _BACKWARD))
    thumbs = [c for c in compare(derivation) if c.applies]
    rows = [
        SystemAnswer("parameters", derivation["parameters"].at(), "elements", closed_form(derivation["parameters"])),
        SystemAnswer("gradients", derivation["gradients.bytes"].at() // 4, "elements", "one for each parameter"),
        SystemAnswer("AdaGrad's state", derivation["optimizer_state.bytes"].at() // 4, "elements", "a sum of squares for each parameter"),
        SystemAnswer("saved for backward", derivation["activations.bytes"].at() // 4, "elements", "; ".join(saved_tensors(lab))),
        SystemAnswer("bytes of all of these", all_bytes(lab), "bytes", "4 for each of these numbers"),
        SystemAnswer(
            "matmul FLOPs",
            forward + backward,
            "FLOP",
            f"{closed_form(derivation[_FORWARD])} forward and {closed_form(derivation[_BACKWARD])} backward",
        ),
        SystemAnswer("parameters at D = 64", lab.value("cruncher", "parameters", {**_TINY, "D": 64}, **options), "elements", "2·64² + 64"),
    ]
    for c in thumbs:
        if c.value is not None and c.exact is not None and c.value != c.exact:
            why = "; ".join(f"{readable(d.expr)}: {d.because}" for d in c.differences)
            rows.append(SystemAnswer(f"the lecture's {c.rule.name}", c.value, str(c.rule.unit), f"exact is {c.exact:,}: {why}"))
    names = ("parameters", "gradients.bytes", "optimizer_state.bytes", "activations.bytes", _FORWARD, _BACKWARD, "memory.peak")
    checks = from_run(lab.check("cruncher", _TINY, **options), *names)
    steps = steps_of(lab, "cruncher", _TINY, "parameters", "activations.bytes", _FORWARD, _BACKWARD, **options)
    return SystemResult(tuple(rows), derived=steps, checks=checks)


def _off(value: int, exact: int, unit: str) -> str:
    """By how much a rule's value misses the exact one: in percent, or in units where that rounds to 0."""
    if value == exact:
        return f"equal to the exact {exact:,}"
    off = f"{100 * abs(value / exact - 1):.1f} %"
    if off == "0.0 %":
        count = abs(value - exact)
        off = f"{count:,} {unit}{'' if count == 1 or unit == 'FLOP' else 's'}"
    return f"{off} {'below' if value < exact else 'above'} the exact {exact:,}"


def _transformer(lab: Lab) -> SystemResult:
    at = {"B": 8, "T": 1024}
    derivation = lab.derive("gpt2", at)
    names = (
        "parameters",
        "activations.bytes",
        "gradients.bytes",
        "optimizer_state.bytes",
        "memory.peak",
        _FORWARD,
        _BACKWARD,
        "flops.optimizer.total",
    )
    rows = [SystemAnswer(name, derivation[name].at(), str(derivation[name].unit), derivation[name].meaning) for name in names]
    parts: dict[str, int] = {}
    for term in derivation[_FORWARD].terms:
        parts[term.module_path] = parts.get(term.module_path, 0) + term.value
    largest = sorted(parts.items(), key=lambda item: -item[1])[:6]
    rows += [
        SystemAnswer(f"forward matmul FLOPs of {module_path}", value, "FLOP", f"{value / derivation[_FORWARD].at():.1%} of the forward's")
        for module_path, value in largest
    ]
    for how in ("none", "block"):
        saved = lab.value("gpt2", "activations.bytes", at, checkpointing=how)
        repeated = lab.value("gpt2", "flops.backward.recompute", at, checkpointing=how)
        rows.append(SystemAnswer(f"saved with checkpointing {how}", saved, "bytes", f"{repeated:,} FLOP of the backward are recomputation"))
    for c in compare(derivation):
        if c.applies and c.value is not None and c.exact is not None and c.ratio is not None:
            why = "; ".join(f"{readable(d.expr)}: {d.because}" for d in c.differences[:3])
            rows.append(
                SystemAnswer(
                    f"rule of thumb {c.rule.name}",
                    c.value,
                    str(c.rule.unit),
                    f"{_off(c.value, c.exact, str(c.rule.unit))}{f': {why}' if why else ''}",
                )
            )
    checks = from_run(lab.check("gpt2", {"B": 2, "T": 37, "L": 3, "d": 48, "h": 4, "V": 211, "C": 64}), *names)
    return SystemResult(tuple(rows), derived=steps_of(lab, "gpt2", at, "parameters", _FORWARD), checks=checks)


SYSTEMS = (
    LectureSystem(
        8, "scalar_gradient", "Gradient of a scalar model", "the gradient of ½(x·w − 5)² by the chain rule, step by step", _scalar
    ),
    LectureSystem(
        9,
        "two_layer",
        "Two-layer linear network",
        "FLOPs of forward and backward, where the rule of 6 FLOP per parameter and point comes from, and where it fails",
        _two_layer,
    ),
    LectureSystem(
        11,
        "cruncher",
        "Deep linear network",
        "parameters, state, activations and FLOPs as the lecture counts them, and as torch stores and executes them",
        _cruncher,
    ),
    LectureSystem(
        17,
        "transformer",
        "Transformer memory and FLOPs",
        "memory and FLOPs of a whole decoder by part, with checkpointing, and beside rules of thumb",
        _transformer,
    ),
)
