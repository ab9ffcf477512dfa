"""Torch's FLOP counter without its module tracker.

The tracker registers hooks on tensors, which fail when a gradient is computed inside a step (``torch.autograd.grad`` in a gradient
penalty). Napkin reads only totals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

from torch.utils.flop_counter import FlopCounterMode

from calc.platform.torch_private import TorchDispatchMode, no_modes


class _NoModules:
    """Replaces the counter's module tracker: every operator belongs to ``Global``."""

    parents = frozenset(("Global",))

    def __enter__(self) -> _NoModules:
        return self

    def __exit__(self, *_: object) -> None:
        """There are no hooks to remove."""


def flop_counter(mapping: Mapping[Any, Callable[..., int]]) -> FlopCounterMode:
    """A counter of total FLOPs that also counts the operators of ``mapping``."""
    counter = FlopCounterMode(display=False, custom_mapping=dict(mapping))
    counter.mod_tracker = _NoModules()  # type: ignore[assignment]  # it has all that the counter uses
    return counter


class CountedOnly(TorchDispatchMode):
    """Mode on top of a counter that passes it only the operators that it has a formula for. The counter runs many others by their
    decompositions, which are other operators than torch's own."""

    def __init__(self, counter: FlopCounterMode) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves its modes untyped
        self._formulas = counter.flop_registry

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with nullcontext() if getattr(func, "_overloadpacket", None) in self._formulas else no_modes():
            return func(*args, **(kwargs or {}))
