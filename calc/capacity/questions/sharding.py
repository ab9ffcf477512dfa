"""A training step on several devices: state per device, bytes that each sends, time on its links, the bubble of a pipeline.

From a number of parameters, or from a model's dimensions, assuming even division and only the layers. A named model is laid out exactly
(``calc.capacity.questions.layout_solver``), by the account that ``napkin shard`` shows in full.
"""

from __future__ import annotations

from dataclasses import replace

from calc.capacity.questions.memory import OPTIMIZER, PARTS, PRECISION
from calc.capacity.questions.question import (
    HEAD_WIDTH,
    KV_HEADS,
    LAYERS,
    MEMORY,
    PARAMETERS,
    SEQUENCE,
    WIDTH,
    Equation,
    Question,
    QuestionChoice,
    Requirement,
    Variable,
)

ZERO = "Rajbhandari et al. 2020, ZeRO (arXiv 1910.02054), sections 5 and 7"
SHOEYBI = "Shoeybi et al. 2019, Megatron-LM (arXiv 1909.08053), section 3"
NARAYANAN = "Narayanan et al. 2021, Megatron-LM (arXiv 2104.04473), section 2.2"
_RING = "in a ring, which sends the fewest bytes"
_ENDS = "layers only: embedding, head and loss come on top, see napkin shard MODEL"
_RATE = "every byte over the device's links to its neighbors; between nodes give link=… of the network"

DATA = Variable("n", "data", "ranks", "data-parallel ranks", rounding="up", default="1", because="no data parallelism")
TENSOR = Variable("t", "tensor", "ranks", "tensor-parallel ranks", rounding="up", default="1", because="no tensor parallelism", firm=True)
PIPELINE = Variable(
    "p", "pipeline", "stages", "stages of the pipeline", rounding="up", default="1", because="no pipeline parallelism", firm=True
)
MICRO = Variable(
    "k",
    "micro-batches",
    "micro-batches",
    "micro-batches of a step, on each data rank",
    rounding="up",
    default="1",
    because="default",
)
_ALL = Variable("G", "devices", "devices", "devices, all ranks together", rounding="up", also=("gpus",))
_SHARE = Variable("a", "rank-parameters", "parameters", "parameters of a tensor and pipeline rank")
_SENT = Variable("X", "sent", "bytes", "bytes that each device sends in a step")
_LINK = Variable("l", "link", "bytes/s", "rate of a device's links, per direction", device="link")
_SECONDS = Variable("s", "seconds", "s", "time of that traffic")
_TIME = Equation("s", "X/l", "amount over rate; overlap with compute is not subtracted")

# -- state under ZeRO ------------------------------------------------------------------------------------------------------------------

