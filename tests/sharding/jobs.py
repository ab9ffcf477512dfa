"""Small models on several ranks, as jobs that other processes can be given: Llama's and GPT-2's modules at sizes of a few thousand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, PrepareModuleInput, RowwiseParallel, SequenceParallel

import calc
from calc.measure.sharding import Both, FullyShard, Job, Replicated, TensorParallel
from calc.models.llama import Llama, Trunk, rotations

# Divisible by 2 ranks where heads are; by no rank number in other sides, and not by 3, 4 or 5 at all.
LLAMA = {"B": 2, "T": 16, "d": 46, "h": 6, "g": 2, "k": 8, "f": 202, "L": 3, "V": 503}
DIVISIBLE = {**LLAMA, "V": 504}
GPT2 = {"B": 2, "T": 16, "d": 42, "h": 6, "f": 170, "L": 3, "V": 503, "C": 31}


class WholeRotations(Trunk):
    """Angles of all positions, by the ids: the stream may be divided along its length."""

    def forward(self, ids: Tensor) -> Tensor:
        rotation = rotations(torch.empty(*ids.shape, 1), self.k, self.base)
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x, rotation)
        normalised: Tensor = self.norm(x)
        return normalised


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
