"""What ``torch.cuda.memory_summary()`` would print in a training loop, after the first steps: the allocator's statistics, simulated.

The allocations and frees of a trace at concrete sizes go through the simulated caching allocator, which counts as torch does: bytes
requested, bytes of blocks, segments reserved, and free parts of segments that others still use. Not a measurement; ``cuda_allocator`` says
what is left out. Importing this module does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from calc.derive.cuda_allocator import NOT_MEASURED, Allocator, AllocatorBlock, counters_on_cpu
from calc.derive.result import Derivation
from calc.errors import BadInputError
from calc.options import Options

ALL, LARGE, SMALL = "all", "large_pool", "small_pool"
POOLS = (ALL, LARGE, SMALL)
# A statistic's key in torch.cuda.memory_stats, with its label in torch.cuda.memory_summary.
METRICS = {
    "allocated_bytes": "Allocated memory",
    "active_bytes": "Active memory",
    "requested_bytes": "Requested memory",
    "reserved_bytes": "GPU reserved memory",
    "inactive_split_bytes": "Non-releasable memory",
    "allocation": "Allocations",
    "active": "Active allocs",
    "segment": "GPU reserved segments",
    "inactive_split": "Non-releasable allocs",
}
STEPS = 2  # that a trace has


@dataclass(slots=True)
class Statistic:
    """A statistic as torch keeps it: its value, the highest, and the sums of all increases and decreases."""

    current: int = 0
    peak: int = 0
    allocated: int = 0
    freed: int = 0

    def change(self, by: int) -> None:
        self.current += by
        self.peak = max(self.peak, self.current)
        if by > 0:
            self.allocated += by
        else:
            self.freed -= by


@dataclass(frozen=True, slots=True)
class MemorySummary:
    """Statistics by metric and pool after ``STEPS`` steps at ``sizes``."""

    model: str
    sizes: Mapping[str, int]
    options: Mapping[str, str]
    statistics: Mapping[str, Mapping[str, Statistic]]

    def to_json(self) -> dict[str, Any]:
        """The keys of ``torch.cuda.memory_stats()``, where they are simulated."""
        values = {
            f"{metric}.{pool}.{field}": getattr(statistic, field)
            for metric, pools in self.statistics.items()
            for pool, statistic in pools.items()
            for field in ("current", "peak", "allocated", "freed")
        }
        return {"steps": STEPS, "memory_stats": values, "verdict": "not measured", "because": NOT_MEASURED}


class _CountingAllocator:
    """An allocator with statistics. On one stream, blocks are active exactly while they are allocated."""

    def __init__(self) -> None:
        self.allocator = Allocator()
        self.statistics = {metric: {pool: Statistic() for pool in POOLS} for metric in METRICS}
        self._requested: dict[int, int] = {}

    def allocate(self, nbytes: int) -> AllocatorBlock | None:
        segments = len(self.allocator.segments)
        block = self.allocator.allocate(nbytes)
        if block is None:
            return None
        if len(self.allocator.segments) > segments:
            self._change(block.small, segment=1, reserved_bytes=self.allocator.segments[-1])
        self._requested[block.address] = nbytes
        size = block.size
        self._change(block.small, allocated_bytes=size, active_bytes=size, requested_bytes=nbytes, allocation=1, active=1)
        self._split(block.small)
        return block

    def free(self, block: AllocatorBlock | None) -> None:
        if block is None:
            return
        size, requested = block.size, self._requested.pop(block.address)
        self.allocator.free(block)
        self._change(block.small, allocated_bytes=-size, active_bytes=-size, requested_bytes=-requested, allocation=-1, active=-1)
        self._split(block.small)

    def _split(self, small: bool) -> None:
        """Free blocks of segments that are in use in part: torch cannot give them back to the device."""
        sizes = self.allocator.unreleasable(small)
        pool = SMALL if small else LARGE
        for metric, value in (("inactive_split_bytes", sum(sizes)), ("inactive_split", len(sizes))):
            self._change(small, **{metric: value - self.statistics[metric][pool].current})

    def _change(self, small: bool, **changes: int) -> None:
        for metric, by in changes.items():
            for pool in (ALL, SMALL if small else LARGE):
                self.statistics[metric][pool].change(by)


def memory_summary(derivation: Derivation, progress: Callable[[str], None] = lambda _: None) -> MemorySummary:
    """The statistics after two steps of a derivation, at its sizes. Its step is traced there, which needs torch."""
    from calc.trace import trace_at

    if derivation.spec is None:
        raise BadInputError(f"{derivation.model} was derived from a graph alone: derive it from its model, which is traced at these sizes")
    options = Options(**derivation.options)
    if not options.trains:
        raise BadInputError(f"mode {options.mode} has no training loop: use mode train")
    progress("tracing the step at these sizes")
    trace = trace_at(derivation.spec, derivation.specialized, derivation.sizes, {}, options)
    on_device = {} if options.implementation == "fused" else counters_on_cpu(trace)
    counting, blocks = _CountingAllocator(), {}
    for event in trace.events[: trace.windows[STEPS - 1][1]]:
        if not on_device.get(event.storage, True):
            continue
        if event.change > 0:
            nbytes = trace.storages[event.storage].nbytes
            assert isinstance(nbytes, int)  # the trace is at concrete sizes
            blocks[event.storage] = counting.allocate(nbytes)
        else:
            counting.free(blocks.pop(event.storage))
    return MemorySummary(derivation.model, derivation.sizes, options.to_json(), counting.statistics)
