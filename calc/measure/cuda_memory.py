"""Memory of a training step on a CUDA device, by the allocator's own statistics, and the largest size at which a step still fits.

Without a CUDA device everything here refuses; nothing stands in for a measurement.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from calc.errors import BadInputError, MeasurementError
from calc.measure.training import Training, training
from calc.options import Options
from calc.spec import Spec

WARM_UP = 2  # steps: the optimizer's state is made in the first, libraries take their workspaces in it


@dataclass(frozen=True, slots=True)
class CudaMemory:
    """Peaks of one step after warm-up. ``before`` is what was allocated between steps; ``device`` names what it ran on."""

    device: str
    sizes: Mapping[str, int]
    before: int
    allocated: int
    reserved: int
    total: int

    def to_json(self) -> dict[str, Any]:
        numbers = {"before": self.before, "max_memory_allocated": self.allocated, "max_memory_reserved": self.reserved}
        return {"device": self.device, "sizes": dict(self.sizes), **numbers, "total_memory": self.total}


@dataclass(frozen=True, slots=True)
class Fits:
    """``largest`` of a dimension at which a step ran, the next that did not, and every size that was tried."""

    dimension: str
    largest: int | None
    too_large: int | None
    tried: tuple[tuple[int, bool], ...]


def cuda_memory(
    spec: Spec, sizes: Mapping[str, int] | None = None, *, options: Options | None = None, device: str = "cuda", warm_up: int = WARM_UP
) -> CudaMemory:
    """Run the training step of ``spec`` on a CUDA device and read the allocator's peaks of one step."""
    require_cuda()
    at = spec.sizes(sizes or {})
    empty()
    with training(spec, at, options or Options(), device) as run:
        return _measured(run, at, device, warm_up)


def _measured(run: Training, at: Mapping[str, int], device: str, warm_up: int) -> CudaMemory:
    for _ in range(warm_up):
        run.step()
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    run.step()
    torch.cuda.synchronize(device)
    properties = torch.cuda.get_device_properties(device)
    peaks = torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device)
    return CudaMemory(properties.name, dict(at), before, *peaks, properties.total_memory)


def require_cuda() -> None:
    """Refuse where there is no CUDA device."""
    if not torch.cuda.is_available():
        raise MeasurementError("not measured: there is no CUDA device here, and the allocator's statistics exist only on one")


def empty() -> None:
    """Give back what earlier runs left in the allocator's cache."""
    gc.collect()
    torch.cuda.empty_cache()


def largest_that_fits(
    spec: Spec,
    dimension: str,
    sizes: Mapping[str, int] | None = None,
    *,
    options: Options | None = None,
    device: str = "cuda",
    limit: int = 2**16,
) -> Fits:
    """The largest ``dimension`` (B, usually) at which two steps run without running out of memory, found by doubling, then halving
    the distance. A step that fits at one size is taken to fit at every smaller one."""
    require_cuda()
    if dimension not in spec.dimensions or spec.dimensions[dimension].tied:
        raise BadInputError(f"{spec.name} has no dimension {dimension[:40]!r} to set: it has {', '.join(spec.dims)}")
    others = dict(sizes or {})
    return boundary(dimension, lambda n: runs(spec, {**others, dimension: n}, options or Options(), device), limit)


def runs(spec: Spec, sizes: Mapping[str, int], options: Options, device: str) -> bool:
    """Whether two steps run; anything else than memory that fails is an error of its own."""
    empty()
    try:
        with training(spec, spec.sizes(sizes), options, device) as run:
            run.step()
            run.step()
            torch.cuda.synchronize(device)
    except (torch.OutOfMemoryError, MeasurementError) as error:
        if not _out_of_memory(error):
            raise
        return False
    return True


def _out_of_memory(error: BaseException) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or isinstance(error.__cause__, torch.OutOfMemoryError)


def boundary(dimension: str, fits: Callable[[int], bool], limit: int) -> Fits:
    """Doubles from 1 until it does not fit or the limit is reached, then halves between the last that did and the first that did not."""
    tried: list[tuple[int, bool]] = []

    def tries(size: int) -> bool:
        tried.append((size, fits(size)))
        return tried[-1][1]

    if not tries(1):
        return Fits(dimension, None, 1, tuple(tried))
    low, high = 1, 2
    while high <= limit and tries(high):
        low, high = high, 2 * high
    if high > limit:
        return Fits(dimension, low, None, tuple(tried))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if tries(middle) else (low, middle)
    return Fits(dimension, low, high, tuple(tried))
