"""Mixtral 8x7B as a short ordinary module: Llama's blocks, whose feed-forward is a choice of e among E experts per token.

Tokens are sorted by expert, so one grouped matmul multiplies the rows of all experts. Whatever the router chooses, B T e rows are
multiplied: no size depends on the data. Router, experts and their names are the library's; each expert's matrices are stored for
multiplication from the right, (E, d, 2f) and (E, f, d).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from calc.dimensions import Dim
from calc.models.llama import Llama, next_token_loss, tokens
from calc.spec import Spec


class Experts(nn.Module):
    """E gated feed-forwards; one grouped matmul multiplies the rows of all of them."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.empty(n.E, n.d, 2 * n.f))
        self.down_proj = nn.Parameter(torch.empty(n.E, n.f, n.d))

    def forward(self, x: Tensor, ends: Tensor) -> Tensor:
        """``x`` (M, d) holds the rows of expert 0, then those of expert 1, …; ``ends`` (E,) holds where each expert's rows end."""
        gate, up = F.grouped_mm(x, self.gate_up_proj, offs=ends).chunk(2, dim=-1)  # each (M, f)
        return F.grouped_mm(F.silu(gate) * up, self.down_proj, offs=ends)  # (M, d)


class MixtureOfExperts(nn.Module):
    """Every token goes through its e best experts, weighted by the softmax of their scores."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.E, self.e = n.E, n.e
        self.gate = nn.Linear(n.d, n.E, bias=False)
        self.experts = Experts(n)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(0, 1)  # (N, d) with N = B T
        scores, chosen = self.gate(rows).topk(self.e, dim=-1)  # each (N, e)
        weights = scores.softmax(-1)  # (N, e)
        expert, order = chosen.flatten().sort()  # each (N e,): pairs of token and expert, by expert
        ends = torch.searchsorted(expert, torch.arange(self.E, device=x.device), right=True, out_int32=True)  # (E,)
        y = self.experts(rows[order // self.e], ends)  # (N e, d)
        weighted = y * weights.flatten()[order, None]  # (N e, d)
        mixed = torch.zeros_like(rows).index_add(0, order // self.e, weighted)  # (N, d)
        return mixed.view_as(x)


ROWS = "rows of the grouped matmul of the experts are multiples of 16 bytes, 8 elements of bf16"

SPEC = Spec(
    name="mixtral",
    dims={
        "B": 1,
        "T": 4096,
        "d": Dim(4096, multiple_of=8, because=ROWS),
        "h": Dim(32, multiple_of="g", because="each key/value head serves an equal part of the heads"),
        "g": 8,
        "k": Dim("d/h", multiple_of=2, because="rotary positions rotate pairs"),
        "f": Dim(14336, multiple_of=8, because=ROWS),
        "L": 32,
        "V": 32000,
        "E": 8,
        "e": Dim(2, at_most="E"),
    },
    build=lambda n: Llama(n, base=1_000_000.0, feed_forward=MixtureOfExperts),
    inputs=tokens,
    loss=next_token_loss,
    predict=lambda model, ids: model(ids),
    check_at={"B": 2, "T": 16, "d": 48, "h": 6, "g": 3, "f": 88, "L": 3, "V": 503, "E": 5},
    source="built-in",
    trip_counts=("L",),
    notes=("Widths are multiples of 8: torch's grouped matmul needs rows that begin at multiples of 16 bytes, in half precision too.",),
)
