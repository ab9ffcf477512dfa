"""Claims on MFU and on times in the notes. A time cannot be repeated, but what follows from it can be computed."""

from __future__ import annotations

from fractions import Fraction

from calc.capacity.utilization import utilization
from calc.errors import BadInputError
from calc.hardware.accelerators import accelerator
from reports.lecture.claim import Topic
from reports.lecture.lab import Lab
from reports.lecture.runs import experiment
from reports.lecture.sources import source
from reports.lecture.verdicts import SOURCE, ClaimFinding, convention, number, readings, same, true, unchecked

MFU = Topic("MFU")
_SIZES = (16384, 32768, 8192)  # B, D, K of the product that the notes time
_TIME_3090 = "0.3723490708041936"
_TIME_3090_BF16 = "0.12506474698893727"
_RATE_3090_BF16 = "70332313733350.195"
_OF_3090 = f"napkin ask mfu flops=8796093022208 seconds={_TIME_3090} peak=35.6e12"
_OF_3090_BF16 = f"napkin ask mfu flops=8796093022208 seconds={_TIME_3090_BF16}"
_OF_H100 = "napkin ask mfu flops=8796093022208 seconds={} gpu=h100-sxm dtype={}"


def product(sizes: tuple[int, int, int] = _SIZES) -> int:
    """FLOPs of the timed matmul: 2·B·D·K."""
    b, d, k = sizes
    return 2 * b * d * k


def _tera(rate: Fraction) -> str:
    return f"{float(rate) / 1e12:.4g} TFLOP/s"


def _refused(flops: Fraction | int, seconds: Fraction, peak: Fraction | int, dtype: str) -> str:
    """Why a utilization is refused; empty if it is accepted."""
    try:
        utilization(flops, seconds, peak, dtype)
    except BadInputError as error:
        return str(error)
    return ""


@MFU.claim("mfu-def", "MFU is the FLOPs that a training used over the FLOPs that the hardware could have given.")
def _(lab: Lab) -> ClaimFinding:
    utilized = utilization(product(), Fraction(_TIME_3090), 356 * 10**11, "fp32")
    amounts = Fraction(product()) / (Fraction(_TIME_3090) * 356 * 10**11)
    recomputed = lab.value("gpt2", "flops.backward.recompute", {"B": 8, "T": 1024})
    because = (
        "over the same time, amounts and rates have the same ratio. State which FLOPs count: MFU counts those of the model, without "
        f"recomputation ({recomputed:,} in GPT-2's backward); HFU counts all that ran"
    )
    return convention(
        utilized.value == amounts, "model FLOPs / (peak · time)", because, f"{_OF_3090}; derive gpt2: flops.backward.recompute"
    )


@MFU.claim("mfu-ideal-1", "At best MFU is 1.")
def _(_: Lab) -> ClaimFinding:
    peak, flops = Fraction(10**12), Fraction(10**12)
    best, more = utilization(flops, 1, peak, "fp32").value, _refused(flops, Fraction(99, 100), peak, "fp32")
    return true(
        best == 1 and bool(more),
        best,
        "no device outruns its peak: a shorter time is refused",
        "napkin ask mfu flops=1e12 seconds=1 peak=1e12; napkin ask mfu flops=1e12 seconds=0.99 peak=1e12",
    )


@MFU.claim("mfu-003", "MFU is the FLOP/s achieved over the FLOP/s promised.")
def _(_: Lab) -> ClaimFinding:
    utilized = utilization(product(), Fraction(_TIME_3090), 356 * 10**11, "fp32")
    fits = utilized.value == utilized["R"] / utilized["P"]
    return convention(
        fits, "achieved FLOP/s / promised FLOP/s", "the definition; the promise must be that of the format, dense", _OF_3090
    )


@MFU.claim("mfu-0.5-good", "An MFU of 0.5 or more is usually good.")
def _(_: Lab) -> ClaimFinding:
    runs = sorted(float(x) for name in ("llama3", "megatron") for x in source(name).facts["mfu"])  # type: ignore[union-attr]  # lists of numbers
    reached = sum(x >= 0.5 for x in runs)
    because = f"of {len(runs)} published runs {reached} reach it; they lie between {runs[0]} and {runs[-1]}"
    return convention(reached < len(runs) / 2, f"{reached} of {len(runs)}", because, "published MFU: Llama 3 table 4, Megatron-LM table 1")


