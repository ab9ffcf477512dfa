"""Peak live bytes of two whole steps, observed without hooks and without keeping any tensor alive."""

from __future__ import annotations

from calc.measure.kinds import tensors_in
from calc.measure.measurement import Reading
from calc.measure.storages import StorageWatch
from calc.measure.training import Training

INSTRUMENT = "storages alive in a real run (weakly referenced, each once and whole)"


def measure_memory(run: Training) -> dict[str, Reading]:
    """Peak live bytes of the second step, and of the first, which also allocates the optimizer's state."""
    watch = StorageWatch()
    watch.admit([*run.module.parameters(), *run.module.buffers(), *run.inputs])
    if run.masters is not None:
        watch.admit(run.masters.stepped)
    if run.optimizer is not None:
        watch.admit(tensors_in(run.optimizer.state))
    with watch:
        peaks = [_peak_of_step(run, watch) for _ in range(2)]
    if watch.blind:
        reason = f"storages that torch does not show, at {', '.join(sorted(watch.blind))}"
        return {name: Reading(None, INSTRUMENT, reason) for name in ("memory.peak", "memory.peak.first_step")}
    return {
        "memory.peak": Reading(peaks[1], INSTRUMENT, "window: the second step"),
        "memory.peak.first_step": Reading(peaks[0], INSTRUMENT, "window: the first step"),
    }


def _peak_of_step(run: Training, watch: StorageWatch) -> int:
    watch.open_window()
    run.step()
    return watch.peak
