"""The smallest model with a gradient: ½(x·w − 5)² of one weight vector."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from calc.dimensions import Dim
from calc.spec import Spec


class Scalar(nn.Module):
    """``x (n,) -> x·w``, with ``w`` of ones."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(n))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.w


def _loss(model: nn.Module, x: Tensor) -> Tensor:
    loss: Tensor = 0.5 * (model(x) - 5).pow(2)
    return loss


SPEC = Spec(
    name="scalar",
    dims={"n": Dim(3, "weights")},
    build=lambda n: Scalar(n.n),
    inputs=lambda n: (torch.randn(n.n),),
    loss=_loss,
    predict=lambda model, x: model(x),
    check_at={"n": 3},
    source="built-in",
)
