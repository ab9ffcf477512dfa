"""Bytes that autograd saves for the backward, by torch's saved-tensor hooks, with weak references to the packed tensors.

A tensor that is packed and freed before the forward returns is not counted. Two kinds bypass the hooks. Attributes of the context
of a custom ``autograd.Function`` are read from the autograd graph. Tensors that only a closure in the graph references (arguments
of recomputed layers) are those alive when the forward returns and freed with the graph. Only storages that an operator has used
count, which excludes states of random generators.
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
from calc.platform.torch_private import no_modes

INSTRUMENT = "torch.autograd.graph.saved_tensors_hooks (weakly watched), and storages freed with the graph"


class _Packed:
    """The object that the pack hook gives autograd in place of the tensor; it lives exactly as long as autograd saves it."""

    __slots__ = ("__weakref__", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


class SavedWatch:
    """Tensors that autograd saves in a forward inside ``watching``, under ``watch``, which has seen the run from its start. Call
    ``returned`` after the forward and ``dropped`` once the graph is freed."""

    def __init__(self, watch: StorageWatch) -> None:
        self._packed: weakref.WeakSet[_Packed] = weakref.WeakSet()
        self._watch = watch
        self._saved: dict[int, int] = {}
        self._open: dict[int, int] = {}
        self._blind = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Context around a forward; storages that are alive on entry are not saved by it unless autograd packs them."""
        self._own = set(self._watch.alive())
        with saved_tensors_hooks(self._pack, lambda packed: packed.tensor):
            yield

    def _pack(self, tensor: Tensor) -> _Packed:
        # A saved result references its autograd node, which would form a reference cycle (node, packed object, tensor, node)
        # and keep alive what a plain run frees. A detached alias shares only the storage.
        with no_modes():
            packed = _Packed(tensor.detach())
        self._packed.add(packed)
        return packed

    def returned(self, loss: Tensor, module: torch.nn.Module) -> None:
        """Collects the storages that hooks and contexts hold after the forward, and the others that are alive."""
        try:
            alive = self._watch.alive()
            shown = (t for t in _saved_by_contexts(loss) if t.untyped_storage()._cdata in alive)
            storages = distinct_storages([*(packed.tensor for packed in self._packed), *shown])
            persistent = distinct_storages([*module.parameters(), *module.buffers()])
            self._saved = {key: nbytes for key, nbytes in storages.items() if key not in persistent}
            counted = {*storages, *self._own, loss.untyped_storage()._cdata}
            self._open = {key: nbytes for key, nbytes in alive.items() if key not in counted}
        except RuntimeError:
            self._blind = True

    def dropped(self) -> None:
        """Adds the storages that were freed with the graph, after collecting reference cycles."""
        if self._open.keys() & self._watch.alive().keys():
            gc.collect()
        alive = self._watch.alive()
        self._saved |= {key: nbytes for key, nbytes in self._open.items() if key not in alive}

    def reading(self) -> Reading:
        """Bytes of the distinct saved storages, without those of parameters and buffers."""
        if self._blind or self._watch.blind:
            return Reading(None, INSTRUMENT, "autograd saves a tensor without a storage (sparse)")
        return Reading(sum(self._saved.values()), INSTRUMENT)


def _saved_by_contexts(loss: Tensor) -> Iterator[Tensor]:
    """Tensors in attributes of the graph's nodes, where custom ``autograd.Function`` contexts store them."""
    visited: set[Any] = set()
    waiting = [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in visited:
            continue
        visited.add(node)
        yield from tensors_in(getattr(node, "__dict__", {}))
        waiting += [parent for parent, _ in node.next_functions]
