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
    "centred rmsprop": lambda p: torch.optim.RMSprop(p, momentum=0.9, centered=True),
    "amsgrad with decay": lambda p: torch.optim.Adam(p, amsgrad=True, weight_decay=0.1),
    "adafactor with decay": lambda p: torch.optim.Adafactor(p, weight_decay=0.1),
    "two groups": lambda p: torch.optim.AdamW([{"params": list(p)[:1]}, {"params": list(p)[1:], "weight_decay": 0.0, "amsgrad": True}]),
}

# Updates of all parameters at once: by operators on lists of tensors, or in one operator.
AT_ONCE: dict[str, Optimizer] = {
    f"{name.lower()}, {way}": lambda p, name=name, way=way, more=more: getattr(torch.optim, name)(p, **more, **{way: True})
    for way in ("foreach", "fused")
    for name, more in {
        "SGD": {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
        "Adam": {"amsgrad": True, "weight_decay": 0.1},
        "AdamW": {},
        "Adagrad": {"weight_decay": 0.1},
        "RMSprop": {"momentum": 0.9, "centered": True},
        "Adadelta": {},
        "Adamax": {},
        "NAdam": {},
        "RAdam": {},
        "ASGD": {},
        "Rprop": {},
        "Adafactor": {"weight_decay": 0.1},
    }.items()
    if way == "foreach" or name in ("SGD", "Adam", "AdamW", "Adagrad")
}


# Number formats that an optimizer sees: gradients scaled against underflow, everything in half the bytes, copies in fp32.
FORMATS = {
    "sgd in fp16-autocast": ("sgd", "fp16-autocast", "loop"),
    "adamw in fp16-autocast, fused": ("adamw", "fp16-autocast", "fused"),
    "adam in fp16-autocast, fused": ("adam", "fp16-autocast", "fused"),
    "adagrad in fp16-autocast, fused": ("adagrad", "fp16-autocast", "fused"),
    "nesterov in fp16-autocast, fused": ("nesterov", "fp16-autocast", "fused"),
    "adafactor in bf16": ("adafactor", "bf16", "loop"),
    "muon in bf16-master": ("muon", "bf16-master", "loop"),
}


def trained(by: str, optimizer: str | Optimizer, **more: Any) -> None:
    network(
        f"trained by {by}",
        {"B": 3, "n": 5, "f": 7, "m": 11},
        lambda n: nn.Sequential(nn.Linear(n.n, n.f), nn.ReLU(), nn.Linear(n.f, n.m, bias=False)),
        lambda n: (torch.rand(n.B, n.n), torch.rand(n.B, n.m)),
        {"B": 13, "n": 2, "f": 17, "m": 3},
        lambda module, x, y: F.mse_loss(module(x), y),
        optimizer,
        **more,
    )


for name in OPTIMIZERS:
    if name != "spec":
        trained(name, name)
for name, optimizer in (OWN | AT_ONCE).items():
    trained(name, optimizer)
for name, (named, precision, implementation) in FORMATS.items():
    trained(name, named, precision=precision, implementation=implementation)


class Clipped(torch.optim.SGD):
    """Gradients are cut to a norm of 1 before the step."""

    def step(self, closure: Any = None) -> Any:
        torch.nn.utils.clip_grad_norm_([p for group in self.param_groups for p in group["params"]], 1.0)
        return super().step(closure)


trained("gradients clipped", lambda parameters: Clipped(parameters, lr=0.1))
for precision in ("bf16-autocast", "fp16-autocast"):
    network(
        f"batch norm in {precision}",
        {"B": 3, "c": 5, "s": 7},
        lambda n: nn.Sequential(nn.Conv2d(2, n.c, 3), nn.BatchNorm2d(n.c)),
        lambda n: (torch.rand(n.B, 2, n.s, n.s),),
        {"B": 5, "c": 3, "s": 11},
        optimizer="adamw",
        precision=precision,
    )
    network(
        f"layer norm and group norm in {precision}",
        {"B": 3, "d": 15, "f": 7},
        lambda n: nn.Sequential(nn.Linear(n.d, n.f), nn.LayerNorm(n.f), nn.Linear(n.f, 6), nn.GroupNorm(3, 6)),
        lambda n: (torch.rand(n.B, n.d),),
        {"B": 5, "d": 11, "f": 13},
        optimizer="adamw",
        precision=precision,
    )
