"""Small models on several ranks, as jobs that other processes can be given: Llama's and GPT-2's modules at sizes of a few thousand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, PrepareModuleInput, RowwiseParallel, SequenceParallel

import calc
from calc.models.llama import Llama, Trunk, rotations
from calc.models.mixtral import Experts, MixtureOfExperts
from tests.capacity.sharding.divided import ContextParallel, ExpertParallel, Pipelined, across
from tests.capacity.sharding.ranks import Both, FullyShard, Job, Replicated, TensorParallel

# Divisible by 2 ranks where heads are; by no rank number in other sides, and not by 3, 4 or 5 at all.
LLAMA = {"B": 2, "T": 16, "d": 46, "h": 6, "g": 2, "k": 8, "f": 202, "L": 3, "V": 503}
DIVISIBLE = {**LLAMA, "V": 504}
GPT2 = {"B": 2, "T": 16, "d": 42, "h": 6, "f": 170, "L": 3, "V": 503, "C": 31}


class WholeRotations(Trunk):
    """Angles of all positions, by the ids: the stream may be divided along its length."""

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed_tokens(ids)
        rotation = rotations(torch.empty(*ids.shape, 1, dtype=x.dtype), self.k, self.base)
        for layer in self.layers:
            x = layer(x, rotation)
        normalized: Tensor = self.norm(x)
        return normalized


def llama(sizes: Mapping[str, int] = LLAMA) -> tuple[nn.Module, tuple[Tensor, ...], Any]:
    model = Llama(SimpleNamespace(**sizes), base=10_000.0)
    model.model.__class__ = WholeRotations
    return model, calc.load("llama3-8b").inputs(SimpleNamespace(**sizes)), loss


def llama_divisible() -> tuple[nn.Module, tuple[Tensor, ...], Any]:
    """DTensor runs no product whose divided columns are not as many on each rank."""
    return llama(DIVISIBLE)


def broken() -> tuple[nn.Module, tuple[Tensor, ...], Any]:
    raise ValueError("no model today")


def gpt2() -> tuple[nn.Module, tuple[Tensor, ...], Any]:
    spec = calc.load("gpt2")
    sizes = SimpleNamespace(**{**GPT2, "k": GPT2["d"] // GPT2["h"]})
    return spec.build(sizes), spec.inputs(sizes), loss


def loss(model: nn.Module, ids: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())


def layers(model: nn.Module) -> Iterable[nn.Module]:
    return list(model.model.layers) if hasattr(model, "model") else list(model.transformer.h)


def adamw(parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(list(parameters))


def ends() -> Mapping[str, ParallelStyle]:
    return {
        "model.embed_tokens": RowwiseParallel(input_layouts=Replicate()),
        "lm_head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),
    }


def block() -> Mapping[str, ParallelStyle]:
    whole = PrepareModuleInput(input_layouts=(Replicate(), None), desired_input_layouts=(Replicate(), None))
    one = PrepareModuleInput(input_layouts=(Replicate(),), desired_input_layouts=(Replicate(),))
    return {**_products(), "self_attn": whole, "mlp": one, "self_attn.o_proj": RowwiseParallel(), "mlp.down_proj": RowwiseParallel()}


def ends_in_sequence() -> Mapping[str, ParallelStyle]:
    return {
        "model.embed_tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "model.norm": SequenceParallel(),
        "lm_head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
    }


def block_in_sequence() -> Mapping[str, ParallelStyle]:
    whole = PrepareModuleInput(input_layouts=(Shard(1), None), desired_input_layouts=(Replicate(), None))
    one = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
    back = {"self_attn.o_proj": RowwiseParallel(output_layouts=Shard(1)), "mlp.down_proj": RowwiseParallel(output_layouts=Shard(1))}
    norms = {"input_layernorm": SequenceParallel(), "post_attention_layernorm": SequenceParallel()}
    return {**_products(), **norms, "self_attn": whole, "mlp": one, **back}


def _products() -> dict[str, ParallelStyle]:
    return {f"self_attn.{name}_proj": ColwiseParallel() for name in "qkv"} | {
        f"mlp.{name}_proj": ColwiseParallel() for name in ("gate", "up")
    }


REPLICATED = Job(llama, Replicated(), adamw)
ZERO_3 = Job(llama, FullyShard(layers), adamw)
ZERO_3_DIVISIBLE = Job(llama_divisible, FullyShard(layers), adamw)
ZERO_2 = Job(llama, FullyShard(layers, again=False), adamw)
GPT2_ZERO_3 = Job(gpt2, FullyShard(layers), adamw)
TENSOR = Job(llama_divisible, TensorParallel(layers, ends, block), adamw, divided_loss=True)
BOTH = Job(
    llama_divisible, Both(2, TensorParallel(layers, ends_in_sequence, block_in_sequence), FullyShard(layers)), adamw, divided_loss=True
)
SEQUENCE = Job(llama_divisible, TensorParallel(layers, ends_in_sequence, block_in_sequence), adamw, divided_loss=True)

# -- context, expert and pipeline ranks ---------------------------------------------------------------------------------------

PART = {**LLAMA, "T": 8}  # of each context rank
EXPERTS = {"B": 2, "T": 16, "d": 48, "h": 6, "g": 3, "k": 8, "f": 88, "L": 3, "V": 503, "E": 4, "e": 2}


def llama_part() -> tuple[nn.Module, tuple[Tensor, ...], Any]:
    return llama(PART)


def llama_part_in_bf16() -> tuple[nn.Module, tuple[Tensor, ...], Any]:
    model, inputs, loss = llama(PART)
    return model.bfloat16(), inputs, loss


class EvenRouter(nn.Linear):
    """Token i goes to experts i and i + 1, of E again and again: rows are spread evenly."""

    def forward(self, rows: Tensor) -> Tensor:
        number, experts = len(rows), self.out_features
        far = torch.arange(number)[:, None].remainder(experts) - torch.arange(experts)
        return super().forward(rows) + 1e6 * ((far == 0) | (far == -1) | (far == experts - 1))


def mixtral(router: type[nn.Linear] = EvenRouter) -> tuple[nn.Module, tuple[Tensor, ...], Any]:
    sizes = SimpleNamespace(**EXPERTS)
    model = Llama(sizes, base=10_000.0, feed_forward=MixtureOfExperts)
    for layer in layers(model):
        layer.mlp.gate.__class__ = router
    return model, calc.load("mixtral").inputs(sizes), loss


def experts(model: nn.Module) -> Iterable[nn.Module]:
    return [module for module in model.modules() if isinstance(module, Experts)]


class Piece(nn.Module):
    """Some layers of a Llama; the first piece has the table before them, the last one the norm and the head behind them."""

    def __init__(self, model: nn.Module, at: int, number: int) -> None:
        super().__init__()
        each = len(model.model.layers) // number
        self.k = model.model.k
        self.embed = model.model.embed_tokens if at == 0 else nn.Identity()
        self.layers = model.model.layers[at * each : (at + 1) * each]
        self.end = nn.Sequential(model.model.norm, model.lm_head) if at == number - 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        rotation = rotations(x, self.k, 10_000.0)
        for layer in self.layers:
            x = layer(x, rotation)
        y: Tensor = self.end(x)
        return y


def pieces(
    rank: int, world: int, each: int = 1, batch: int = 8
) -> tuple[list[tuple[int, nn.Module]], Tensor, Tensor, Callable[..., Tensor]]:
    """``each`` pieces of one layer on every rank."""
    number = world * each
    model, (ids, targets), _ = llama({**LLAMA, "L": number, "B": batch})
    actual = [(at, Piece(model, at, number)) for at in range(rank, number, world)]
    return actual, ids, targets, lambda logits, of: F.cross_entropy(logits.flatten(0, 1), of.flatten())


@dataclass(frozen=True, slots=True)
class AttentionAgrees:
    """How far attention across ranks, and its gradients, are from those of one rank that has all: at most, over all elements."""

    exchange: str

    def measured(self, rank: int, world: int) -> float:
        torch.manual_seed(0)
        heads = [torch.randn(2, h, 4 * world, 8, requires_grad=True) for h in (6, 2, 2)]
        towards = torch.randn(2, 6, 4 * world, 8)
        whole = F.scaled_dot_product_attention(*heads, is_causal=True, enable_gqa=True)
        wanted = torch.autograd.grad(whole, heads, towards)
        parts = [x.detach().chunk(world, 2)[rank].clone().requires_grad_() for x in heads]
        out = across(self.exchange, dist.group.WORLD, *parts)
        actual = torch.autograd.grad(out, parts, towards.chunk(world, 2)[rank])
        pairs = zip((out, *actual), (whole, *wanted), strict=True)
        return max(float((part - x.chunk(world, 2)[rank]).abs().max()) for part, x in pairs)


@dataclass(frozen=True, slots=True)
class ExpertsAgree:
    """The same of experts: rows routed freely, through experts on all ranks, and through a module that has all of them."""

    def measured(self, rank: int, world: int) -> float:
        torch.manual_seed(0)
        model, _, _ = mixtral(nn.Linear)
        torch.manual_seed(rank)
        rows = torch.randn(2, 16, 48)
        whole = model.model.layers[0].mlp(rows)
        divided = EXPERT.divide(model, dist.device_mesh.init_device_mesh("cpu", (world,)))
        return float((divided.module.model.layers[0].mlp(rows) - whole).abs().max())


CONTEXT = {exchange: Job(llama_part, ContextParallel(exchange), adamw) for exchange in ("ring", "gather")}
CONTEXT_IN_BF16 = Job(llama_part_in_bf16, ContextParallel("ring"), adamw)
EXPERT = Job(mixtral, ExpertParallel(experts), adamw)
PIPELINE = Pipelined(pieces, 4)
INTERLEAVED = Pipelined(partial(pieces, each=2), 4)
