"""Times of data loading: reads of a memory-mapped file of tokens, copies in host memory and to a device, and copies that overlap
with compute.

A copy to or from a device may return before it is complete. The host's clock times both: until the call returns, and until the device
has finished. In between, the program is free.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor

from calc.errors import MeasurementError
from calc.hardware.times import Repeat, Timings, TransferPlan
from calc.measure.timing import HostWatch, time_of, timed, watch_of
from calc.measure.training import SEED

TOKEN = numpy.dtype(numpy.uint16)  # of a token in the file: enough for a vocabulary of 65,536
_UNCACHED = "file of tokens, whole, not cached"
_RETURNS = "returns"
_SQUARE = 4096


@dataclass(frozen=True, slots=True)
class Copied:
    """A copy of ``nbytes`` bytes. ``times`` last until it is complete, ``returned`` until the call returns, if that may be earlier."""

    name: str
    nbytes: int
    times: Timings
    returned: Timings | None = None


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """A copy that was not measured, with the reason."""

    name: str
    because: str


@dataclass(frozen=True, slots=True)
class Beside:
    """Times of a copy alone, compute alone, one after the other (``after``), and overlapped (``beside``)."""

    copy: Timings
    compute: Timings
    after: Timings
    beside: Timings


def mapped(plan: TransferPlan, repeat: Repeat) -> Iterator[Copied | Unmeasured]:
    """Times of reading a memory-mapped file of synthetic tokens: whole, and in batches.

    Cached: the file's pages are in the page cache. Uncached: the page cache dropped them before each repetition; caches below it (of the
    disk, of a virtual machine's host) may still have them. If pages cannot be dropped, the uncached read is ``Unmeasured``.
    """
    nbytes, batch, length = plan.nbytes, plan.batch, plan.length
    with file_of_tokens(nbytes, plan.seed) as (path, tokens):
        try:
            yield Copied(_UNCACHED, nbytes, _uncached(path, Repeat(0, repeat.count, 0, repeat.most)))
        except _PagesRemainError as error:
            yield Unmeasured(_UNCACHED, f"not measured: {error}")
        data = numpy.memmap(path, dtype=TOKEN, mode="r")
        yield Copied("file of tokens, whole, cached", nbytes, time_of(data.copy, HostWatch(), repeat))
        generator = torch.Generator().manual_seed(plan.seed)
        read = 2 * batch * length * TOKEN.itemsize
        times = time_of(lambda: batch_of(data, tokens, batch, length, generator), HostWatch(), repeat)
        yield Copied(f"batch of {batch} × {length} tokens and targets, cached", read, times)


def batch_of(data: Any, tokens: int, batch: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """(tokens, targets), each (batch, length) int64: sequences at random offsets, and the same sequences shifted by one token."""
    places = torch.randint(tokens - length, (batch,), generator=generator).tolist()
    x, y = (torch.stack([torch.from_numpy(data[i + on : i + on + length].astype(numpy.int64)) for i in places]) for on in (0, 1))
    return x, y


def host_copy(nbytes: int, repeat: Repeat) -> Copied:
    """Times of a copy of ``nbytes`` bytes between two tensors in pageable host memory."""
    source, target = torch.ones(nbytes, dtype=torch.uint8), torch.empty(nbytes, dtype=torch.uint8)
    return Copied("host to host, pageable", nbytes, time_of(lambda: target.copy_(source), HostWatch(), repeat))


def device_copies(nbytes: int, device: str, repeat: Repeat) -> Iterator[Copied]:
    """Times of copies of ``nbytes`` bytes between host and device, pageable and pinned, blocking and non-blocking; and on the device."""
    on_device = torch.empty(nbytes, dtype=torch.uint8, device=device)
    pageable = torch.ones(nbytes, dtype=torch.uint8)
    pinned = pageable.pin_memory()
    for kind, host in (("pageable", pageable), ("pinned", pinned)):
        for blocking in (True, False):
            how = "blocking" if blocking else "not blocking"
            for name, target, source in (
                (f"host to device, {kind}, {how}", on_device, host),
                (f"device to host, {kind}, {how}", host, on_device),
            ):
                yield _device_copy(name, target, source, blocking, device, repeat)
    yield _device_copy("device to device", torch.empty_like(on_device), on_device, False, device, repeat)


def _device_copy(name: str, target: Tensor, source: Tensor, blocking: bool, device: str, repeat: Repeat) -> Copied:
    """Times of one copy by the host's clock, which does not wait for the device: the timed body synchronizes."""

    def body(around: Any) -> None:
        with around(_RETURNS):
            target.copy_(source, non_blocking=not blocking)
        torch.cuda.synchronize(device)

    torch.cuda.synchronize(device)
    timing = timed(body, HostWatch(), repeat)
    return Copied(name, source.nbytes, timing.whole, timing.parts[_RETURNS])


