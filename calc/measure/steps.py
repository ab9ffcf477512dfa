"""Two real training steps with every instrument attached, one training for all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from torch import Tensor

from calc.measure.flops import MatmulCounter
from calc.measure.kinds import tensors_in
from calc.measure.measurement import Reading
from calc.measure.observer import Observer
from calc.measure.parameter_use import ParameterWatch
from calc.measure.reference import ReferenceCounter
from calc.measure.saved import SavedWatch
from calc.measure.state import measure_gradients, measure_optimizer_state, measure_parameters, measure_weights
from calc.measure.storages import StorageWatch
from calc.measure.training import Training

ELEMENTWISE = "torch's reference decompositions, run and counted"
BYTES_MOVED = "distinct elements of the real tensors read and written"


@dataclass(frozen=True, slots=True)
class TwoSteps:
    """``readings`` of sizes and memory, ``counted`` those of elementwise FLOPs and bytes moved, and the counter of ``matmuls``, all of the
    second step, but for the first step's peak. ``unbacked_sizes``: data-dependent sizes of one forward and backward, by place."""

    readings: Mapping[str, Reading]
    counted: Mapping[str, Reading]
    matmuls: MatmulCounter
    operators: frozenset[str]
    unbacked_sizes: Mapping[str, tuple[int, ...]]
    unbacked_first_step: Mapping[str, tuple[int, ...]]


def two_steps(run: Training, tell: Callable[[str], None]) -> TwoSteps:
    """Runs two steps of a new training."""
    sizes = {"parameters": measure_parameters(run), **measure_weights(run)}
    watch = watch_of(run)
    tell("the first step, with live bytes")
    watch.open_window()
    begin = time.perf_counter()
    with Observer() as first, watch:
        run.step()
    first_peak = watch.peak
    seconds = time.perf_counter() - begin
    tell(f"the second step, with every counter{f', about {seconds:.0f} s, like the first' if seconds >= 1 else ''}")
    second = _SecondStep(run, watch)
    watch.open_window()
    run.step(second.around, second.returned)
    memory = peaks(watch, first_peak, watch.peak)
    return TwoSteps(
        {**sizes, **second.used(), **second.state(), **memory},
        second.counted(memory["memory.peak"]),
        second.matmuls,
        frozenset(name for observer in second.observers for name in observer.names),
        _by_place(second.observers[-len(run.phases) :]),
        _by_place([first]),
    )


def _by_place(observers: Iterable[Observer]) -> dict[str, tuple[int, ...]]:
    """Data-dependent sizes by place, in order."""
    places: dict[str, tuple[int, ...]] = {}
    for observer in observers:
        for place, sizes in observer.unbacked_sizes.items():
            places[place] = (*places.get(place, ()), *sizes)
    return places


class _SecondStep:
    """The instruments of a step. What autograd saves is measured in the last of its forwards: no further one replaces what a module keeps
    of it before the graph is freed."""

    def __init__(self, run: Training, watch: StorageWatch) -> None:
        self._run, self._watch = run, watch
        self._saved = SavedWatch(watch)
        self._reference = {phase: ReferenceCounter() for phase in run.phases}
        self._gradients: Reading | None = None
        self._forwards = 0
        self._parameters = ParameterWatch(run)
        self.matmuls = MatmulCounter(run.phases)
        self.observers: list[Observer] = []

    @contextmanager
    def around(self, phase: str) -> Iterator[None]:
        """Context around a phase. A mode that is entered later sees an operator earlier."""
        self._forwards += phase == "forward"
        if phase == "optimizer":
            self._gradients = measure_gradients(self._run)
        saved = self._saved.watching() if phase == "forward" and self._is_last and self._run.optimizer is not None else nullcontext()
        used = self._parameters if phase == "forward" else nullcontext()
        with saved, self.matmuls.counting(phase) as observer, self._reference[phase], used, self._watch:
            yield
        self.observers.append(observer)

    @property
    def _is_last(self) -> bool:
        return self._forwards == self._run.batches

    def returned(self, loss: Tensor) -> None:
        if self._is_last:
            self._saved.returned(loss, self._run.module)

    def state(self) -> dict[str, Reading]:
        """Sizes of what the step leaves behind and what its forward saved; empty without an optimizer. Called after the step, when the
        graph is freed."""
        if self._gradients is None:
            return {}
        self._saved.dropped()
        return {
            "gradients.bytes": self._gradients,
            "optimizer_state.bytes": measure_optimizer_state(self._run),
            "activations.bytes": self._saved.reading(),
        }

    def used(self) -> dict[str, Reading]:
        """Parameters that a token uses, and those that are no embedding."""
        return self._parameters.readings(_by_place(self.observers))

    def counted(self, memory: Reading) -> dict[str, Reading]:
        """Elementwise FLOPs and bytes moved by phase; not measured if ``memory`` has no value (unseen storages)."""
        readings: dict[str, Reading] = {}
        for phase, counter in self._reference.items():
            for name, value, instrument in (
                (f"flops.{phase}.elementwise", counter.elementwise, ELEMENTWISE),
                (f"bytes_moved.{phase}", counter.bytes_moved, BYTES_MOVED),
            ):
                unseen = memory.because if memory.value is None else ""
                readings[name] = _counted(value, instrument, counter.unknown, unseen)
        return readings


def _counted(value: int, instrument: str, unknown: Iterable[str], unseen: str) -> Reading:
    names = ", ".join(sorted(unknown))
    if unseen:
        return Reading(None, instrument, unseen)
    if names:
        return Reading(None, instrument, f"{names} cannot be counted in a run: torch has no reference decomposition")
    return Reading(value, instrument)


# -- live bytes -------------------------------------------------------------------------------------------------------


LIVE_BYTES = "storages alive in a real run (weakly referenced, each once and whole)"


def watch_of(run: Training) -> StorageWatch:
    """A watch that knows the storages that ``run`` holds before its next step."""
    watch = StorageWatch()
    watch.admit([*run.module.parameters(), *run.module.buffers(), *tensors_in(run.inputs)])
    if run.masters is not None:
        watch.admit(run.masters.stepped)
    if run.optimizer is not None:
        watch.admit(tensors_in(run.optimizer.state))
    return watch


def peaks(watch: StorageWatch, first: int, second: int) -> dict[str, Reading]:
    """Readings of the peaks of the first step, which also allocates the optimizer's state, and of the second."""
    if watch.blind:
        reason = f"storages that torch does not show, at {', '.join(sorted(watch.blind))}"
        return {name: Reading(None, LIVE_BYTES, reason) for name in ("memory.peak", "memory.peak.first_step")}
    return {
        "memory.peak": Reading(second, LIVE_BYTES, "window: the second step"),
        "memory.peak.first_step": Reading(first, LIVE_BYTES, "window: the first step"),
    }
