"""The tensors that autograd saves in the forward for the backward.

Most pass torch's saved-tensor hooks. Two kinds do not: tensors that a hand-written function stores as attributes of its context, which are
read off the autograd graph; and tensors that only a closure in the graph references (the arguments of recomputed layers), which
are allocated when the forward returns and freed with the graph.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import weakref
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
import torch.utils.checkpoint

from calc.graph.step import LOSS, Saved, Tensor
from calc.trace.recorder import Recorder, last_node_number, tensors_in

_BY_CLOSURE = "a closure of the autograd graph"
_UNKNOWN = "custom autograd function"
_CHECKPOINT = "torch.utils.checkpoint"
_FUNCTION_FILE = torch.autograd.function.__file__
_CHECKPOINT_FILE = torch.utils.checkpoint.__file__  # it saves arguments without a node of their own


class _SavedReference:
    """What a saved-tensor hook returns to autograd in place of the tensor: alive exactly as long as autograd references it."""

    __slots__ = ("__weakref__", "tensor")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


class SavedTensors:
    """Watches one forward: ``watching`` around it, ``returned`` after it, ``dropped`` when its graph is freed, ``saved`` at the very
    end."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._packed: list[tuple[weakref.ref[_SavedReference], Tensor, str, str | None, int]] = []
        self._saved: list[Saved] = []
        self._open: set[int] = set()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        self._before = set(self._recorder.alive)
        with torch.autograd.graph.saved_tensors_hooks(self._pack, lambda saved: saved.tensor):
            yield

    def _pack(self, value: torch.Tensor) -> _SavedReference:
        # Detached, since a saved result that references its graph would keep itself alive; not traced, since no real step does it.
        recorder = self._recorder
        phase, recorder.phase = recorder.phase, ""
        saved = _SavedReference(value.detach())
        recorder.phase = phase
        module_path = recorder.path.current
        # The operator of the node may not have run yet: its node number is looked up when the forward has returned.
        function = _CHECKPOINT if _saving() == _CHECKPOINT_FILE else None
        self._packed.append((weakref.ref(saved), recorder.tensor(value, module_path), module_path, function, last_node_number()))
        return saved

    @property
    def packed(self) -> Counter[str]:
        """How many tensors passed the hooks: ``saved`` by operators, and arguments of layers to be ``recomputed``."""
        return Counter("saved" if function is None else "recomputed" for _, _, _, function, _ in self._packed)

    def returned(self, loss: torch.Tensor) -> None:
        """Call after the forward: tensors saved by hooks and contexts are noted; other live ones remain candidates."""
        recorder, functions = self._recorder, _handwritten(loss.grad_fn)
        names = {number: _name(node) for number, node in functions.items()}
        for ref, tensor, module_path, function, number in self._packed:
            if ref() is not None:
                of, op, _ = recorder.sources.get(number, (LOSS, _UNKNOWN, None))
                own = function or names.get(number)
                self._saved.append(Saved(tensor, module_path, own) if own else Saved(tensor, of, op))
        self._packed.clear()
        for number, node in functions.items():
            for value in tensors_in(getattr(node, "__dict__", {})):
                if recorder.knows(value):
                    module_path = recorder.sources.get(number, (LOSS, "", None))[0]
                    self._saved.append(Saved(recorder.tensor(value, module_path), module_path, str(names[number])))
        saved_storages = {saved.tensor.storage for saved in self._saved}
        self._open = self._recorder.alive - self._before - saved_storages - {self._recorder.storage(loss)}

    def dropped(self) -> None:
        """Call after the step, when its graph is freed: candidates that were freed with it were saved by the graph."""
        freed = self._open - self._recorder.alive
        self._saved += [self._by_closure(index) for index in sorted(freed)]
        self._open -= freed

    def saved(self) -> tuple[Saved, ...]:
        """All saved tensors. Reference cycles are collected only after the last step, since a run without garbage collection keeps them.
        Tensors that the module itself referenced and replaced are not saved by autograd."""
        waiting = self._open & self._recorder.alive
        if waiting:
            gc.collect()
            self._saved += [self._by_closure(index) for index in sorted(waiting - self._recorder.alive)]
        return tuple(self._saved)

    def _by_closure(self, index: int) -> Saved:
        return Saved(self._recorder.first_of(index), self._recorder.maker[index], _BY_CLOSURE)


def _saving() -> str:
    """The file whose code is saving a tensor: the checkpoint of torch 2.11 uses its own function, other versions a hook."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename == _FUNCTION_FILE:
        frame = frame.f_back
    return frame.f_code.co_filename


def _handwritten(root: Any) -> dict[int, Any]:
    """The nodes of hand-written functions in a graph, by node number."""
    seen: set[Any] = set()
    waiting, nodes = [root], {}
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if _name(node) is not None:
            nodes[node._sequence_nr()] = node
        waiting += [parent for parent, _ in node.next_functions]
    return nodes


def _name(node: Any) -> str | None:
    """Name of the hand-written function of a node."""
    cls = getattr(node, "_forward_cls", None)
    if cls is None:
        return None
    return _CHECKPOINT if cls.__module__ == _CHECKPOINT else str(cls.__name__)
