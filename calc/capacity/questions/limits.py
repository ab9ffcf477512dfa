"""Crossover points: attention and the other matmuls, arithmetic and memory, compute and communication; and 6·N·D against exact counts."""

from __future__ import annotations

from dataclasses import replace

from calc.capacity.questions.question import (
    ACTIVE,
    BANDWIDTH,
    DEVICES,
    HEAD_WIDTH,
    HEADS,
    KAPLAN,
    KV_HEADS,
    LAYERS,
    MFU,
    PEAK,
    SEQUENCE,
    WIDTH,
    Equation,
    Question,
    QuestionChoice,
    Requirement,
    Variable,
)

_FEED_FORWARD = Variable("f", "feed-forward", "elements", "feed-forward width")
_MATRICES = Variable("a", "flops-of-matrices", "FLOP", "forward FLOPs of one token in matmuls with weights", model="forward_linear")
_ATTENTION = Variable("b", "flops-of-attention", "FLOP", "forward FLOPs of attention for a token and a position", model="forward_quadratic")
_LONGER = replace(SEQUENCE, rounding="up")

ATTENTION_CROSSOVER = Question(
    "attention-crossover",
    "sequence length from which attention takes more FLOPs than the matmuls with weights",
    (
        WIDTH,
        HEADS,
        KV_HEADS,
        HEAD_WIDTH,
        _FEED_FORWARD,
        Variable("w", "layer-weights", "parameters", "weights of one layer"),
        _MATRICES,
        _ATTENTION,
        _LONGER,
    ),
    (
        Equation("a", "2*w", "2 FLOP for each weight of a layer and token"),
        Equation("b", "4*h*k", "2 FLOP for each element of a head, once against a key and once against a value, attention in full"),
        Equation("T", "a/b", "per token, a FLOP of the one, and b FLOP of the other for each of T positions"),
    ),
    "T",
    choices=(
        QuestionChoice(
            "mlp",
            "kind of feed-forward layer",
            {
                "plain": (Equation("w", "2*d*h*k + 2*d*g*k + 2*d*f", "queries and output, keys and values, up and down"),),
                "gated": (Equation("w", "2*d*h*k + 2*d*g*k + 3*d*f", "queries and output, keys and values, gate, up and down"),),
            },
            "two matrices, as in GPT-2",
        ),
    ),
    notes=("of a single layer; with model=… all layers and the head, exactly",),
)
SIX_N_D_ERROR = Question(
    "six-nd-error",
    "sequence length from which 6·N·D is too low by more than a share",
    (
        ACTIVE, LAYERS, HEADS, HEAD_WIDTH,
        Variable(
            "a", "flops-of-matrices", "FLOP", "FLOPs of one token in matmuls with weights, forward and backward",
            model="step_linear",
        ),
        Variable("b", "flops-of-attention", "FLOP", "FLOPs of attention for a token and a position, both ways", model="step_quadratic"),
        _LONGER,
        Variable("e", "error", "share", "share that 6·N·D leaves out"),
    ),
    (
        Equation("a", "6*N", "what 6·N·D counts"),
        Equation("b", "12*L*h*k", "4·h·k in each layer forward, twice that backward"),
        Equation("e", "(a + b*T)/(6*N) - 1", "executed FLOPs ÷ 6·N·D − 1"),
    ),
    "T",
    limit="e",
    notes=("attention in full; with model=… the embedding, which is not a matmul, and the head are counted exactly",),
    source=KAPLAN,
)  # fmt: skip
_WORK = Variable("F", "flops", "FLOP", "FLOPs")
_MOVED = Variable("Q", "bytes", "bytes", "bytes moved")
_COMPUTE = Variable("c", "compute-seconds", "s", "time at the peak rate")
_MEMORY = Variable("m", "memory-seconds", "s", "time to move the bytes")
_TIME = Variable("s", "seconds", "s", "time, at least")
_EITHER = (
    Equation("c", "F/P", "amount over rate"),
    Equation("m", "Q/W", "amount over rate"),
    Equation("s", "Max(c, m)", "the longer of the two: they overlap"),
)
_NAMED = (
    Requirement("c >= m", "bound by memory: moving takes {m}, computing {c}"),
    Requirement("m >= c", "bound by arithmetic: computing takes {c}, moving {m}"),
)
BOUND = Question(
    "roofline",
    "the least time for given FLOPs and bytes, and whether arithmetic or memory bandwidth limits it",
    (_WORK, _MOVED, PEAK, BANDWIDTH, _COMPUTE, _MEMORY, _TIME, Variable("i", "intensity", "1", "FLOP per byte")),
    (*_EITHER, Equation("i", "F/Q", "FLOPs over bytes")),
    "s",
    conditions=_NAMED,
    also=("i",),
    source="Williams, Waterman, Patterson 2009, Roofline, CACM 52(4), 65-76",
)
RIDGE = Question(
    "ridge-point",
    "FLOP per byte from which a device is bound by arithmetic",
    (PEAK, BANDWIDTH, Variable("i", "intensity", "1", "FLOP per byte")),
    (Equation("i", "P/W", "both take equally long where F/P = Q/W"),),
    "i",
    source=BOUND.source,
)
_SIDES = tuple(
    Variable(x, f"{key}", "elements", words)
    for x, key, words in (
        ("x", "rows", "rows of the first matrix"),
        ("y", "inner", "the side that is summed over"),
        ("z", "columns", "columns of the second matrix"),
    )
)
MATMUL = Question(
    "matmul",
    "the least time of a matmul of an x by y and a y by z matrix",
    (
        *_SIDES,
        Variable("e", "item-bytes", "bytes", "bytes of an element", default="2", because="bf16", device="item"),
        _WORK,
        _MOVED,
        PEAK,
        BANDWIDTH,
        _COMPUTE,
        _MEMORY,
        _TIME,
    ),
    (
        Equation("F", "2*x*y*z", "a multiplication and an addition for each of them"),
        Equation("Q", "e*(x*y + y*z + x*z)", "both are read and the result is written, each once"),
        *_EITHER,
    ),
    "s",
    conditions=_NAMED,
    also=("F", "Q"),
)
DATA_PARALLEL = Question(
    "data-parallel-tokens",
    "tokens per device and step from which the gradient exchange is hidden behind the backward",
    (
        DEVICES, PEAK,
        replace(MFU, default="1", because="the full peak, which needs the most tokens"),
        Variable("l", "link", "bytes/s", "rate of a device's links, per direction", device="link"),
        Variable("e", "gradient-bytes", "bytes", "bytes of a gradient", default="2", because="bf16"),
        Variable("y", "tokens-per-device", "tokens", "tokens of a step for each device", rounding="up"),
    ),
    (Equation("y", "e*(n - 1)*u*P/(2*n*l)", "2·e·N·(n - 1)/n bytes in a ring take as long as 4·N·y FLOP of the backward"),),
    "y",
    conditions=(Requirement("n >= 2", "one device exchanges nothing", refuse=True),),
    notes=("a ring over links that all run at once, and one exchange a step; between nodes give link=… of the network",),
    source="Austin et al. 2025, How to Scale Your Model, Training (jax-ml.github.io/scaling-book)",
)  # fmt: skip

QUESTIONS = (ATTENTION_CROSSOVER, SIX_N_D_ERROR, BOUND, RIDGE, MATMUL, DATA_PARALLEL)
