"""Times of a data loader with and without worker processes, pinned and pageable, and how many batches its workers load ahead.

Items are whole batches of a memory-mapped file of tokens. Alone: the next batch is asked for at once. In a loop: a step, here a wait, comes
between two of them, so that workers can load meanwhile. The wait is as long as a batch takes in this process, and at least 5 ms.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, get_worker_info

from calc.errors import MeasurementError
from calc.hardware.times import Repeat, Timings
from calc.measure.copies import TOKEN, Unmeasured, batch_of, file_of_tokens
from calc.measure.timing import HostWatch, time_of
from calc.measure.training import SEED, seed_of

_ENDLESS = 2**40  # batches of an iterator: more than any measurement asks for
_PATIENCE, _SETTLED, _POLL = 60.0, 0.2, 0.01  # seconds
_LEAST_STEP = 0.005  # seconds; a shorter wait is mostly the scheduler's
NO_PINNING = "not measured: needs a CUDA device: torch pins memory for a device alone, and a DataLoader ignores pin_memory=True without one"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A loader's seconds per batch ``alone``, and per step ``in_loop`` with a step of ``step`` seconds. ``ahead``: batches that were loaded
    when nothing asked for more, beyond the one in use."""

    name: str
    workers: int
    pinned: bool
    alone: Timings
    in_loop: Timings
    step: float
    ahead: int


class _Batches(Dataset[tuple[Tensor, Tensor]]):
    """Batch ``index`` of a file of tokens, drawn from ``seed`` and that number. ``loaded`` counts batches by worker; shared memory."""

    def __init__(self, path: Path, batch: int, length: int, workers: int, seed: int = SEED) -> None:
        self.path, self.batch, self.length, self.seed = path, batch, length, seed
        self.loaded = torch.zeros(max(workers, 1), dtype=torch.int64)
        self.loaded.share_memory_()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self._data: Any = None

    def __len__(self) -> int:
        return _ENDLESS

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if self._data is None:  # each process maps the file itself
            self._data = numpy.memmap(self.path, dtype=TOKEN, mode="r")
        generator = torch.Generator().manual_seed(seed_of(self.seed, index))
        tensors = batch_of(self._data, len(self._data), self.batch, self.length, generator)
        info = get_worker_info()
        self.loaded[0 if info is None else info.id] += 1
        return tensors


def loaders(
    nbytes: int, batch: int, length: int, workers: int, prefetch: int, pins: bool, repeat: Repeat, seed: int = SEED
) -> Iterator[Loaded | Unmeasured]:
    """A loader in this process, one with ``workers`` that load ``prefetch`` batches ahead each, and that one with pinned memory."""
    with file_of_tokens(nbytes, seed) as (path, _):
        with _iterating(path, batch, length, 0, 0, False, seed) as (pull, _):
            alone = time_of(pull, HostWatch(), repeat)
            step = max(_LEAST_STEP, float(alone.seconds))
            yield Loaded("in this process", 0, False, alone, _in_loop(pull, step, repeat), step, 0)
        for pinned in (False, True) if workers else ():
            name = f"{workers} worker{'s' if workers > 1 else ''}{', pinned' if pinned else ''}"
            if pinned and not pins:
                yield Unmeasured(name, NO_PINNING)
                continue
            with _iterating(path, batch, length, workers, prefetch, pinned, seed) as (pull, loaded):
                ahead = _ahead(pull, loaded)
                alone = time_of(pull, HostWatch(), repeat, calls=4 * workers * prefetch)
                yield Loaded(name, workers, pinned, alone, _in_loop(pull, step, repeat, 4 * workers * prefetch), step, ahead)


def loaded_ahead(nbytes: int, batch: int, length: int, workers: int, prefetch: int) -> int:
    """Batches that workers have loaded beyond the one in use, when nothing asks for more."""
    with file_of_tokens(nbytes) as (path, _), _iterating(path, batch, length, workers, prefetch, False) as (pull, loaded):
        return _ahead(pull, loaded)


@contextmanager
def _iterating(
    path: Path, batch: int, length: int, workers: int, prefetch: int, pinned: bool, seed: int = SEED
) -> Iterator[tuple[Callable[[], object], Callable[[], int]]]:
    """Context with what asks for the next batch, and what gives the number of batches loaded so far; workers end with it."""
    data = _Batches(path, batch, length, workers, seed)
    loader = DataLoader(data, batch_size=None, num_workers=workers, prefetch_factor=prefetch or None, pin_memory=pinned)
    iterator: Iterator[Any] = iter(loader)
    try:
        yield lambda: next(iterator), lambda: int(data.loaded.sum())
    except RuntimeError as error:  # a worker that was killed, or had no shared memory
        raise MeasurementError(f"a data loader with {workers} workers stopped: {' '.join(str(error).split())[:200]}") from None
    finally:
        iterator = iter(())  # the destructor of the loader's ends the workers


def _in_loop(pull: Callable[[], object], step: float, repeat: Repeat, calls: int = 4) -> Timings:
    def one() -> None:
        pull()
        time.sleep(step)

    return time_of(one, HostWatch(), repeat, calls=calls)


def _ahead(pull: Callable[[], object], loaded: Callable[[], int]) -> int:
    """Batches loaded beyond the first, when it was taken and workers have stopped. Raises ``MeasurementError`` if they never stop."""
    pull()
    begin = settled = time.monotonic()
    count = loaded()
    while time.monotonic() - settled < _SETTLED:
        if time.monotonic() - begin > _PATIENCE:
            raise MeasurementError(f"workers still load after {_PATIENCE:.0f} s without being asked: no number of batches ahead")
        time.sleep(_POLL)
        if loaded() != count:
            count, settled = loaded(), time.monotonic()
    return count - 1
