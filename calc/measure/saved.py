"""What autograd keeps for the backward: torch's saved-tensor hooks, with what they pack watched weakly.

A tensor that was packed and released again before the forward returned is not counted. Two kinds pass no hook: what a
hand-written ``autograd.Function`` keeps as attributes of its context is read off the autograd graph, and what only a closure
in the graph holds (arguments of layers that run again in the backward) is what was alive when the forward returned and is
gone once the graph is. Only storages that an operator has shown count: states of random generators have none.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from calc.measure.kinds import tensors_in
from calc.measure.measurement import Reading
from calc.measure.storages import StorageWatch, distinct_storages
from calc.measure.training import Training
from calc.platform.torch_private import no_modes

INSTRUMENT = "torch.autograd.graph.saved_tensors_hooks (weakly watched), and storages that go with the graph"


class _Packed:
    """What the pack hook hands to autograd in place of the tensor: alive exactly as long as autograd keeps it."""

    __slots__ = ("__weakref__", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


class SavedWatch:
    """Everything that autograd saves inside ``watching``; ``returned`` says what it holds then, ``dropped`` what went with its graph."""

    def __init__(self) -> None:
        self._packed: weakref.WeakSet[_Packed] = weakref.WeakSet()
        self._watch = StorageWatch()
        self._held: dict[int, int] = {}
        self._open: dict[int, int] = {}
        self._blind = False

    @contextmanager
    def watching(self, run: Training) -> Iterator[None]:
        """``run`` has its own tensors before; what else is alive afterwards came in the forward."""
        self._watch.admit([*run.module.parameters(), *run.module.buffers(), *run.inputs])
        self._own = set(self._watch.alive())
        with saved_tensors_hooks(self._pack, lambda packed: packed.tensor), self._watch:
            yield

    def _pack(self, tensor: Tensor) -> _Packed:
        # A saved result comes with its autograd node; holding that would close a circle (node, hook's object, tensor, node)
        # and keep alive what a plain run lets go. A detached alias shares the storage and nothing else.
        with no_modes():
            packed = _Packed(tensor.detach())
        self._packed.add(packed)
        return packed

    def returned(self, loss: Tensor, module: torch.nn.Module) -> None:
        """The forward has returned: note what hooks and contexts hold, and what else is alive."""
        try:
            alive = self._watch.alive()
            shown = (t for t in _kept_by_contexts(loss) if t.untyped_storage()._cdata in alive)
            storages = distinct_storages([*(packed.tensor for packed in self._packed), *shown])
            persistent = distinct_storages([*module.parameters(), *module.buffers()])
            self._held = {key: nbytes for key, nbytes in storages.items() if key not in persistent}
            counted = {*storages, *self._own, loss.untyped_storage()._cdata}
            self._open = {key: nbytes for key, nbytes in alive.items() if key not in counted}
        except (NotImplementedError, RuntimeError):
            self._blind = True

    def dropped(self) -> None:
        """The graph is gone, and so is all that it alone held, in circles of references too."""
        if self._open.keys() & self._watch.alive().keys():
            gc.collect()
        alive = self._watch.alive()
        self._held |= {key: nbytes for key, nbytes in self._open.items() if key not in alive}

    def reading(self) -> Reading:
        """Bytes of the distinct storages that were held, without those of parameters and buffers."""
        if self._blind or self._watch.blind:
            return Reading(None, INSTRUMENT, "autograd saves a tensor without a storage (sparse)")
        return Reading(sum(self._held.values()), INSTRUMENT)


def _kept_by_contexts(loss: Tensor) -> Iterator[Tensor]:
    """Tensors that hand-written backward functions keep as plain attributes."""
    seen: set[Any] = set()
    waiting = [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield from tensors_in(getattr(node, "__dict__", {}))
        waiting += [parent for parent, _ in node.next_functions]


def measure_saved(run: Training) -> Reading:
    """``activations.bytes`` of the next forward; the step is then finished as usual."""
    saved = SavedWatch()
    with saved.watching(run):
        loss = run.forward()
    saved.returned(loss, run.module)
    run.backward(loss)
    del loss
    saved.dropped()
    return saved.reading()
