"""Torch's FLOP counter without its module tracker.

The tracker registers hooks on tensors, which fail when a gradient is computed inside a step (``torch.autograd.grad`` in a gradient
penalty). Napkin reads only totals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch.utils.flop_counter import FlopCounterMode


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
