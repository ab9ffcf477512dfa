"""Systems about large runs: training time, the largest model, compute in context, quantized inference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from calc.capacity.questions import ask
from calc.derive.rules_of_thumb import RULES, compare
from calc.hardware.accelerators import accelerator
from calc.symbolic.readable import readable
from calc.symbolic.search import last
from calc.symbolic.worked import WorkedCalculation
from reports.lecture.lab import Lab
from reports.lecture.largest import state
from reports.lecture.sources import source
from reports.lecture.system import LectureSystem, SystemAnswer, SystemResult, equal, from_run, steps_of
from reports.lecture.training import MODEL_FLOPS, per_parameter_and_token

_H100 = "h100-sxm"
_LONG = {"B": 1, "T": 8192}
_SMALL = {"B": 2, "T": 16, "d": 48, "h": 6, "g": 3, "f": 211, "L": 3, "V": 503}


def _training_time(lab: Lab) -> SystemResult:
    answer = ask("training-time", parameters="70e9", tokens="15e12", gpu=_H100, dtype="bf16", gpus=1024, mfu=0.5, convention="6ND")
    per_token = per_parameter_and_token(lab, "llama3-70b", _LONG, *MODEL_FLOPS)
    real = lab.value("llama3-70b", "parameters", _LONG)
    exact = per_token * real * answer["D"]
    (thumb,) = compare(lab.derive("llama3-70b", _LONG), [r for r in RULES if r.name == "6ND"])
    differences = "; ".join(f"{readable(d.expr)} = {d.value:,} ({d.because})" for d in thumb.differences[:4])
    rows = (
        SystemAnswer("time by 6·N·D", answer.value, "days", "70e9 parameters, 15e12 tokens, 1024 H100 at MFU 0.5"),
        SystemAnswer(
            "exact FLOPs of a 70B Llama for each token, over 6·N",
            per_token / 6,
            "1",
            f"{real:,} parameters, T = 8192, attention in full, no recomputation",
        ),
        SystemAnswer(
            "time by the exact count", exact / answer["R"] / 86400, "days", "the same rate, FLOPs of the traced step instead of 6·N·D"
        ),
    )
    note = f"6·N·D less the exact count of that model, for one sequence, largest terms first: {differences}"
    checks = from_run(lab.check("llama3-70b", _SMALL), "parameters", "flops.forward.matmul", "flops.backward.matmul")
    return SystemResult(rows, (answer.calculation,), steps_of(lab, "llama3-70b", _LONG, "flops.forward.matmul"), checks, (note,))


def _largest_depth(lab: Lab, capacity: int, sizes: Mapping[str, int]) -> int:
    """The largest L whose peak fits ``capacity`` bytes, as if on one device."""
    return last(lambda depth: lab.value("llama3-70b", "memory.peak", {**sizes, "L": depth}) <= capacity, 1, 4096)


def _largest_model(lab: Lab) -> SystemResult:
    memory = 8 * accelerator(_H100).memory
    splits = {precision: state(lab, precision) for precision in ("fp32", "bf16-master", "bf16")}
    rows = [
        SystemAnswer(
            f"bytes per parameter, {p}",
            s.per_parameter,
            "bytes",
            " + ".join(f"{t.per_parameter} {t.label}" for t in s.terms if t.per_parameter),
        )
        for p, s in splits.items()
    ]
    answers = {p: ask("largest-model", gpu=_H100, gpus=8, bytes_per_parameter=s.per_parameter) for p, s in splits.items()}
    rows += [SystemAnswer(f"largest model, {p}", f.value, "parameters", "the state alone fills 8 · 80e9 bytes") for p, f in answers.items()]
    for batch in (1, 4):
        sizes = {"B": batch, "T": 8192}
        depth = _largest_depth(lab, memory, sizes)
        count = lab.value("llama3-70b", "parameters", {**sizes, "L": depth})
        peak = lab.value("llama3-70b", "memory.peak", {**sizes, "L": depth})
        because = (
            f"L = {depth} blocks of a 70B Llama's widths: a peak of {peak:,} bytes with activations at B = {batch}, T = 8192, fp32, as "
            "if on one device"
        )
        rows.append(SystemAnswer(f"largest with activations, B = {batch}", count, "parameters", because))
    checks = from_run(lab.check("two-layer", {"B": 3, "D": 7, "K": 5}), "parameters.bytes", "gradients.bytes", "optimizer_state.bytes")
    note = "40e9 holds for the state only; activations need more memory with more tokens in a step"
    return SystemResult(
        tuple(rows),
        _once({precision: answers[precision].calculation for precision in ("fp32", "bf16-master")}),
        (),
        checks,
        (note, "assumes that the state is divided evenly among the devices"),
    )


def _once(calculations: Mapping[str, WorkedCalculation]) -> tuple[WorkedCalculation, ...]:
    """Calculations by precision, each distinct one once, named after the precisions that share it."""
    shared: list[tuple[WorkedCalculation, list[str]]] = []
    for precision, calculation in calculations.items():
        precisions = next((names for earlier, names in shared if earlier == calculation), None)
        if precisions is None:
            shared.append((calculation, [precision]))
        else:
            precisions.append(precision)
    return tuple(replace(calculation, name=f"{calculation.name}, {' and '.join(names)}") for calculation, names in shared)


def _compute(_: Lab) -> SystemResult:
    facts = source("gpt3").facts
    gpt3 = ask("flops", parameters=str(facts["parameters"]), tokens=str(facts["tokens"]), convention="6ND")
    week, half = (ask("device-flops", gpu=_H100, dtype="bf16", gpus=8, days=7, mfu=mfu) for mfu in (1, 0.5))
    run = Fraction(2 * 10**25)
    rows = [
        SystemAnswer("GPT-3", gpt3.value, "FLOP", "6 · 174.6e9 · 300e9"),
        SystemAnswer("eight H100, a week, at the peak", week.value, "FLOP", "dense bf16"),
        SystemAnswer("eight H100, a week, MFU 0.5", half.value, "FLOP", "half of it"),
        SystemAnswer("weeks of eight H100 at MFU 0.5 for GPT-3", gpt3.value / half.value, "weeks", "amount over rate"),
        SystemAnswer(
            "weeks of eight H100 at MFU 0.5 for 2e25 FLOP", run / half.value, "weeks", "amount over rate; the figure is a speculation"
        ),
    ]
    for name, fact in (("eu-ai-act", "systemic_risk_threshold"), ("executive-order", "reporting_threshold")):
        threshold = Fraction(str(source(name).facts[fact]))
        rows.append(SystemAnswer(f"2e25 over the threshold of {threshold.numerator:.0e}", run / threshold, "1", source(name).words))
    three_digits, published = float(f"{float(gpt3.value):.3g}"), float(str(facts["training_flops"]))
    table = equal("GPT-3's table D.1, three digits", three_digits, published, "published figure")
    return SystemResult(
        tuple(rows), (gpt3.calculation, week.calculation), (), (table,), ("thresholds and figures of others' runs rest on their sources",)
    )


def _quantized(lab: Lab) -> SystemResult:
    rows, checks, calculations = [], [], []
    for form in ("bf16", "int8", "int4"):
        inference = lab.inference("llama3-8b", _LONG, form)
        assert inference.cache is not None
        read = lab.read_each_token("llama3-8b", _LONG, form)
        bound = ask("bandwidth-bound", weights_bytes=read, cache_bytes=inference.cache.value, gpu=_H100)
        kinds = sorted({line.because for line in inference.weights.lines})
        rows += [
            SystemAnswer(f"weights in {form}", inference.weights.value, "bytes", "; ".join(kinds)),
            SystemAnswer(
                f"tokens per second at most, {form}",
                bound.value,
                "tokens/s",
                f"{read:,} bytes of weights read for each token, and all keys and values, on one H100",
            ),
        ]
        calculations.append(bound.calculation)
        if form == "bf16":
            rows.append(SystemAnswer("keys and values of 8192 tokens", inference.cache.value, "bytes", readable(inference.cache.expr)))
            checks += [
                replace(
                    v,
                    quantity=f"keys and values at {', '.join(f'{n}={size}' for n, size in v.sizes.items() if n in 'BTLd')}",
                    derived=v.derived or 0,
                    because="",
                )
                for v in inference.checks
            ]
    return SystemResult(
        tuple(rows),
        tuple(calculations[::2]),
        (),
        tuple(checks),
        ("Llama 3 8B, one sequence; a token reads one row of the embedding table; the cost of quantization in quality is not computed",),
    )


SYSTEMS = (
    LectureSystem(
        1,
        "training_time",
        "Training time",
        "the days to train 70e9 parameters on 15e12 tokens, and how far 6·N·D is from the exact count",
        _training_time,
    ),
    LectureSystem(
        2,
        "largest_model",
        "Largest model",
        "how many parameters eight devices of 80 GB can train: by the training state alone, and with activations",
        _largest_model,
    ),
    LectureSystem(
        19,
        "compute_in_context",
        "Compute in context",
        "the FLOPs of published runs and the thresholds of laws beside what eight H100 do in a week",
        _compute,
    ),
    LectureSystem(
        20,
        "quantized_inference",
        "Quantized inference",
        "the bytes of weights in few bits and of keys and values, and the tokens per second that memory bandwidth allows",
        _quantized,
    ),
)
