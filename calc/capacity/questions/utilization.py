"""Utilization (MFU and HFU): the share of a device's peak that a run reaches, from FLOPs and seconds or from tokens per second."""

from __future__ import annotations

from dataclasses import replace

from calc.capacity.questions.question import (
    ACHIEVED,
    ACTIVE,
    BATCH,
    DAYS,
    DEVICE_HOURS,
    HEAD_WIDTH,
    HEADS,
    LAYERS,
    MFU,
    ONE_DEVICE,
    PEAK,
    SEQUENCE,
    SPEED_OF_ONE,
    TOKENS,
    VOCABULARY,
    WIDTH,
    Equation,
    Question,
    QuestionChoice,
    Variable,
)
from calc.capacity.questions.training import PER_TOKEN

_WORK = Variable("F", "flops", "FLOP", "FLOPs done")
_SECONDS = Variable("s", "seconds", "s", "time")
_RATE = Variable("R", "rate", "FLOP/s", "rate achieved, all devices together")
_SHARE = (Equation("X", "R/n", "evenly over the devices"), Equation("u", "X/P", "achieved over peak"))
_OF_HOURS = "FLOPs over the time of all devices; an hour has 3,600 s"
_DENSE = "the dense peak of the dtype of the matmuls"

MFU_OF = Question(
    "mfu",
    "model FLOPs utilization: the FLOP/s that serve the model over the peak",
    (_WORK, _SECONDS, ONE_DEVICE, DEVICE_HOURS, PEAK, _RATE, ACHIEVED, MFU),
    (Equation("R", "F/s", "FLOPs over time"), *_SHARE),
    "u",
    with_given={"H": (Equation("X", "F/(3600*H)", _OF_HOURS),)},
    also=("R", "X"),
    notes=("model FLOPs, without recomputation; with it: napkin ask hfu", _DENSE),
    source="Chowdhery et al. 2022, PaLM (arXiv 2204.02311), appendix B",
)
HFU_OF = replace(
    MFU_OF,
    name="hfu",
    summary="hardware FLOPs utilization: all FLOP/s that run, recomputation too, over the peak",
    variables=tuple(replace(x, key="hfu", meaning="hardware FLOPs utilization") if x is MFU else x for x in MFU_OF.variables),
    notes=("FLOPs that run, recomputation too", _DENSE),
)
TRAINING_MFU = Question(
    "training-mfu",
    "model FLOPs utilization of a training run, from its tokens per second, or from tokens and device hours or days",
    (
        ACTIVE, LAYERS, HEADS, HEAD_WIDTH, SEQUENCE,
        Variable("r", "tokens-per-second", "tokens/s", "tokens per second, all devices together"),
        SPEED_OF_ONE, TOKENS, DEVICE_HOURS, DAYS, ONE_DEVICE, PEAK, PER_TOKEN, _RATE, ACHIEVED, MFU,
    ),
    (Equation("R", "c*r", "FLOPs of each token"), *_SHARE),
    "u",
    with_given={
        "v": (Equation("r", "n*v", "each device takes its own tokens"),),
        "t": (Equation("r", "D/(86400*t)", "tokens over time; a day has 86,400 s"),),
        "H": (Equation("X", "c*D/(3600*H)", _OF_HOURS),),
    },
    choices=(
        QuestionChoice(
            "convention",
            "which FLOPs of a token count",
            {
                "6N": (Equation("c", "6*N", "2 FLOP for each weight forward, twice that backward"),),
                "palm": (Equation("c", "6*N + 12*L*h*k*T", "and attention in full: 4·h·k a position and layer, twice that backward"),),
            },
            "weights only",
        ),
    ),
    also=("R", "X"),
    notes=(_DENSE,),
    source="Chowdhery et al. 2022, PaLM (arXiv 2204.02311), appendix B",
)  # fmt: skip
_NARAYANAN = "Narayanan et al. 2021, Megatron-LM (arXiv 2104.04473)"
_KORTHIKANTI = "Korthikanti et al. 2022 (arXiv 2205.05198)"
STEP_CONVENTION = QuestionChoice(
    "convention",
    "whose count of a transformer's training step",
    {
        "korthikanti": (
            Equation(
                "F", "72*B*L*T*d**2*(1 + T/(6*d) + V/(12*d*L))", f"{_KORTHIKANTI}, equation 7: model FLOPs, attention in full, f = 4·d"
            ),
        ),
        "korthikanti-hardware": (
            Equation(
                "F", "72*B*L*T*d**2*(1 + T/(3*d) + V/(12*d*L))", f"{_KORTHIKANTI}, equation 8: attention is recomputed in the backward"
            ),
        ),
        "megatron": (
            Equation("F", "96*B*T*L*d**2*(1 + T/(6*d) + V/(16*L*d))", f"{_NARAYANAN}, equation 3: every layer's forward is recomputed"),
        ),
    },
    "model FLOPs",
)
_COUNTED_SHARE = replace(MFU, meaning="utilization, of the FLOPs that are counted")
_TRANSFORMER = (BATCH, SEQUENCE, LAYERS, WIDTH, VOCABULARY, _WORK)
TRANSFORMER_FLOPS = Question(
    "transformer-flops",
    "FLOPs of a training step of a transformer with 4·d feed-forward width, as a paper counts them",
    _TRANSFORMER,
    (),
    "F",
    choices=(STEP_CONVENTION,),
)
TRANSFORMER_MFU = replace(
    TRANSFORMER_FLOPS,
    name="transformer-mfu",
    summary="utilization of a transformer's training step, as a paper counts it",
    variables=(*_TRANSFORMER, _SECONDS, ONE_DEVICE, PEAK, _RATE, ACHIEVED, _COUNTED_SHARE),
    equations=MFU_OF.equations,
    answer="u",
    also=("F", "X"),
)
SPEED_UP = Question(
    "speed-up",
    "how much more a run does in the same time than another one",
    (
        Variable("s", "seconds", "s", "time of a step"),
        Variable("o", "other-seconds", "s", "step time of the other run"),
        Variable("v", "more", "1", "additional work in the same time, as a share of the other's"),
    ),
    (Equation("v", "o/s - 1", "rates are proportional to the reciprocals of the times"),),
    "v",
)

QUESTIONS = (MFU_OF, HFU_OF, TRAINING_MFU, TRANSFORMER_FLOPS, TRANSFORMER_MFU, SPEED_UP)
