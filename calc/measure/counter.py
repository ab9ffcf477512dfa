"""Torch's FLOP counter without its record of modules.

To say which module an operator belongs to, it hangs hooks on tensors, and such a hook cannot run while a gradient is taken
inside a step (``torch.autograd.grad`` in a gradient penalty). Totals are all that is read here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch.utils.flop_counter import FlopCounterMode


class _NoModules:
    """Stands for the counter's own record of where a run is: everything is at the top."""

    parents = frozenset(("Global",))

    def __enter__(self) -> _NoModules:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing was hung anywhere."""


def flop_counter(mapping: Mapping[Any, Callable[..., int]]) -> FlopCounterMode:
    """A counter of totals that knows the operators of ``mapping`` too."""
    counter = FlopCounterMode(display=False, custom_mapping=dict(mapping))
    counter.mod_tracker = _NoModules()  # type: ignore[assignment]  # what the counter asks of it is all there
    return counter
