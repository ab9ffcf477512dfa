"""Claims on how long a training takes: 6·N·D, and the rate of an H100."""

from __future__ import annotations

from fractions import Fraction

from calc.capacity.questions import ask
from calc.hardware.accelerators import accelerator
from reports.lecture.claim import Topic
from reports.lecture.lab import Lab
from reports.lecture.sources import source
from reports.lecture.verdicts import SOURCE, ClaimFinding, compared, convention, number, readings, true

TRAINING = Topic("Training time")
LOOSE = Fraction(1, 4)  # a rule of thumb with a larger error is of no use
_N, _D = 70 * 10**9, 15 * 10**12
_TOKENS = {"B": 1, "T": 8192}
MODEL_FLOPS = ((1, "flops.forward.matmul"), (1, "flops.backward.matmul"), (-1, "flops.backward.recompute"))


def per_layer(lab: Lab, *quantities: str) -> Fraction:
    """FLOPs of one more D→D layer of a deep linear network, per weight and data point."""
    at = {"B": 2, "D": 64}
    added = sum(lab.value("cruncher", q, {**at, "L": 3}) - lab.value("cruncher", q, {**at, "L": 2}) for q in quantities)
    return Fraction(added, at["B"] * at["D"] ** 2)


def per_parameter_and_token(lab: Lab, model: str, sizes: dict[str, int], *signed: tuple[int, str]) -> Fraction:
    """FLOPs of a language model's step per parameter and token."""
    return per_token(lab, model, sizes, *signed) / lab.value(model, "parameters", sizes)


def per_token(lab: Lab, model: str, sizes: dict[str, int], *signed: tuple[int, str]) -> Fraction:
    """FLOPs of a language model's step per token."""
    return Fraction(sum(sign * lab.value(model, q, sizes) for sign, q in signed), sizes["B"] * sizes["T"])


@TRAINING.claim("q1-6nd", "Training 70e9 parameters on 15e12 tokens takes 6 · 70e9 · 15e12 FLOP.")
def _(lab: Lab) -> ClaimFinding:
    answer = ask("flops", parameters=_N, tokens=_D)
    times = per_token(lab, "llama3-70b", _TOKENS, *MODEL_FLOPS) * _D / answer.value
    because = f"6·N·D = {float(answer.value):.3g}; a real 70B model executes {float(times):.3f} times that at T = 8192, attention in full"
    return number("6.3e24", answer.value, because, "napkin ask flops parameters=70e9 tokens=15e12", unit="FLOP")


@TRAINING.claim("q1-144days", "1024 H100 at half of 989.5 TFLOP/s need about 144 days for it.")
def _(_: Lab) -> ClaimFinding:
    answer = ask("training-time", parameters=_N, tokens=_D, gpu="h100-sxm", gpus=1024, mfu=0.5)
    because = f"{float(answer['C']):.3g} FLOP at {float(answer['R']):.4g} FLOP/s are {float(answer.value):.2f} days"
    return number(
        "144", answer.value, because, "napkin ask training-time parameters=70e9 tokens=15e12 gpu=h100-sxm gpus=1024 mfu=0.5", unit="days"
    )


@TRAINING.claim("q1-six-times", "A training takes six times parameters times tokens, in FLOP.")
def _(lab: Lab) -> ClaimFinding:
    small = per_parameter_and_token(lab, "gpt2", {"B": 8, "T": 1024}, *MODEL_FLOPS)
    large = per_parameter_and_token(lab, "llama3-70b", _TOKENS, *MODEL_FLOPS)
    layer = per_layer(lab, "flops.forward.matmul", "flops.backward.matmul")
    because = (
        f"each linear layer after the first takes exactly {layer}; with attention in full and the embedding, GPT-2 at T = 1024 takes "
        f"{float(small):.2f}"
        f" and a 70B Llama at T = 8192 {float(large):.2f}"
    )
    return number("6", large, because, "derive gpt2, llama3-70b and cruncher: flops over parameters × tokens", unit="FLOP", within=LOOSE)


@TRAINING.claim("q1-h100-1979-half", "An H100's rate in bf16 without sparsity is 1979e12 / 2 FLOP/s.")
def _(_: Lab) -> ClaimFinding:
    dense, sparse = accelerator("h100-sxm").peak("bf16"), accelerator("h100-sxm").peak("bf16", sparse=True)
    because = f"the data sheet's {float(sparse):.4g} is with 2:4 sparsity, and the dense rate is {float(dense):.4g}"
    return true(sparse == 1979 * 10**12 and dense == sparse / 2, dense, because, "hardware: h100-sxm", unit="FLOP/s", rests_on=SOURCE)


