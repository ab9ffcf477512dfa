"""A deep linear network that uses one matrix in every layer: a parameter that multiplies each point L times."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from calc.dimensions import Dim
from calc.spec import Spec


class Shared(nn.Module):
    """``x (B, D) -> x W -> … -> x W^L (B, D)``, one ``W`` of (D, D)."""

    def __init__(self, D: Any, layers: int) -> None:
        super().__init__()
        self.layer = nn.Linear(D, D, bias=False)
        self.layers = layers

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.layers):
            x = self.layer(x)  # (B, D)
        return x


def _inputs(n: Any) -> tuple[Tensor, ...]:
    return torch.randn(n.B, n.D), torch.randn(n.B, n.D)


def _loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.mse_loss(model(x), y)


SPEC = Spec(
    name="shared",
    dims={"B": 8, "D": Dim(64, "width"), "L": Dim(4, "uses of the one matrix")},
    build=lambda n: Shared(n.D, n.L),
    inputs=_inputs,
    loss=_loss,
    predict=lambda model, x: model(x),
    check_at={"B": 3, "D": 5, "L": 4},
    source="built-in",
    trip_counts=("L",),
)
