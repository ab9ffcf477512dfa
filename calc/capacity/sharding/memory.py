"""Bytes on a device of each stage, by kind: weights, gradients, optimizer state, copies, activations, and temporaries.

The device is the fullest of its stage: the first tensor rank, and the first of the ranks among which ZeRO divides. Shards are padded to one
size, as FSDP2 pads the rows of every tensor, so all ranks allocate the same for weights and gradients. Sources: Rajbhandari et al. 2020
(arXiv 1910.02054), section 5; Shoeybi et al. 2019 (arXiv 1909.08053), section 3; Korthikanti et al. 2022 (arXiv 2205.05198), section 4;
Narayanan et al. 2021 (arXiv 2104.04473), section 2.2.
"""

from __future__ import annotations

from collections.abc import Mapping

from calc.capacity.sharding.layout import BLOCK, OFF
from calc.capacity.sharding.model import EVERY, FIRST, LAST, Item, ShardedModel, ShardedTensor
from calc.capacity.sharding.parts import (  # fmt: skip
    EXACT,
    FILLED,
    ONLY,
    WHOLE_RANK,
    LayoutChoice,
    at_the_end,
    beside_layers,
    elements,
    fewer,
    in_layers,
    layers,
    layers_in_flight,
    micro_batches_in_flight,
    on_rank,
    outside,
    parameters,
    passed,
    product,
    saved_items,
    times,
    total,
)
from calc.capacity.sharding.state import State
from calc.capacity.sharding.temporaries import temporaries
from calc.symbolic.worked import WorkedStep

KINDS: Mapping[str, str] = {
    "weights": "W", "gradients": "Q", "optimizer": "O", "master": "U", "gathered": "H", "unreduced": "J", "activations": "A",
    "temporaries": "X",
}  # fmt: skip
WORDS: Mapping[str, str] = {
    "weights": "weights", "gradients": "gradients", "optimizer": "optimizer state", "master": "master weights",
    "gathered": "weights gathered", "unreduced": "gradients not yet sharded", "activations": "activations",
    "temporaries": "temporaries",
}  # fmt: skip
TOTAL = "M"
_DIVIDED = "each matrix is sharded along its columns or rows, and the bias of sharded columns with it"
_NOT_DIVIDED = "each matrix is whole: there is one tensor rank"
_CUT = "each tensor's rows are cut into equal shards, one per rank, the last ones padded (FSDP2)"


def shares(choice: LayoutChoice) -> bool:
    """Whether ZeRO shards anything in this layout."""
    return choice.zero > 0 and choice.ranks("n", "c", "x") != "1"


def memory(model: ShardedModel, choice: LayoutChoice, stage: str, state: State) -> tuple[WorkedStep, ...]:
    """The steps for one stage. The last is the total, the sum of those of ``KINDS`` that are present."""
    persistent = (*_parameters(model, choice, stage), *_state(model, choice, stage, state))
    transient = _transient(model, choice, stage)
    activations = _activations(model, choice, stage)
    passing = temporaries(model, choice, stage, state, shares(choice))
    symbols = {line.symbol for line in (*persistent, *transient, *activations, *passing)}
    kinds = [symbol for symbol in KINDS.values() if symbol in symbols]
    last = WorkedStep(TOTAL, total(kinds), "bytes", *_together(model))
    return (*persistent, *transient, *activations, *passing, last)


def _together(model: ShardedModel) -> tuple[str, str]:
    """The meaning and the reason of the sum."""
    when = "when the most micro-batches are in flight"
    if model.temporaries:
        return "all of it", f"{when}, with all gradients and the largest temporaries: an upper bound on the peak"
    return "state and saved tensors", f"{when}; temporaries are not counted"


def _parameters(model: ShardedModel, choice: LayoutChoice, stage: str) -> list[WorkedStep]:
    lines = [] if model.only_data else [WorkedStep("l", layers(choice, stage), "layers", "layers of this stage", _stage_words(choice))]
    lines += _counted(model, choice, stage, "N")
    if shares(choice):
        lines += _counted(model, choice, stage, "S", FILLED)
    if shares(choice) and choice.ranked:
        lines += _counted(model, choice, stage, "Z", EXACT)
    return lines


