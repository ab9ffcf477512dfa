"""Measured memory of steps on a CUDA device against predictions: the allocator's peaks, and the largest batch that fits.

The prediction applies the CUDA allocator's rules to the traced step at the same sizes and adds the libraries' workspaces; it is made before
the run and never adjusted. Importing this module does not import torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from calc.derive.cuda_allocator import Simulated, workspace_of
from calc.derive.live_bytes import Timeline
from calc.derive.result import Derivation
from calc.derive.to_json import number
from calc.errors import MeasurementError
from calc.memory.checkpointing import largest
from calc.options import Options
from calc.pipeline.pipeline import derive, timeline
from calc.platform.progress import Progress

if TYPE_CHECKING:
    from calc.measure.cuda_memory import CudaMemory, Fits


# Threads that call cuBLAS in a training step, each with its own workspace: the main thread and autograd's device thread.
CALLERS = 2


@dataclass(frozen=True, slots=True)
class PredictedMemory:
    """Predicted memory of the steps at ``sizes``. ``workspace`` are the bytes of libraries; where they are not known, ``unknown`` says why.
    """

    sizes: Mapping[str, int]
    first: Simulated
    steady: Simulated
    workspace: int | None
    unknown: str = ""

    @property
    def allocated(self) -> int | None:
        """Of a steady step, workspaces included."""
        return None if self.workspace is None else self.steady.allocated + self.workspace

    def to_json(self) -> dict[str, Any]:
        steps = {"live": self.steady.live, "allocated": self.steady.allocated, "reserved": self.steady.reserved}
        first = {"first_step": {"live": self.first.live, "allocated": self.first.allocated, "reserved": self.first.reserved}}
        total = {"workspaces": number(self.workspace), "max_memory_allocated": number(self.allocated), "because": self.unknown or None}
        return {**{name: number(value) for name, value in steps.items()}, **first, **total}


@dataclass(frozen=True, slots=True)
class Memory:
    """The prediction and the measurement of a step. In the measurement, ``first`` is set if the module was new."""

    predicted: PredictedMemory
    measured: CudaMemory

    @property
    def off(self) -> Fraction | None:
        return off(self.predicted.allocated, self.measured.allocated)

    def to_json(self) -> dict[str, Any]:
        share = self.off
        parts = {"predicted": self.predicted.to_json(), "measured": self.measured.to_json()}
        return {**parts, "off": None if share is None else float(share)}


def off(predicted: int | None, measured: int | None) -> Fraction | None:
    """Error of a prediction relative to the measurement."""
    return None if predicted is None or not measured else Fraction(predicted - measured, measured)


def predicted(derivation: Derivation, capability: tuple[int, int], progress: Progress = lambda _: None) -> PredictedMemory:
    """What the allocator would make of the steps of a derivation, at its sizes, with workspaces of such a device."""
    prediction = of_live_bytes(timeline(derivation, progress=progress), capability)
    if prediction is None:
        raise MeasurementError(f"{derivation.model}: the step cannot be traced at these sizes, so its memory is not predicted")
    return prediction


def of_live_bytes(live: Timeline, capability: tuple[int, int]) -> PredictedMemory | None:
    """The same from the step's live bytes; ``None`` if they are of fewer iterations than the step has."""
    if not live.allocated:
        return None
    first, steady = live.allocated
    return on_device(PredictedMemory(live.sizes, first, steady, None), capability)


def on_device(prediction: PredictedMemory, capability: tuple[int, int]) -> PredictedMemory:
    """The prediction with the workspaces that libraries take on a device of that compute capability."""
    workspace = workspace_of(capability)
    unknown = (
        "" if workspace is not None else f"no source is stated for the workspaces of compute capability {capability[0]}.{capability[1]}"
    )
    return replace(prediction, workspace=None if workspace is None else CALLERS * workspace, unknown=unknown)


def largest_expected(derivation: Derivation, room: int, capability: tuple[int, int], progress: Progress = lambda _: None) -> int | None:
    """The largest B whose predicted peak is at most ``room`` bytes: from the closed form of live bytes, reduced until rounding and
    workspaces fit. ``None`` if workspaces are unknown or B is no dimension."""
    if "B" not in derivation.sizes or workspace_of(capability) is None:
        return None
    free = {name: value for name, value in derivation.sizes.items() if not derivation.spec.dimensions[name].tied}
    beside = 0  # the excess of a prediction over live bytes hardly depends on B, so one or two iterations suffice
    while room > beside:
        size = largest(derivation, "B", room - beside)
        if not size:
            return size
        derived = derive(derivation.spec, {**free, "B": size}, options=Options(**derivation.options), progress=progress)
        allocated = predicted(derived, capability, progress).allocated
        if allocated is None or allocated <= room:
            return size
        beside = max(beside, allocated - derived["memory.peak"].at())
    return 0


def fitting(run: Any, at: Mapping[str, int], start: int, progress: Progress) -> Fits:
    """The largest B at which a training that is set up still runs, looked for from ``start`` on."""
    from calc.measure.cuda_memory import boundary, still_runs

    free = {name: value for name, value in at.items() if not run.spec.dimensions[name].tied}

    def fits(size: int) -> bool:
        progress(f"trying B = {size}")
        return still_runs(run, run.spec.sizes({**free, "B": size}))

    return boundary("B", fits, 2**20, start)
