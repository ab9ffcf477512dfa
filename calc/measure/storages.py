"""Storages of a real run: which tensors share one, its bytes, and its lifetime.

``StorageWatch`` inspects every operator when it returns. A storage counts once and in full, from the return of the first operator
that takes or returns it until its last reference is dropped; an operator's internal workspace is never seen.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from calc.experiment.composite_operators import decomposed, is_composite
from calc.measure.kinds import tensors_in
from calc.platform.torch_private import TorchDispatchMode


def distinct_storages(tensors: Iterable[Tensor]) -> dict[int, int]:
    """``{address of the storage: its bytes}``: each once and in full, even if a view uses only part of it."""
    storages = (tensor.untyped_storage() for tensor in tensors)
    return {storage._cdata: storage.nbytes() for storage in storages}


class StorageWatch(TorchDispatchMode):
    """Mode that tracks the live bytes of all storages seen in a run, and their peak; ``blind`` lists operators with unseen ones."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves its modes untyped
        self.live = 0
        self.peak = 0
        self.blind: set[str] = set()
        self._storages: dict[int, tuple[weakref.ref[torch.UntypedStorage], int]] = {}

    def admit(self, tensors: Iterable[Tensor]) -> None:
        """Count the storages of ``tensors`` from now on."""
        for tensor in tensors:
            self._admit(tensor, "the start of the run")

    def alive(self) -> dict[int, int]:
        """``{address of the storage: its bytes}`` of the live storages."""
        return {key: nbytes for key, (_, nbytes) in self._storages.items()}

    def open_window(self) -> None:
        """Reset the peak to the current live bytes."""
        self.peak = self.live

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if is_composite(func):
            return decomposed(self, func, args, kwargs)
        out = func(*args, **(kwargs or {}))
        for tensor in tensors_in((args, kwargs or {}, out)):
            self._admit(tensor, str(func))
        self.peak = max(self.peak, self.live)
        return out

    def _admit(self, tensor: Tensor, where: str) -> None:
        try:
            storage = tensor.untyped_storage()
        except RuntimeError:
            self.blind.add(f"{where} ({str(tensor.layout).removeprefix('torch.')} tensor)")
            return
        key, nbytes = storage._cdata, storage.nbytes()
        entry = self._storages.get(key)
        if entry is None:
            # Torch keeps a storage's Python object alive as long as the storage, so the weak reference ends with it.
            self._storages[key] = weakref.ref(storage, partial(self._leave, key)), nbytes
            self.live += nbytes
        elif entry[1] != nbytes:  # resized in place
            self._storages[key] = entry[0], nbytes
            self.live += nbytes - entry[1]

    def _leave(self, key: int, reference: object) -> None:
        self.live -= self._storages.pop(key)[1]
