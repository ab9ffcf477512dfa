"""Context parallelism, expert parallelism and pipelines as real exchanges between ranks, for what their collectives are of.

Pipelines are torch's own stages and schedules. The ring of context parallelism is torch's own too (its templates, which its classes call
on CUDA only), with attention's CPU kernel for each block. Of gathered keys and values, and of experts, torch has no class that runs on
CPU: these are written here from its collectives.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed import _functional_collectives as collectives
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B
from torch.distributed.tensor.experimental._context_parallel import _attention as templates
from torch.overrides import TorchFunctionMode

from calc.errors import MeasurementError
from tests.capacity.sharding.ranks import Traffic

RING, GATHER = "ring", "gather"
_LENGTH = 2  # the side of (B, heads, T, k) that is divided

# -- context parallelism --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ContextParallel:
    """Each rank has a part of every sequence, and its attention sees the parts before it. Gradients are summed by DDP."""

    exchange: str

    def __call__(self, module: nn.Module, mesh: DeviceMesh) -> nn.Module:
        return nn.parallel.DistributedDataParallel(_InContext(module, self.exchange, mesh.get_group()), gradient_as_bucket_view=True)


class _InContext(nn.Module):
    def __init__(self, module: nn.Module, exchange: str, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.module, self.exchange, self.group = module, exchange, group

    def forward(self, *inputs: Tensor) -> Tensor:
        with _AttentionAcross(self.exchange, self.group):
            output: Tensor = self.module(*inputs)
        return output


class _AttentionAcross(TorchFunctionMode):
    """Takes the place of causal attention."""

    def __init__(self, exchange: str, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.exchange, self.group = exchange, group

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not F.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        if set(kwargs or {}) != {"is_causal", "enable_gqa"} or not kwargs["is_causal"]:
            raise MeasurementError("attention across ranks is measured where it is causal and has no other mask")
        return across(self.exchange, self.group, *args)


def across(exchange: str, group: dist.ProcessGroup, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention of a rank's (B, h, T/c, k) queries over keys and values (B, g, T/c, k) of all ranks."""
    output: Tensor = {RING: _Ring, GATHER: _Gathered}[exchange].apply(q, k, v, group)
    return output


@contextlib.contextmanager
def _blocks_in_a_ring() -> Iterator[None]:
    """Whole blocks one after another, each sent to the next rank."""
    options = templates._cp_options
    before = (options.enable_load_balance, options.rotate_method)
    options.enable_load_balance, options.rotate_method = False, templates._RotateMethod.ALL_TO_ALL
    try:
        yield
    finally:
        options.enable_load_balance, options.rotate_method = before


