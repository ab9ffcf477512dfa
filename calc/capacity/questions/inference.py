"""Inference: time of the prompt, time per token, tokens per second, and the number of sequences that fit in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from calc.capacity.questions.answer import FurtherResult
from calc.capacity.questions.memory import WEIGHT_BYTES
from calc.capacity.questions.question import (
    BANDWIDTH,
    BATCH,
    HEAD_WIDTH,
    KV_HEADS,
    LAYERS,
    MEMORY,
    MFU,
    ONE_DEVICE,
    PARAMETERS,
    PEAK,
    SEQUENCE,
    Equation,
    Question,
    QuestionChoice,
    QuestionTable,
    Requirement,
    Values,
    Variable,
)
from calc.symbolic.exact import evaluate_text

if TYPE_CHECKING:
    from calc.capacity.questions.models import QuestionModel

_WEIGHT = Variable("w", "weight-bytes", "bytes", "bytes of a weight")
_WEIGHTS = Variable("Q", "weights-bytes", "bytes", "weights")
_ITEM = Variable("x", "cache-item-bytes", "bytes", "bytes of one value in the cache")
_OWN = Variable("y", "model-weights-bytes", "bytes", "weights of the model", model="weights_bytes")
_TOUCHED = Variable("j", "read-weights-bytes", "bytes", "weights read for one token", model="weights_read")
_PER_TOKEN = Variable("f", "flops-per-token", "FLOP", "FLOPs of one token", model="token_flops")
_CACHED_VALUES = Variable("E", "cache-values", "elements", "cached values per token", model="cache_per_token")
_CACHE = Variable("K", "cache-per-token", "bytes", "keys and values of one token")
_READ = Variable("Z", "bytes-read", "bytes", "bytes read for one token of each sequence")
_MEMORY_TIME = Variable("m", "memory-seconds", "s", "time to read them")
_COMPUTE_TIME = Variable("c", "compute-seconds", "s", "time to multiply")
_SECONDS = Variable("s", "seconds", "s", "time of one token of each sequence")
_NEEDED = Variable("U", "needed", "bytes", "weights and caches")
_OCCUPIED = Variable("o", "occupied", "1", "what is needed over the memory of all devices")
_ROOM = (
    Equation("U", "Q + B*T*K", "weights once, and every token of every sequence"),
    Equation("o", "U/(n*M)", "evenly divided among the devices"),
)
_FITS = Requirement("o <= 1", "it does not fit: {U} are needed, {o} times the memory of {n} of these devices")
_ONE_SEQUENCE = replace(BATCH, default="1", because="default")
_CACHE_LETTERS = (LAYERS, KV_HEADS, HEAD_WIDTH, _ITEM, _CACHED_VALUES, _CACHE)

WEIGHTS = QuestionChoice(
    "weights",
    "number format of the weights",
    {name: (Equation("w", text, f"{name}: {words}"),) for name, (text, words) in WEIGHT_BYTES.items()},
    "the format that models are published in",
)
CACHE = QuestionChoice(
    "cache",
    "number format of keys and values",
    {
        name: (Equation("x", str(size), f"{name}: {size} bytes each" if size > 1 else f"{name}: 1 byte each"),)
        for name, size in (("bf16", 2), ("fp16", 2), ("fp8", 1), ("fp32", 4))
    },
    "that of the arithmetic",
)
_SIZE = Equation("Q", "N*w", "every weight once")
_OF_MODEL = Equation("Q", "y", "matrices in the given format; looked-up tables, norms and biases as libraries keep them")
_CACHE_EQUATIONS = (
    Equation("E", "2*L*g*k", "a key and a value of width k for each key/value head, in each layer"),
    Equation("K", "x*E", "each takes x bytes"),
)
_BOUND = "a lower bound: launches, communication and reads of activations come on top, and no bandwidth is reached in full"
_EVERY_WEIGHT = (
    "assumes that every weight is read and multiplied, also those of looked-up tables and of all experts: for a mixture of experts"
    " name the model, since this is not a bound there"
)

TIME_PER_TOKEN = Question(
    "time-per-token",
    "seconds that generating one token of each sequence takes, at least",
    (
        PARAMETERS, _WEIGHT, _WEIGHTS, *_CACHE_LETTERS, _ONE_SEQUENCE, SEQUENCE, ONE_DEVICE, BANDWIDTH, PEAK, _READ,
        _MEMORY_TIME, _COMPUTE_TIME, _SECONDS, MEMORY, _NEEDED, _OCCUPIED, _OWN, _TOUCHED, _PER_TOKEN,
    ),
    (
        _SIZE,
        *_CACHE_EQUATIONS,
        Equation("Z", "Q + B*T*K", "weights are read once for all sequences, keys and values once per sequence"),
        Equation("m", "Z/(n*W)", "every byte is read at the memory bandwidth"),
        Equation("c", "2*N*B/(n*P)", "2 FLOP for each weight and token, at the peak"),
        Equation("s", "Max(m, c)", "the longer of the two: they overlap"),
        *_ROOM,
    ),
    "s",
    choices=(WEIGHTS, CACHE),
    conditions=(
        Requirement("c >= m", "bound by memory bandwidth: reading takes {m}, multiplying {c}"),
        Requirement("m >= c", "bound by arithmetic: multiplying takes {c}, reading {m}"),
        _FITS,
    ),
    also=("m", "c", "o"),
    notes=(_BOUND,),
    notes_without_model=(_EVERY_WEIGHT,),
    with_model=(
        _OF_MODEL,
        Equation("Z", "j + B*T*K", "the weights that one token reads, once for all sequences; keys and values once per sequence"),
        Equation("c", "f*B/(n*P)", "the model's own matmuls, at the peak; attention to earlier tokens comes on top"),
    ),
)  # fmt: skip
TOKENS_PER_SECOND = replace(
    TIME_PER_TOKEN,
    name="tokens-per-second",
    summary="tokens generated in a second, at most, by how many sequences run at a time",
    variables=(*TIME_PER_TOKEN.variables, Variable("r", "tokens-per-second", "tokens/s", "tokens per second, at most")),
    equations=(*TIME_PER_TOKEN.equations, Equation("r", "B/s", "each step generates one token of every sequence")),
    answer="r",
    also=("s", "m", "c", "o"),
)
CACHE_PER_TOKEN = Question(
    "cache-per-token", "bytes of keys and values that a model keeps of each token", _CACHE_LETTERS, _CACHE_EQUATIONS, "K", choices=(CACHE,)
)
CACHE_SIZE = Question(
    "cache",
    "bytes of the keys and values of a batch of sequences",
    (*_CACHE_LETTERS, _ONE_SEQUENCE, SEQUENCE, Variable("G", "cache-bytes", "bytes", "keys and values")),
    (*_CACHE_EQUATIONS, Equation("G", "B*T*K", "of every token of every sequence")),
    "G",
    choices=(CACHE,),
)
LARGEST_CONCURRENCY = Question(
    "largest-concurrency",
    "sequences whose keys and values fit beside the weights",
    (PARAMETERS, _WEIGHT, _WEIGHTS, *_CACHE_LETTERS, BATCH, SEQUENCE, ONE_DEVICE, MEMORY, _OWN),
    (_SIZE, *_CACHE_EQUATIONS, Equation("M", "(Q + B*T*K)/n", "weights and caches are evenly divided among the devices")),
    "B",
    limit="M",
    choices=(WEIGHTS, CACHE),
    notes=("operator temporaries are not included",),
    with_model=(_OF_MODEL,),
)
PREFILL_TIME = Question(
    "prefill-time",
    "seconds until a prompt is read",
    (
        PARAMETERS, _ONE_SEQUENCE, SEQUENCE, ONE_DEVICE, PEAK,
        replace(MFU, default="1", because="the full peak: a lower bound on the time"),
        Variable("F", "prompt-flops", "FLOP", "FLOPs of the prompt"),
        Variable("c", "flops-per-sequence", "FLOP", "FLOPs of the forward of one sequence", model="forward_flops"),
        Variable("s", "seconds", "s", "time of the prompt"),
    ),
    (Equation("F", "2*N*B*T", "2 FLOP for each weight and token"), Equation("s", "F/(u*n*P)", "amount over rate")),
    "s",
    with_model=(Equation("F", "c*B", "all matmuls of the model's own forward, attention in full"),),
    notes=("2·N·T leaves out attention, which grows with the square of the prompt; with model=… it is in",),
)  # fmt: skip
TURNING_BATCH = Question(
    "decode-turning-point",
    "number of sequences from which decoding is bound by arithmetic instead of memory bandwidth, without caches",
    (_WEIGHT, BANDWIDTH, PEAK, replace(BATCH, rounding="up")),
    (Equation("B", "w*P/(2*W)", "reading a weight takes w/W, multiplying it with a token of each of B sequences 2·B/P"),),
    "B",
    choices=(WEIGHTS,),
    notes=("keys and values are read once per sequence: where they outweigh the weights, decoding stays bound by memory at any batch",),
)


def _formats(values: Values, model: QuestionModel | None) -> Sequence[FurtherResult]:
    """One row per number format: bytes, and tokens per second of one sequence, without caches."""
    rows = []
    for name, (text, meaning) in WEIGHT_BYTES.items():
        note = meaning
        size = read = values["N"] * evaluate_text(text, {})
        if model is not None:
            own = model.in_use.weights(name)
            size, read, note = Fraction(own.nbytes), own.read(), "scales included; tensors that libraries keep in bf16 stay in bf16"
        rows.append(FurtherResult(name, size, "bytes", note))
        rows.append(FurtherResult("", values["n"] * values["W"] / read, "tokens/s", "of one sequence, at most"))
    return rows


_OF_ONE = Variable("G", "cache-bytes", "bytes", "keys and values of one sequence")
BANDWIDTH_BOUND = Question(
    "bandwidth-bound",
    "tokens generated in a second, at most, from memory bandwidth alone",
    (
        _WEIGHTS, _OF_ONE, _ONE_SEQUENCE, ONE_DEVICE, BANDWIDTH, _READ,
        Variable("r", "tokens-per-second", "tokens/s", "tokens per second, at most"),
    ),
    (
        Equation("Z", "Q + B*G", "weights are read once for all sequences, keys and values once per sequence"),
        Equation("r", "n*B*W/Z", "every byte is read at the memory bandwidth, and each step generates B tokens"),
    ),
    "r",
    notes=("an upper bound from memory bandwidth alone: arithmetic, launches and communication lower it further",),
)  # fmt: skip
QUANTIZED = Question(
    "quantized",
    "tokens per second of one sequence, at most, and weights in each number format",
    (
        PARAMETERS, _WEIGHT, _WEIGHTS, ONE_DEVICE, BANDWIDTH, Variable("r", "tokens-per-second", "tokens/s", "tokens per second, at most"),
        _OWN, _TOUCHED,
    ),
    (_SIZE, Equation("r", "n*W/Q", "each token reads every weight once")),
    "r",
    choices=(WEIGHTS,),
    also=("Q",),
    table=QuestionTable(frozenset("NnW"), _formats),
    notes=(
        "the loss of quality is not computed; keys and values are left out; low-precision arithmetic needs a device that supports it",
    ),
    notes_without_model=(
        "assumes that every weight is quantized; libraries keep norms and tables in bf16: model=… counts these separately",
        _EVERY_WEIGHT,
    ),
    with_model=(_OF_MODEL, Equation("r", "n*W/j", "each token reads once the weights that it is multiplied with")),
)  # fmt: skip

QUESTIONS = (
    TIME_PER_TOKEN,
    TOKENS_PER_SECOND,
    CACHE_PER_TOKEN,
    CACHE_SIZE,
    LARGEST_CONCURRENCY,
    PREFILL_TIME,
    TURNING_BATCH,
    BANDWIDTH_BOUND,
    QUANTIZED,
)
