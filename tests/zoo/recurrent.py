"""Torch's recurrent layers and cells. Time is a loop: one turn for each step of the sequence."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tests.zoo.exhibit import network

SEQUENCE = {"B": 5, "T": 7, "d": 11, "f": 13}
OTHER_SEQUENCE = {"B": 2, "T": 9, "d": 7, "f": 3}


class Reads(nn.Module):
    """A recurrent layer, and a linear one that reads all its states."""

    def __init__(self, layer: nn.Module, width: Any) -> None:
        super().__init__()
        self.layer, self.head = layer, nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.layer(x)
        return self.head(states)


def sequences(n: Any) -> tuple[Tensor, ...]:
    return (torch.rand(n.B, n.T, n.d),)


def recurrent(name: str, kind: type[nn.RNNBase], ways: int = 1, width: Any = None, slow: bool = False, **options: Any) -> None:
    network(
        name,
        SEQUENCE,
        lambda n: Reads(kind(n.d, n.f, batch_first=True, **options), ways * n.f if width is None else width),
        sequences,
        OTHER_SEQUENCE,
        slow=slow,
    )


for kind in (nn.LSTM, nn.GRU, nn.RNN):
    recurrent(f"{kind.__name__} layer", kind)
    recurrent(f"{kind.__name__} layer both ways", kind, 2, bidirectional=True)
    recurrent(f"{kind.__name__} layers with dropout", kind, num_layers=2, dropout=0.25, slow=True)
    recurrent(f"{kind.__name__} layer without bias", kind, bias=False)
recurrent("LSTM layer that projects", nn.LSTM, width=2, proj_size=2)
recurrent("RNN layer of relu", nn.RNN, nonlinearity="relu")


class Given(nn.Module):
    """An LSTM that begins with a state of its own and gives its last one."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.layer = nn.LSTM(n.d, n.f, num_layers=2)
        self.state = nn.Parameter(torch.rand(2, 2, 1, n.f))

    def forward(self, x: Tensor) -> Tensor:
        batch = x.shape[1]
        states, (hidden, cells) = self.layer(x, tuple(s.expand(-1, batch, -1).contiguous() for s in self.state))
        return states.sum() + hidden.sum() + cells.sum()


network("LSTM with a state", SEQUENCE, Given, lambda n: (torch.rand(n.T, n.B, n.d),), OTHER_SEQUENCE, slow=True)


class Cells(nn.Module):
    """One step of each kind of cell."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.cells = nn.ModuleList((nn.LSTMCell(n.d, n.f), nn.GRUCell(n.d, n.f), nn.RNNCell(n.d, n.f)))

    def forward(self, x: Tensor) -> Tensor:
        (hidden, cell), *others = (each(x) for each in self.cells)
        return hidden.sum() + cell.sum() + sum(other.sum() for other in others)


CELL = {"B": 5, "d": 11, "f": 13}
network("recurrent cells", CELL, Cells, lambda n: (torch.rand(n.B, n.d),), {"B": 2, "d": 7, "f": 3})
