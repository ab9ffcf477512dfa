"""The critical batch size: beyond it, more examples per step save few steps."""

from __future__ import annotations

from dataclasses import replace

from calc.capacity.questions.question import BATCH, Equation, Question, Variable

MCCANDLISH = "McCandlish et al. 2018, An Empirical Model of Large-Batch Training (arXiv 1812.06162; numbers of equations not re-checked)"
_CRITICAL = Variable("c", "critical-batch", "examples", "critical batch")
_LEAST_STEPS = Variable("s", "least-steps", "steps", "steps with very large batches")
_LEAST_EXAMPLES = Variable("e", "least-examples", "examples", "examples with very small batches")
_EXAMPLES_A_STEP = replace(BATCH, unit="examples", meaning="examples a step")

CRITICAL_BATCH = Question(
    "critical-batch",
    "the batch at which a training run takes twice its least steps and twice its least examples",
    (_CRITICAL, _LEAST_STEPS, _LEAST_EXAMPLES),
    (Equation("c", "e/s", "the two asymptotes of (S/s - 1)·(X/e - 1) = 1 meet there, equation 2.11"),),
    "c",
    source=f"{MCCANDLISH}, section 2.3",
)
NOISE_SCALE = Question(
    "noise-scale",
    "the critical batch from the gradients of single examples",
    (
        _CRITICAL,
        Variable("v", "variance", "1", "sum of the variances of the gradient's elements over examples"),
        Variable("q", "gradient-squared", "1", "squared length of the true gradient"),
    ),
    (Equation("c", "v/q", "the simple noise scale, equation 2.9: noise outweighs the gradient below it"),),
    "c",
    source=f"{MCCANDLISH}, section 2.2",
)
STEPS_AT_BATCH = Question(
    "steps-at-batch",
    "steps and examples that a training run takes at a batch, from its critical batch",
    (
        _CRITICAL, _LEAST_STEPS, _EXAMPLES_A_STEP,
        Variable("S", "steps", "steps", "steps"),
        Variable("X", "examples", "examples", "examples"),
    ),
    (
        Equation("S", "s*(1 + c/B)", "equation 2.7: half of the steps are lost to noise at the critical batch"),
        Equation("X", "B*S", "examples per step times steps"),
    ),
    "S",
    also=("X",),
    source=f"{MCCANDLISH}, section 2.3",
)  # fmt: skip
CRITICAL_BATCH_OF_LOSS = Question(
    "critical-batch-of-loss",
    "the critical batch of a language model at a loss, by a published fit",
    (replace(_CRITICAL, unit="tokens"), Variable("l", "loss", "nats", "loss, in nats for each token")),
    (Equation("c", "200000000/l**(100/21)", "2e8 tokens / loss^(1/0.21)"),),
    "c",
    notes=("the same fit has 2.1e8 tokens in the paper's appendix A, 5 % more",),
    source="Kaplan et al. 2020, Scaling Laws for Neural Language Models (arXiv 2001.08361), equation 1.4",
)

QUESTIONS = (CRITICAL_BATCH, NOISE_SCALE, STEPS_AT_BATCH, CRITICAL_BATCH_OF_LOSS)
