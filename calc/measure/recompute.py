"""FLOPs that a backward recomputes (activation checkpointing), identified by the gradient mode: autograd runs a backward with
gradients off, and recomputed operators run with them on.

For fused attention, the counter gets formulas that it lacks: the two matmuls of a forward, and the one that a backward recomputes
inside its kernel, each from the sizes of the kernel's arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from calc.measure.counter import flop_counter
from calc.measure.measurement import Reading
from calc.measure.training import Training
from calc.platform.torch_private import TorchDispatchMode, current_node

INSTRUMENT = "torch.utils.flop_counter.FlopCounterMode over what the backward runs with gradients on"


WITH_FUSED = f"{INSTRUMENT}, and the sizes of fused attention's calls"
INSIDE = "torch's counter does not see inside fused attention: its recomputation is counted from the sizes of its calls"

aten = torch.ops.aten


def _forward(q: Sequence[int], k: Sequence[int], v: Sequence[int], *ignored: Any, **also_ignored: Any) -> int:
    """FLOPs of queries times keys, and of scores times values."""
    return 2 * q[0] * q[1] * q[2] * k[2] * (k[3] + v[3])


def _repeated_inside(grad: Sequence[int], q: Sequence[int], k: Sequence[int], *ignored: Any, **also_ignored: Any) -> int:
    """FLOPs of queries times keys, the recomputed one of a backward's five matmuls."""
    return 2 * q[0] * q[1] * q[2] * k[2] * k[3]


_BACKWARD = aten._scaled_dot_product_flash_attention_for_cpu_backward
_FUSED: Mapping[Any, Callable[..., int]] = {aten._scaled_dot_product_flash_attention_for_cpu: _forward, _BACKWARD: _repeated_inside}


class RecomputeCounter(TorchDispatchMode):
    """Mode on top of a counter in a backward: ``flops`` are those that the counter adds while gradients are on."""

    def __init__(self, counter: FlopCounterMode) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves its modes untyped
        self._counter = counter
        self.seen = False
        self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not torch.is_grad_enabled() or current_node() is None:  # the initial gradient of the loss belongs to no node
            return func(*args, **(kwargs or {}))
        before = self._counter.get_total_flops()
        out = func(*args, **(kwargs or {}))
        self.seen = True
        self.flops += self._counter.get_total_flops() - before
        return out


def recompute_flops(backwards: Sequence[RecomputeCounter]) -> dict[str, Reading]:
    """``flops.backward.recompute`` in FLOPs; empty if no backward recomputed anything."""
    if not any(counter.seen for counter in backwards):
        return {}
    return {"flops.backward.recompute": Reading(sum(counter.flops for counter in backwards), INSTRUMENT)}


def measure_recompute(run: Training, mapping: Mapping[Any, Callable[..., int]], fused: Sequence[str]) -> Reading:
    """``flops.backward.recompute`` of the next step, in FLOPs, with fused attention and activation checkpointing."""
    unsupported = [name for name in fused if not any(name.startswith(f"{kernel}.") for kernel in _FUSED)]
    if unsupported:
        return Reading(None, WITH_FUSED, f"the recomputation inside {', '.join(unsupported)} is not known")
    counters: list[FlopCounterMode] = []
    recompute_counters: list[RecomputeCounter] = []

    @contextmanager
    def around(phase: str) -> Iterator[None]:
        if phase != "backward":
            yield
            return
        counters.append(flop_counter({**mapping, **_FUSED}))
        recompute_counters.append(RecomputeCounter(counters[-1]))
        with counters[-1], recompute_counters[-1]:
            yield

    run.step(around)
    inside = sum(counter.get_flop_counts()["Global"].get(_BACKWARD, 0) for counter in counters)
    return Reading(sum(counter.flops for counter in recompute_counters) + inside, WITH_FUSED, INSIDE, proxy=True)
