"""Statistics of the simulated allocator, by hand, beside its own peaks, and as torch prints them."""

from __future__ import annotations

import json
import random
from dataclasses import astuple
from typing import Any

import pytest
import torch
from click.testing import CliRunner

import calc
from calc.derive.cuda_allocator import LARGE_SEGMENT, MIN_BLOCK, SMALL_SEGMENT, simulate
from calc.errors import BadInputError
from calc.memory.memory_summary import ALL, LARGE, METRICS, SMALL, STEPS, MemorySummary, _CountingAllocator, memory_summary
from calc.options import Options
from calc.trace import trace_at
from reports import cli


def _values(counting: _CountingAllocator, metric: str, pool: str) -> tuple[int, ...]:
    return astuple(counting.statistics[metric][pool])


def test_statistics_of_a_few_requests_by_hand() -> None:
    """513 and 100 bytes share a segment of 2 MiB, 1 MiB + 1 is split off one of 20 MiB; a segment that is free whole can be given back."""
    counting = _CountingAllocator()
    first, _, large = counting.allocate(513), counting.allocate(100), counting.allocate(2**20 + 1)
    rest = LARGE_SEGMENT - (2**20 + MIN_BLOCK)

    assert _values(counting, "allocated_bytes", SMALL) == (1536, 1536, 1536, 0)
    assert _values(counting, "requested_bytes", ALL) == (613 + 2**20 + 1,) * 3 + (0,)
    assert _values(counting, "segment", ALL) == (2, 2, 2, 0)
    assert _values(counting, "inactive_split_bytes", SMALL)[:2] == (SMALL_SEGMENT - 1536, SMALL_SEGMENT - 1024)
    assert _values(counting, "inactive_split_bytes", LARGE)[0] == rest

    counting.free(first)
    counting.free(large)
    assert _values(counting, "inactive_split", SMALL)[0] == 2  # the first block, and the rest behind the second
    assert _values(counting, "inactive_split_bytes", LARGE) == (0, rest, rest, rest)
    assert _values(counting, "requested_bytes", ALL) == (100, 613 + 2**20 + 1, 613 + 2**20 + 1, 513 + 2**20 + 1)
    assert _values(counting, "reserved_bytes", ALL)[0] == SMALL_SEGMENT + LARGE_SEGMENT
    assert (counting.allocate(0), counting.free(None)) == (None, None)


def test_reserved_memory_is_allocated_releasable_or_not_in_every_pool() -> None:
    """Over 400 random requests and frees: what is neither allocated nor in a free part is in segments that are free whole."""
    draw, counting, blocks = random.Random(5), _CountingAllocator(), []
    for _ in range(400):
        if blocks and draw.random() < 0.5:
            counting.free(blocks.pop(draw.randrange(len(blocks))))
        else:
            blocks.append(counting.allocate(draw.choice([7, 513, 70_001, 2**20 + 3, 11 * 2**20])))
        for pool in (LARGE, SMALL):
            used = sum(_values(counting, metric, pool)[0] for metric in ("allocated_bytes", "inactive_split_bytes"))
            free_whole = sum(b.size for _, b in counting.allocator._free[pool == SMALL] if b.before is None and b.after is None)
            assert _values(counting, "reserved_bytes", pool)[0] == used + free_whole
        for metric in METRICS:
            assert _values(counting, metric, ALL)[0] == _values(counting, metric, LARGE)[0] + _values(counting, metric, SMALL)[0]


@pytest.fixture(scope="module")
def summary() -> MemorySummary:
    return memory_summary(calc.derive(calc.load("mlp"), {"B": 31, "d": 7, "f": 11, "K": 5}))


def test_a_loop_has_the_peaks_of_its_steps_and_ends_with_what_lives_on(summary: MemorySummary) -> None:
    """The higher of the first and the steady step; between steps parameters, moments and inputs, to the byte as requested."""
    spec = calc.load("mlp")
    sizes = {"B": 31, "d": 7, "f": 11, "K": 5}
    trace = trace_at(spec, {}, spec.sizes(sizes), {}, Options())
    peaks = [simulate(trace, step) for step in (1, STEPS)]
    parameters = 7 * 11 + 11 + 11 * 5 + 5

    assert summary.statistics["allocated_bytes"][ALL].peak == max(each.allocated for each in peaks)
    assert summary.statistics["reserved_bytes"][ALL].peak == max(each.reserved for each in peaks)
    living = summary.statistics["requested_bytes"][ALL].current
    assert living == 3 * 4 * parameters + 4 * 31 * 7 + 8 * 31 + 4  # the loss is referenced until the next step


def test_torch_prints_these_statistics(summary: MemorySummary, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own memory_summary, given them as memory_stats; numbers of blocks are in its table."""
    stats: dict[str, Any] = {"num_ooms": 0, "num_alloc_retries": 0, **summary.to_json()["memory_stats"]}
    stats |= {f"oversize_{kind}.{field}": 0 for kind in ("allocations", "segments") for field in ("current", "peak", "allocated", "freed")}
    monkeypatch.setattr("torch.cuda.memory.memory_stats", lambda device=None: stats)
    monkeypatch.setattr("torch.cuda.memory._get_device_index", lambda device, optional: 0)
    printed = torch.cuda.memory_summary()

    allocations = summary.statistics["allocation"][ALL]
    cells = [cell.strip() for line in printed.splitlines() if "Allocations " in line for cell in line.split("|")]
    assert cells[1:6] == ["Allocations", *map(str, (allocations.current, allocations.peak, allocations.allocated, allocations.freed))]
    assert all(label in printed for label in METRICS.values())


def test_the_command_shows_it_and_says_that_it_is_no_measurement() -> None:
    words = ["derive", "linear", "-d", "B=3", "-d", "D=7", "-d", "K=5", "--memory-summary"]
    done = CliRunner().invoke(cli.napkin, words)
    assert (done.exit_code, "Cur Usage" in done.stdout, "not measured without a CUDA device" in done.stdout) == (0, True, True)

    document = json.loads(CliRunner().invoke(cli.napkin, [*words, "--json"]).stdout)
    assert (document["verdict"], document["memory_stats"]["segment.small_pool.current"]) == ("not measured", 1)

    done = CliRunner().invoke(cli.napkin, [*words, "--peak"])
    assert done.stderr == "napkin: --memory-summary shows one thing: give it without --explain, --coverage, --saved, --peak and --values\n"
    with pytest.raises(BadInputError, match=r"^mode infer has no training loop: use mode train$"):
        memory_summary(calc.derive(calc.load("linear"), {"B": 3, "D": 7, "K": 5}, mode="infer"))
