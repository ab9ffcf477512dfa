"""What fits: the largest model, batch, sequence, depth or width for a given memory, and what a device can hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from calc.capacity.questions.answer import FurtherResult
from calc.capacity.questions.question import (
    BATCH,
    HEADS,
    LAYERS,
    MEMORY,
    ONE_DEVICE,
    PARAMETERS,
    SEQUENCE,
    VOCABULARY,
    WIDTH,
    Equation,
    Question,
    QuestionChoice,
    QuestionTable,
    Requirement,
    Values,
    Variable,
)
from calc.options import NAMED_OPTIMIZERS
from calc.symbolic.exact import evaluate_text

if TYPE_CHECKING:
    from calc.capacity.questions.models import QuestionModel

_STATE_ONLY = "an upper bound for this memory: no activations, no workspace, no fragmentation; each device holds an even part of the state"
ZERO = "Rajbhandari et al. 2020, ZeRO (arXiv 1910.02054), section 3.1"
KORTHIKANTI = "Korthikanti et al. 2022, Reducing Activation Recomputation in Large Transformer Models (arXiv 2205.05198), equation 1"

# -- bytes of state for each parameter ---------------------------------------------------------------------------------------------

STATE = Variable("b", "bytes-per-parameter", "bytes", "bytes of state for each parameter")
PARTS = (
    Variable("w", "weight-bytes", "bytes", "bytes of a weight"),
    Variable("q", "gradient-bytes", "bytes", "bytes of a gradient"),
    Variable("m", "copy-bytes", "bytes", "bytes of an fp32 copy that the optimizer steps"),
    Variable("i", "item-bytes", "bytes", "bytes of one value that the optimizer keeps"),
    Variable("o", "state-bytes", "bytes", "bytes of optimizer state"),
    STATE,
)
_SUM = Equation("b", "w + q + m + o", "weights, gradients, copies and optimizer state")


def _recipe(weights: int, copy: int, description: str) -> tuple[Equation, ...]:
    return (
        Equation("w", str(weights), f"{description}: {weights} bytes each"),
        Equation("q", str(weights), "a gradient for every weight, in its format"),
        Equation("m", str(copy), "an fp32 copy of each weight" if copy else "no copies: the optimizer steps the weights themselves"),
        Equation("i", str(copy or weights), "the optimizer keeps its values in the format of what it steps"),
    )


# Bytes of a weight, of its fp32 copy, and the weights' format in words.
_RECIPES = {
    "fp32": (4, 0, "fp32"),
    "bf16-autocast": (4, 0, "fp32, cast to bf16 while the forward runs"),
    "fp16-autocast": (4, 0, "fp32, cast to fp16 while the forward runs"),
    "bf16": (2, 0, "bf16"),
    "bf16-master": (2, 4, "bf16"),
}
PRECISION = QuestionChoice(
    "precision",
    "recipe of number formats",
    {name: _recipe(*recipe) for name, recipe in _RECIPES.items()},
    "weights and optimizer in fp32",
)


def _offered(name: str) -> bool:
    """Whether the state of an optimizer is a constant number of values per parameter."""
    rule = NAMED_OPTIMIZERS[name]
    return not rule.factored and not rule.about


def _stored(name: str) -> Equation:
    row = NAMED_OPTIMIZERS[name]
    count = row.values
    return Equation("o", f"{count}*i", f"{row.kind} keeps {count} {'value' if count == 1 else 'values'} for each parameter")


_FIRST = ("adamw",)
OPTIMIZER = QuestionChoice(
    "optimizer",
    "optimizer",
    {name: (_stored(name),) for name in (*_FIRST, *(n for n in NAMED_OPTIMIZERS if n not in _FIRST)) if _offered(name)},
    "the usual one",
    {n: "step counters of the optimizer, 4 bytes a tensor, are not counted" for n, row in NAMED_OPTIMIZERS.items() if row.counters},
)
_STATE_OF = (PRECISION, OPTIMIZER)

LARGEST_MODEL = Question(
    "largest-model",
    "the most parameters whose training state fits the memory of the devices",
    (PARAMETERS, ONE_DEVICE, MEMORY, *PARTS),
    (_SUM, Equation("N", "n*M/b", "the state is divided among the devices and fills them")),
    "N",
    limit="M",
    choices=_STATE_OF,
    notes=(_STATE_ONLY,),
    source=ZERO,
)
_OWN = Variable("Y", "model-bytes", "bytes", "bytes of the model's own step", model="state_bytes")
TRAINING_STATE = Question(
    "training-state",
    "bytes of weights, gradients and optimizer state of a model in training",
    (PARAMETERS, Variable("S", "state", "bytes", "training state"), _OWN, *PARTS),
    (_SUM, Equation("S", "N*b", "b bytes for each parameter")),
    "S",
    choices=_STATE_OF,
    with_model=(Equation("S", "Y", "from the traced step, step counters included"),),
    notes=("activations are not in it: see largest-batch, or napkin derive MODEL",),
    source=ZERO,
)
_EVENLY = (
    "what one process needs at its peak, {%s}, is divided evenly among {n} devices, a lower bound that no layout reaches in general:"
    " napkin shard MODEL works a layout out, napkin layout MODEL searches for the best"
)
_RATIO = Variable("x", "ratio", "1", "bytes needed over bytes available")
FITS = Question(
    "fits",
    "whether the training state of a model fits the devices (with model=…, its whole step): bytes needed over bytes available",
    (
        PARAMETERS,
        ONE_DEVICE,
        MEMORY,
        Variable("S", "needed", "bytes", "bytes needed", also=("state",)),
        _RATIO,
        replace(_OWN, key="peak-bytes", meaning="peak of the model's own step, activations included", model="step_peak"),
        *PARTS,
    ),
    (
        _SUM,
        Equation("S", "N*b", "the training state alone, bytes per parameter times parameters; no activations"),
        Equation("x", "S/(n*M)", "more than 1 does not fit"),
    ),
    "x",
    choices=_STATE_OF,
    conditions=(
        Requirement("x <= 1", "it does not fit: {S} are needed, {x} times the memory"),
        Requirement("n == 1", _EVENLY % "Y"),
    ),
    also=("S",),
    with_model=(Equation("S", "Y", "the peak, not the state alone: live bytes at the peak of the traced step"),),
    notes_without_model=("the state alone: no activations; each device holds an even part",),
    source=ZERO,
)

# -- weights in use ------------------------------------------------------------------------------------------------------------------

WEIGHT_BYTES = {
    "bf16": ("2", "2 bytes each"),
    "fp32": ("4", "4 bytes each"),
    "fp16": ("2", "2 bytes each"),
    "fp8": ("1", "1 byte each; a scale a tensor is not counted"),
    "int8": ("1", "1 byte each; a scale a row is not counted"),
    "int4": ("1/2 + 2/128", "half a byte each, and a 2-byte scale for every 128"),
    "int4-zero": ("1/2 + 2/128 + 1/256", "half a byte each, and a 2-byte scale and a 4-bit zero point for every 128"),
}


def _room(values: Values, _: QuestionModel | None) -> Sequence[FurtherResult]:
    """The largest model for each precision of inference and training, as rows."""
    memory = values["A"]
    rows = [
        FurtherResult(f"use, weights in {name}", Fraction(int(memory / evaluate_text(text, {}))), "parameters", meaning)
        for name, (text, meaning) in WEIGHT_BYTES.items()
        if name in ("bf16", "fp8", "int4")
    ]
    for precision in ("bf16", "bf16-master", "fp32"):
        weights, copy, _description = _RECIPES[precision]
        per_parameter = 2 * weights + copy + 2 * (copy or weights)
        meaning = f"{per_parameter} bytes each: weights, gradients, copies and AdamW's two values"
        rows.append(FurtherResult(f"training, AdamW, {precision}", Fraction(memory // per_parameter), "parameters", meaning))
    return rows


WHAT_FITS = Question(
    "what-fits",
    "the largest models that fit a device, in use and in training",
    (ONE_DEVICE, MEMORY, Variable("A", "all-memory", "bytes", "memory of all devices")),
    (Equation("A", "n*M", "n devices of M bytes"),),
    "A",
    table=QuestionTable(frozenset("A"), _room),
    notes=("keys, values and activations take memory too: these are upper bounds",),
)

# -- a transformer with its activations ------------------------------------------------------------------------------------------------

_TOTAL = Variable("Q", "total", "bytes", "state and activations")
LARGEST_BATCH = Question(
    "largest-batch",
    "the largest batch whose training step of a transformer fits",
    (
        PARAMETERS,
        LAYERS,
        replace(WIDTH, also=("hidden",), multiple_of="h"),
        HEADS,
        replace(VOCABULARY, default="50257", because="the vocabulary of GPT-2"),
        BATCH,
        SEQUENCE,
        ONE_DEVICE,
        MEMORY,
        Variable("S", "state", "bytes", "training state"),
        Variable("A", "activations", "bytes", "activations saved for backward"),
        _TOTAL,
        *PARTS,
    ),
    (
        _SUM,
        Equation("N", "12*L*d**2 + V*d", "4 d² of attention and 8 d² of the feed-forward layer, L times, and an embedding that is tied"),
        Equation("S", "b*N", "b bytes for each parameter"),
        Equation("A", "L*B*T*(34*d + 5*h*T)", "in 2 bytes: 34 times the width for each token and layer, and 5 for each score of attention"),
        Equation("Q", "S + A", "both at once when the backward begins"),
        Equation("M", "Q/n", "evenly divided over the devices"),
    ),
    "B",
    limit="M",
    choices=_STATE_OF,
    conditions=(Requirement("n == 1", _EVENLY % "Q"),),
    notes=(
        "activations in 2 bytes with dropout, scores of attention stored, feed-forward width 4·d; embedding, head and loss left out",
        "with model=… the peak of the model's own step is taken, exactly",
    ),
    source=KORTHIKANTI,
    fills=True,
)

LARGEST_SEQUENCE = replace(LARGEST_BATCH, name="largest-sequence", summary="the longest sequence whose training step fits", answer="T")
LARGEST_DEPTH = replace(LARGEST_BATCH, name="largest-depth", summary="the most layers whose training step fits", answer="L")
LARGEST_WIDTH = replace(LARGEST_BATCH, name="largest-width", summary="the largest width whose training step fits", answer="d")

QUESTIONS = (
    LARGEST_MODEL,
    TRAINING_STATE,
    FITS,
    WHAT_FITS,
    LARGEST_BATCH,
    LARGEST_SEQUENCE,
    LARGEST_DEPTH,
    LARGEST_WIDTH,
)