@TRAINING.claim("q1-h100-1979-is-fp8", "An H100's theoretical peak in fp8 is about 1979 TFLOP/s.")
def _(_: Lab) -> ClaimFinding:
    h100 = accelerator("h100-sxm")
    dense, sparse, bf16 = h100.peak("fp8"), h100.peak("fp8", sparse=True), h100.peak("bf16", sparse=True)
    because = (
        f"dense fp8 is {float(dense):.4g} ({float(sparse):.4g} with sparsity); the lecture's 1979 is bf16 with sparsity, "
        f"{float(bf16):.4g} too"
    )
    return number("1979e12", dense, because, "hardware: h100-sxm, fp8 dense", unit="FLOP/s", rests_on=SOURCE)


@TRAINING.claim("q1-div2-reason", "1979 is divided by 2 to have a more realistic rate in fp16 or bf16.")
def _(_: Lab) -> ClaimFinding:
    h100 = accelerator("h100-sxm")
    dense, sparse = h100.peak("bf16"), h100.peak("bf16", sparse=True)
    because = (
        f"half of 1979 is right ({float(dense):.4g}) for another reason: 1979 counts 2:4 sparsity, and without it the theoretical peak "
        "is half."
        " MFU, which comes on top, says what is realistic"
    )
    halving_is_sparsity = sparse / dense == 2 and sparse == 1979 * 10**12
    return readings(
        dense == Fraction(1979 * 10**12, 2),
        not halving_is_sparsity,
        dense,
        because,
        "hardware: h100-sxm, bf16 dense and sparse",
        unit="FLOP/s",
        rests_on=SOURCE,
    )


@TRAINING.claim("q1-mfu-half", "MFU is taken to be 0.5.")
def _(_: Lab) -> ClaimFinding:
    published = [float(x) for name in ("llama3", "megatron") for x in source(name).facts["mfu"]]  # type: ignore[union-attr]  # lists of numbers
    because = f"an assumption; published runs lie between {min(published)} and {max(published)}, so 0.5 is at their upper end"
    return convention(min(published) <= 0.5 <= max(published), 0.5, because, "published MFU: Llama 3 table 4, Megatron-LM table 1")


@TRAINING.claim("q1-6-empirical", "The factor 6 is an empirical value.")
def _(lab: Lab) -> ClaimFinding:
    forward, backward = per_layer(lab, "flops.forward.matmul"), per_layer(lab, "flops.backward.matmul")
    because = (
        f"it is counted: each layer after the first takes exactly {forward} FLOP for each weight and point in the forward, and"
        f" {backward} in the backward"
    )
    return true(forward + backward != 6, forward + backward, because, "derive cruncher: flops at L = 3 less those at L = 2", unit="FLOP")


def _included(name: str, kind: str, says: str) -> None:
    @TRAINING.claim(name, says)
    def _(lab: Lab) -> ClaimFinding:
        products = per_layer(lab, "flops.forward.matmul", "flops.backward.matmul")
        updates = [lab.value("cruncher", "flops.optimizer.total", {"B": b, "D": 64}) for b in (2, 4)]
        because = (
            f"the {products} counts nothing but matmuls with weights; {kind} are elementwise work beside it: the optimizer's FLOPs"
            f" ({updates[0]:,}) do not even depend on the number of points"
        )
        return true(
            products < 6 or updates[0] != updates[1],
            products,
            because,
            "derive cruncher: flops.forward, flops.backward, flops.optimizer",
            unit="FLOP",
        )


_included("q1-six-includes-1", "updates of the weights", "The 6 includes the update of the weights.")
_included("q1-six-includes-2", "moments of an optimizer such as Adam", "The 6 includes the upkeep of an optimizer's state, Adam's say.")
_included("q1-six-includes-3", "dropout and norms", "The 6 includes further work such as dropout and layer norm.")


@TRAINING.claim("q1-source-papers", "The 6 goes back to papers of OpenAI on GPT and of Google on PaLM.")
def _(_: Lab) -> ClaimFinding:
    gpt3 = source("gpt3")
    tabled = compared(
        str(gpt3.facts["training_flops"]), ask("flops", parameters=str(gpt3.facts["parameters"]), tokens=str(gpt3.facts["tokens"])).value
    )
    used = [source(name).facts["flops_per_parameter_and_token"] for name in ("scaling-laws", "gpt3", "palm")]
    because = f"{source('scaling-laws').words} derives it, {source('palm').words} uses it; GPT-3's own table equals it ({tabled})"
    return true(
        all(n == 6 for n in used) and tabled == "holds after rounding",
        6,
        because,
        "napkin ask flops parameters=174.6e9 tokens=300e9",
        rests_on=SOURCE,
    )