_OF_RANK = {WHOLE_RANK: "a rank", FILLED: "a rank's share", EXACT: "the share of rank r"}


def _counted(model: ShardedModel, choice: LayoutChoice, stage: str, symbol: str, how: str = WHOLE_RANK) -> list[WorkedStep]:
    """Elements of a layer, of its experts, outside the layers, and of all."""
    why = {FILLED: _CUT, EXACT: "without padding: the last ranks have fewer rows, or none"}.get(
        how, _DIVIDED if choice.has("t") else _NOT_DIVIDED
    )
    rank = _OF_RANK[how]
    groups = groups_of(model, choice, stage)
    groups_of_layers = {"l": "of a layer", "e": "of a layer's experts", "o": "outside of the layers"}
    lines = [
        WorkedStep(f"{symbol}{name}", elements(tensors, choice, how), "elements", f"{groups_of_layers[name]}, on {rank}", why)
        for name, tensors in groups.items()
    ]
    return [*lines, WorkedStep(symbol, whole_of(groups, symbol), "elements", f"parameters of {rank}", "layers and what is outside")]


def groups_of(model: ShardedModel, choice: LayoutChoice, stage: str) -> dict[str, list[ShardedTensor]]:
    """The tensors of a stage: of a layer (l), of its experts (e), outside of the layers (o)."""
    tensors = parameters(model, choice)
    if model.only_data:
        return {"o": list(tensors)}
    tensors_of = {"l": in_layers(tensors, experts=False), "e": in_layers(tensors, experts=True), "o": outside(tensors, stage, model.tied)}
    return {name: of for name, of in tensors_of.items() if of}


def whole_of(groups: Mapping[str, object], symbol: str) -> str:
    """The closed form of all layers and of what is outside them, in the names ``groups`` with the prefix ``symbol``."""
    layer = total(f"{symbol}{name}" for name in ("l", "e") if name in groups)
    return total([*([product("l", layer)] if layer != "0" else []), *([f"{symbol}o"] if "o" in groups else [])])


def _stage_words(choice: LayoutChoice) -> str:
    if not choice.has("p"):
        return "all: there is one stage"
    return "L + 2 are divided: embedding and head take the place of a layer each" if choice.uneven else "divided evenly"


def _state(model: ShardedModel, choice: LayoutChoice, stage: str, state: State) -> list[WorkedStep]:
    by = {number: "S" if shares(choice) and choice.zero >= number else "N" for number in (1, 2, 3)}
    exact = "Z" if choice.ranked and by[1] == "S" else by[1]
    lines = []
    counters = ""
    if state.counter:
        groups = {name: total(times(t, choice) for t in tensors) for name, tensors in groups_of(model, choice, stage).items()}
        layer = total(groups[name] for name in ("l", "e") if name in groups)
        number = total([*([product("l", layer)] if layer != "0" else []), *([groups["o"]] if "o" in groups else [])])
        lines.append(WorkedStep("K", number, "tensors", "parameter tensors of a rank", "each has step counters of its own"))
        counters = " + j*K"
    lines += [
        WorkedStep("W", f"w*{by[3]}", "bytes", "weights", "w bytes each" + _divided(by[3])),
        WorkedStep("Q", f"q*{by[2]}", "bytes", "gradients", "q bytes each" + _divided(by[2])),
        WorkedStep(
            "O", f"o*{exact}{counters}", "bytes", "optimizer state", "o bytes each" + _divided(by[1]) + (", j a tensor" if counters else "")
        ),
    ]
    if state.master:
        lines.append(WorkedStep("U", f"u*{exact}", "bytes", "master weights", "u bytes each" + _divided(by[1])))
    return lines


def _divided(by: str) -> str:
    return ", of the rank's share" if by == "S" else ", replicated on each data rank"


