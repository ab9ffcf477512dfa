"""Bytes on their way to a step: the expressions, and what is measured of them where it can be."""

from __future__ import annotations

import itertools
import json
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from calc.errors import BadInputError, MeasurementError
from calc.hardware.times import Repeat, Timings, TransferPlan
from calc.measure import copies, loading
from calc.measure.copies import Beside
from calc.measure.loading import Loaded
from calc.performance.transfers import ahead, batch_bytes, beside, copy_time, document, loop_time, measured
from reports import cli

ONCE = Repeat(warm_up=1, count=2, seconds=0)
PLAN = TransferPlan(2**17, 3, 17)
SMALL = ("--bytes", "128KiB", "--batch", "3", "--length", "17", "--repeat", "2", "--seconds", "0", "--workers", "0")


def napkin(*words: str) -> Result:
    return CliRunner().invoke(cli.napkin, ["transfers", *words])


def test_a_copy_takes_its_bytes_over_the_bandwidth() -> None:
    """32 × 1024 tokens and targets of 8 bytes are 524,288; at 32 GB/s they take 16.384 µs."""
    nbytes = batch_bytes(32, 1024)

    assert 2 * 8 * 32 * 1024 == nbytes.value == 524_288
    assert 16_384 == copy_time(nbytes.value, 32_000_000_000).value * 10**9


def test_beside_compute_the_longer_of_the_two_remains() -> None:
    """3 ms and 5 ms are 8 ms one after the other, and 5 ms at the same time."""
    actual = beside(0.003, 0.005)

    assert (8, 5) == (actual["a"] * 1000, actual.value * 1000)


@given(st.integers(1, 10**12), st.integers(1, 10**12))
def test_doing_both_at_once_saves_the_shorter_one_and_never_more_than_half(copy: int, compute: int) -> None:
    actual = beside(copy, compute)

    assert min(copy, compute) == actual["a"] - actual["o"]
    assert actual["a"] <= 2 * actual["o"]


def test_a_batch_is_stretches_of_the_file_and_the_same_one_token_on() -> None:
    """Tokens count up here, so that targets are inputs plus 1; the last stretch that fits ends with the file."""
    data = numpy.arange(101, dtype=numpy.uint16)
    x, y = copies.batch_of(data, 101, 1000, 100, torch.Generator().manual_seed(0))

    assert ((1000, 100), torch.int64) == (tuple(x.shape), x.dtype)
    assert torch.equal(x + 1, y)
    assert (0, 100) == (int(x.min()), int(y.max()))


def test_what_needs_no_device_is_measured_on_a_cpu() -> None:
    """A whole file of tokens, batches out of it, and a copy in memory; the reason for the rest is kept."""
    measurement = measured(PLAN, "cpu", ONCE, "there is no device")
    names = [copied.name for copied in measurement.copies]
    made = document(measurement)

    assert ["file of tokens, whole, cached", "batch of 3 × 17 tokens and targets, cached", "host to host, pageable"] == [
        name for name in names if "not cached" not in name
    ]
    assert 2 * 3 * 17 * 2 == measurement.copies[-2].nbytes
    assert made["beside_compute"] is None
    assert {"name": "copies to a device, and overlapped with compute", "because": "there is no device"} == made["unmeasured"][-1]
    assert made["copies"]
    for copied in made["copies"]:
        assert copied["bytes"] / copied["times"]["seconds"]["median"] == pytest.approx(copied["bytes_per_second"])


def test_batches_ahead_take_memory_of_the_host() -> None:
    """3 workers of 5 batches each are 15 ahead and one in use: 16 · 816 bytes."""
    calculation = ahead(3, 5, batch_bytes(3, 17).value)

    assert (15, 16 * 816) == (calculation["a"], calculation.value)


def test_with_workers_the_longer_of_batch_and_step_remains() -> None:
    """A batch of 3 ms beside a step of 5 ms: 8 ms in turn, 5 ms with workers; of 7 ms, 7 ms."""
    ms = 10**6
    alone = Loaded("alone", 0, False, Timings((3 * ms,)), Timings((1,)), 0.005, 0)

    assert (0.008, 0.005) == (float(loop_time(alone)), float(loop_time(replace(alone, workers=2))))
    assert float(loop_time(replace(alone, workers=2, alone=Timings((7 * ms,))))) == 0.007


