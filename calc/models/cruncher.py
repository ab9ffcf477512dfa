"""The lecture's Cruncher: a deep linear network ``D -> D -> ... -> D -> 1`` without biases, and the lecture's own AdaGrad.

It is small enough to count by hand: parameters, gradients, optimizer state and activations of one step.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from calc.dimensions import Dim
from calc.spec import Spec


class Cruncher(nn.Module):
    """``layers`` linear layers ``D -> D`` and a last one ``D -> 1``."""

    def __init__(self, D: Any, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(D, D, bias=False) for _ in range(layers)])
        self.final = nn.Linear(D, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)  # (B, D)
        y: Tensor = self.final(x)  # (B, 1)
        return y.squeeze(-1)  # (B,)


class AdaGrad(torch.optim.Optimizer):
    """AdaGrad as the lecture writes it: the epsilon is inside the root and the state is made in the first step.

    ``torch.optim.Adagrad`` differs: epsilon outside the root, state made with the optimizer, and a step counter beside it.
    """

    def __init__(self, params: Iterable[nn.Parameter], lr: float = 0.01) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # torch's also serves closures that return the loss
        for group in self.param_groups:
            for p in group["params"]:
                state, grad = self.state[p], p.grad
                g2 = state.get("g2", torch.zeros_like(grad))
                g2 += torch.square(grad)
                state["g2"] = g2
                p.data -= group["lr"] * grad / torch.sqrt(g2 + 1e-5)


def _inputs(n: Any) -> tuple[Tensor, ...]:
    return torch.randn(n.B, n.D), torch.randn(n.B)


def _loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.mse_loss(model(x), y)


SPEC = Spec(
    name="cruncher",
    dims={"B": 8, "D": Dim(64, "width"), "L": Dim(2, "layers D -> D")},
    build=lambda n: Cruncher(n.D, n.L),
    inputs=_inputs,
    loss=_loss,
    predict=lambda model, x: model(x),
    check_at={"B": 2, "D": 4, "L": 2},
    source="built-in",
    optimizer=AdaGrad,
    trip_counts=("L",),
    notes=("The spec's own optimizer is the lecture's AdaGrad (epsilon inside the root, no counter); adagrad is torch.optim.Adagrad.",),
)