class _Ring(torch.autograd.Function):
    """Torch's own ring, forward and backward."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, group: dist.ProcessGroup) -> Tensor:
        with _blocks_in_a_ring():
            out: Tensor
            out, sums = templates._templated_ring_attention(group, _LENGTH, _BLOCK, q, k, v, is_causal=True)
        ctx.save_for_backward(q, k, v, out, sums)
        ctx.group = group
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, sums = ctx.saved_tensors
        with _blocks_in_a_ring():
            gradients = templates._templated_ring_attention_backward(
                ctx.group, _LENGTH, _BLOCK_BACKWARD, grad, "grad_out", q, k, v, out, sums, is_causal=True
            )
        return (*gradients[:3], None)


def _block(query: Tensor, key: Tensor, value: Tensor, is_causal: bool) -> tuple[Tensor, Tensor]:
    """Queries of this rank with one block of keys and values, and the logarithms of their sums of exponentials."""
    each = query.shape[1] // key.shape[1]
    keys, values = (x.repeat_interleave(each, 1) for x in (key, value))
    out, sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(query, keys, values, 0.0, is_causal)
    return out, sums


def _block_backward(
    query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor, is_causal: bool, grad_out: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    groups, each = key.shape[1], query.shape[1] // key.shape[1]
    keys, values = (x.repeat_interleave(each, 1) for x in (key, value))
    gradients = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
        grad_out, query, keys, values, out, logsumexp, 0.0, is_causal
    )
    gq, gk, gv = gradients
    return gq, gk.unflatten(1, (groups, each)).sum(2), gv.unflatten(1, (groups, each)).sum(2)


_BLOCK: Any = _block  # torch annotates them with any keywords, and passes those that are here
_BLOCK_BACKWARD: Any = _block_backward


class _Gathered(torch.autograd.Function):
    """Keys and values of all ranks, gathered and let go; gathered again for the backward, whose gradients are scattered."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.save_for_backward(q, k, v)
        ctx.group = group
        return _later_rows(q, _whole(k, group), _whole(v, group), group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v = ctx.saved_tensors
        leaves = [x.detach().requires_grad_() for x in (q, _whole(k, ctx.group), _whole(v, ctx.group))]
        with torch.enable_grad():
            gq, *whole = torch.autograd.grad(_later_rows(leaves[0], leaves[1], leaves[2], ctx.group), leaves, grad)
        parts = [collectives.reduce_scatter_single(x.contiguous(), "sum", _LENGTH, ctx.group) for x in whole]
        return gq, *map(_waited, parts), None


def _whole(part: Tensor, group: dist.ProcessGroup) -> Tensor:
    return _waited(collectives.all_gather_single(part.contiguous(), _LENGTH, group))


def _waited(part: Tensor) -> Tensor:
    tensor: Tensor = collectives.wait_tensor(part)
    return tensor


def _later_rows(q: Tensor, keys: Tensor, values: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Attention of this rank's rows, which see all positions up to their own."""
    first = dist.get_rank(group) * q.shape[_LENGTH]
    mask = torch.arange(keys.shape[_LENGTH]) <= torch.arange(first, first + q.shape[_LENGTH])[:, None]
    return F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, enable_gqa=True)


# -- expert parallelism -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ExpertParallel:
    """Each rank has some of the experts of each of the modules ``units`` finds, whose parameters begin with the side of experts and whose
    forward takes rows in the order of experts, and where each expert's end. All other gradients are summed by DDP."""

    units: Callable[[nn.Module], Iterable[nn.Module]]

    def __call__(self, module: nn.Module, mesh: DeviceMesh) -> nn.Module:
        for unit in self.units(module):
            for name, parameter in list(unit.named_parameters(recurse=False)):
                setattr(unit, name, nn.Parameter(parameter.detach().chunk(mesh.size())[mesh.get_local_rank()].clone()))
            unit.forward = _Sent(unit.forward, mesh.get_group())
        own = {id(parameter) for unit in self.units(module) for parameter in unit.parameters()}
        names = [name for name, parameter in module.named_parameters() if id(parameter) in own]
        ignore: Any = nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model
        ignore(module, names)
        return nn.parallel.DistributedDataParallel(module, gradient_as_bucket_view=True)


@dataclass(frozen=True, slots=True)
class _Sent:
    """Rows go to the ranks of their experts, through ``experts`` there, and back."""

    experts: Callable[[Tensor, Tensor], Tensor]
    group: dist.ProcessGroup

    def __call__(self, rows: Tensor, ends: Tensor) -> Tensor:
        ranks = dist.get_world_size(self.group)
        ours = ends.long().diff(prepend=ends.new_zeros(1).long())  # rows for each expert
        theirs = torch.empty_like(ours)  # of each rank, for each expert here
        dist.all_to_all_single(theirs, ours, group=self.group)
        away, here = (counts.view(ranks, -1).sum(1).tolist() for counts in (ours, theirs))
        arrived = collectives.all_to_all_single_autograd(rows, here, away, self.group)
        expert = torch.arange(len(ours) // ranks).repeat(ranks).repeat_interleave(theirs)
        order = expert.argsort(stable=True)
        done = self.experts(arrived[order], theirs.view(ranks, -1).sum(0).cumsum(0).int())
        back = torch.zeros_like(done).index_copy(0, order, done)
        result: Tensor = collectives.all_to_all_single_autograd(back, away, here, self.group) + 0  # waited for
        return result


# -- pipelines --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pipelined:
    """A pipeline of torch's own stages with 1F1B. ``build`` gives the pieces of a rank, their numbers, and the inputs and targets of a step
    with the loss."""

    build: Callable[[int, int], tuple[list[tuple[int, nn.Module]], Tensor, Tensor, Callable[..., Tensor]]]
    micro_batches: int

    def measured(self, rank: int, world: int) -> dict[str, int]:
        """Bytes of collectives by kind, of the third step."""
        pieces, inputs, targets, loss = self.build(rank, world)
        number = world * len(pieces)
        stages = [PipelineStage(module, at, number, torch.device("cpu")) for at, module in pieces]
        one = len(stages) == 1
        schedule = (
            Schedule1F1B(stages[0], self.micro_batches, loss_fn=loss)
            if one
            else ScheduleInterleaved1F1B([*stages], self.micro_batches, loss_fn=loss)
        )
        given = (inputs,) if rank == 0 else ()
        aim = targets if rank == world - 1 else None
        for _ in range(2):  # shapes are told with the first
            schedule.step(*given, target=aim)
        with Traffic() as traffic:
            schedule.step(*given, target=aim)
        return dict(traffic.payload)
