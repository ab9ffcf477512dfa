"""Claims on the largest model that fits: bytes of state for each parameter."""

from __future__ import annotations

from calc.capacity.questions import ask
from calc.hardware.accelerators import accelerator
from calc.memory.per_parameter import PerParameter, per_parameter
from reports.lecture.claim import Topic
from reports.lecture.lab import Lab
from reports.lecture.sources import source
from reports.lecture.verdicts import SOURCE, ClaimFinding, number, readings, true

LARGEST = Topic("Largest model")
_SIZES = {"B": 8, "T": 1024}


def state(lab: Lab, precision: str = "fp32", model: str = "gpt2") -> PerParameter:
    """Bytes of AdamW's training state for each parameter."""
    return per_parameter(lab.derive(model, None, precision=precision, optimizer="adamw"))


def _split(state_bytes: PerParameter) -> str:
    return " + ".join(f"{term.per_parameter} ({term.label})" for term in state_bytes.terms)


@LARGEST.claim("q2-16bytes", "AdamW in fp32 keeps 4 + 4 + (4 + 4) = 16 bytes for each parameter.")
def _(lab: Lab) -> ClaimFinding:
    state_bytes = state(lab)
    because = f"the traced step has {_split(state_bytes)}; {state_bytes.remainder:,} bytes of step counters come on top in GPT-2"
    return number("16", state_bytes.per_parameter, because, "per_parameter of gpt2 with adamw, fp32", unit="bytes")


@LARGEST.claim("q2-40b", "Eight devices of 80 GB then hold about 40 billion parameters.")
def _(lab: Lab) -> ClaimFinding:
    answer = ask("largest-model", gpu="h100-sxm", gpus=8, bytes_per_parameter=state(lab).per_parameter)
    return number(
        "40e9",
        answer.value,
        "8 · 80e9 bytes over 16",
        "napkin ask largest-model gpu=h100-sxm gpus=8 bytes-per-parameter=16",
        unit="parameters",
    )


@LARGEST.claim("q2-640", "8 H100 have 640 GB of memory together.")
def _(_: Lab) -> ClaimFinding:
    memory = 8 * accelerator("h100-sxm").memory
    return number("640e9", memory, "8 · 80 GB, a GB as 10^9 bytes", "hardware: h100-sxm", unit="bytes", rests_on=SOURCE)


@LARGEST.claim("q2-max-claim", "A model of 40B parameters is the most that can be trained on them.")
def _(lab: Lab) -> ClaimFinding:
    answer = ask("largest-model", gpu="h100-sxm", gpus=8, bytes_per_parameter=state(lab).per_parameter)
    left = 8 * accelerator("h100-sxm").memory - answer.value * state(lab).per_parameter
    activations = lab.value("gpt2", "activations.bytes", _SIZES)
    because = (
        f"as a bound on the state it is right, but then {int(left)} bytes are left for activations, which even GPT-2 124M needs"
        f" ({activations:,} at B = 8, T = 1024); other recipes keep fewer bytes than 16, so it is not a maximum either"
    )
    return readings(
        answer.value == 40 * 10**9,
        left >= activations,
        answer.value,
        because,
        "napkin ask largest-model gpu=h100-sxm gpus=8 bytes-per-parameter=16; derive gpt2: activations.bytes",
        unit="parameters",
    )


@LARGEST.claim("q2-bf16-no-save", "Activations aside, bf16 with an fp32 copy of the weights (2 + 2 + 4 + 8) saves no memory but is faster.")
def _(lab: Lab) -> ClaimFinding:
    full, mixed = state(lab), state(lab, "bf16-master")
    activations = [lab.value("gpt2", "activations.bytes", _SIZES, precision=p) for p in ("fp32", "bf16-master")]
    h100 = accelerator("h100-sxm")
    faster = h100.peak("bf16") / h100.peak("fp32")
    because = (
        f"the state is {mixed.per_parameter} bytes either way ({_split(mixed)}), and the peak rate of an H100 {float(faster):.1f} times as"
        f" high; the lecture leaves activations to a remark of its own: they shrink from {activations[0]:,} to {activations[1]:,} bytes"
        " (GPT-2, B = 8, T = 1024)"
    )
    return true(
        full.per_parameter == mixed.per_parameter and faster > 1,
        mixed.per_parameter,
        because,
        "per_parameter and activations.bytes of gpt2, fp32 and bf16-master; hardware: h100-sxm",
        unit="bytes",
    )


@LARGEST.claim("q2-rajbhandari", "The accounting is that of a paper of Rajbhandari and others of 2019.")
def _(lab: Lab) -> ClaimFinding:
    paper, mixed = source("zero"), state(lab, "bf16-master")
    same = paper.facts["bytes_per_parameter"] == mixed.per_parameter
    return true(
        paper.year == 2019 and same,
        paper.words,
        f"its section 3.1 has {mixed.per_parameter} bytes too, as the traced step",
        "arXiv identifier; per_parameter of gpt2 with adamw, bf16-master",
        rests_on=SOURCE,
    )


@LARGEST.claim("q2-activ-depends", "Memory of activations depends strongly on batch size, sequence length and number of layers.")
def _(lab: Lab) -> ClaimFinding:
    base = lab.value("gpt2", "activations.bytes", _SIZES)
    doubled = {
        name: lab.value("gpt2", "activations.bytes", {**_SIZES, **change}) / base
        for name, change in {"B": {"B": 16}, "T": {"T": 512}, "L": {"L": 24}}.items()
    }
    because = (
        f"GPT-2 at B = 8, T = 1024, L = 12: twice the batch takes {doubled['B']:.2f} times the bytes, half the length {doubled['T']:.2f},"
        f" twice the layers {doubled['L']:.2f}"
    )
    return true(
        doubled["B"] > 1.5 and doubled["T"] < 0.7 and doubled["L"] > 1.5, base, because, "derive gpt2: activations.bytes", unit="bytes"
    )


@LARGEST.claim("q2-003-param-mem", "The memory of the parameters of a 70B model is 70e9 times 4 + 4 + (4 + 4) bytes.")
def _(lab: Lab) -> ClaimFinding:
    state_bytes = state(lab)
    weights = state_bytes.terms[0].per_parameter
    because = f"16 is the whole training state; parameters alone are {weights} bytes each in fp32, {70 * weights} GB for 70e9"
    return readings(
        state_bytes.per_parameter == 16,
        weights == 16,
        weights * 70 * 10**9,
        because,
        "per_parameter of gpt2 with adamw, fp32",
        unit="bytes",
    )
