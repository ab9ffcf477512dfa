"""What autograd keeps of a forward for its backward.

Most of it passes torch's saved-tensor hooks. What does not is found in two more ways: tensors that a hand-written function
keeps as attributes of its context are read off the graph, and what only a closure in the graph holds (the arguments of layers
that run again in the backward) is alive when the forward returns and gone once the graph is.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.utils.checkpoint

from calc.graph import Saved, Tensor
from calc.trace.recorder import Recorder, last_node_number, tensors_in
from calc.trace.sites import LOSS

Function = torch.autograd.Function

_BY_CLOSURE = "a function that the graph holds"
_UNKNOWN = "custom autograd function"
_CHECKPOINT = "torch.utils.checkpoint"
_CHECKPOINT_FILE = torch.utils.checkpoint.__file__  # it saves arguments without a node of their own


class _Held:
    """What a saved-tensor hook hands to autograd in place of the tensor: alive exactly as long as autograd holds it."""

    __slots__ = ("__weakref__", "tensor")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


class Keeping:
    """Watches one forward: ``watching`` around it, ``returned`` after it, ``dropped`` when its graph is, ``found`` at the very end."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._packed: list[tuple[weakref.ref[_Held], Tensor, tuple[str, str], int]] = []
        self._found: list[Saved] = []
        self._open: set[int] = set()
        self._replaced: set[int] = set()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        self._before = set(self._recorder.alive)
        with torch.autograd.graph.saved_tensors_hooks(self._pack, lambda held: held.tensor):
            yield

    def _pack(self, value: torch.Tensor) -> _Held:
        # Detached, since a saved result that kept its graph would keep itself alive; unrecorded, since no real step does it.
        recorder = self._recorder
        phase, recorder.phase = recorder.phase, ""
        held = _Held(value.detach())
        recorder.phase = phase
        site = recorder.path.current
        # The operator that the node is of has not run yet: it is looked up by the node's number when the forward has returned.
        function = _CHECKPOINT if sys._getframe(1).f_code.co_filename == _CHECKPOINT_FILE else recorder.function
        self._packed.append((weakref.ref(held), recorder.tensor(value, site), (site, function), last_node_number()))
        return held

    def _source(self, number: int) -> tuple[str, str]:
        site, op, _ = self._recorder.sources.get(number, (LOSS, _UNKNOWN, None))
        return site, op

    def returned(self, loss: torch.Tensor) -> None:
        """The forward has returned: what hooks and contexts hold is known, the rest that is alive stays open."""
        for ref, tensor, function, number in self._packed:
            if ref() is not None:
                self._found.append(Saved(tensor, *(function if function[1] else self._source(number))))
        self._packed.clear()
        for node, value in _attributes(loss.grad_fn):
            if self._recorder.knows(value):
                site, op = self._source(node._sequence_nr())
                self._found.append(Saved(self._recorder.tensor(value, site), site, op))
        known = {saved.tensor.storage for saved in self._found}
        self._open = self._recorder.alive - self._before - known - {self._recorder.storage(loss)}

    def dropped(self) -> None:
        """The step is over and its graph is gone: what went with it, the graph held."""
        gone = self._open - self._recorder.alive
        self._found += [self._by_closure(index) for index in sorted(gone)]
        self._open -= gone

    def found(self) -> tuple[Saved, ...]:
        """Everything that was kept. What lives in a circle of references goes when those are looked for, after the last step:
        no earlier, since a run that does not look for them keeps it. What the module itself kept and replaced is not autograd's."""
        waiting = self._open & self._recorder.alive
        if waiting:
            gc.collect()
            self._found += [self._by_closure(index) for index in sorted(waiting - self._recorder.alive)]
        return tuple(self._found)

    def _by_closure(self, index: int) -> Saved:
        made = next(t for op in self._recorder.ops for t in op.outputs if t.storage == index)
        return Saved(made, self._recorder.maker[index], _BY_CLOSURE)


def _attributes(root: Any) -> Iterator[tuple[Any, torch.Tensor]]:
    """(node, tensor) of the tensors that contexts of hand-written functions keep as attributes."""
    seen: set[Any] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        attributes = getattr(node, "__dict__", None)
        for value in attributes.values() if attributes else ():
            yield from ((node, tensor) for tensor in tensors_in(value))
        waiting += [parent for parent, _ in node.next_functions]


@contextlib.contextmanager
def functions_named(recorder: Recorder) -> Iterator[None]:
    """Context in which every hand-written function that is applied is known by its name, in the forward and in its backward."""
    original: Callable[..., Any] = Function.__dict__["apply"].__func__

    def apply(cls: type[Function], *args: Any, **kwargs: Any) -> Any:
        outer, recorder.function = recorder.function, _name(cls)
        try:
            result = original(cls, *args, **kwargs)
            _note(recorder, cls, result)
        finally:
            recorder.function = outer
        return result

    before = Function.__dict__["apply"]
    Function.apply = classmethod(apply)  # type: ignore[assignment]  # put back below
    try:
        yield
    finally:
        Function.apply = before  # type: ignore[method-assign]


def _note(recorder: Recorder, cls: type[Function], result: Any) -> None:
    """The function's node takes its site and name; the operators inside ran without a node of their own."""
    for tensor in tensors_in(result):
        node = tensor.grad_fn
        if node is not None and getattr(node, "_forward_cls", None) is cls:
            recorder.sources[node._sequence_nr()] = (recorder.path.current, recorder.function, recorder.call)


def _name(cls: type[Function]) -> str:
    return _CHECKPOINT if cls.__module__ == _CHECKPOINT else cls.__name__
