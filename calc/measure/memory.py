"""Peak live bytes of two whole steps, observed without keeping any tensor alive."""

from __future__ import annotations

from calc.measure.kinds import tensors_in
from calc.measure.measurement import Reading
from calc.measure.storages import StorageWatch
from calc.measure.training import Training

INSTRUMENT = "storages alive in a real run (weakly referenced, each once and whole)"


def watch_of(run: Training) -> StorageWatch:
    """A watch that knows the storages that ``run`` holds before its next step."""
    watch = StorageWatch()
    watch.admit([*run.module.parameters(), *run.module.buffers(), *run.inputs])
    if run.masters is not None:
        watch.admit(run.masters.stepped)
    if run.optimizer is not None:
        watch.admit(tensors_in(run.optimizer.state))
    return watch


def peaks(watch: StorageWatch, first: int, second: int) -> dict[str, Reading]:
    """Readings of the peaks of the first step, which also allocates the optimizer's state, and of the second."""
    if watch.blind:
        reason = f"storages that torch does not show, at {', '.join(sorted(watch.blind))}"
        return {name: Reading(None, INSTRUMENT, reason) for name in ("memory.peak", "memory.peak.first_step")}
    return {
        "memory.peak": Reading(second, INSTRUMENT, "window: the second step"),
        "memory.peak.first_step": Reading(first, INSTRUMENT, "window: the first step"),
    }
