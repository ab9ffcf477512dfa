"""FLOPs that a backward recomputes (activation checkpointing), identified by the gradient mode: autograd runs a backward with
gradients off, and recomputed operators run with them on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from calc.platform.torch_private import TorchDispatchMode, current_node

INSTRUMENT = "torch.utils.flop_counter.FlopCounterMode over what the backward runs with gradients on"
WITH_FUSED = f"{INSTRUMENT}, and the sizes of fused attention's calls"
INSIDE = "torch's counter does not see inside fused attention: its recomputation is counted from the sizes of its calls"


class RecomputeCounter(TorchDispatchMode):
    """Mode on top of a counter in a backward: ``flops`` are those that the counter adds while gradients are on."""

    def __init__(self, counter: FlopCounterMode) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves its modes untyped
        self._counter = counter
        self.has_recomputed = False
        self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not torch.is_grad_enabled() or current_node() is None:  # the initial gradient of the loss belongs to no node
            return func(*args, **(kwargs or {}))
        before = self._counter.get_total_flops()
        out = func(*args, **(kwargs or {}))
        self.has_recomputed = True
        self.flops += self._counter.get_total_flops() - before
        return out


def recompute_flops(backwards: Sequence[RecomputeCounter]) -> int | None:
    """FLOPs that the backwards recomputed; ``None`` if none recomputed anything."""
    return sum(counter.flops for counter in backwards) if any(counter.has_recomputed for counter in backwards) else None
