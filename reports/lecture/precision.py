"""Claims on formats of 8 bits and fewer, on what needs how many bits, and on mixed precision."""

from __future__ import annotations

from fractions import Fraction

from calc.capacity.questions import ask
from calc.hardware.accelerators import accelerator, catalogue
from calc.mathematics.dtypes.layouts import element_bytes, named
from calc.mathematics.dtypes.limits import limit
from calc.memory.formulas import FP8_LM, ONLY_LINEAR, TRANSFORMER_ENGINE
from reports.lecture.claim import Topic
from reports.lecture.formats import encoded, layout
from reports.lecture.lab import Lab
from reports.lecture.runs import experiment
from reports.lecture.sources import YEAR, source
from reports.lecture.verdicts import SOURCE, ClaimFinding, convention, number, readings, same, true, yes

PRECISION = Topic("Few bits, and mixed precision")


def _year(name: str, says: str, paper: str, claimed: int) -> None:
    @PRECISION.claim(name, says)
    def _(_: Lab) -> ClaimFinding:
        publication = source(paper)
        return true(
            publication.year == claimed,
            publication.year,
            f"{publication.words}: its identifier is of {publication.year}",
            "arXiv identifier",
            unit=YEAR,
            rests_on=SOURCE,
        )


_year("fp8-2022", "fp8 was developed in 2022.", "fp8", 2022)
_year("mp-2017", "Mixed precision training goes back to 2017.", "mixed-precision", 2017)


@PRECISION.claim("fp8-h100-only", "fp8 is not available on the generation before the H100.")
def _(_: Lab) -> ClaimFinding:
    ampere = [a.id for a in catalogue().values() if a.architecture.startswith("Ampere") and "fp8" in a.peaks]
    because = (
        f"an H100 lists {float(accelerator('h100-sxm').peak('fp8')) / 1e12:g} TFLOP/s; of the Ampere devices "
        f"{', '.join(ampere) or 'none'} does"
    )
    return true(
        not ampere and "fp8" in accelerator("h100-sxm").peaks, "since the H100", because, "hardware: devices that list fp8", rests_on=SOURCE
    )


@PRECISION.claim("fp8-range-e4m3", "E4M3 reaches from -448 to 448 and E5M2 from -57344 to 57344.")
def _(_: Lab) -> ClaimFinding:
    largest = tuple(limit(layout(name), "largest") for name in ("fp8-e4m3", "fp8-e5m2"))
    torchs = tuple(experiment("limits", layout(name).stored)["max"] for name in ("fp8-e4m3", "fp8-e5m2"))
    because = f"1.75 · 2^8, since only all ones are NaN, and 1.75 · 2^15; torch.finfo says {torchs[0]:g} and {torchs[1]:g}"
    return same(
        (448, 57344), largest, because, "formats: largest of fp8-e4m3 and fp8-e5m2; torch.finfo", value=f"{largest[0]} and {largest[1]}"
    )


@PRECISION.claim("fp8-edge", "fp8 is for cases of extremely little memory.")
def _(_: Lab) -> ClaimFinding:
    h100 = accelerator("h100-sxm")
    size, faster = element_bytes(named("fp8-e4m3")), h100.peak("fp8") / h100.peak("bf16")
    because = f"it takes {size} byte, half of bf16, but is used for speed as well: {float(faster):g} times the rate of bf16 on an H100"
    return readings(
        size < element_bytes(named("bf16")), faster == 1, faster, because, "formats: bytes of fp8; hardware: h100-sxm", unit="times"
    )


@PRECISION.claim("fp8-nvda", "NVIDIA proposed fp8 for machine learning, and the H100 supports it.")
def _(_: Lab) -> ClaimFinding:
    companies = source("fp8").facts["companies"]
    assert isinstance(companies, list)
    holds = "NVIDIA" in companies and "fp8" in accelerator("h100-sxm").peaks
    return true(
        holds,
        ", ".join(companies),
        f"together with {' and '.join(c for c in companies if c != 'NVIDIA')}: {source('fp8').words}",
        "comparison with the paper; hardware: h100-sxm",
        rests_on=SOURCE,
    )


