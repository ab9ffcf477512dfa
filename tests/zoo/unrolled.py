"""Models that walk a sequence step by step in a Python loop, in each of several layers: loops over time inside loops over depth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import silu, softplus

from tests.zoo.exhibit import network

Layer = Callable[[Any], nn.Module]


class Stacked(nn.Module):
    """L layers and a linear one."""

    def __init__(self, n: Any, layer: Layer) -> None:
        super().__init__()
        self.layers = nn.ModuleList([layer(n) for _ in range(n.L)])
        self.head = nn.Linear(n.d, 3)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        y: Tensor = self.head(x)
        return y


class ByHand(nn.Module):
    """A recurrent layer as a textbook has it (Elman 1990)."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.of_input, self.of_state = nn.Linear(n.d, n.d), nn.Linear(n.d, n.d)

    def forward(self, x: Tensor) -> Tensor:
        state, states = torch.zeros_like(x[:, 0]), []
        for t in range(x.shape[1]):
            state = torch.tanh(self.of_input(x[:, t]) + self.of_state(state))
            states.append(state)
        return torch.stack(states, 1)


class Selective(nn.Module):
    """A selective state space of N numbers a channel (Mamba, arXiv:2312.00752), as a loop."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.states = n.N
        self.into, self.step, self.ways = nn.Linear(n.d, n.f), nn.Linear(n.f, n.f), nn.Linear(n.f, 2 * n.N)
        self.decay = nn.Parameter(torch.rand(n.f, n.N))
        self.out = nn.Linear(n.f, n.d)

    def forward(self, x: Tensor) -> Tensor:
        u = silu(self.into(x))
        step = softplus(self.step(u))
        enter, leave = self.ways(u).split([self.states, self.states], -1)
        kept = torch.exp(-step[..., None] * torch.exp(self.decay))
        new = (step * u)[..., None] * enter[:, :, None, :]
        state, outputs = torch.zeros_like(new[:, 0]), []
        for t in range(x.shape[1]):
            state = kept[:, t] * state + new[:, t]
            outputs.append((state * leave[:, t, None, :]).sum(-1))
        y: Tensor = x + self.out(torch.stack(outputs, 1))
        return y


def _sequences(n: Any) -> tuple[Tensor]:
    return (torch.rand(n.B, n.T, n.d),)


SIZES, OTHER = {"B": 5, "T": 7, "d": 11, "L": 3}, {"B": 2, "T": 13, "d": 7, "L": 5}
network("recurrent layers written as loops", SIZES, lambda n: Stacked(n, ByHand), _sequences, OTHER, slow=True)
network(
    "layers of a selective state space",
    {**SIZES, "f": 13, "N": 2},
    lambda n: Stacked(n, Selective),
    _sequences,
    {**OTHER, "f": 17, "N": 3},
    optimizer="adamw",
    slow=True,
)
