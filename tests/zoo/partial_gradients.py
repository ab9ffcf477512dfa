"""Operators with only some of their gradients needed: inputs that are data, frozen weights with trained biases, keys without an adapter."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from calc import Dim
from tests.zoo.exhibit import network

IMAGES = {"B": 3, "c": 5, "s": 7}
OTHER_IMAGES = {"B": 2, "c": 3, "s": 11}


def images(n: Any) -> tuple[Tensor, ...]:
    return (torch.randn(n.B, n.c, n.s, n.s),)


def biases_alone(module: nn.Module) -> nn.Module:
    """Only biases learn (BitFit, arXiv:2106.10199)."""
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name.endswith("bias"))
    return module


for name, build in {
    "images normalized first": lambda n: nn.Sequential(nn.BatchNorm2d(n.c), nn.Conv2d(n.c, 2, 3)),
    "images normalized one by one first": lambda n: nn.Sequential(nn.InstanceNorm2d(n.c, affine=True), nn.Conv2d(n.c, 2, 3)),
    "biases of convolutions": lambda n: biases_alone(nn.Sequential(nn.Conv2d(n.c, n.c, 3), nn.ReLU(), nn.Conv2d(n.c, 3, 3))),
    "biases of transposed convolutions": lambda n: biases_alone(
        nn.Sequential(nn.ConvTranspose2d(n.c, n.c, 3), nn.ReLU(), nn.ConvTranspose2d(n.c, 2, 3))
    ),
}.items():
    network(name, IMAGES, build, images, OTHER_IMAGES)

HEADS = {"B": 3, "T": 7, "h": 2, "k": 5}
OTHER_HEADS = {"B": 2, "T": 5, "h": 3, "k": 11}


class Attending(nn.Module):
    """Attention in which each of queries, keys and values is learnt or is data."""

    def __init__(self, n: Any, learnt: str) -> None:
        super().__init__()
        self.maps = nn.ModuleDict({name: nn.Linear(n.k, n.k, bias=False) for name in learnt})

    def forward(self, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(*(self.maps[name](x) if name in self.maps else x for name in "qkv"))


def sequences(n: Any) -> tuple[Tensor, ...]:
    return (torch.randn(n.B, n.h, n.T, n.k),)


for learnt in ("q", "k", "v", "qv"):
    network(f"attention that learns {learnt}", HEADS, lambda n, learnt=learnt: Attending(n, learnt), sequences, OTHER_HEADS)
network("attention that learns v, bf16", HEADS, lambda n: Attending(n, "v"), sequences, OTHER_HEADS, precision="bf16-autocast")


class Turned(nn.Module):
    """Attention that turns the batch inside; its gradient comes in expanded from a sum."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(n.d, n.h, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.attention(x, x, x)[0]
        return y.square()


network(
    "attention on turned batches, bf16",
    {"B": 3, "T": 7, "h": 2, "d": Dim(10, multiple_of="h")},
    Turned,
    lambda n: (torch.randn(n.B, n.T, n.d),),
    {"B": 2, "T": 5, "h": 3, "d": 21},
    precision="bf16",
)
