"""Every quantity of a derivation: its unit, what it means, and whether it is counted, a sum of others, or a peak."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from calc.derive.part_names import OF_ATTENTION
from calc.errors import NegativeCountError
from calc.options import MASTER, TRAIN, trains
from calc.symbolic.assignments import sizes_text
from calc.units import Unit


@dataclass(frozen=True, slots=True)
class Definition:
    """``parts`` names the quantities that add up to this one; ``step`` the step whose peak it is."""

    name: str
    unit: Unit
    meaning: str
    parts: tuple[str, ...] = ()
    step: int | None = None

    @property
    def because(self) -> str:
        """Why it is the sum of its parts or, of a counted quantity, of those of the model."""
        if not self.parts:
            return "every operator and tensor of the step is in exactly one part, so the parts add"
        if len(self.parts) > 1:
            return "every operation is counted in exactly one of them, so they add"
        return "of its parts, only this one runs in this step"


QUANTITIES: dict[str, Definition] = {
    definition.name: definition
    for definition in (
        Definition("parameters", Unit.ELEMENT, "elements of the model's parameters, tied weights counted once"),
        Definition(
            "parameters.active",
            Unit.ELEMENT,
            "parameters that one token or sample uses: whole embedding tables, and of experts only those it is routed to",
        ),
        Definition(
            "parameters.non_embedding",
            Unit.ELEMENT,
            "parameters outside embeddings: no table that is looked up, no output head of its sizes",
        ),
        Definition("parameters.bytes", Unit.BYTE, "the model's parameters in their own number format"),
        Definition("master_weights.bytes", Unit.BYTE, "fp32 copies of the parameters, which the optimizer steps"),
        Definition("gradients.bytes", Unit.BYTE, "gradients that the backward leaves"),
        Definition("optimizer_state.bytes", Unit.BYTE, "every tensor of the optimizer's state"),
        Definition("activations.bytes", Unit.BYTE, "distinct storages saved for backward when the forward returns"),
        Definition("memory.peak", Unit.BYTE, "largest live bytes during the second step", step=2),
        Definition("memory.peak.first_step", Unit.BYTE, "largest live bytes during the first step", step=1),
        Definition("checkpoint.bytes", Unit.BYTE, "payload of a checkpoint: model, optimizer state and iteration"),
        Definition("flops.forward.matmul", Unit.FLOP, "matrix multiplications of the forward"),
        Definition("flops.forward.causal", Unit.FLOP, "matrix multiplications of the forward, less what declared causal masks skip"),
        Definition("flops.forward.elementwise", Unit.FLOP, "elementwise arithmetic of the forward"),
        Definition(
            "flops.forward.total", Unit.FLOP, "all arithmetic of the forward", ("flops.forward.matmul", "flops.forward.elementwise")
        ),
        Definition("flops.backward.matmul", Unit.FLOP, "matrix multiplications of the backward, as autograd executes them"),
        Definition("flops.backward.causal", Unit.FLOP, "matrix multiplications of the backward, less what declared causal masks skip"),
        Definition("flops.backward.recompute", Unit.FLOP, "matrix multiplications of the backward that only recompute the forward"),
        Definition("flops.backward.elementwise", Unit.FLOP, "elementwise arithmetic of the backward"),
        Definition(
            "flops.backward.total", Unit.FLOP, "all arithmetic of the backward", ("flops.backward.matmul", "flops.backward.elementwise")
        ),
        Definition("flops.optimizer.matmul", Unit.FLOP, "matrix multiplications of the optimizer step"),
        Definition("flops.optimizer.elementwise", Unit.FLOP, "elementwise arithmetic of the optimizer step"),
        Definition(
            "flops.optimizer.total",
            Unit.FLOP,
            "all arithmetic of the optimizer step",
            ("flops.optimizer.matmul", "flops.optimizer.elementwise"),
        ),
        Definition(
            "flops.step.total",
            Unit.FLOP,
            "all arithmetic of one step",
            ("flops.forward.total", "flops.backward.total", "flops.optimizer.total"),
        ),
        Definition("bytes_moved.forward", Unit.BYTE, "bytes read and written by the forward's operators"),
        Definition("bytes_moved.backward", Unit.BYTE, "bytes read and written by the backward's operators"),
        Definition("bytes_moved.optimizer", Unit.BYTE, "bytes read and written by the optimizer's operators"),
    )
}

# What stands for a number of parameters in the expression of a rule of thumb, and the quantity that it is.
PLACEHOLDERS = {"{N}": "parameters", "{A}": "parameters.active"}


def require_count(name: str, value: int, sizes: Mapping[str, int]) -> int:
    """``value``, a count of elements, bytes or operations at ``sizes``; one below 0 is refused."""
    if value < 0:
        at = sizes_text(sizes)
        raise NegativeCountError(
            f"{name} is {value:,}{f' at {at}' if at else ''}: no count is below 0, so this is an error of Napkin, not of the"
            " model; report it with the model and these sizes"
        )
    return value


_BACKWARD = ("gradients.", "flops.backward.", "bytes_moved.backward")
_OPTIMIZER = ("optimizer_state.", "flops.optimizer.", "bytes_moved.optimizer")
_OTHER_MEANINGS = {
    "checkpoint.bytes": "payload of a checkpoint: the model alone",
    "memory.peak": "largest live bytes during the second forward",
    "memory.peak.first_step": "largest live bytes during the first forward",
    "flops.step.total": "all arithmetic of the step, which is one forward and nothing else",
}


def absent(name: str, options: Mapping[str, str]) -> str:
    """Why a step with ``options`` has no quantity ``name``, or an empty text where it has. What does not run is unknown, not 0."""
    mode, precision = options.get("mode", TRAIN), options.get("precision", "fp32")
    if name == "master_weights.bytes" and (precision != MASTER or mode != TRAIN):
        return f"precision {precision} has no copies of the weights" if mode == TRAIN else f"mode {mode} runs no optimizer step"
    if mode == TRAIN:
        return ""
    if name.startswith(_BACKWARD):
        return f"mode {mode} runs no backward"
    if name.startswith(_OPTIMIZER):
        return f"mode {mode} runs no optimizer step"
    return f"mode {mode} saves nothing for backward" if name == "activations.bytes" else ""


NO_ATTENTION = "this model has no attention"


def has_attention(parts: Iterable[str]) -> bool:
    """Whether a step with these parts of the model has attention."""
    return not OF_ATTENTION.isdisjoint(parts)


def applies(name: str, unknown: str, options: Mapping[str, str]) -> bool:
    """Whether a quantity, ``unknown`` for a reason or not, is a question about the step: what a causal mask skips is none where there is no
    attention."""
    return not absent(name, options) and unknown != NO_ATTENTION


def definitions(options: Mapping[str, str]) -> tuple[Definition, ...]:
    """All quantities of a step with ``options``, with their meanings and parts."""
    return tuple(QUANTITIES.values()) if trains(options) else tuple(_without_gradients(d, options) for d in QUANTITIES.values())


def _without_gradients(definition: Definition, options: Mapping[str, str]) -> Definition:
    meaning = _OTHER_MEANINGS.get(definition.name, definition.meaning)
    if absent(definition.name, options):
        return definition
    return replace(definition, meaning=meaning, parts=tuple(part for part in definition.parts if not absent(part, options)))
