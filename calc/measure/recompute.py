"""Forward work that a backward does once more (activation checkpointing), told apart by the gradient mode: autograd runs a
backward without gradients, and what is to be differentiated again must run with them.

Where attention is fused, the counter is told what it does not know: the two products of a forward, and the one of the two that
a backward makes again inside, each from the sizes that the kernel was called with.
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
INSIDE = "no torch counter sees inside fused attention: what its calls repeat is counted from their sizes"

aten = torch.ops.aten


def _forward(q: Sequence[int], k: Sequence[int], v: Sequence[int], *ignored: Any, **also_ignored: Any) -> int:
    """Queries meet keys, then the scores the values."""
    return 2 * q[0] * q[1] * q[2] * k[2] * (k[3] + v[3])


def _repeated_inside(grad: Sequence[int], q: Sequence[int], k: Sequence[int], *ignored: Any, **also_ignored: Any) -> int:
    """Of the five products of a backward, that of queries and keys."""
    return 2 * q[0] * q[1] * q[2] * k[2] * k[3]


_BACKWARD = aten._scaled_dot_product_flash_attention_for_cpu_backward
_FUSED: Mapping[Any, Callable[..., int]] = {aten._scaled_dot_product_flash_attention_for_cpu: _forward, _BACKWARD: _repeated_inside}


class RecomputeCounter(TorchDispatchMode):
    """Stands above a counter in a backward: ``flops`` is what the counter adds while gradients are on."""

    def __init__(self, counter: FlopCounterMode) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves its modes untyped
        self._counter = counter
        self.seen = False
        self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not torch.is_grad_enabled() or current_node() is None:  # the very first gradient belongs to no node
            return func(*args, **(kwargs or {}))
        before = self._counter.get_total_flops()
        out = func(*args, **(kwargs or {}))
        self.seen = True
        self.flops += self._counter.get_total_flops() - before
        return out


def recompute_flops(backwards: Sequence[RecomputeCounter]) -> dict[str, Reading]:
    """``flops.backward.recompute``, where a backward ran anything again."""
    if not any(counters_of_recompute.seen for counters_of_recompute in backwards):
        return {}
    return {"flops.backward.recompute": Reading(sum(counters_of_recompute.flops for counters_of_recompute in backwards), INSTRUMENT)}


def measure_recompute(run: Training, mapping: Mapping[Any, Callable[..., int]], fused: Sequence[str]) -> Reading:
    """``flops.backward.recompute`` of the next step, in which attention is fused and the backward runs parts of the forward again."""
    unknown = [name for name in fused if not any(name.startswith(f"{known}.") for known in _FUSED)]
    if unknown:
        return Reading(None, WITH_FUSED, f"what {', '.join(unknown)} repeats inside is not known")
    counters: list[FlopCounterMode] = []
    counters_of_recompute: list[RecomputeCounter] = []

    @contextmanager
    def around(phase: str) -> Iterator[None]:
        if phase != "backward":
            yield
            return
        counters.append(flop_counter({**mapping, **_FUSED}))
        counters_of_recompute.append(RecomputeCounter(counters[-1]))
        with counters[-1], counters_of_recompute[-1]:
            yield

    run.step(around)
    inside = sum(counter.get_flop_counts()["Global"].get(_BACKWARD, 0) for counter in counters)
    return Reading(sum(each.flops for each in counters_of_recompute) + inside, WITH_FUSED, INSIDE, proxy=True)
