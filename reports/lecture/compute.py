"""Claims on compute in context: published runs, thresholds, and peak rates of accelerators."""

from __future__ import annotations

import math
from fractions import Fraction

from calc.capacity.questions import ask
from calc.hardware.accelerators import accelerator, catalogue
from reports.lecture.claim import Topic
from reports.lecture.lab import Lab
from reports.lecture.sources import YEAR, source
from reports.lecture.verdicts import SOURCE, ClaimFinding, number, readings, same, true, unchecked

COMPUTE = Topic("Compute in context")


def _gpt3() -> Fraction:
    facts = source("gpt3").facts
    return ask("flops", parameters=str(facts["parameters"]), tokens=str(facts["tokens"])).value


@COMPUTE.claim("gpt3-3.14e23", "Training GPT-3 (2020) took 3.14e23 FLOP.")
def _(_: Lab) -> ClaimFinding:
    return number(
        "3.14e23",
        _gpt3(),
        "6 · 174.6e9 parameters · 300e9 tokens; the paper's table D.1 leaves attention's matmuls out too",
        "napkin ask flops parameters=174.6e9 tokens=300e9",
        unit="FLOP",
    )


@COMPUTE.claim("gpt3-004", "Training GPT-3 took about 3e23 FLOP.")
def _(_: Lab) -> ClaimFinding:
    return number(
        "3e23",
        _gpt3(),
        "6 · 174.6e9 · 300e9; the transcript garbles name and number",
        "napkin ask flops parameters=174.6e9 tokens=300e9",
        unit="FLOP",
    )


def _gpt4(name: str, says: str) -> None:
    @COMPUTE.claim(name, says)
    def _(_: Lab) -> ClaimFinding:
        days = ask("training-time", flops="2e25", gpu="h100-sxm", gpus=10_000, mfu=0.5).value
        because = (
            f"a speculation: {source('gpt4').words}; were it 2e25, it would be 10,000 H100 at MFU 0.5 for {float(days):.0f} days,"
            " so it is at least possible"
        )
        return unchecked("2e25 FLOP, unpublished", because, "napkin ask training-time flops=2e25 gpu=h100-sxm gpus=10000 mfu=0.5")


_gpt4("gpt4-2e25", "Training GPT-4 (2023) is speculated to have taken 2e25 FLOP.")
_gpt4("gpt4-004", "Training GPT-4 took 2e25 FLOP, by speculation.")


@COMPUTE.claim("eo-004", "Trainings of over 2026 FLOP had to be reported to the government of the United States.")
def _(_: Lab) -> ClaimFinding:
    order = source("executive-order")
    because = f"the transcript garbles 10^26: {order.words}"
    return number(
        "2026", Fraction(str(order.facts["reporting_threshold"])), because, "comparison with the order's text", unit="FLOP", rests_on=SOURCE
    )


@COMPUTE.claim("eu-004", "The threshold of the European Union is 1e25 FLOP and has not been revoked.")
def _(_: Lab) -> ClaimFinding:
    act = source("eu-ai-act")
    holds = float(str(act.facts["systemic_risk_threshold"])) == 1e25 and act.facts["in_force"] is True
    return true(holds, "1e25 FLOP, in force", act.words, "comparison with the regulation's text", rests_on=SOURCE)


@COMPUTE.claim("a100-312", "An A100 has a peak of 312 TFLOP/s.")
def _(_: Lab) -> ClaimFinding:
    a100 = accelerator("a100-sxm-80")
    because = f"dense bf16 and fp16; {a100.source}; in fp32 it is {float(a100.peak('fp32')):.3g}"
    return number("312e12", a100.peak("bf16"), because, "hardware: a100-sxm-80", unit="FLOP/s", rests_on=SOURCE)


@COMPUTE.claim("h100-1979-sparse", "An H100 has a peak of 1979 TFLOP/s with sparsity, and 50 % of it without.")
def _(_: Lab) -> ClaimFinding:
    h100 = accelerator("h100-sxm")
    peaks = h100.peak("bf16", sparse=True), h100.peak("bf16")
    return same(
        (Fraction(1979 * 10**12), Fraction(1979 * 10**12, 2)),
        peaks,
        f"bf16 and fp16; {h100.source}",
        "hardware: h100-sxm",
        value=peaks[1],
        unit="FLOP/s",
        rests_on=SOURCE,
    )