def _transient(model: ShardedModel, choice: LayoutChoice, stage: str) -> list[WorkedStep]:
    """Bytes that ZeRO stages 2 and 3 hold whole temporarily, layer by layer. A model without layers is one unit."""
    if not shares(choice) or choice.zero < 2 or not model.items:  # without items, the parts of the model are unknown
        return []
    groups = groups_of(model, choice, stage)
    layer = total(f"N{name}" for name in ("l", "e") if name in groups)
    lines = []
    if choice.zero == 3:
        gathered = "w*N" if model.only_data else f"w*(N - Max(0, l - 2)*{product(layer)})"
        why = "a layer is gathered while it runs and the next one is prefetched; weights outside the layers stay gathered"
        lines.append(WorkedStep("H", gathered, "bytes", "weights gathered", why))
    units = [unit for unit in (layer, "No" if "o" in groups else "0") if unit != "0"]
    largest = f"Max({', '.join(units)})" if len(units) > 1 else product(units[0])
    lines.append(WorkedStep("J", f"q*{largest}", "bytes", "gradients not yet sharded", "of the largest unit, before the reduce-scatter"))
    return lines


def _activations(model: ShardedModel, choice: LayoutChoice, stage: str) -> list[WorkedStep]:
    beside = beside_layers(model, stage)
    if model.only_data and not model.items:
        return []
    if model.only_data:
        return [WorkedStep("A", total(on_rank(item, choice) for item in beside), "bytes", "activations", "of the sequences of one rank")]
    lines = [
        WorkedStep(
            "Al",
            total(on_rank(item, choice) for item in saved_items(model, choice)),
            "bytes",
            "saved by a layer, per micro-batch",
            _saved_words(choice),
        )
    ]
    number, unit = ("l" if stage == ONLY else "i"), "Al"
    if stage != ONLY:
        why = "1F1B: before its first backward, a stage runs one forward for each later stage and one more"
        lines.append(WorkedStep("i", layers_in_flight(choice, stage), "layers", "layers in flight, each for one micro-batch", why))
    if choice.checkpointing == BLOCK:
        divided = choice.has("t") and choice.sequence != OFF
        why = "a recomputed layer saves its input"
        lines.append(WorkedStep("Ab", passed(model, choice) + ("/t" if divided else ""), "bytes", "input of a layer, per micro-batch", why))
        unit = "Ab"
    parts = [f"{number}*{unit}", *(["Al"] if unit == "Ab" else [])]
    shorter = fewer(choice) if choice.uneven and stage in (FIRST, LAST) else ""
    for symbol, of, meaning in (("Ao", _once, "saved outside the layers"), ("Ae", _every, "saved with every chunk")):
        items = [on_rank(item, choice) for item in beside if of(item)]
        if items:
            lines.append(
                WorkedStep(
                    symbol, total(items), "bytes", f"{meaning}, of a micro-batch", "inputs, tables, the last norm, the head, the loss"
                )
            )
            parts.append(
                _at_the_end(choice, stage, symbol, f"z*{unit}" if shorter else "")
                if of is _once
                else product(micro_batches_in_flight(choice, stage), symbol)
            )
    if shorter:
        lines.append(WorkedStep("z", shorter, "layers", "fewer in the chunk at this end", "embedding or head takes the place of a layer"))
    lines.append(WorkedStep("A", total(parts), "bytes", "activations", "of all micro-batches in flight"))
    return lines


def _once(item: Item) -> bool:
    return item.where != EVERY


def _every(item: Item) -> bool:
    return item.where == EVERY


def _at_the_end(choice: LayoutChoice, stage: str, symbol: str, lacking: str) -> str:
    """Activations at an end of the model: what its chunk has beyond other chunks minus what it lacks, at the larger of two peak candidates.
    """
    candidates = [product(number, f"{symbol} - {lacking}" if lacking else symbol) for number in at_the_end(choice, stage)]
    return f"Max({', '.join(candidates)})" if len(candidates) > 1 else candidates[0]


def _saved_words(choice: LayoutChoice) -> str:
    by_choice = {"none": "what its backward needs", "attention": "what its backward needs, without the scores, which are recomputed"}
    return by_choice.get(choice.checkpointing, "of the one layer being recomputed")
