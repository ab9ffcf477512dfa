"""Claims on initialization, optimizers, checkpoints and activation checkpointing."""

from __future__ import annotations

import math
from fractions import Fraction

from calc.symbolic.exact import evaluate_text
from reports.lecture.claim import Topic
from reports.lecture.lab import Lab
from reports.lecture.runs import experiment, resumed, variances
from reports.lecture.sources import YEAR, source
from reports.lecture.verdicts import APPROXIMATE, SOURCE, ClaimFinding, convention, number, readings, same, true, yes

LEARNING = Topic("Initialization, optimizers and checkpoints")
_D = 16384
_GPT2 = {"B": 8, "T": 1024}


def variance(width: int, of_weights: Fraction = Fraction(1)) -> Fraction:
    """The variance of a sum of ``width`` products x·w of independent numbers with mean 0; Var x = 1, Var w = ``of_weights``."""
    return width * of_weights


def agrees(sample: dict[str, float], expected: Fraction) -> bool:
    """Whether a sampled variance lies within three standard errors of the expected one."""
    return abs(sample["variance"] - float(expected)) < 3 * sample["error"]


def _sampled(sample: dict[str, float]) -> str:
    return f"sampled {sample['variance']:.5g} ± {sample['error']:.2g}"


@LEARNING.claim("init-var", "With weights drawn from N(0, 1) each output has mean 0 and variance input_dim.")
def _(_: Lab) -> ClaimFinding:
    sample, expected = experiment("output_variance", _D), variance(_D)
    because = f"a sum of {_D} products, each of variance 1, has variance {expected}; {_sampled(sample)}"
    return true(agrees(sample, expected), expected, because, "the variance of a sum of products; 64 × 64 outputs of a real product sampled")


@LEARNING.claim("init-128", "Outputs are then within about ±sqrt(16384) = ±128.")
def _(_: Lab) -> ClaimFinding:
    sample = experiment("output_variance", _D)
    inside = math.erf(1 / math.sqrt(2))
    because = (
        f"128 is their standard deviation; {inside:.1%} of normal numbers lie within one ({sample['within']:.1%} of those sampled), the "
        "others beyond"
    )
    return readings(
        math.isqrt(_D) ** 2 == _D and math.isqrt(_D) == 128, inside > 0.95, 128, because, "the standard deviation; outputs sampled"
    )


@LEARNING.claim("init-rescale", "Weights divided by sqrt(input_dim) make the outputs' size independent of input_dim.")
def _(_: Lab) -> ClaimFinding:
    samples = {d: experiment("output_variance", d, 1 / math.sqrt(d)) for d in (256, _D)}
    holds = all(agrees(f, variance(d, Fraction(1, d))) for d, f in samples.items())
    because = f"variance D · 1/D = 1 for every D; {', '.join(f'{_sampled(f)} at D = {d}' for d, f in samples.items())}"
    return true(holds, 1, because, "the variance of a sum of products; sampled at D = 256 and 16384")


@LEARNING.claim("init-004-xavier", "Up to a constant that is Xavier initialization.")
def _(_: Lab) -> ClaimFinding:
    form = variances("two-layer")["w2"]
    derived = [1024 * evaluate_text(form, {"D": 1024, "K": outputs}) for outputs in (1024, 256)]
    square, narrow = (experiment("xavier_variance", 1024, outputs) * 1024 for outputs in (1024, 256))
    because = (
        f"Xavier's variance is {form} for D → K: over 1/D it is {float(derived[0]):g} for 1024 → 1024 and {float(derived[1]):g} for"
        f" 1024 → 256 (sampled {square:.2f} and {narrow:.2f}), so the factor depends on the shape"
    )
    by = "E[w²] of two-layer's w2, by napkin initialization two-layer; torch.nn.init.xavier_normal_ sampled at two shapes"
    finding = readings(abs(square - 1) < 0.02, derived[0] == derived[1], round(narrow, 2), because, by)
    exact = abs(narrow - derived[1]) < 0.02
    return (
        ClaimFinding(APPROXIMATE, finding.value, finding.unit, finding.because, finding.computed_by)
        if exact and finding.verdict != "holds"
        else finding
    )