@PRECISION.claim("fp8-transformer-linear", "NVIDIA supports fp8 for linear layers.")
def _(_: Lab) -> ClaimFinding:
    linear = [part.label for part in TRANSFORMER_ENGINE.parts if part.label.startswith("fp8")]
    because = f"{TRANSFORMER_ENGINE.source}; {ONLY_LINEAR}"
    return true(bool(linear), "linear layers", because, "the stated recipe of fp8 matmuls over bf16 weights", rests_on=SOURCE)


@PRECISION.claim("int8-int4-bytes", "int8 takes 1 byte, and int4, a 4-bit integer, 0.5 bytes.")
def _(_: Lab) -> ClaimFinding:
    sizes = tuple(element_bytes(named(name)) for name in ("int8", "int4"))
    return same(
        (Fraction(1), Fraction(1, 2)),
        sizes,
        "8 and 4 bits; two of int4 are packed into a byte",
        "formats: bytes of int8 and int4",
        value=sizes[1],
        unit="bytes",
    )


@PRECISION.claim("fp32-sota-004", "fp32 is the most precision that one is likely ever to need.")
def _(_: Lab) -> ClaimFinding:
    eps = limit(layout("fp32"), "epsilon")
    h100 = accelerator("h100-sxm")
    because = (
        f"of deep learning; its numbers lie {float(eps):.2g} apart, relative, and fp64 runs at "
        f"{float(h100.peak('fp64') / h100.peak('fp32')):.2f} of its rate on an H100"
    )
    return convention(eps < Fraction(1, 10**6), eps, because, "formats: epsilon of fp32; hardware: h100-sxm")


def lost_update(dtype: str) -> bool:
    """Whether 1 + 0.001 rounds to 1 in a format: the update would be lost."""
    return encoded(dtype, "1.001").value.value == 1


@PRECISION.claim("fp16-stability-000", "Optimizer state and parameters still need more precision than 16 bits.")
def _(_: Lab) -> ClaimFinding:
    because = (
        f"a weight of 1 that is to move by 0.001 stays where it is in bf16 ({yes(lost_update('bf16'))}) and moves in fp32 "
        f"({yes(not lost_update('fp32'))}): sums of small steps need the fraction bits"
    )
    return true(lost_update("bf16") and not lost_update("fp32"), "fp32", because, "formats.encode(bf16, 1.001) and of fp32")


@PRECISION.claim("fp32-necessity", "Without fp32 training becomes unstable.")
def _(_: Lab) -> ClaimFinding:
    formats = [part.because for part in FP8_LM.parts]
    without = not any("fp32" in words for words in formats)
    because = (
        f"a step of 0.001 on a weight of 1 is lost in bf16 ({yes(lost_update('bf16'))}), so something must hold it; it need not be fp32: "
        f"{FP8_LM.source}, keeps fp16 master weights with scales"
    )
    return readings(lost_update("bf16"), not without, "not always", because, "formats.encode(bf16, 1.001); the stated recipe of FP8-LM")


def autocast(phase: str) -> list[str]:
    """The dtypes of the matmuls of a real step under autocast, in ``phase``."""
    dtypes: list[str] = experiment("autocast_dtypes")[phase]
    return dtypes


_RUN = "a real step under bf16 autocast, operator by operator"


@PRECISION.claim("mp-000", "The forward runs in bf16 or fp8, the backward in fp32.")
def _(_: Lab) -> ClaimFinding:
    because = (
        f"under autocast matmuls run in {autocast('forward')[0]} in the forward and in"
        f" {', '.join(autocast('backward'))} in the backward; what is "
        "fp32 are parameters and their gradients"
    )
    return true(autocast("backward") == ["float32"], ", ".join(autocast("backward")), because, _RUN)


@PRECISION.claim("mp-001-fp32grad", "fp32 is the format in which gradients are computed.")
def _(_: Lab) -> ClaimFinding:
    because = (
        f"they are kept in {autocast('parameters and gradients')[0]}, but the matmuls that give them run in "
        f"{', '.join(autocast('backward'))}"
    )
    return readings(
        autocast("parameters and gradients") == ["float32"],
        autocast("backward") == ["float32"],
        "kept in fp32, computed in bf16",
        because,
        _RUN,
    )


@PRECISION.claim("mp-002", "fp32 is used for the rest: parameters and gradients.")
def _(_: Lab) -> ClaimFinding:
    dtypes = autocast("parameters and gradients")
    return same(
        ["float32"],
        dtypes,
        "under autocast both are, and so is the optimizer's state; with bf16 weights and fp32 copies they are not",
        _RUN,
        value=dtypes[0],
    )


