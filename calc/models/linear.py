"""One linear layer with a mean squared error: the smallest training step there is."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from calc.dimensions import Dim
from calc.spec import Spec


def _inputs(n: Any) -> tuple[Tensor, ...]:
    return torch.randn(n.B, n.D), torch.randn(n.B, n.K)


def _loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.mse_loss(model(x), y)


SPEC = Spec(
    name="linear",
    dims={"B": 64, "D": Dim(256, "input width"), "K": Dim(32, "output width")},
    build=lambda n: nn.Linear(n.D, n.K),
    inputs=_inputs,
    loss=_loss,
    predict=lambda model, x: model(x),
    check_at={"B": 3, "D": 7, "K": 5},
    source="built-in",
)