_AROUND = f"(n − 1)/n of each reduce-scatter and all-gather leaves a rank {_RING}"
STAGE = QuestionChoice(
    "zero",
    "stage of ZeRO",
    {
        "0": (
            Equation("M", "(w + q + m + o)*a", "replicated on every data rank"),
            Equation(
                "X", "2*q*a*(n - 1)/n", f"gradients are all-reduced once a step, which is a reduce-scatter and an all-gather: {_AROUND}"
            ),
        ),
        "1": (
            Equation("M", "(w + q)*a + (m + o)*a/n", "optimizer state and copies are sharded over the data ranks"),
            Equation(
                "X", "(q + w)*a*(n - 1)/n", f"gradients are reduce-scattered once a step, and the updated weights all-gathered: {_AROUND}"
            ),
        ),
        "2": (
            Equation("M", "w*a + (q + m + o)*a/n", "optimizer state, copies and gradients are sharded over the data ranks"),
            Equation(
                "X", "(k*q + w)*a*(n - 1)/n", f"gradients are reduce-scattered with every micro-batch, weights all-gathered once: {_AROUND}"
            ),
        ),
        "3": (
            Equation("M", "(w + q + m + o)*a/n", "all of it is sharded over the data ranks"),
            Equation(
                "X",
                "k*(q + 2*w)*a*(n - 1)/n",
                f"gradients are reduce-scattered, weights all-gathered forward and backward, with every micro-batch: {_AROUND}",
            ),
        ),
    },
    "every data rank has the whole state",
    {
        "2": (
            "the unsharded gradients of one layer come on top; FSDP2 gathers weights with every micro-batch unless reshard_after_backward"
            " is off"
        ),
        "3": "one or two unsharded layers, and the gradients of one, come on top",
    },
)
# The recipe of the ZeRO paper comes first, so that it is the default.
_MIXED = replace(
    PRECISION,
    options={name: PRECISION.options[name] for name in ("bf16-master", *(n for n in PRECISION.options if n != "bf16-master"))},
    because="2 bytes of a weight and of its gradient, 4 of the fp32 copy that the optimizer updates, as ZeRO counts",
)
_DEVICES = (
    Requirement("Mod(G, t*p) == 0", "devices = {G} is not a multiple of {t} tensor ranks times {p} stages: give one that is", refuse=True),
    Requirement("G == n*t*p", "data {n} * tensor {t} * pipeline {p} is not devices = {G}: the ranks multiply to the devices", refuse=True),
    Requirement("G <= N", "{G} devices are more than all {N} parameters", refuse=True),
)
SHARDING = Question(
    "sharding",
    "bytes of training state on each device, and bytes that each sends, by data, tensor and pipeline ranks and the stage of ZeRO",
    (
        PARAMETERS, TENSOR, PIPELINE, DATA, _ALL, replace(MEMORY, meaning="memory that a device needs"), MICRO, _SENT, _LINK, _SECONDS,
        _SHARE, *PARTS[:-1],
    ),
    (
        Equation("G", "n*t*p", "each data rank has t tensor ranks in each of p stages"),
        Equation("a", "N/(t*p)", "matrices and layers are divided evenly"),
        _TIME,
    ),
    "M",
    choices=(STAGE, _MIXED, OPTIMIZER),
    conditions=_DEVICES,
    also=("G", "X", "s"),
    notes=(
        "state alone: no activations, no workspace; tensor-traffic and pipeline-traffic give what tensor ranks and stages send",
        "napkin shard MODEL checks which numbers of ranks a model's heads and layers allow",
        _RATE,
    ),
    source=ZERO,
    laid=True,
)  # fmt: skip
FEWEST_RANKS = replace(
    SHARDING,
    name="fewest-ranks",
    summary="the fewest data ranks among which training state fits, by the stage of ZeRO",
    answer="n",
    limit="M",
    choices=(
        replace(
            STAGE, options={stage: STAGE.options[stage] for stage in ("3", "2", "1")}, because="all of the state is sharded, as by FSDP"
        ),
        *SHARDING.choices[1:],
    ),
)

# -- traffic of layers -----------------------------------------------------------------------------------------------------------------

_BATCH = Variable("B", "batch", "sequences", "sequences of a step, on each data rank", rounding="down", default="1", because="one sequence")
_ELEMENT = Variable("y", "element-bytes", "bytes", "bytes of an activation", default="2", because="bf16")
_STREAM = Variable("Y", "stream", "bytes", "activations passed from a layer to the next")
_LAYERS, _WIDTH, _SEQUENCE = (replace(x, model=x.key) for x in (LAYERS, WIDTH, SEQUENCE))
_PASSES = Equation("Y", "y*B*T*d", "one value per token and element of the width")
_OF_LAYERS = (_LAYERS, _WIDTH, _SEQUENCE, _BATCH, _ELEMENT, _STREAM)
_LAST = (_SENT, _LINK, _SECONDS)


def _several(symbol: str, kind: str) -> Requirement:
    return Requirement(f"{symbol} >= 2", f"one {kind} exchanges nothing: give two or more", refuse=True)