@PRECISION.claim("mp-loss-scaling", "The scaled loss gives scaled gradients, which are divided by the factor.")
def _(_: Lab) -> ClaimFinding:
    gradients = experiment("scaled_gradients", 1024.0, 1e-8)
    off = abs(gradients["scaled"] / gradients["true"] - 1)
    because = (
        f"in fp16 a gradient of {gradients['true']:g} is {gradients['plain']:g} without it and {gradients['scaled']:.4g} with a factor of "
        "1024 that is divided out in fp32"
    )
    return true(gradients["plain"] == 0 and off < 0.01, gradients["scaled"], because, "autograd in fp16, with and without a factor of 1024")


@PRECISION.claim("mp-bf16-noscale", "With bf16 no loss scaling is needed.")
def _(_: Lab) -> ClaimFinding:
    two, half, four = (limit(layout(name), "smallest normal") for name in ("bf16", "fp16", "fp32"))
    because = f"its smallest normal number is that of fp32, {float(two):.3g}; fp16's is {float(half):.3g}, under which gradients vanish"
    return true(two == four and half > 10**30 * two, two, because, "formats: smallest normal of bf16, fp16, fp32")


@PRECISION.claim("mp-micikevicius-loss", "Micikevicius and others proposed a mixed precision method called loss scaling.")
def _(_: Lab) -> ClaimFinding:
    parts = source("mixed-precision").facts["parts"]
    assert isinstance(parts, list)
    because = f"the method is mixed precision training, and loss scaling one of its {len(parts)} parts: {'; '.join(parts)}"
    return readings(
        "loss scaling" in parts, len(parts) == 1, f"one of {len(parts)} parts", because, "comparison with the paper", rests_on=SOURCE
    )


@PRECISION.claim("int4-train", "There is work on training in int4.")
def _(_: Lab) -> ClaimFinding:
    paper = source("int4-training")
    return true(paper.facts["bits"] == 4, paper.year, paper.words, "comparison with the paper's title", unit=YEAR, rests_on=SOURCE)


@PRECISION.claim("q-4bit-inference", "A trained model can be quantized aggressively, and inference gains much from it.")
def _(lab: Lab) -> ClaimFinding:
    bounds = {form: tokens_per_second(lab, "llama3-8b", form) for form in ("bf16", "int4")}
    gain = bounds["int4"] / bounds["bf16"]
    because = (
        f"tokens/s of Llama 3 8B on an H100 at most, from memory bandwidth alone: {float(bounds['bf16']):.0f} in bf16, "
        f"{float(bounds['int4']):.0f} in int4; what it costs in quality is not computed"
    )
    commands = "napkin inference llama3-8b T=8192 --weights int4; napkin ask bandwidth-bound gpu=h100-sxm"
    weights, cache = read_for_a_token(lab, "llama3-8b", "int4")
    return true(gain > 2, gain, because, f"{commands} weights-bytes={weights} cache-bytes={cache}", unit="times")


def tokens_per_second(lab: Lab, model: str, form: str) -> Fraction:
    """The upper bound on tokens/s from memory bandwidth, for one sequence of 8192 tokens on an H100."""
    weights, cache = read_for_a_token(lab, model, form)
    return ask("bandwidth-bound", weights_bytes=weights, cache_bytes=cache, gpu="h100-sxm").value


def read_for_a_token(lab: Lab, model: str, form: str) -> tuple[int, int]:
    """Bytes of weights, and of keys and values, that one token of a sequence of 8192 reads."""
    at = {"B": 1, "T": 8192}
    cache = lab.inference(model, at, form).cache
    assert cache is not None
    return lab.read_each_token(model, at, form), cache.value


@PRECISION.claim("data-llama-2.8tb", "The data of LLaMA take 2.8 TB.")
def _(_: Lab) -> ClaimFinding:
    paper = source("llama")
    tokens, vocabulary = (int(str(paper.facts[name])) for name in ("tokens", "vocabulary"))
    width = next(n for n in (1, 2, 4) if vocabulary <= 256**n)
    because = f"{tokens:.3g} tokens of {width} bytes each, enough for a vocabulary of {vocabulary:,} ({paper.words})"
    return number("2.8e12", tokens * width, because, "tokens × bytes of the smallest integer that holds the vocabulary", unit="bytes")
