"""One small network under every optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from calc.options import OPTIMIZERS
from tests.zoo.exhibit import network

Optimizer = Callable[[Any], torch.optim.Optimizer]

OWN: dict[str, Optimizer] = {
    "sgd with decay": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.1),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "centred rmsprop": lambda p: torch.optim.RMSprop(p, momentum=0.9, centered=True),
    "amsgrad": lambda p: torch.optim.Adam(p, amsgrad=True, weight_decay=0.1),
    "adamax": torch.optim.Adamax,
    "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam,
    "adadelta": torch.optim.Adadelta,
    "asgd": torch.optim.ASGD,
}


def trained(by: str, optimizer: str | Optimizer) -> None:
    network(
        f"trained by {by}",
        {"B": 3, "n": 5, "f": 7, "m": 11},
        lambda n: nn.Sequential(nn.Linear(n.n, n.f), nn.ReLU(), nn.Linear(n.f, n.m, bias=False)),
        lambda n: (torch.rand(n.B, n.n), torch.rand(n.B, n.m)),
        {"B": 13, "n": 2, "f": 17, "m": 3},
        lambda module, x, y: F.mse_loss(module(x), y),
        optimizer,
    )


for name in OPTIMIZERS:
    if name != "spec":
        trained(name, name)
for name, optimizer in OWN.items():
    trained(name, optimizer)
