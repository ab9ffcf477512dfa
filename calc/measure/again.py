"""Forward work that a backward does once more (activation checkpointing), told apart by the gradient mode: autograd runs a
backward without gradients, and what is to be differentiated again must run with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from calc.measure.measurement import Reading

INSTRUMENT = "torch.utils.flop_counter.FlopCounterMode over what the backward runs with gradients on"


class Again(TorchDispatchMode):
    """Stands above a counter in a backward: ``flops`` is what the counter adds while gradients are on."""

    def __init__(self, counter: FlopCounterMode) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._counter = counter
        self.seen = False
        self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not torch.is_grad_enabled() or torch._C._current_autograd_node() is None:  # the very first gradient belongs to no node
            return func(*args, **(kwargs or {}))
        before = self._counter.get_total_flops()
        out = func(*args, **(kwargs or {}))
        self.seen = True
        self.flops += self._counter.get_total_flops() - before
        return out


def repeated_in(backwards: Sequence[Again]) -> dict[str, Reading]:
    """``flops.backward.recompute``, where a backward ran anything again."""
    if not any(again.seen for again in backwards):
        return {}
    return {"flops.backward.recompute": Reading(sum(again.flops for again in backwards), INSTRUMENT)}
