"""A classifier of two linear layers with a GELU between them, trained with cross-entropy."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from calc.dimensions import Dim
from calc.spec import Spec


def _build(n: Any) -> nn.Module:
    return nn.Sequential(
        nn.Linear(n.d, n.f),  # (B, d) -> (B, f)
        nn.GELU(),
        nn.Linear(n.f, n.K),  # (B, f) -> (B, K)
    )


def _inputs(n: Any) -> tuple[Tensor, ...]:
    return torch.randn(n.B, n.d), torch.randint(n.K, (n.B,))


def _loss(model: nn.Module, x: Tensor, classes: Tensor) -> Tensor:
    return F.cross_entropy(model(x), classes)


SPEC = Spec(
    name="mlp",
    dims={"B": 128, "d": Dim(64, "input width"), "f": "4*d", "K": Dim(10, "classes")},
    build=_build,
    inputs=_inputs,
    loss=_loss,
    predict=lambda model, x: model(x),
    check_at={"B": 3, "d": 7, "f": 11, "K": 5},
    source="built-in",
)
