"""A simulation of torch's CUDA caching allocator on a traced step: a model on top of live bytes, not a measurement.

Live bytes are exact; the allocator rounds each request up, and reserves memory of the device in segments that it caches. Both are simulated
from the allocations and frees of a trace at concrete sizes, with torch's own constants. It excludes what no trace shows (workspace inside
an operator, the libraries' own buffers, the CUDA context); documented workspaces are listed in ``WORKSPACES``.

Source: torch ``c10/core/AllocatorConfig.h`` (the constants) and ``c10/cuda/CUDACachingAllocator.cpp`` (``round_size``,
``get_allocation_size``, ``get_free_block``, ``should_split``, ``free_block``), with default settings: one stream, no
``expandable_segments``, no ``max_split_size_mb``, no ``roundup_power2_divisions``, and memory enough that no cached segment is released.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from calc.errors import BadInputError
from calc.graph.step import Size, StepTrace

MIN_BLOCK = 512  # bytes; every request is rounded up to a multiple of it
SMALL_SIZE = 1048576  # bytes of the largest request in the small pool
SMALL_SEGMENT = 2097152  # bytes of a segment of the small pool
MIN_LARGE_ALLOC = 10485760  # bytes; smaller requests share a segment of LARGE_SEGMENT
LARGE_SEGMENT = 20971520
ROUND_LARGE = 2097152  # bytes; larger segments are rounded up to a multiple of it

NOT_MEASURED = "a simulation of torch's allocator: not measured without a CUDA device"


@dataclass(frozen=True, slots=True)
class Workspace:
    """Memory that a library allocates beside the tensors, from the first call that needs it on."""

    label: str
    nbytes: int
    when: str
    source: str


_CUBLAS = "torch docs, CUDA semantics, 'cuBLAS workspaces'; aten/src/ATen/cuda/CUDABlas.cpp and CublasHandlePool.cpp"
WORKSPACES = (
    Workspace("cuBLAS", (2 * 4096 + 8 * 16) * 1024, "compute capability below 9.0: CUBLAS_WORKSPACE_CONFIG=:4096:2:16:8", _CUBLAS),
    Workspace("cuBLAS", 8 * 4096 * 1024, "Hopper (9.0): CUBLAS_WORKSPACE_CONFIG=:4096:8", _CUBLAS),
)


def workspace_of(capability: tuple[int, int]) -> int | None:
    """Bytes of cuBLAS's workspace for one calling thread; ``None`` for a device newer than the stated sources."""
    if capability < (9, 0):
        return WORKSPACES[0].nbytes
    return WORKSPACES[1].nbytes if capability == (9, 0) else None