def test_workers_load_ahead_as_many_batches_as_derived() -> None:
    """2 · 3 beyond the one in use, by a count in the workers themselves; pinned memory needs a device, and the reason says so."""
    here, apart, pinned = loading.loaders(TransferPlan(2**17, 3, 17, 2, 3), False, ONCE)

    assert isinstance(here, Loaded)
    assert isinstance(apart, Loaded)
    assert ((0, 0), (2, 2 * 3)) == ((here.workers, here.ahead), (apart.workers, apart.ahead))
    assert isinstance(pinned, copies.Unmeasured)
    assert (pinned.name, pinned.because.partition(":")[0]) == ("2 workers, pinned", "not measured")
    assert pinned.because.endswith(
        "needs a CUDA device: torch pins memory for a device alone, and a DataLoader ignores pin_memory=True without one"
    )


def test_a_batch_of_a_loader_depends_on_its_number_alone(tmp_path: Path) -> None:
    """Loaded by a worker or here, once or again."""
    path = tmp_path / "tokens.bin"
    numpy.arange(101, dtype=numpy.uint16).tofile(path)
    first, other = (loading._Batches(path, TransferPlan(2**17, 5, 7)) for _ in range(2))

    assert all(torch.equal(a, b) for a, b in zip(first[3], other[3], strict=True))
    assert not torch.equal(first[3][0], first[4][0])
    assert (3, 1) == (int(first.loaded.sum()), int(other.loaded.sum()))


def test_tokens_and_batches_follow_from_the_seed(tmp_path: Path) -> None:
    """The same seed draws the same, another another one."""
    drawn = []
    for seed in (5, 5, 6):
        with copies.file_of_tokens(2**10, seed) as (path, _):
            drawn.append(path.read_bytes())
    assert (drawn[0] == drawn[1], drawn[1] == drawn[2]) == (True, False)

    file = tmp_path / "tokens.bin"
    file.write_bytes(drawn[0])
    first, same, another = (loading._Batches(file, TransferPlan(2**17, 3, 17, seed=seed))[2] for seed in (5, 5, 6))
    assert torch.equal(first[0], same[0])
    assert not torch.equal(first[0], another[0])


def test_workers_that_never_rest_or_die_are_an_error_of_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(loading, "_PATIENCE", 0.0)
    counts = itertools.count()
    with pytest.raises(MeasurementError, match=r"^workers still load after 0 s without being asked: no number of batches ahead$"):
        loading._ahead(lambda: None, lambda: next(counts))

    def killed() -> None:
        raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Bus error.\n")

    with (
        pytest.raises(
            MeasurementError, match=r"^a data loader with 0 workers stopped: DataLoader worker \(pid 7\) is killed by signal: Bus error\.$"
        ),
        loading._iterating(tmp_path / "none", TransferPlan(2**17, 1, 1), False),
    ):
        killed()


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    """A file of three pages, on the disk and in memory."""
    path = tmp_path / "pages.bin"
    with path.open("wb") as file:
        file.write(bytes(2 * mmap.PAGESIZE + 1))
        file.flush()
        os.fsync(file.fileno())
    path.read_bytes()
    return path


def test_pages_in_memory_are_counted_without_reading_one(pages: Path) -> None:
    """A read brings all of them in; asking twice after the drop finds none twice."""
    assert 3 == copies._in_memory(pages)

    try:
        copies._drop(pages)
    except copies._PagesRemainError as error:
        pytest.skip(str(error))
    assert 0 == copies._in_memory(pages)


