"""Times of a data loader with and without worker processes, pinned and pageable, and how many batches its workers load ahead.

Items are whole batches of a memory-mapped file of tokens. Alone: the next batch is asked for at once. In a loop: a step, here a wait, comes
between two of them, so that workers can load meanwhile. The wait is as long as a batch takes in this process, and at least 5 ms.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, get_worker_info

from calc.errors import MeasurementError
from calc.hardware.times import Repeat, Timings, TransferPlan
from calc.measure.copies import TOKEN, Unmeasured, batch_of, file_of_tokens
from calc.measure.timing import HostWatch, time_of
from calc.measure.training import seed_of

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

    def __init__(self, path: Path, plan: TransferPlan) -> None:
        self.path, self.plan = path, plan
        self.loaded = torch.zeros(max(plan.workers or 0, 1), dtype=torch.int64)
        self.loaded.share_memory_()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self._data: Any = None

    def __len__(self) -> int:
        return _ENDLESS

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if self._data is None:  # each process maps the file itself
            self._data = numpy.memmap(self.path, dtype=TOKEN, mode="r")
        generator = torch.Generator().manual_seed(seed_of(self.plan.seed, index))
        tensors = batch_of(self._data, len(self._data), self.plan.batch, self.plan.length, generator)
        info = get_worker_info()
        self.loaded[0 if info is None else info.id] += 1
        return tensors


def loaders(plan: TransferPlan, pins: bool, repeat: Repeat) -> Iterator[Loaded | Unmeasured]:
    """A loader in this process, one with the workers of the plan, and that one with pinned memory."""
    workers, calls = plan.workers or 0, 4 * (plan.workers or 0) * plan.prefetch
    with file_of_tokens(plan.nbytes, plan.seed) as (path, _):
        with _iterating(path, replace(plan, workers=0), False) as (pull, _):
            alone = time_of(pull, HostWatch(), repeat)
            step = max(_LEAST_STEP, float(alone.seconds))
            yield Loaded("in this process", 0, False, alone, _in_loop(pull, step, repeat), step, 0)
        for pinned in (False, True) if workers else ():
            name = f"{workers} worker{'s' if workers > 1 else ''}{', pinned' if pinned else ''}"
            if pinned and not pins:
                yield Unmeasured(name, NO_PINNING)
                continue
            with _iterating(path, plan, pinned) as (pull, loaded):
                ahead = _ahead(pull, loaded)
                alone = time_of(pull, HostWatch(), repeat, calls=calls)
                yield Loaded(name, workers, pinned, alone, _in_loop(pull, step, repeat, calls), step, ahead)


def loaded_ahead(plan: TransferPlan) -> int:
    """Batches that workers have loaded beyond the one in use, when nothing asks for more."""
    with file_of_tokens(plan.nbytes, plan.seed) as (path, _), _iterating(path, plan, False) as (pull, loaded):
        return _ahead(pull, loaded)


@contextmanager
def _iterating(path: Path, plan: TransferPlan, pinned: bool) -> Iterator[tuple[Callable[[], object], Callable[[], int]]]:
    """Context with what asks for the next batch, and what gives the number of batches loaded so far; workers end with it."""
    data, workers = _Batches(path, plan), plan.workers or 0
    prefetch = plan.prefetch if workers else None
    loader = DataLoader(data, batch_size=None, num_workers=workers, prefetch_factor=prefetch, pin_memory=pinned)
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
