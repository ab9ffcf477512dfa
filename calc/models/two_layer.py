"""Two matrix multiplications without bias, ``x W1 W2``, with a mean squared error against ``y``.

The example behind "6 x parameters x points": the first layer's input needs no gradient, so the step executes less.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from calc.dimensions import Dim
from calc.spec import Spec


class TwoLayer(nn.Module):
    """``x (B, D) -> x W1 (B, D) -> x W1 W2 (B, K)``."""

    def __init__(self, D: Any, K: Any) -> None:
        super().__init__()
        self.w1 = nn.Parameter(torch.empty(D, D))
        self.w2 = nn.Parameter(torch.empty(D, K))
        nn.init.xavier_normal_(self.w1)
        nn.init.xavier_normal_(self.w2)

    def forward(self, x: Tensor) -> Tensor:
        h1 = x @ self.w1  # (B, D)
        return h1 @ self.w2  # (B, K)


def _inputs(n: Any) -> tuple[Tensor, ...]:
    return torch.randn(n.B, n.D), torch.randn(n.B, n.K)


def _loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.mse_loss(model(x), y)


SPEC = Spec(
    name="two-layer",
    dims={"B": Dim(1024, "points"), "D": Dim(256, "width"), "K": Dim(64, "output width")},
    build=lambda n: TwoLayer(n.D, n.K),
    inputs=_inputs,
    loss=_loss,
    predict=lambda model, x: model(x),
    check_at={"B": 3, "D": 7, "K": 5},
    source="built-in",
)
