"""How many micro-batches the stages of a pipeline hold at once, by the schedules that torch itself would run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B
from torch.distributed.pipelining.schedules import FORWARD, FULL_BACKWARD

from tests.capacity.sharding.ranks import fake_group


@dataclass(frozen=True, slots=True)
class InFlight:
    """Of one rank: at every moment, of each of its pieces, the forwards whose backward has not run."""

    moments: tuple[tuple[int, ...], ...]

    @property
    def together(self) -> int:
        """Of all pieces together, at most."""
        return max(map(sum, self.moments))

    @property
    def fullest(self) -> tuple[tuple[int, ...], ...]:
        """The moments at which there are so many."""
        return tuple(moment for moment in self.moments if sum(moment) == self.together)


def in_flight(ranks: int, pieces: int, micro_batches: int) -> tuple[InFlight, ...]:
    """Each rank of a pipeline in turn, with 1F1B, interleaved where a rank has several pieces."""
    with fake_group(0, ranks):
        stages = [PipelineStage(nn.Linear(1, 1), ranks * piece, ranks * pieces, torch.device("cpu")) for piece in range(pieces)]
        if pieces == 1:
            order = Schedule1F1B(stages[0], micro_batches, loss_fn=_no_loss)._get_pipeline_order()
        else:
            order = ScheduleInterleaved1F1B([*stages], micro_batches, loss_fn=_no_loss).pipeline_order
    assert order is not None  # 1F1B has one
    return tuple(_of_rank(order[rank], rank, ranks, pieces) for rank in range(ranks))


def _of_rank(actions: Sequence[Any], rank: int, ranks: int, pieces: int) -> InFlight:
    live: Counter[int] = Counter()
    moments = []
    for action in actions:
        if action is None:
            continue
        live[action.stage_index] += (action.computation_type == FORWARD) - (action.computation_type == FULL_BACKWARD)
        moments.append(tuple(live[rank + ranks * piece] for piece in range(pieces)))
    return InFlight(tuple(moments))


def _no_loss(*_: object) -> torch.Tensor:
    return torch.zeros(())