@COMPUTE.claim("h100-fp32-orders", "On an H100 fp32 is orders of magnitude slower than bf16.")
def _(_: Lab) -> ClaimFinding:
    h100 = accelerator("h100-sxm")
    ratio = h100.peak("bf16") / h100.peak("fp32")
    because = f"{float(ratio):.1f} times, dense: {math.log10(ratio):.2f} orders of magnitude, so one, not several"
    return readings(ratio >= 10, ratio >= 100, ratio, because, "hardware: h100-sxm, bf16 over fp32", unit="times", rests_on=SOURCE)


@COMPUTE.claim("h100-fp8-faster", "In fp8 an H100 can be faster still than in bf16.")
def _(_: Lab) -> ClaimFinding:
    h100 = accelerator("h100-sxm")
    ratio = h100.peak("fp8") / h100.peak("bf16")
    return true(
        ratio > 1,
        ratio,
        f"{float(ratio):g} times the peak of bf16, both dense",
        "hardware: h100-sxm, fp8 over bf16",
        unit="times",
        rests_on=SOURCE,
    )


@COMPUTE.claim("8h100-week", "Eight H100 do 4.7e21 FLOP in a week.")
def _(_: Lab) -> ClaimFinding:
    week, half = (ask("device-flops", gpu="h100-sxm", gpus=8, days=7, mfu=mfu).value for mfu in (1, 0.5))
    because = f"at the dense peak throughout, 8 · 989.5e12 · 604,800 s; at MFU 0.5 it is {float(half):.4g}"
    return number("4.7e21", week, because, "napkin ask device-flops gpu=h100-sxm gpus=8 days=7 mfu=1", unit="FLOP")


@COMPUTE.claim("8h100-two-weeks", "Eight H100 do that same 4.7e21 FLOP in two weeks.")
def _(_: Lab) -> ClaimFinding:
    full, half = (ask("device-flops", gpu="h100-sxm", gpus=8, days=14, mfu=mfu).value for mfu in (1, 0.5))
    because = f"at the dense peak two weeks give twice that of one; only at MFU 0.5 do two weeks give {float(half):.4g}"
    return number("4.7e21", full, because, "napkin ask device-flops gpu=h100-sxm gpus=8 days=14 mfu=1", unit="FLOP")


@COMPUTE.claim("sparsity-24", "Structured sparsity means that 2 of every 4 elements are zero.")
def _(_: Lab) -> ClaimFinding:
    gains = {p.sparse / p.dense for p in accelerator("a100-sxm-80").peaks.values() if p.sparse is not None}
    because = "with 2 of 4 zero half of the products are left, so the published rates must double, and each of an A100's does"
    return same(
        {Fraction(4, 2)}, gains, because, "hardware: a100-sxm-80, sparse over dense in every format", value="2 of 4", rests_on=SOURCE
    )


@COMPUTE.claim("fp32-bf16-003", "bf16 is much faster than fp32.")
def _(_: Lab) -> ClaimFinding:
    ratios = {name: accelerator(name).peak("bf16") / accelerator(name).peak("fp32") for name in ("h100-sxm", "a100-sxm-80", "rtx3090")}
    because = "times the dense peak of fp32: " + ", ".join(f"{name} {float(r):.1f}" for name, r in ratios.items())
    return true(
        all(r >= 2 for r in ratios.values()), ratios["h100-sxm"], because, "hardware: bf16 over fp32", unit="times", rests_on=SOURCE
    )


@COMPUTE.claim("h100-a100-003", "An H100 is much faster than an A100.")
def _(_: Lab) -> ClaimFinding:
    ratio = accelerator("h100-sxm").peak("bf16") / accelerator("a100-sxm-80").peak("bf16")
    because = (
        f"{float(ratio):.2f} times the dense peak in bf16; memory is read "
        f"{accelerator('h100-sxm').bandwidth / accelerator('a100-sxm-80').bandwidth:.2f} times as fast"
    )
    return true(ratio >= 2, ratio, because, "hardware: h100-sxm over a100-sxm-80", unit="times", rests_on=SOURCE)


@COMPUTE.claim("tf32-since", "TF32 exists since the Ampere architecture, an A100 for example.")
def _(_: Lab) -> ClaimFinding:
    nvidia = [a for a in catalogue().values() if a.vendor == "NVIDIA"]
    first = min(a.year for a in nvidia if "tf32" in a.peaks)
    without = sorted(a.name for a in nvidia if "tf32" not in a.peaks)
    ampere = [a for a in nvidia if a.architecture.startswith("Ampere")]
    holds = all("tf32" in a.peaks for a in ampere) and first == min(a.year for a in ampere)
    return true(
        holds,
        first,
        f"the first to list it are of {first}; {', '.join(without)} do not",
        "hardware: devices that list tf32",
        unit=YEAR,
        rests_on=SOURCE,
    )
