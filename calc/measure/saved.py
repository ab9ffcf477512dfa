"""What autograd keeps for the backward: torch's saved-tensor hooks, with what they pack watched weakly.

A tensor that was packed and released again before the forward returned is not counted. Tensors that a hand-written
``autograd.Function`` keeps as attributes of its context pass no hook; they are read off the autograd graph.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from calc.measure.measurement import Reading
from calc.measure.storages import distinct_storages, tensors_in
from calc.measure.training import Training

INSTRUMENT = "torch.autograd.graph.saved_tensors_hooks (weakly watched)"


class _Packed:
    """What the pack hook hands to autograd in place of the tensor: alive exactly as long as autograd keeps it."""

    __slots__ = ("__weakref__", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


class SavedTensors:
    """Everything that autograd saves inside ``watching``; ``reading`` says what it still holds then."""

    def __init__(self) -> None:
        self._packed: weakref.WeakSet[_Packed] = weakref.WeakSet()
        self._guard = _OtherHooks(self._pack)

    @contextmanager
    def watching(self) -> Iterator[None]:
        with saved_tensors_hooks(self._pack, lambda packed: packed.tensor), self._guard:
            yield

    def _pack(self, tensor: Tensor) -> _Packed:
        # A saved result comes with its autograd node; holding that would close a circle (node, hook's object, tensor, node)
        # and keep alive what a plain run lets go. A detached alias shares the storage and nothing else.
        with _disable_current_modes():
            packed = _Packed(tensor.detach())
        self._packed.add(packed)
        return packed

    def reading(self, loss: Tensor, module: torch.nn.Module) -> Reading:
        """Distinct storages held now, without those of parameters and buffers."""
        if self._guard.seen:
            because = "the model installs saved-tensor hooks of its own (activation checkpointing), which hide what it keeps"
            return Reading(None, INSTRUMENT, because)
        held = [packed.tensor for packed in self._packed]
        try:
            storages = distinct_storages([*held, *_kept_by_contexts(loss)])
        except (NotImplementedError, RuntimeError):
            return Reading(None, INSTRUMENT, "autograd saves a tensor without a storage (sparse)")
        persistent = distinct_storages([*module.parameters(), *module.buffers()])
        return Reading(sum(nbytes for key, nbytes in storages.items() if key not in persistent), INSTRUMENT)


class _OtherHooks(TorchDispatchMode):
    """Notices when an operator runs under saved-tensor hooks other than ours."""

    def __init__(self, ours: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._ours = ours
        self.seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        top = torch._C._autograd._top_saved_tensors_default_hooks(False)
        self.seen = self.seen or top is None or top[0] != self._ours
        return func(*args, **(kwargs or {}))


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
    saved = SavedTensors()
    with saved.watching():
        loss = run.forward()
    reading = saved.reading(loss, run.module)
    run.backward(loss)
    return reading
