"""The simulated CUDA allocator: torch's own constants and rules, worked through by hand, and the peaks of traced steps."""

from __future__ import annotations

import itertools
import random
import re
from pathlib import Path

import pytest
import torch

from calc.derive import cuda_allocator
from calc.derive.cuda_allocator import WORKSPACES, Allocator, rounded, segment_for, simulate
from calc.errors import BadInputError
from calc.graph.step import Event, StepTrace, Storage
from calc.models.load import load
from calc.options import Options
from calc.trace import trace_at

MIB = 2**20


def test_the_constants_are_those_of_the_installed_torch() -> None:
    """Read from the header that it ships."""
    header = Path(torch.__file__).parent / "include" / "c10" / "core" / "AllocatorConfig.h"
    if not header.exists():
        pytest.skip("this torch keeps the constants elsewhere")
    text = header.read_text()
    named = {"kMinBlockSize": "MIN_BLOCK", "kSmallSize": "SMALL_SIZE", "kSmallBuffer": "SMALL_SEGMENT", "kMinLargeAlloc": "MIN_LARGE_ALLOC",
             "kRoundLarge": "ROUND_LARGE"}  # fmt: skip

    assert {theirs: getattr(cuda_allocator, ours) for theirs, ours in named.items()} == {
        name: int(value) for name, value in re.findall(r"constexpr size_t (k\w+) = (\d+);", text) if name in named
    }
    large = re.search(r"large_segment_size_\{(\d+)\}", text)
    assert large is None or int(large[1]) == cuda_allocator.LARGE_SEGMENT


@pytest.mark.parametrize(
    ("nbytes", "block", "segment"),
    [
        (1, 512, 2 * MIB),
        (512, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (13 * MIB - 512, 13 * MIB - 512, 14 * MIB),
    ],
)
def test_a_request_takes_a_rounded_block_of_a_segment(nbytes: int, block: int, segment: int) -> None:
    """Multiples of 512 bytes, of segments of 2 MiB, 20 MiB, or a multiple of 2 MiB."""
    state = Allocator()
    state.allocate(nbytes)

    assert (block, segment) == (rounded(nbytes), segment_for(rounded(nbytes)))
    assert (state.allocated, state.reserved) == (block, segment)


def test_a_rest_that_is_too_small_stays_with_its_block_and_counts_as_allocated() -> None:
    """11 MiB of a segment of 12: the rest is not more than 1 MiB, so torch counts 12."""
    state = Allocator()
    state.allocate(11 * MIB)

    assert (12 * MIB, 12 * MIB) == (state.allocated, state.reserved)


def test_nothing_is_allocated_for_no_bytes() -> None:
    state = Allocator()
    state.free(state.allocate(0))

    assert (0, 0) == (state.allocated, state.reserved)


def test_freed_memory_is_merged_with_its_neighbors_and_reused() -> None:
    """Two halves of a small segment make room for one request of both."""
    state = Allocator()
    first, second = state.allocate(MIB), state.allocate(MIB)
    assert 2 * MIB == state.reserved
    state.free(first)
    state.free(second)
    state.allocate(MIB)

    assert (MIB, 2 * MIB) == (state.allocated, state.reserved)
    assert [2 * MIB] == state.segments


def test_the_smallest_block_that_fits_is_taken() -> None:
    """Free are 12 MiB and 16 MiB; a request of 11 MiB takes the first, with a rest of 1 MiB that is too small to split off."""
    state = Allocator()
    small, large = state.allocate(12 * MIB), state.allocate(16 * MIB)
    state.free(large)
    state.free(small)
    state.allocate(11 * MIB)

    assert 12 * MIB == state.allocated
    assert 28 * MIB == state.reserved


def test_random_requests_never_overlap_and_add_up() -> None:
    """Blocks of 2,000 births and deaths lie apart, and what is allocated is their sum."""
    chance, state, held = random.Random(0), Allocator(), []
    for _ in range(2000):
        if held and chance.random() < 0.5:
            state.free(held.pop(chance.randrange(len(held))))
        else:
            held.append(state.allocate(chance.choice((chance.randint(1, 5000), chance.randint(1, 30 * MIB)))))
        spans = sorted((b.address, b.size) for b in held)
        assert all(a + size <= b for (a, size), (b, _) in itertools.pairwise(spans))
        assert state.allocated == sum(b.size for b in held)
        assert state.allocated <= state.reserved == sum(state.segments)
    for block in held:
        state.free(block)

    assert sorted(state.segments) == sorted(key[0] for pool in state._free.values() for key, _ in pool)


def _record(*events: tuple[int, int], sizes: tuple[int | str, ...], windows: tuple[tuple[int, int], ...]) -> StepTrace:
    storages = tuple(Storage(i, size, "temporary", "") for i, size in enumerate(sizes))
    return StepTrace({}, storages, (), tuple(Event(c, s, 0) for c, s in events), (), (), (), (), (), (), (), windows)


def test_only_the_requested_step_counts_to_its_peaks() -> None:
    """600 bytes live throughout and 3,000 more in the first step alone: 600 + 100 in the second, 1024 + 512 when rounded."""
    trace = _record((1, 0), (1, 1), (-1, 1), (1, 2), (-1, 2), sizes=(600, 3000, 100), windows=((1, 3), (3, 5)))

    assert (3600, 1024 + 3072) == (simulate(trace, 1).live, simulate(trace, 1).allocated)
    assert (700, 1024 + 512) == (simulate(trace, 2).live, simulate(trace, 2).allocated)


def test_a_symbolic_trace_is_refused() -> None:
    with pytest.raises(
        BadInputError, match=r"^the trace has the symbolic size 4\*B: memory is simulated from a trace at concrete sizes$"
    ):
        simulate(_record((1, 0), sizes=("4*B",), windows=((0, 1), (0, 1))))


def test_a_traced_step_has_its_live_peak_and_counters_stay_on_the_cpu() -> None:
    """The live peak of all storages is the derived one."""
    import calc

    spec = load("mlp")
    trace = trace_at(spec, {}, spec.sizes(), {}, Options())
    everything, on_gpu = simulate(trace, on_device={}), simulate(trace)

    assert calc.derive(spec, cache=False)["memory.peak"].value == everything.live
    assert everything.live - 4 * len(trace.parameters) == on_gpu.live
    assert on_gpu.live < on_gpu.allocated <= on_gpu.reserved


def test_workspaces_of_libraries_are_separate_with_their_source() -> None:
    """cuBLAS: 2 of 4 MiB and 8 of 16 KiB, 8.1 MiB in all; on Hopper 8 of 4 MiB."""
    assert [8519680, 32 * MIB] == [w.nbytes for w in WORKSPACES]
    assert all(w.source for w in WORKSPACES)