def _truncated(name: str, says: str) -> None:
    @LEARNING.claim(name, says)
    def _(_: Lab) -> ClaimFinding:
        std = 1 / math.sqrt(_D)
        beyond = math.erfc(3 / std / math.sqrt(2))
        sample = experiment("output_variance", _D, std, cut=3.0)
        because = (
            f"a and b are absolute: with a standard deviation of {std:g} they lie at {3 / std:g} of it; a number lies beyond with "
            f"probability {beyond:g}; the largest weight drawn is {sample['largest weight'] / std:.1f} deviations. To cut at 3 deviations, "
            "set a and b to ±3·std"
        )
        return readings(
            sample["largest weight"] <= 3,
            beyond > 0,
            f"±{3 / std:g} standard deviations",
            because,
            "torch.nn.init.trunc_normal_ sampled; the normal tail",
        )


_truncated("init-trunc", "Weights of standard deviation 1/sqrt(16384) are cut off at three standard deviations by a = -3, b = 3.")
_truncated("init-trunc-reason", "The cut at ±3 is there so that no extreme value occurs.")


@LEARNING.claim("opt-adagrad-step", "AdaGrad divides by sqrt(g2 + 1e-5).")
def _(lab: Lab) -> ClaimFinding:
    report = lab.check("cruncher", {"B": 2, "D": 4, "L": 2}, optimizer="spec")
    steps = {g: experiment("adagrad_eps", g) for g in (1.0, 0.001)}
    off = {g: a / b for g, (a, b) in steps.items()}
    because = (
        f"the lecture's own class does (a real step of it: {report['flops.optimizer.total'].verdict}); torch adds 1e-10 outside the "
        "root: the first step is"
        f" {off[1.0]:.6f} of torch's for a gradient of 1 and {off[0.001]:.2f} for 0.001"
    )
    return convention(
        abs(off[1.0] - 1) < 1e-4, "epsilon inside the root", because, "one step of both in float64; check cruncher with optimizer spec"
    )


@LEARNING.claim("opt-momentum", "Momentum is SGD with an exponential average of the gradients.")
def _(_: Lab) -> ClaimFinding:
    beta = 0.9
    worst = experiment("momentum_is_average", beta=beta)
    because = (
        f"torch's buffer is a sum that decays: the average over 1 − β, step by step (largest difference {worst:.0e}), so a step at "
        f"β = {beta} is {1 / (1 - beta):g} times the average's at the same learning rate"
    )
    by = "ten steps of torch.optim.SGD and of the average in float64"
    return readings(worst < 1e-12, beta == 0, "average / (1 − β)", because, by)


@LEARNING.claim("opt-adagrad-avg", "AdaGrad is SGD with an average over squared gradients.")
def _(_: Lab) -> ClaimFinding:
    equal = experiment("adagrad_state")
    because = (
        f"its state is their sum ({yes(equal['sum'])}), not their average ({yes(equal['average'])}), so steps keep shrinking; RMSProp"
        " averages"
    )
    return true(equal["average"], "a sum", because, "ten steps of torch.optim.Adagrad: its state beside sum and average")


@LEARNING.claim("opt-adam", "Adam is RMSProp with momentum.")
def _(_: Lab) -> ClaimFinding:
    equal = experiment("adam_parts", 3000)
    because = (
        f"its two averages are theirs ({yes(equal['moments'])}), and its step corrects their bias: {equal['first']:.3f} of the uncorrected "
        f"step at first, {equal['last']:.3f} after 3000"
    )
    if not equal["moments"]:
        return true(False, equal["last"], because, "3000 steps of torch.optim.Adam and of both averages")
    return number(
        "1.00", equal["last"], because, "3000 steps of torch.optim.Adam and of both averages in float64", unit="of the uncorrected step"
    )


