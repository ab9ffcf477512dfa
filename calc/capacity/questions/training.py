"""How long training takes, how many devices a deadline needs, how many tokens or parameters fit in a given time."""

from __future__ import annotations

from dataclasses import replace

from calc.capacity.questions.question import (  # fmt: skip
    ACHIEVED,
    ACTIVE,
    BATCH,
    DAYS,
    DEVICE_HOURS,
    DEVICES,
    FLOPS,
    KAPLAN,
    MFU,
    PEAK,
    RATE,
    RATE_OF_ALL,
    SEQUENCE,
    SIX_N_D,
    SPEED_OF_ONE,
    STEPS,
    TOKENS,
    Equation,
    Question,
    QuestionChoice,
    Variable,
)

PER_TOKEN = Variable("c", "flops-per-token", "FLOP", "model FLOPs of one token, forward and backward", model="flops_per_token")
EXACT = Equation("C", "c*D", "the model's own matmuls, forward and backward, without recomputation, for every token")
_NOTHING_STANDS_STILL = "without failures, checkpoints or evaluation"
_ONLY_WEIGHTS = "6·N·D counts matmuls with weights only: attention, elementwise work and the optimizer are left out"
_TIME = Equation("t", "C/(86400*R)", "amount over rate; a day has 86,400 s")
_SPEED = Variable("r", "tokens-per-second", "tokens/s", "tokens a second of all devices, measured for example")
_TIME_AT_SPEED = Equation("t", "D/(86400*r)", "tokens over tokens a second; a day has 86,400 s")
_GIVEN_OF_ONE = {
    "X": (Equation("R", "n*X", "evenly over the devices"),),
    "v": (Equation("t", "D/(86400*n*v)", "tokens over tokens a second of all devices; a day has 86,400 s"),),
}
DAYS_OF_HOURS = Equation("t", "H/(24*n)", "all devices at the same time; a day has 24 hours")
_PER_STEP = Variable("b", "tokens-per-step", "tokens", "tokens of a step")
_SEQUENCES = Equation("b", "B*T", "every sequence of the batch has T tokens")
_TOKENS_OF_STEPS = Equation("D", "S*b", "each step takes b tokens")

_RECOMPUTED = (
    "as 6·N·D, and every layer's forward is recomputed: Narayanan et al. 2021, Megatron-LM (arXiv 2104.04473), equation 4"
)
CONVENTION = QuestionChoice(
    "convention",
    "FLOPs of a training run by its parameters and tokens",
    {
        "6ND": (SIX_N_D,),
        "8ND": (Equation("C", "8*N*D", _RECOMPUTED),),
    },
    "nothing is recomputed",
)
_CONVENTION_OF_STEP = QuestionChoice(
    CONVENTION.key,
    "FLOPs of a step by its parameters and tokens",
    {"6ND": (Equation("F", "6*N*b", SIX_N_D.because),), "8ND": (Equation("F", "8*N*b", _RECOMPUTED),)},
    "nothing is recomputed",
)

TOKENS_FOR_TIME = Question(
    "tokens-in-time",
    "tokens that a model can be trained on in a number of days",
    (ACTIVE, TOKENS, DEVICES, PEAK, MFU, FLOPS, RATE, DAYS, PER_TOKEN, ACHIEVED, SPEED_OF_ONE),
    (RATE_OF_ALL, _TIME),
    "D",
    limit="t",
    with_given=_GIVEN_OF_ONE,
    choices=(CONVENTION,),
    notes=(_NOTHING_STANDS_STILL,),
    with_model=(EXACT,),
    source=KAPLAN,
)
TRAINING_TIME = replace(
    TOKENS_FOR_TIME,
    name="training-time",
    summary="days to train a model on a number of tokens, or of steps",
    variables=(*TOKENS_FOR_TIME.variables, STEPS, BATCH, SEQUENCE, _PER_STEP, _SPEED, DEVICE_HOURS),
    answer="t",
    limit="",
    with_given=_GIVEN_OF_ONE | dict.fromkeys("SBTb", (_TOKENS_OF_STEPS, _SEQUENCES)) | {"r": (_TIME_AT_SPEED,), "H": (DAYS_OF_HOURS,)},
)
GPUS = replace(TOKENS_FOR_TIME, name="gpus", summary="devices that finish a training run by a deadline", answer="n")
TOKENS_FOR_COMPUTE = Question(
    "tokens",
    "tokens that a model can be trained on with a budget of FLOPs",
    (ACTIVE, TOKENS, FLOPS, PER_TOKEN),
    (),
    "D",
    limit="C",
    choices=(CONVENTION,),
    with_model=(EXACT,),
    notes=(_ONLY_WEIGHTS,),
    source=KAPLAN,
)
TRAINING_FLOPS = replace(TOKENS_FOR_COMPUTE, name="flops", summary="FLOPs of a training run", answer="C", limit="")
DEVICE_FLOPS = Question(
    "device-flops",
    "FLOPs that devices do in a number of days",
    (DEVICES, PEAK, MFU, DAYS, replace(FLOPS, meaning="FLOPs done"), RATE, ACHIEVED),
    (RATE_OF_ALL, Equation("C", "86400*t*R", "rate times time; a day has 86,400 s")),
    "C",
    with_given={"X": _GIVEN_OF_ONE["X"]},
)
_STEP = replace(FLOPS, symbol="F", key="step-flops", meaning="FLOPs of one step")
TIME_PER_STEP = Question(
    "time-per-step",
    "seconds that one training step takes",
    (
        ACTIVE, BATCH, SEQUENCE, _PER_STEP, DEVICES, PEAK, MFU, _STEP, RATE, PER_TOKEN, ACHIEVED,
        Variable("s", "seconds", "s", "time of one step"),
    ),
    (_SEQUENCES, RATE_OF_ALL, Equation("s", "F/R", "amount over rate")),
    "s",
    choices=(_CONVENTION_OF_STEP,),
    with_given={"X": _GIVEN_OF_ONE["X"]},
    with_model=(Equation("F", "c*b", EXACT.because),),
    notes=(_NOTHING_STANDS_STILL, "one batch over all devices"),
    source=KAPLAN,
)  # fmt: skip
STEPS_OF_TRAINING = Question(
    "steps",
    "steps of a training run, and tokens of each",
    (
        TOKENS,
        BATCH,
        SEQUENCE,
        STEPS,
        _PER_STEP,
    ),
    (_SEQUENCES, Equation("S", "D/b", "each token once")),
    "S",
    limit="D",
)

QUESTIONS = (TRAINING_TIME, GPUS, TOKENS_FOR_TIME, TOKENS_FOR_COMPUTE, TRAINING_FLOPS, DEVICE_FLOPS, TIME_PER_STEP, STEPS_OF_TRAINING)