_OF_TENSOR = f"(t − 1)/t of each all-reduce leaves a rank {_RING}"
TENSOR_TRAFFIC = Question(
    "tensor-traffic",
    "bytes that each device sends in a step for tensor parallelism",
    (*_OF_LAYERS, replace(TENSOR, default="", because="", firm=False), *_LAST),
    (_PASSES, _TIME),
    "X",
    choices=(
        QuestionChoice(
            "sequence-parallel",
            "sequence parallelism",
            {
                "off": (Equation("X", "2*4*L*Y*(t - 1)/t", f"two all-reduces per layer forward, two backward: 2·{_OF_TENSOR}"),),
                "saved": (
                    Equation("X", "8*L*Y*(t - 1)/t", f"each all-reduce is an all-gather and a reduce-scatter, four of each: {_OF_TENSOR}"),
                ),
                "regather": (Equation("X", "10*L*Y*(t - 1)/t", f"two more all-gathers for the gradients of weights: {_OF_TENSOR}"),),
            },
            "each tensor rank has the whole residual stream",
        ),
    ),
    conditions=(_several("t", "tensor rank"),),
    also=("s",),
    notes=(_ENDS, _RATE),
    source=f"{SHOEYBI}; Korthikanti et al. 2022 (arXiv 2205.05198), section 4.2",
)
_PIECES = Variable(
    "v", "interleave", "pieces", "model chunks of each stage", rounding="up", default="1", because="stages do not interleave"
)
PIPELINE_TRAFFIC = Question(
    "pipeline-traffic",
    "bytes that each stage of a pipeline sends in a step",
    (_WIDTH, _SEQUENCE, _BATCH, _ELEMENT, _STREAM, _PIECES, *_LAST),
    (_PASSES, Equation("X", "2*v*Y", "each chunk sends its outputs on, and the gradients of its inputs back"), _TIME),
    "X",
    also=("s",),
    notes=("of an inner stage; the first and the last send one of the two less", _RATE),
    source=NARAYANAN,
)
PIPELINE_BUBBLE = Question(
    "pipeline-bubble",
    "idle time of the stages of a pipeline over their busy time",
    (
        replace(PIPELINE, rounding="down", default="", because="", firm=False), replace(MICRO, default="", because=""), _PIECES,
        Variable("b", "bubble", "1", "idle over busy time"),
        Variable("x", "waiting", "share", "share of the step in which a stage is idle"),
    ),
    (
        Equation("b", "(p - 1)/(v*k)", "p - 1 micro-batches until the last stage has work, and as many at the end, of 1/v of a stage each"),
        Equation("x", "b/(1 + b)", "idle over total time"),
    ),
    "b",
    conditions=(
        Requirement("p >= 2", "one stage has no bubble: give two or more", refuse=True),
        Requirement("v == 1 or Mod(k, p) == 0", "interleaved stages take micro-batches in rounds of {p}, and {k} is not a multiple of it"),
    ),
    also=("x",),
    notes=("1F1B and GPipe alike: they differ in memory; all stages take equally long, and sending takes no time",),
    source=NARAYANAN,
)  # fmt: skip
_CONTEXT = Variable("c", "context", "ranks", "context-parallel ranks", rounding="up")
_BLOCK = Variable("K", "block", "bytes", "keys and values of a rank's tokens, in one layer")
CONTEXT_TRAFFIC = Question(
    "context-traffic",
    "bytes that each device sends in a step for context parallelism",
    (
        _LAYERS, replace(KV_HEADS, model=KV_HEADS.key), replace(HEAD_WIDTH, model=HEAD_WIDTH.key), _SEQUENCE, _BATCH, _ELEMENT, _CONTEXT,
        _BLOCK, *_LAST,
    ),
    (Equation("K", "2*y*B*T*g*k/c", "a key and a value of width k for each key/value head and token"), _TIME),
    "X",
    choices=(
        QuestionChoice(
            "exchange",
            "how keys and values are exchanged",
            {
                "ring": (
                    Equation(
                        "X",
                        "L*K*(2*(c - 1) + c*4/y)",
                        "every block visits every rank forward and backward; its gradients travel the whole ring, in fp32",
                    ),
                ),
                "gather": (
                    Equation("X", "3*L*K*(c - 1)", "gathered forward and backward, gradients scattered: c − 1 blocks each time"),
                ),
            },
            "ring attention",
        ),
    ),
    conditions=(
        _several("c", "context rank"),
        Requirement("c <= T", "{c} context ranks are more than the {T} tokens of a sequence", refuse=True),
        Requirement("Mod(T, c) == 0", "{c} context ranks do not divide the {T} tokens of a sequence"),
    ),
    also=("s",),
    notes=(
        "with a causal mask too: every block passes through every rank",
        "gradients of weights are summed among context ranks as among data ranks: napkin ask sharding",
        _RATE,
    ),
    source="Liu et al. 2023, Ring Attention (arXiv 2310.01889); Grattafiori et al. 2024, Llama 3 (arXiv 2407.21783), section 3.3.2",
)  # fmt: skip
_EXPERT = Variable("x", "expert", "ranks", "expert-parallel ranks", rounding="up")
EXPERT_TRAFFIC = Question(
    "expert-traffic",
    "bytes that each device sends in a step for expert parallelism",
    (
        *_OF_LAYERS, _EXPERT,
        Variable("e", "experts-per-token", "experts", "experts per token", rounding="down", model="experts-per-token"), *_LAST,
    ),
    (
        _PASSES,
        Equation("X", "4*L*e*Y*(x - 1)/x", "to the experts and back, forward and backward; of evenly spread rows 1/x stay on their rank"),
        _TIME,
    ),
    "X",
    conditions=(_several("x", "expert rank"),),
    also=("s",),
    notes=("rows are spread evenly over the ranks; layers are those with experts", _RATE),
    source="Lepikhin et al. 2020, GShard (arXiv 2006.16668), section 3.2",
)  # fmt: skip

QUESTIONS = (
    SHARDING,
    FEWEST_RANKS,
    TENSOR_TRAFFIC,
    PIPELINE_TRAFFIC,
    PIPELINE_BUBBLE,
    CONTEXT_TRAFFIC,
    EXPERT_TRAFFIC,
)