@LEARNING.claim("opt-adam-2014", "Adam appeared in 2014.")
def _(_: Lab) -> ClaimFinding:
    paper = source("adam")
    because = f"{paper.words}: its identifier is of {paper.year}"
    return true(paper.year == 2014, paper.year, because, "arXiv identifier", unit=YEAR, rests_on=SOURCE)


@LEARNING.claim("opt-state-004", "AdaGrad has to store the squared gradients.")
def _(lab: Lab) -> ClaimFinding:
    state, parameters = (
        lab.value("cruncher", q, {"B": 2, "D": 4, "L": 2}, optimizer="spec") for q in ("optimizer_state.bytes", "parameters.bytes")
    )
    is_sum = experiment("adagrad_state")["sum"]
    because = f"their running sum ({yes(is_sum)}), one number for each parameter: {state} bytes of state for {parameters} of weights"
    return true(
        is_sum and state == parameters,
        state,
        because,
        "derive cruncher with optimizer spec; ten steps of torch.optim.Adagrad",
        unit="bytes",
    )


@LEARNING.claim("opt-lr-unused", "The training loop makes its SGD with the learning rate that it was given, 0.01.")
def _(_: Lab) -> ClaimFinding:
    usual, changed = (experiment("trained", steps=20, given_lr=rate) for rate in (0.01, 0.1))
    same_run = usual["losses"] == changed["losses"]
    because = (
        f"the rate is written into the call: given {changed['given']} it still uses {changed['used']}, and both trainings have the same "
        f"losses ({yes(same_run)})"
    )
    return readings(usual["used"] == 0.01, not same_run, changed["used"], because, "the loop run twice, given 0.01 and 0.1")


@LEARNING.claim("ckpt-activation", "Activation checkpointing saves memory by computing activations again.")
def _(lab: Lab) -> ClaimFinding:
    saved = [lab.value("gpt2", "activations.bytes", _GPT2, checkpointing=how) for how in ("none", "block")]
    recomputed = [lab.value("gpt2", "flops.backward.recompute", _GPT2, checkpointing=how) for how in ("none", "block")]
    because = (
        f"GPT-2 at B = 8, T = 1024, every block recomputed: {saved[1]:,} bytes instead of {saved[0]:,}, and "
        f"{recomputed[1] - recomputed[0]:,} FLOP more"
    )
    return true(
        saved[1] < saved[0] and recomputed[1] > recomputed[0], saved[1], because, "derive gpt2 with and without checkpointing", unit="bytes"
    )


@LEARNING.claim("act-why", "Activations are kept because the gradient of a layer's weights depends on its input.")
def _(lab: Lab) -> ClaimFinding:
    saved = [s for s in lab.derive("cruncher", {"B": 2, "D": 4, "L": 2}, optimizer="spec").saved if "mm" in s.operator]
    reasons = sorted({s.because for s in saved})
    because = (
        f"each of the {sum(s.number for s in saved)} tensors that matmuls save is needed: {'; '.join(reasons)}, for Y = X Wᵀ, as "
        "nn.Linear has it"
    )
    return same(["dW = dyᵀ x needs x"], reasons, because, "derive cruncher: why each tensor is saved", value="dW = dYᵀ X needs X")


@LEARNING.claim("ckpt-save", "A checkpoint has to hold the state of the optimizer as well as the model.")
def _(_: Lab) -> ClaimFinding:
    whole, without = resumed(), resumed("optimizer")
    because = (
        f"training resumed with everything differs in {len(whole)} tensors from uninterrupted training, and without the optimizer's state "
        f"in {len(without)}"
    )
    return true(
        not whole and bool(without),
        "model, optimizer, iteration",
        because,
        "a real training resumed from a file, with and without the optimizer's state",
    )
