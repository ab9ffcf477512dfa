"""A loop inside another one of the same module."""

from __future__ import annotations

import functools
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import calc
from calc.derive import peak
from calc.derive.result import Derivation
from calc.dimensions import Dim
from tests.checks import failures
from tests.trace.modules import spec

TILE = 5


class Tiled(torch.autograd.Function):
    """Attention by tiles of queries and of keys, as in FlashAttention-2 (Dao, 2023), Algorithm 1."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        ctx.save_for_backward(q, k, v)
        out, scale = torch.empty_like(q), math.sqrt(q.shape[-1])
        for i in range(0, q.shape[1], TILE):
            rows = q[:, i : i + TILE]
            y, total = torch.zeros_like(rows), torch.zeros(rows.shape[:2])
            most = torch.full(rows.shape[:2], -1e30)
            for j in range(0, k.shape[1], TILE):
                scores = rows @ k[:, j : j + TILE].mT / scale
                larger = torch.maximum(most, scores.amax(-1))
                weights, before = torch.exp(scores - larger[..., None]), torch.exp(most - larger)
                total = before * total + weights.sum(-1)
                y = before[..., None] * y + weights @ v[:, j : j + TILE]
                most = larger
            out[:, i : i + TILE] = y / total[..., None]
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        q, k, v = ctx.saved_tensors
        weights = torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1)
        return grads[0] @ v.mT @ k, weights.mT @ grads[0], weights.mT @ grads[0]


class TiledAttention(nn.Module):
    def __init__(self, n: Any) -> None:
        super().__init__()
        self.qkv = nn.Linear(n.d, 3 * n.d)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = Tiled.apply(*self.qkv(x).chunk(3, -1))
        return y


@functools.cache
def tiled() -> Derivation:
    dims = {"B": 3, "T": Dim(20, multiple_of=TILE), "d": 7}
    return calc.derive(spec(TiledAttention, dims=dims, inputs=lambda n: (torch.randn(n.B, n.T, n.d),)), cache=False, optimizer="sgd")


@pytest.mark.slow
def test_attention_by_tiles_has_closed_forms_in_the_length() -> None:
    """For each of B (T/5)² pairs of tiles 2 · 2 · 5² d FLOPs, after the projection of q, k and v."""
    result = tiled()

    assert result.specialized == {}
    assert result["flops.forward.matmul"].text == "4*B*T**2*d + 6*B*T*d**2"


@pytest.mark.slow
def test_a_peak_in_tiles_is_that_of_a_real_run() -> None:
    assert failures(calc.check(tiled(), T=35)) == []


@pytest.mark.parametrize(
    ("counts", "evenly"),
    [
        ([6, 7], True),
        ([4, 5], True),  # without the first and the last
        ([11, 13], True),  # two of each iteration, one at the end
        ([12, 12], True),
        ([36, 49], False),
        ([36, 49, 64], False),
        ([30, 42], False),  # each with all others
    ],
)
def test_the_number_of_points_shows_a_loop_inside_another_one(counts: list[int], evenly: bool) -> None:
    depths = [{"T": 6 + i} for i in range(len(counts))]

    assert peak._grow_evenly(counts, depths) is evenly


def test_points_of_two_loops_are_of_one_inside_the_other() -> None:
    depths = [{"H": h, "W": w} for h in (3, 4) for w in (6, 7)]

    assert not peak._grow_evenly([d["H"] * d["W"] for d in depths], depths)
    assert peak._grow_evenly([d["W"] - 1 for d in depths], depths)
