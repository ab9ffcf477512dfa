"""Which sources of random numbers repeat when one of them is seeded, by real draws from all of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from calc.measure.training import SEED

_COUNT = 5  # numbers of a draw
SEEDINGS: dict[str, Callable[[int], object]] = {
    "random.seed": random.seed,
    "numpy.random.seed": np.random.seed,
    "torch.manual_seed": torch.manual_seed,
    "torch.cuda.manual_seed_all": torch.cuda.manual_seed_all,
}
Draws = dict[str, Any]


class _WorkerDraws(Dataset[Draws]):
    """One item: draws from the global sources of the process that loads it."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Draws:
        return _global_draws()


def _global_draws() -> Draws:
    numbers = {"random": [random.random() for _ in range(_COUNT)], "numpy.random": np.random.random(_COUNT).tolist()}
    return {**numbers, "torch": torch.rand(_COUNT).tolist()}


def _drawn() -> Draws:
    """Draws by source: of this process, and of the worker process of a data loader. CUDA only where there is a device."""
    [in_worker] = DataLoader(_WorkerDraws(), batch_size=None, num_workers=1)
    draws = {**_global_draws(), **{f"{name} in a worker": numbers for name, numbers in in_worker.items()}}
    draws["numpy.random.default_rng()"] = np.random.default_rng().random(_COUNT).tolist()
    if torch.cuda.is_available():
        draws["torch on CUDA"] = torch.rand(_COUNT, device="cuda").tolist()
    return draws


def repeated_by(seeding: str, seed: int = SEED) -> tuple[str, ...] | None:
    """The sources that give the same numbers again after the same call of ``seeding``, in the order of the draws; ``None`` for CUDA's
    generators without a device."""
    if "cuda" in seeding and not torch.cuda.is_available():
        return None
    with _states_restored():
        first, repeated = (_after(seeding, seed) for _ in range(2))
    return tuple(name for name in first if first[name] == repeated[name])


def _after(seeding: str, seed: int) -> Draws:
    SEEDINGS[seeding](seed)
    return _drawn()


@contextmanager
def _states_restored() -> Iterator[None]:
    """Context after which all global sources go on as if nothing had been seeded or drawn."""
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng():
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