def rounded(nbytes: int) -> int:
    """Bytes of the rounded request. If the rest of its block is too small to be split off, it counts as allocated too."""
    return max(MIN_BLOCK, -(-nbytes // MIN_BLOCK) * MIN_BLOCK) if nbytes else 0


def segment_for(size: int) -> int:
    """Bytes of the new segment for a rounded request that no cached block fits."""
    if size <= SMALL_SIZE:
        return SMALL_SEGMENT
    return LARGE_SEGMENT if size < MIN_LARGE_ALLOC else -(-size // ROUND_LARGE) * ROUND_LARGE


@dataclass(slots=True, eq=False)
class AllocatorBlock:
    """A block of a segment, with its neighbors."""

    size: int
    address: int
    small: bool
    free: bool = True
    before: AllocatorBlock | None = None
    after: AllocatorBlock | None = None

    @property
    def key(self) -> tuple[int, int]:
        return self.size, self.address


@dataclass(slots=True)
class Allocator:
    """The allocator's state. Addresses only order the blocks: segments are in order of allocation."""

    allocated: int = 0
    reserved: int = 0
    peak_allocated: int = 0
    peak_reserved: int = 0
    segments: list[int] = field(default_factory=list)
    _free: dict[bool, list[tuple[tuple[int, int], AllocatorBlock]]] = field(default_factory=lambda: {True: [], False: []})

    def allocate(self, nbytes: int) -> AllocatorBlock | None:
        """A block for ``nbytes``: the smallest cached one that fits, else one of a new segment. Nothing is allocated for 0 bytes."""
        if not nbytes:
            return None
        size = rounded(nbytes)
        small = size <= SMALL_SIZE
        block = self._cached(size, small) or self._new(segment_for(size), small)
        if self._splits(block, size):
            self._split(block, size)
        block.free = False
        self.allocated += block.size
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        return block

    def free(self, block: AllocatorBlock | None) -> None:
        """Return a block to its pool, merged with free neighbors."""
        if block is None:
            return
        self.allocated -= block.size
        block.free = True
        for neighbor in (block.before, block.after):
            if neighbor is not None and neighbor.free:
                self._remove_from_pool(neighbor)
                block = _joined(*sorted((block, neighbor), key=lambda b: b.address))
        self._add_to_pool(block)

    def reset_peaks(self) -> None:
        """Reset the peaks, as ``reset_peak_memory_stats`` does."""
        self.peak_allocated, self.peak_reserved = self.allocated, self.reserved

    def unreleasable(self, small: bool) -> list[int]:
        """Sizes of a pool's free blocks whose segments are in use in part, which torch cannot give back to the device."""
        return [block.size for _, block in self._free[small] if block.before is not None or block.after is not None]

    def _cached(self, size: int, small: bool) -> AllocatorBlock | None:
        pool = self._free[small]
        at = bisect.bisect_left(pool, (size, -1), key=lambda entry: entry[0])
        return pool.pop(at)[1] if at < len(pool) else None

    def _new(self, size: int, small: bool) -> AllocatorBlock:
        block = AllocatorBlock(size, self.reserved, small)
        self.segments.append(size)
        self.reserved += size
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return block

    @staticmethod
    def _splits(block: AllocatorBlock, size: int) -> bool:
        """Whether a block is split: in the small pool for any usable rest, in the large pool for one larger than the small pool's
        requests."""
        remainder = block.size - size
        return remainder >= MIN_BLOCK if block.small else remainder > SMALL_SIZE

    def _split(self, block: AllocatorBlock, size: int) -> None:
        remainder = AllocatorBlock(block.size - size, block.address + size, block.small, True, block, block.after)
        if block.after is not None:
            block.after.before = remainder
        block.size, block.after = size, remainder
        self._add_to_pool(remainder)

    def _add_to_pool(self, block: AllocatorBlock) -> None:
        bisect.insort(self._free[block.small], (block.key, block), key=lambda entry: entry[0])

    def _remove_from_pool(self, block: AllocatorBlock) -> None:
        pool = self._free[block.small]
        del pool[bisect.bisect_left(pool, block.key, key=lambda entry: entry[0])]


def _joined(low: AllocatorBlock, high: AllocatorBlock) -> AllocatorBlock:
    low.size += high.size
    low.after = high.after
    if high.after is not None:
        high.after.before = low
    return low


# -- a traced step -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Simulated:
    """Peaks of one step in bytes. ``live`` is exact, ``allocated`` and ``reserved`` are simulated."""

    live: int
    allocated: int
    reserved: int
    segments: int

    @property
    def rounding(self) -> int:
        """Bytes that rounding adds to the peak, which may be at another instant than that of live bytes."""
        return self.allocated - self.live

    @property
    def cached(self) -> int:
        """Bytes reserved beyond the peak of allocated ones: partly used segments, and blocks that fit no request."""
        return self.reserved - self.allocated


def _concrete(size: Size) -> int:
    if not isinstance(size, int):
        raise BadInputError(f"the trace has the symbolic size {size}: memory is simulated from a trace at concrete sizes")
    return size


def simulate(
    trace: StepTrace, step: int = 2, on_device: Mapping[int, bool] | None = None, read: Callable[[Size], int] = _concrete
) -> Simulated:
    """The peaks of a step of a trace, with all storages on the device except those that ``on_device`` excludes.

    ``on_device`` maps storages to whether they are on the device: an optimizer's step counters are on the CPU unless it is fused or
    capturable. ``read`` returns the bytes of a symbolic size; without it the trace must be at concrete sizes.
    """
    start, end = trace.windows[step - 1]
    where = on_device if on_device is not None else counters_on_cpu(trace)
    allocator, blocks = Allocator(), {}
    live = peak = 0
    for index, event in enumerate(trace.events[:end]):
        if index == start:
            allocator.reset_peaks()
            peak = live
        storage = trace.storages[event.storage]
        if not where.get(event.storage, True):
            continue
        nbytes = read(storage.nbytes)
        if event.change > 0:
            live += nbytes
            blocks[event.storage] = allocator.allocate(nbytes)
        else:
            live -= nbytes
            allocator.free(blocks.pop(event.storage))
        peak = max(peak, live)
    return Simulated(peak, allocator.peak_allocated, allocator.peak_reserved, len(allocator.segments))


def counters_on_cpu(trace: StepTrace) -> dict[int, bool]:
    """The optimizers' step counters, which torch stores on the CPU (``_get_scalar_dtype``, ``torch/optim``): one number each."""
    return {tensor.storage: False for _, key, tensor in trace.state if key == "step" and tensor.shape == ()}
