"""Torch's recurrent layers and cells. Time is a loop: one iteration for each step of the sequence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

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


class Packed(nn.Module):
    """A recurrent layer over sequences without their padding."""

    def __init__(self, n: Any, kind: type[nn.RNNBase], lengths: Callable[[Tensor], Any], ways: int = 1, **options: Any) -> None:
        super().__init__()
        self.embed, self.lengths, self.sorted = nn.Linear(n.d, n.d), lengths, options.pop("sorted", True)
        self.layer = kind(n.d, n.f, batch_first=True, bidirectional=ways == 2, **options)
        self.head = nn.Linear(ways * options.get("proj_size", n.f), 3)

    def forward(self, x: Tensor) -> Tensor:
        packed = pack_padded_sequence(self.embed(x), self.lengths(x), batch_first=True, enforce_sorted=self.sorted)
        states, lengths = pad_packed_sequence(self.layer(packed)[0], batch_first=True)
        assert len(lengths) == len(x)
        return self.head(states)


def all_of_one_length(x: Tensor) -> Tensor:
    return torch.full((x.shape[0],), x.shape[1])


def packed(name: str, kind: type[nn.RNNBase], lengths: Callable[[Tensor], Any], of: str = "B T d f", **options: Any) -> None:
    dims, other = ({size: sizes[size] for size in of.split()} for sizes in (SEQUENCE, OTHER_SEQUENCE))
    network(
        name,
        dims,
        lambda n: Packed(n, kind, lengths, **options),
        lambda n: (torch.rand(n.B if "B" in of else 4, n.T if "T" in of else 7, n.d),),
        other,
        slow="slow" in name,
    )


packed("LSTM layer, packed", nn.LSTM, all_of_one_length)
packed("GRU layer, packed, sorted by itself", nn.GRU, all_of_one_length, sorted=False)
packed("LSTM layer both ways, lengths in a list", nn.LSTM, lambda _: [3, 7, 2, 3], "d f", ways=2, sorted=False)
packed("RNN layer, lengths in a list", nn.RNN, lambda _: [7, 5, 5, 2], "d f")
packed("LSTM layer that projects, lengths in a list", nn.LSTM, lambda _: [7, 5, 5, 2], "d f", proj_size=2)


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