def beside_compute(nbytes: int, device: str, repeat: Repeat) -> Beside:
    """Times of a copy from pinned memory on its own stream and of as many matmuls on the current stream as take about as long."""
    watch = watch_of(device)
    source = torch.ones(nbytes, dtype=torch.uint8).pin_memory()
    target = torch.empty(nbytes, dtype=torch.uint8, device=device)
    a = torch.randn(_SQUARE, _SQUARE, dtype=torch.bfloat16, device=device)
    out = torch.empty_like(a)
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch leaves it untyped
    usual = torch.cuda.current_stream(device)

    def copy() -> None:
        target.copy_(source, non_blocking=True)

    alone = time_of(copy, watch, repeat, calls=1)
    single = time_of(lambda: torch.mm(a, a, out=out), watch, repeat)
    products = max(1, round(alone.median / single.median))

    def compute() -> None:
        for _ in range(products):
            torch.mm(a, a, out=out)

    def after() -> None:
        copy()
        compute()

    def together() -> None:
        stream.wait_stream(usual)
        with torch.cuda.stream(stream):
            copy()
        compute()
        usual.wait_stream(stream)

    timings = (time_of(action, watch, repeat, calls=1) for action in (compute, after, together))
    return Beside(alone, *timings)


@contextmanager
def file_of_tokens(nbytes: int, seed: int = SEED) -> Iterator[tuple[Path, int]]:
    """Context with the path of a file of synthetic tokens, drawn from ``seed``, and their number."""
    tokens = nbytes // TOKEN.itemsize
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokens.bin"
        try:
            with path.open("wb") as file:
                numpy.random.default_rng(seed).integers(0, 2**16, tokens, dtype=TOKEN).tofile(file)
                file.flush()
                os.fsync(file.fileno())  # a dirty page cannot be dropped
        except OSError as error:
            raise MeasurementError(f"cannot write {nbytes:,} bytes of tokens into {folder}: {error.strerror or error}") from None
        yield path, tokens


class _PagesRemainError(Exception):
    """Pages of a file cannot be dropped from memory; the message says why."""


def _uncached(path: Path, repeat: Repeat) -> Timings:
    """Times of reading the whole file after its pages were dropped; dropping them is not timed."""

    def body(around: Any) -> None:
        _drop(path)
        data = numpy.memmap(path, dtype=TOKEN, mode="r")
        with around("read"):
            data.copy()

    return timed(body, HostWatch(), repeat).parts["read"]


_ATTEMPTS, _SECONDS_BETWEEN = 50, 0.001


def _drop(path: Path) -> None:
    """Drop the file's pages from the page cache. Pages in use at that moment (by writeback or reclaim) stay, so it tries several times.
    Raises ``_PagesRemainError`` if pages remain."""
    if not hasattr(os, "posix_fadvise"):
        raise _PagesRemainError("this system has no posix_fadvise to drop a file's pages")
    with path.open("rb", buffering=0) as file:
        for _ in range(_ATTEMPTS):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            pages = _in_memory(path)
            if not pages:
                return
            time.sleep(_SECONDS_BETWEEN)
    raise _PagesRemainError(f"the system keeps {pages:,} pages of a file after {_ATTEMPTS} requests to drop them")


def _in_memory(path: Path) -> int:
    """The number of the file's pages in memory, by ``mincore`` on a mapping that is never touched. Any read, even a non-blocking one,
    would start readahead and load pages. Raises ``_PagesRemainError`` if ``mincore`` fails."""
    pages = numpy.memmap(path, dtype=numpy.uint8, mode="r")
    marks = numpy.empty(-(-pages.nbytes // mmap.PAGESIZE), dtype=numpy.uint8)
    address = [ctypes.c_void_p(pages.ctypes.data), ctypes.c_size_t(pages.nbytes), ctypes.c_void_p(marks.ctypes.data)]
    library = ctypes.CDLL(None, use_errno=True)
    if library.mincore(*address) != 0:
        raise _PagesRemainError(f"this system does not report which pages of a file are cached: {os.strerror(ctypes.get_errno())}")
    return int((marks & 1).sum())
