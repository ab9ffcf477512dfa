"""The description of a model for sharding: its parameter tensors, the tensors saved for backward, and how each is divided.

Everything is an expression in the model's variables (``calc.dimensions``), so one description serves every layout. A decoder comes from its
dimensions by published formulas, or from a derivation (``calc.capacity.sharding.derived``), exact for that module. Torch-free.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from calc.errors import BadInputError, needs

# Location of a tensor or item: in every layer, before the first one, after the last one, on every stage.
LAYER, FIRST, LAST, EVERY = "layer", "first", "last", "every"
STEPS = "steps"  # or at the end of a step, in the optimizer
# Which side of a (rows, rest) matrix tensor parallelism divides: output features, input features, key/value heads, the vocabulary.
WHOLE, ROWS, REST, HEADS, VOCABULARY = "", "rows", "rest", "heads", "vocabulary"
# How tensor and sequence parallelism treat a saved tensor.
DIVIDED, STREAM, GATHERED, SAME = "divided", "stream", "gathered", "same"


@dataclass(frozen=True, slots=True)
class ShardedTensor:
    """``times`` parameter tensors of ``rows`` (their first side) by ``row_length``; ``per_token`` if each token is multiplied with it."""

    label: str
    rows: str
    row_length: str
    where: str = LAYER
    divided: str = WHOLE
    times: int = 1
    experts: bool = False
    per_token: bool = True


@dataclass(frozen=True, slots=True)
class Item:
    """Bytes saved for backward for ``B`` sequences of ``T`` tokens, in one layer or once. ``scores`` grow with T squared."""

    label: str
    expr: str
    under: str
    because: str
    where: str = LAYER
    scores: bool = False


@dataclass(frozen=True, slots=True)
class TransientBytes:
    """Temporary bytes beside the saved tensors: ``parts`` are ``(expression, how it is divided)``; they add up.

    ``where``: in a layer, at an end, or in the optimizer (``STEPS``), when no saved tensor is left. ``beside_all``: all saved tensors are
    certainly allocated then, as at the loss.
    """

    label: str
    parts: tuple[tuple[str, str], ...]
    where: str = LAYER
    beside_all: bool = False


@dataclass(frozen=True, slots=True)
class ShardedModel:
    """A model as sharding divides it. ``only_data`` is the reason why only its batch and its state can be divided; empty otherwise.

    ``own`` are the module's tensors, used if no kind of parallelism splits a tensor. ``attention`` is ``fused`` (scores are recomputed, not
    saved) or ``math``; ``tied``: embedding and head share one table. ``temporaries`` are those of which the largest counts; if empty,
    temporaries are unknown. ``stepped``: temporary bytes of the optimizer, per parameter beside its gradient and per element of the largest
    tensor; by default they follow from the state.
    """

    name: str
    values: Mapping[str, int]
    tensors: tuple[ShardedTensor, ...]
    items: tuple[Item, ...]
    source: str
    attention: str = "fused"
    element: int = 2
    tied: bool = False
    only_data: str = ""
    own: tuple[ShardedTensor, ...] = ()
    notes: tuple[str, ...] = ()
    temporaries: tuple[TransientBytes, ...] = ()
    stepped: tuple[int, int] | None = None

    @property
    def has_experts(self) -> bool:
        return "E" in self.values


_SIZES = {"L": "layers", "d": "width", "h": "heads", "V": "vocabulary", "T": "length"}
_GATED = {"f": "feed-forward width, or gated=no for f = 4*d"}
_EXPERTS = {"E": "experts", "e": "experts of each token"}
_EXAMPLE = {"L": 32, "d": 4096, "h": 32, "V": 128256, "T": 8192, "f": 14336, "E": 8, "e": 2}
_KORTHIKANTI = "Korthikanti et al. 2022 (arXiv 2205.05198), section 4"


def decoder(
    sizes: Mapping[str, int], *, gated: bool = True, bias: bool = False, tied: bool = False, dropout: bool = False, attention: str = "fused"
) -> ShardedModel:
    """A decoder of pre-norm blocks from its dimensions: L, d, h, V, T; optionally g, k, f; C with learned positions; E and e with experts.
    The bytes saved for backward follow Korthikanti et al. 2022, with 2-byte numbers. Raises ``BadInputError`` for a size that is missing or
    does not fit the others."""
    values = _completed(sizes, gated)
    tensors = (*_attention(bias), *_norms(bias), *_feed_forward(values, gated, bias), *_ends(values, bias))
    items = (*_saved_by_attention(attention, dropout), *_saved_by_feed_forward(values, gated, dropout), *_saved_at_ends(dropout))
    kind = f"{'gated' if gated else 'plain'} feed-forward{', biases' if bias else ''}, {'one table' if tied else 'a separate head'}"
    source = f"published account: {_KORTHIKANTI}; {kind}"
    return ShardedModel(
        "decoder", values, tensors, items, source, attention, tied=tied, temporaries=_temporaries(values, gated, attention, dropout)
    )


def missing_sizes(sizes: Mapping[str, int], gated: bool) -> dict[str, str]:
    """What a decoder of these ``sizes`` lacks, ``d (width)``, each with an example that goes with them, ``d=4096``."""
    required = {**_SIZES, **(_GATED if gated else {}), **(_EXPERTS if sizes.keys() & _EXPERTS.keys() else {})}
    examples = {**_EXAMPLE, "E": max(_EXAMPLE["E"], sizes.get("e", 1)), "e": min(_EXAMPLE["e"], sizes.get("E", 2))}
    if "k" not in sizes:  # heads divide the width
        examples["d"] = 128 * sizes.get("h", sizes.get("g", _EXAMPLE["h"]))
        examples["h"] = sizes.get("g", math.gcd(_EXAMPLE["h"], sizes.get("d", _EXAMPLE["d"])))
    return {f"{symbol} ({word})": f"{symbol}={examples[symbol]}" for symbol, word in required.items() if symbol not in sizes}


def _completed(sizes: Mapping[str, int], gated: bool) -> dict[str, int]:
    """All dimensions, with defaults g = h, k = d/h, f = 4·d; a gated f must be given. Raises BadInputError if one is missing or invalid."""
    missing = missing_sizes(sizes, gated)
    if missing:
        raise BadInputError(f"{needs('a decoder by its sizes', tuple(missing), ' '.join(missing.values()))}, or name a model")
    d, h = sizes["d"], sizes["h"]
    if "k" not in sizes and d % h:
        raise BadInputError(f"h = {h} heads do not divide the width d = {d}: give the head width k")
    completed = {"g": h, "k": d // h, "f": 4 * d, **sizes}
    if completed["h"] % completed["g"]:
        raise BadInputError(f"g = {completed['g']} key/value heads do not divide the {h} heads")
    if completed.get("e", 1) > completed.get("E", 1):
        raise BadInputError(f"e = {completed['e']} experts per token are more than all {completed['E']}")
    return completed


def _attention(bias: bool) -> list[ShardedTensor]:
    tensors = [
        ShardedTensor("queries", "h*k", "d", divided=ROWS),
        ShardedTensor("keys and values", "g*k", "d", divided=HEADS, times=2),
        ShardedTensor("attention output", "d", "h*k", divided=REST),
    ]
    if bias:
        tensors += [_bias("queries", "h*k", ROWS), _bias("keys and values", "g*k", HEADS, 2), _bias("attention output", "d")]
    return tensors


def _bias(of: str, rows: str, divided: str = WHOLE, times: int = 1) -> ShardedTensor:
    return ShardedTensor(f"bias of {of}", rows, "1", divided=divided, times=times, per_token=False)


def _norms(bias: bool) -> list[ShardedTensor]:
    return [ShardedTensor("norms", "d", "1", times=4 if bias else 2, per_token=False)]


def _feed_forward(values: Mapping[str, int], gated: bool, bias: bool) -> list[ShardedTensor]:
    experts = "E" in values
    of = "experts' " if experts else ""
    tensors = [ShardedTensor(f"{of}gate and up" if gated else f"{of}up", "f", "d", divided=ROWS, times=2 if gated else 1, experts=experts)]
    tensors.append(ShardedTensor(f"{of}down", "d", "f", divided=REST, experts=experts))
    if experts:
        tensors.append(ShardedTensor("router", "E", "d"))
    if bias and not experts:
        tensors += [_bias("up", "f", ROWS, 2 if gated else 1), _bias("down", "d")]
    return tensors


def _ends(values: Mapping[str, int], bias: bool) -> list[ShardedTensor]:
    tensors = [ShardedTensor("embedding", "V", "d", FIRST, VOCABULARY, per_token=False)]
    if "C" in values:
        tensors.append(ShardedTensor("positions", "C", "d", FIRST, per_token=False))
    tensors.append(ShardedTensor("last norm", "d", "1", LAST, times=2 if bias else 1, per_token=False))
    tensors.append(ShardedTensor("head", "V", "d", LAST, VOCABULARY))
    return tensors


# -- saved for backward: bytes with 2-byte numbers -----------------------------------------------------------------------------

_MATH = "math"


def _saved_by_attention(attention: str, dropout: bool) -> list[Item]:
    items = [
        Item("input of the norm", "2*B*T*d", STREAM, "the norm's backward needs what it normalized"),
        Item(
            "input of queries, keys, values", "2*B*T*d", GATHERED, "the gradient of a weight is its input times the gradient of its output"
        ),
        Item("queries", "2*B*T*h*k", DIVIDED, "each product's backward needs the other factor"),
        Item("keys and values", "4*B*T*g*k", DIVIDED, "each product's backward needs the other factor"),
        Item("input of the output projection", "2*B*T*h*k", DIVIDED, "the output of attention, head by head"),
    ]
    if attention == _MATH:
        items.append(Item("softmax", "2*B*T*T*h", DIVIDED, "its backward needs its result", scores=True))
        if dropout:
            items.append(Item("dropout mask of the scores", "B*T*T*h", DIVIDED, "1 byte per element", scores=True))
            items.append(Item("scores after dropout", "2*B*T*T*h", DIVIDED, "the factor of the values", scores=True))
    else:
        items.append(Item("log-sum-exp", "4*B*T*h", DIVIDED, "one number per row of scores, from which the backward recomputes them"))
    if dropout:
        items.append(Item("dropout mask after attention", "B*T*d", STREAM, "1 byte per element"))
    return items


def _saved_by_feed_forward(values: Mapping[str, int], gated: bool, dropout: bool) -> list[Item]:
    times, rows = ("*e", "rows of a token's experts, balanced") if "E" in values else ("", "rows")
    hidden = f"8*B*T*f{times}" if gated else f"4*B*T*f{times}"
    of = "gate, its activation, up, and their product" if gated else "before and after the activation"
    items = [
        Item("input of the second norm", "2*B*T*d", STREAM, "the norm's backward needs what it normalized"),
        Item(
            "input of the feed-forward",
            f"2*B*T*d{times}",
            GATHERED,
            f"the gradient of a weight is its input times that of its output: {rows}",
        ),
        Item("hidden", hidden, DIVIDED, of),
    ]
    if times:
        items.append(Item("expert outputs", "2*B*T*d*e", GATHERED, "each is weighted by its router probability, whose gradient needs it"))
    if dropout:
        items.append(Item("dropout mask after the feed-forward", "B*T*d", STREAM, "1 byte per element"))
    return items


def _saved_at_ends(dropout: bool) -> list[Item]:
    items = [
        Item("token ids", "8*B*T", SAME, "which rows of the table were read", FIRST),
        Item("input of the last norm", "2*B*T*d", STREAM, "the norm's backward needs what it normalized", LAST),
        Item("input of the head", "2*B*T*d", GATHERED, "the gradient of the head is its input times that of the logits", LAST),
        Item("logits", "4*B*T*V", DIVIDED, "the loss is taken in fp32", LAST),
    ]
    if dropout:
        items.append(Item("dropout mask of the embedding", "B*T*d", STREAM, "1 byte per element", FIRST))
    return items


# -- temporaries -------------------------------------------------------------------------------------------------------------------


def _temporaries(values: Mapping[str, int], gated: bool, attention: str, dropout: bool) -> tuple[TransientBytes, ...]:
    """Temporaries of the backward: gradients of the saved tensors, one after another, with 2-byte numbers; those of the loss in fp32.

    Source: torch's ``cross_entropy``, whose backward needs the gradient of the log-probabilities to make that of the logits, a new tensor
    each; and the chain rule: an operator's backward needs the gradients of its result and of its arguments.
    """
    times = "*e" if "E" in values else ""
    stream = f"2*B*T*d{times}"
    feed_forward = "the gradients of gate and up beside that of their product" if gated else "the gradients before and after the activation"
    candidates = [
        TransientBytes("the loss: the gradients of log-probabilities and of logits, in fp32", (("8*B*T*V", DIVIDED),), LAST, True),
        TransientBytes(feed_forward, ((f"{6 if gated else 4}*B*T*f{times}", DIVIDED), (stream, SAME)), LAYER),
        TransientBytes("the gradients of queries, keys, values and of attention's result", (("8*B*T*h*k", DIVIDED),), LAYER),
        TransientBytes("token ids and targets", (("16*B*T", SAME),), STEPS),
    ]
    if attention == _MATH:
        noise = 2 if dropout else 0
        candidates.append(
            TransientBytes("the gradients of scores and of their softmax", ((f"{4 + noise}*B*T*T*h", DIVIDED), (stream, SAME)), LAYER)
        )
    return tuple(candidates)