@MFU.claim("mfu-fp32-time", "The product of 16384 × 32768 by 32768 × 8192 took 0.3723490708041936 s in fp32 on an RTX 3090.")
def _(_: Lab) -> ClaimFinding:
    utilized = utilization(product(), Fraction(_TIME_3090), accelerator("rtx3090").peak("fp32"), "fp32")
    because = (
        f"a time on the author's machine; it means {_tera(utilized['R'])}, which is possible: {float(utilized.value):.3f} of the fp32 peak"
    )
    return unchecked(float(_TIME_3090), because, _OF_3090.replace("peak=35.6e12", "gpu=rtx3090 dtype=fp32"), unit="s")


@MFU.claim("mfu-fp32-val", "That is an MFU of 0.6635742749004901 in fp32.")
def _(_: Lab) -> ClaimFinding:
    utilized = utilization(product(), Fraction(_TIME_3090), 356 * 10**11, "fp32")
    because = f"2·B·D·K over the time is {_tera(utilized['R'])}, over 35.6 TFLOP/s; both quotients in float64, as the notes divide"
    return number("0.6635742749004901", product() / float(_TIME_3090) / 35.6e12, because, _OF_3090)


@MFU.claim("mfu-bf16-val", "In bf16 the MFU is 1.9756267902626459.")
def _(_: Lab) -> ClaimFinding:
    card, rate = accelerator("rtx3090"), Fraction(_RATE_3090_BF16)
    right = utilization(rate, 1, card.peak("bf16"), "bf16").value
    refusal = _refused(rate, Fraction(1), 356 * 10**11, "bf16")
    because = (
        f"no MFU is above 1 ({'refused' if refusal else 'accepted'}): the rate in bf16 was divided by the peak of fp32; over "
        f"{_tera(card.peak('bf16'))} it is {float(right):.4f}"
    )
    return number("1.9756267902626459", right, because, f"{_OF_3090_BF16} gpu=rtx3090 dtype=bf16")


@MFU.claim("mfu-bf16-suspect", "Something is wrong with the figures for bf16.")
def _(_: Lab) -> ClaimFinding:
    refusal = _refused(Fraction(_RATE_3090_BF16), Fraction(1), 356 * 10**11, "bf16")
    because = "a utilization of 1.98 is refused: the peak is that of another format" if refusal else "the utilization is possible"
    return true(bool(refusal), "the peak of fp32 was used", because, f"{_OF_3090_BF16} peak=35.6e12")


@MFU.claim("mfu-3090-fp32", "An RTX 3090 has a peak of 35.6e12 FLOP/s in fp32.")
def _(_: Lab) -> ClaimFinding:
    card = accelerator("rtx3090")
    return number(
        "35.6e12",
        card.peak("fp32"),
        f"{_tera(card.peak('fp32'))}: {card.source}",
        "hardware: rtx3090",
        unit="FLOP/s",
        rests_on=SOURCE,
    )


@MFU.claim("mfu-bf16-70", "In bf16, 8796093022208 FLOP in 0.12506474698893727 s are 70332313733350.195 FLOP/s.")
def _(_: Lab) -> ClaimFinding:
    rate = product() / float(_TIME_3090_BF16)
    share = utilization(product(), Fraction(_TIME_3090_BF16), accelerator("rtx3090").peak("bf16"), "bf16").value
    because = (
        f"the quotient in float64, as the notes divide; the time is of the author's machine and possible: {float(share):.3f} of the dense "
        "bf16 peak with fp32 sums"
    )
    return number(_RATE_3090_BF16, rate, because, f"{_OF_3090_BF16} gpu=rtx3090 dtype=bf16", unit="FLOP/s")


@MFU.claim("mfu-004-fp32", "The product took 0.16 s in fp32 on an H100.")
def _(_: Lab) -> ClaimFinding:
    utilized = utilization(product(), Fraction("0.16"), accelerator("h100-sxm").peak("fp32"), "fp32")
    because = (
        f"a time on the lecturer's machine; it means {_tera(utilized['R'])}, which is possible: {float(utilized.value):.2f} of the "
        "fp32 peak"
    )
    return unchecked(0.16, because, _OF_H100.format("0.16", "fp32"), unit="s")


@MFU.claim("mfu-004-54", "That is 5.4e13 FLOP/s.")
def _(_: Lab) -> ClaimFinding:
    rate = Fraction(product()) / Fraction("0.16")
    low, high = (float(Fraction(product()) / Fraction(t)) for t in ("0.165", "0.155"))
    because = f"8796093022208 FLOP in 0.16 s; times that round to 0.16 s give {low:.3g} to {high:.3g}"
    return number("5.4e13", rate, because, "2·16384·32768·8192 / 0.16 s", unit="FLOP/s")


