"""Every quantity of a derivation: its unit, what it means, and whether it is counted, a sum of others, or a peak."""

from __future__ import annotations

from dataclasses import dataclass

from calc.units import Unit


@dataclass(frozen=True, slots=True)
class Definition:
    """``parts`` names the quantities that add up to this one; ``step`` the training step whose peak it is."""

    name: str
    unit: Unit
    meaning: str
    parts: tuple[str, ...] = ()
    step: int | None = None


QUANTITIES: dict[str, Definition] = {
    definition.name: definition
    for definition in (
        Definition("parameters", Unit.ELEMENT, "trainable elements, tied weights once"),
        Definition("gradients.bytes", Unit.BYTE, "gradients that the backward leaves"),
        Definition("optimizer_state.bytes", Unit.BYTE, "every tensor the optimizer keeps"),
        Definition("activations.bytes", Unit.BYTE, "distinct storages autograd holds when the forward returns"),
        Definition("memory.peak", Unit.BYTE, "largest live bytes during the second training step", step=2),
        Definition("memory.peak.first_step", Unit.BYTE, "largest live bytes during the first training step", step=1),
        Definition("checkpoint.bytes", Unit.BYTE, "payload of a checkpoint: model, optimizer state and iteration"),
        Definition("flops.forward.matmul", Unit.FLOP, "matrix products of the forward"),
        Definition("flops.forward.causal", Unit.FLOP, "the same, with declared causal masks credited"),
        Definition("flops.forward.elementwise", Unit.FLOP, "elementwise arithmetic of the forward"),
        Definition(
            "flops.forward.total", Unit.FLOP, "all arithmetic of the forward", ("flops.forward.matmul", "flops.forward.elementwise")
        ),
        Definition("flops.backward.matmul", Unit.FLOP, "matrix products of the backward, as autograd executes them"),
        Definition("flops.backward.causal", Unit.FLOP, "the same, with declared causal masks credited"),
        Definition("flops.backward.recompute", Unit.FLOP, "the part of them that only repeats forward work"),
        Definition("flops.backward.elementwise", Unit.FLOP, "elementwise arithmetic of the backward"),
        Definition(
            "flops.backward.total", Unit.FLOP, "all arithmetic of the backward", ("flops.backward.matmul", "flops.backward.elementwise")
        ),
        Definition("flops.optimizer.matmul", Unit.FLOP, "matrix products of the optimizer step"),
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
            "all arithmetic of one training step",
            ("flops.forward.total", "flops.backward.total", "flops.optimizer.total"),
        ),
        Definition("bytes_moved.forward", Unit.BYTE, "bytes read and written by the forward's operators"),
        Definition("bytes_moved.backward", Unit.BYTE, "bytes read and written by the backward's operators"),
        Definition("bytes_moved.optimizer", Unit.BYTE, "bytes read and written by the optimizer's operators"),
    )
}
