"""Real runs of operations over named dimensions: einops on torch tensors, under torch's FLOP counter and autograd."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import einops
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode


@dataclass(frozen=True, slots=True)
class Pair:
    """One contraction: the tensors named ``left`` and ``right`` give ``out`` by the einsum ``pattern``."""

    left: str
    right: str
    out: str
    pattern: str


@dataclass(frozen=True, slots=True)
class EinsumRun:
    """The result of a run: FLOPs by torch's counter, whether the result is a view of the first operand, and all arrays in fp64."""

    forward: int
    backward: int
    view: bool
    inputs: tuple[Any, ...]
    upstream: Any
    result: Any
    gradients: tuple[Any, ...]


def run(
    shapes: Mapping[str, Sequence[int]], pairs: Sequence[Pair], single: tuple[str, str, Mapping[str, int]] | None, seed: int = 0
) -> EinsumRun:
    """Contracts the operands (name → shape) pair by pair; or applies einops to the first: ``single`` is (pattern, reduction, sizes)."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {n: torch.randn(tuple(s), dtype=torch.float64, generator=generator).requires_grad_() for n, s in shapes.items()}
    inputs = list(tensors.values())
    with FlopCounterMode(display=False) as forward:
        result = _contracted(tensors, pairs) if single is None else _of_one(inputs[0], *single)
    upstream = torch.randn(result.shape, dtype=torch.float64, generator=generator)
    with FlopCounterMode(display=False) as backward:
        gradients = torch.autograd.grad(result, inputs, upstream)
    view = result.untyped_storage().data_ptr() == inputs[0].untyped_storage().data_ptr()
    arrays = [t.detach().numpy() for t in (upstream, result)]
    return EinsumRun(
        forward.get_total_flops(),
        backward.get_total_flops(),
        view,
        tuple(t.detach().numpy() for t in inputs),
        arrays[0],
        arrays[1],
        tuple(g.numpy() for g in gradients),
    )


def _contracted(tensors: dict[str, Tensor], pairs: Sequence[Pair]) -> Tensor:
    out = next(iter(tensors.values()))
    for pair in pairs:
        out = tensors[pair.out] = einops.einsum(tensors[pair.left], tensors[pair.right], pair.pattern)
    return out


def _of_one(x: Tensor, pattern: str, reduction: str, sizes: Mapping[str, int]) -> Tensor:
    # without new axes, repeat is a rearrange
    result: Tensor = einops.reduce(x, pattern, reduction, **sizes) if reduction else einops.repeat(x, pattern, **sizes)
    return result