@MFU.claim("mfu-004-67", "An H100 promises 67 TFLOP/s in fp32.")
def _(_: Lab) -> ClaimFinding:
    h100 = accelerator("h100-sxm")
    return number("67", h100.peak("fp32") / 10**12, h100.source, "hardware: h100-sxm", unit="TFLOP/s", rests_on=SOURCE)


@MFU.claim("mfu-004-bf16", "In bf16 the product took 0.03 s, not 0.16 s.")
def _(_: Lab) -> ClaimFinding:
    utilized = utilization(product(), Fraction("0.03"), accelerator("h100-sxm").peak("bf16"), "bf16")
    because = (
        f"a time on the lecturer's machine; it means {_tera(utilized['R'])}, which is possible: {float(utilized.value):.2f} of the "
        "dense bf16 peak"
    )
    return unchecked(0.03, because, _OF_H100.format("0.03", "bf16"), unit="s")


@MFU.claim("mfu-004-lower", "The MFU is lower in bf16 than in fp32.")
def _(_: Lab) -> ClaimFinding:
    h100 = accelerator("h100-sxm")
    shares = {
        dtype: utilization(product(), Fraction(s), h100.peak(dtype), dtype).value for dtype, s in (("fp32", "0.16"), ("bf16", "0.03"))
    }
    because = (
        f"by the lecture's own times {float(shares['bf16']):.2f} of a peak of {_tera(h100.peak('bf16'))} against "
        f"{float(shares['fp32']):.2f} of {_tera(h100.peak('fp32'))}"
    )
    commands = f"{_OF_H100.format('0.16', 'fp32')}; {_OF_H100.format('0.03', 'bf16')}"
    return true(shares["bf16"] < shares["fp32"], shares["bf16"], because, commands)


@MFU.claim("mfu-004-5pct", "An MFU of 5 % would be really bad.")
def _(_: Lab) -> ClaimFinding:
    runs = [float(x) for name in ("llama3", "megatron") for x in source(name).facts["mfu"]]  # type: ignore[union-attr]  # lists of numbers
    return convention(
        min(runs) > 0.05,
        min(runs),
        f"the least of {len(runs)} published runs has {min(runs)}",
        "published MFU: Llama 3 table 4, Megatron-LM table 1",
    )


@MFU.claim("mfu-004-exclude-comm", "MFU leaves communication and overhead out of account.")
def _(_: Lab) -> ClaimFinding:
    flops, seconds, peak = product(), Fraction("0.16"), accelerator("h100-sxm").peak("fp32")
    without, with_ = (utilization(flops, seconds * slower, peak, "fp32").value for slower in (1, Fraction(5, 4)))
    because = (
        f"the promised peak knows neither, but the time contains both: a quarter more time for them takes MFU from {float(without):.2f} "
        f"to {float(with_):.2f}"
    )
    return readings(without < 1, without == with_, with_, because, f"{_OF_H100.format('0.16', 'fp32')}; {_OF_H100.format('0.2', 'fp32')}")


@MFU.claim("tensor-core-default", "PyTorch uses the tensor cores by default.")
def _(_: Lab) -> ClaimFinding:
    h100, precision = accelerator("h100-sxm"), experiment("float32_precision")
    because = (
        f"in bf16 and fp16 it does ({h100.peaks['bf16'].engine} cores); fp32 products run on {h100.peaks['fp32'].engine} cores, since"
        f" torch.get_float32_matmul_precision() is {precision!r} unless it is set"
    )
    return readings(
        h100.peaks["bf16"].engine == "tensor",
        precision != "highest",
        precision,
        because,
        "torch.get_float32_matmul_precision(); hardware: h100-sxm",
    )


@MFU.claim("fp32-is-tensor", "The fp32 rate of an H100 is one of its tensor cores, as all others of the table are.")
def _(_: Lab) -> ClaimFinding:
    engines = {dtype: peak.engine for dtype, peak in accelerator("h100-sxm").peaks.items()}
    because = ", ".join(f"{dtype} {engine}" for dtype, engine in engines.items() if dtype in ("fp64", "fp32", "tf32", "bf16", "fp8"))
    return same(
        {"tensor"},
        set(engines.values()),
        f"{because}: fp32 runs on tensor cores only as TF32",
        "hardware: h100-sxm, engine of every format",
        value=f"{engines['fp32']} cores",
        rests_on=SOURCE,
    )