def test_a_page_in_use_is_dropped_when_it_no_longer_is(pages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system is told once more; of pages that stay in memory it is told so often and no more."""
    kept = iter([2, 1, 0])
    monkeypatch.setattr(copies, "_in_memory", lambda _: next(kept))
    copies._drop(pages)
    assert [] == list(kept)

    monkeypatch.setattr(copies, "_in_memory", lambda _: 2)
    with pytest.raises(copies._PagesRemainError, match=r"^the system keeps 2 pages of a file after 50 requests to drop them$"):
        copies._drop(pages)


@pytest.mark.parametrize("dropped", [0, 1])
def test_a_file_whose_pages_stay_in_memory_is_not_called_uncached(dropped: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system keeps them from the start, or begins to, the reason stands in that place and all else is measured."""
    answers = iter([0] * dropped)
    monkeypatch.setattr(copies, "_in_memory", lambda _: next(answers, 7))
    first, *others = copies.mapped(PLAN, ONCE)

    assert isinstance(first, copies.Unmeasured)
    assert "file of tokens, whole, not cached" == first.name
    assert first.because.startswith("not measured: the system keeps 7 pages of a file after")
    assert ["file of tokens, whole, cached", "batch of 3 × 17 tokens and targets, cached"] == [other.name for other in others]


@pytest.mark.parametrize("lacking", ["fadvise", "mincore"])
def test_a_system_that_cannot_drop_or_tell_says_so(lacking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if lacking == "fadvise":
        monkeypatch.delattr(os, "posix_fadvise", raising=False)
    else:
        monkeypatch.setattr(copies.ctypes, "CDLL", lambda *_, **__: SimpleNamespace(mincore=lambda *_: -1))
    first = next(copies.mapped(PLAN, ONCE))

    assert isinstance(first, copies.Unmeasured)
    assert first.because.startswith("not measured: this system ")


def test_the_call_and_the_copy_are_timed_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a device that only pretends: the call returns at once, and the copy takes until the device has finished."""
    calls: list[str] = []
    now = [0]

    def clock() -> int:
        now[0] += 1
        return now[0]

    def synchronize(_: str) -> None:
        calls.append("synchronize")
        now[0] += 5000

    target = SimpleNamespace(copy_=lambda source, non_blocking: calls.append("copy") or now.__setitem__(0, now[0] + 100))
    monkeypatch.setattr(copies, "torch", SimpleNamespace(cuda=SimpleNamespace(synchronize=synchronize)))
    monkeypatch.setattr(copies, "HostWatch", lambda: copies_watch(clock))
    source: Any = SimpleNamespace(nbytes=77)
    actual = copies._device_copy("a copy", target, source, False, "cuda", Repeat(0, 2, 0))

    assert ["synchronize", "copy", "synchronize", "copy", "synchronize"] == calls
    assert actual.returned is not None
    assert ((101, 101), (5103, 5103)) == (actual.returned.nanoseconds, actual.times.nanoseconds)


def copies_watch(clock: Any) -> Any:
    from calc.measure.timing import HostWatch

    return HostWatch(clock)


def test_a_measured_overlap_stands_beside_its_expression() -> None:
    """2 ms and 3 ms: 5 and 3 expected, whatever came out."""
    ms = 10**6
    both = Beside(Timings((2 * ms,)), Timings((3 * ms,)), Timings((6 * ms,)), Timings((4 * ms,)))
    base = measured(PLAN, "cpu", ONCE)
    made = document(replace(base, beside=both))["beside_compute"]

    assert {"one_after_the_other": 0.005, "at_the_same_time": 0.003} == made["predicted_seconds"]
    assert ([6 * ms], [4 * ms]) == (made["one_after_the_other"]["nanoseconds"], made["at_the_same_time"]["nanoseconds"])


def test_the_command_shows_expressions_and_measurements_and_writes_both(tmp_path: Path) -> None:
    file = tmp_path / "transfers.json"
    shown = napkin(*SMALL, "--device", "cpu", "-o", str(file))

    assert 0 == shown.exit_code, shown.stderr
    assert "n = 2*8*B*T = 816\u00a0bytes" in shown.stdout
    assert "copies to a device, and overlapped with compute: not measured: the CPU was asked for" in shown.stdout
    assert "in this process" in shown.stdout
    assert [0] == [loader["workers"] for loader in json.loads(file.read_text())["loaders"]]
    assert "measurement of transfers" == json.loads(file.read_text())["kind"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--bytes", "7"], "7 bytes are too few or too many to time a copy: give 65,536 to 17,179,869,184"),
        (["--length", "90000"], "a batch of 3 × 90000 tokens is not in a file of 65,536: give a smaller batch or more bytes"),
        (["--workers", "0", "--prefetch", "3"], "--prefetch has no effect without workers, which load ahead: leave it out"),
        (["--device", "disk"], "unknown device 'disk': use cpu, cuda, or cuda:1 and so on"),
    ],
)
def test_bad_words_are_refused_in_a_line(words: list[str], said: str) -> None:
    small = [*SMALL]
    if words[0] in small:  # given once
        del small[small.index(words[0]) : small.index(words[0]) + 2]
    result = napkin(*small, *words)

    assert (2, "", f"napkin: {said}\n") == (result.exit_code, result.stdout, result.stderr)


def test_a_batch_larger_than_the_file_is_refused() -> None:
    with pytest.raises(BadInputError, match=r"is not in a file of 32,768: give a smaller batch or more bytes$"):
        TransferPlan(2**16, 2**16, 2)


def test_without_the_device_nothing_is_measured() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    result = napkin("--device", "cuda", "--strict")

    assert (1, "not measured: there is no CUDA device here\n") == (result.exit_code, result.stdout)


@pytest.mark.gpu
def test_a_gpu_copies_pinned_memory_and_returns_before_it_is_done() -> None:
    """64 MiB take a millisecond and more; the call alone, some microseconds."""
    actual = {copied.name: copied for copied in measured(TransferPlan(2**26, 3, 17), "cuda", ONCE).copies}
    free = actual["host to device, pinned, not blocking"]

    assert free.returned is not None
    assert 4 * free.returned.median < free.times.median


class Streams:
    """torch.cuda as far as a copy overlapped with compute uses it; what is called, on which stream."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.on = "usual"

    def Stream(self, _: str) -> Any:
        return self._stream("side")

    def current_stream(self, _: str) -> Any:
        return self._stream("usual")

    def _stream(self, name: str) -> Any:
        return SimpleNamespace(name=name, wait_stream=lambda other: self.calls.append(f"{name} waits for {other.name}"))

    @contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        before, self.on = self.on, stream.name
        yield
        self.on = before


def test_the_copy_beside_compute_has_a_stream_of_its_own_and_both_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for what was there, runs on the side, and the usual stream waits for it at the end; after compute it is on the usual one."""
    streams = Streams()
    tensor = SimpleNamespace(copy_=lambda source, non_blocking: streams.calls.append(f"copy on {streams.on}, free: {non_blocking}"))
    pinned = SimpleNamespace(pin_memory=lambda: pinned)
    actions: list[Any] = []

    def time_of(action: Any, *_: Any, **__: Any) -> Timings:
        actions.append(action)
        return Timings((6,) if len(actions) == 1 else (2,))

    made = {"ones": lambda *_, **__: pinned, "empty": lambda *_, **__: tensor, "randn": lambda *_, **__: tensor}
    pretended = SimpleNamespace(
        cuda=streams,
        uint8=torch.uint8,
        bfloat16=torch.bfloat16,
        empty_like=lambda a: tensor,
        mm=lambda a, b, out: streams.calls.append(f"product on {streams.on}"),
        **made,
    )
    monkeypatch.setattr(copies, "torch", pretended)
    monkeypatch.setattr(copies, "watch_of", lambda device: None)
    monkeypatch.setattr(copies, "time_of", time_of)
    copies.beside_compute(2**20, "cuda", ONCE)
    streams.calls.clear()
    actions[-1]()

    assert [
        "side waits for usual",
        "copy on side, free: True",
        *["product on usual"] * 3,  # a copy took 6, a product 2
        "usual waits for side",
    ] == streams.calls
    streams.calls.clear()
    actions[-2]()
    assert ["copy on usual, free: True", *["product on usual"] * 3] == streams.calls
