"""Memory of a training step on a CUDA device, by the allocator's own statistics, and the largest size at which a step still fits.

It needs a CUDA device (``require_cuda``); no estimate replaces a measurement.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from calc.errors import MeasurementError
from calc.experiment.inputs import inputs_at, mapped
from calc.experiment.precision import cast
from calc.measure.training import Training, blame
from calc.spec import Sizes
from calc.symbolic.search import last

WARM_UP = 2  # steps: the first allocates the optimizer's state and the libraries' workspaces


@dataclass(frozen=True, slots=True)
class Repetition:
    """One step: bytes allocated before it, peak bytes allocated and reserved in it, and seconds until the device has finished."""

    before: int
    allocated: int
    reserved: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        peaks = {"max_memory_allocated": self.allocated, "max_memory_reserved": self.reserved}
        return {"before": self.before, **peaks, "seconds": self.seconds}


@dataclass(frozen=True, slots=True)
class CudaMemory:
    """Peak bytes of each step after warm-up. ``first`` is the module's very first step, if it was measured; ``device`` is the GPU's
    name, ``total`` its memory in bytes."""

    device: str
    sizes: Mapping[str, int]
    repetitions: tuple[Repetition, ...]
    total: int
    first: Repetition | None = None

    @property
    def before(self) -> int:
        return self.repetitions[-1].before

    @property
    def allocated(self) -> int:
        return max(r.allocated for r in self.repetitions)

    @property
    def reserved(self) -> int:
        return max(r.reserved for r in self.repetitions)

    def to_json(self) -> dict[str, Any]:
        numbers = {"before": self.before, "max_memory_allocated": self.allocated, "max_memory_reserved": self.reserved}
        every = {"first_step": self.first.to_json() if self.first else None, "repetitions": [r.to_json() for r in self.repetitions]}
        return {"device": self.device, "sizes": dict(self.sizes), **numbers, **every, "total_memory": self.total}


@dataclass(frozen=True, slots=True)
class Fits:
    """The ``largest`` size of a dimension at which a step ran, the smallest known ``too_large``, and every (size, fits) tried."""

    dimension: str
    largest: int | None
    too_large: int | None
    tried: tuple[tuple[int, bool], ...]

    def to_json(self) -> dict[str, Any]:
        tried = [{"size": size, "fits": fits} for size, fits in self.tried]
        return {"dimension": self.dimension, "largest": self.largest, "too_large": self.too_large, "tried": tried}


def memory_of(run: Training, *, warm_up: int = WARM_UP, repetitions: int = 1) -> CudaMemory:
    """Peak bytes of ``repetitions`` steps of ``run`` after ``warm_up`` steps."""
    for _ in range(warm_up):
        run.step()
    steps = tuple(stepped(run, run.device) for _ in range(repetitions))
    properties = torch.cuda.get_device_properties(run.device)
    return CudaMemory(properties.name, dict(run.sizes), steps, properties.total_memory)


def stepped(run: Training, device: str) -> Repetition:
    """One step with its peaks, by the allocator's statistics."""
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before, begin = torch.cuda.memory_allocated(device), time.perf_counter()
    run.step()
    torch.cuda.synchronize(device)
    seconds = time.perf_counter() - begin
    return Repetition(before, torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device), seconds)


def require_cuda() -> None:
    """Raises ``MeasurementError`` if there is no CUDA device."""
    if not torch.cuda.is_available():
        raise MeasurementError("not measured: there is no CUDA device here")


def available_bytes(device: str) -> int:
    """Bytes available to the allocator: free on the device, plus already reserved."""
    free, _ = torch.cuda.mem_get_info(device)
    return int(free) + int(torch.cuda.memory_reserved(device))


def empty_cache() -> None:
    """Free garbage and the allocator's cached blocks of earlier runs."""
    gc.collect()
    torch.cuda.empty_cache()


def fed(run: Training, sizes: Mapping[str, int]) -> Training:
    """The same module and optimizer with inputs at other sizes. Only dimensions that no weight depends on may differ, usually B and T."""
    with blame(run.spec, sizes, "making the inputs"):
        inputs = inputs_at(run.spec, Sizes(**sizes), run.options)
    _, moved = cast(run.module, mapped(lambda x: x.to(run.device), inputs), run.options.precision)
    return replace(run, sizes=dict(sizes), inputs=moved)


def still_runs(run: Training, sizes: Mapping[str, int]) -> bool:
    """Whether two steps of ``run`` fit in memory with inputs at ``sizes``; gradients are cleared afterwards."""
    empty_cache()
    try:
        repeated = fed(run, sizes)
        repeated.step()
        repeated.step()
        torch.cuda.synchronize(run.device)
    except (torch.OutOfMemoryError, MeasurementError) as error:
        if not _out_of_memory(error):
            raise
        return False
    finally:
        run.module.zero_grad(set_to_none=True)
        if run.optimizer is not None:
            run.optimizer.zero_grad(set_to_none=True)
    return True


def _out_of_memory(error: BaseException) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or isinstance(error.__cause__, torch.OutOfMemoryError)


def boundary(dimension: str, fits: Callable[[int], bool], limit: int, start: int = 1) -> Fits:
    """The largest size up to ``limit`` that fits: grow from ``start`` until it does not fit, or shrink until it does; then bisect.
    The increment starts at ``start // 8``, at least 1, and doubles."""
    tried: list[tuple[int, bool]] = []

    def tries(size: int) -> bool:
        tried.append((size, fits(size)))
        return tried[-1][1]

    low, high, step = 0, limit + 1, max(1, start // 8)
    size = min(max(1, start), limit)
    while low < size < high:
        if tries(size):
            low = size
            size = min(low + step, limit)
        else:
            high = size
            size = max(high - step, 1)
        step *= 2
        if low and high <= limit:
            break
    if low and low < limit:
        low = last(tries, low, high)
        high = low + 1
    return Fits(dimension, low or None, high if high <= limit else None, tuple(tried))
