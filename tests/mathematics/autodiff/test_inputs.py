"""Integer inputs are called by what reads them: ids of an embedding, targets of a loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import calc
from reports.page.equations import model_section


class Tables(nn.Module):
    """A table for tokens, one for users, and a head."""

    def __init__(self, rows: int, users: int, width: int) -> None:
        super().__init__()
        self.tokens, self.users = nn.Embedding(rows, width, padding_idx=0), nn.Embedding(users, width)
        self.head = nn.Linear(width, rows)


def inputs(loss: Callable[[Tables, Tensor, Tensor], Tensor]) -> str:
    """The sentence on the inputs of a step: two tensors of integers."""
    spec = calc.Spec(
        name="tables",
        dims={"B": 2, "T": 5, "V": 7, "u": 6, "d": 3},
        build=lambda n: Tables(n.V, n.u, n.d),
        inputs=lambda n: tuple(torch.randint(min(int(n.V), int(n.u)), (n.B, n.T)) for _ in range(2)),
        loss=loss,
    )
    notes = model_section(calc.gradients(spec)).notes
    return next(note for note in notes if note.startswith("Inputs: "))


def _entropy(logits: Any, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def _next(targets: Tensor) -> Tensor:
    return F.pad(targets, (0, 1), value=-100)[:, 1:]


STEPS: dict[str, Callable[[Tables, Tensor, Tensor], Tensor]] = {
    "ids (B, T) of tokens, targets (B, T)": lambda m, i, j: _entropy(m.head(m.tokens(i)), j),
    "targets (B, T), ids (B, T) of tokens": lambda m, i, j: _entropy(m.head(m.tokens(j)), _next(i)),
    "ids (B, T), targets (B, T)": lambda m, i, j: _entropy(m.head(m.users(i)), j),
    "ids1 (B, T) of tokens, ids2 (B, T)": lambda m, i, j: _entropy(m.head(m.tokens(i) + m.users(j)), _next(i)),
    "ids (B, T) of tokens, input (B, T)": lambda m, i, j: (m.tokens(i) * j[..., None].float()).square().mean(),
    "input1 (B, T), input2 (B, T)": lambda m, i, j: (m.head.weight[0] * (i * j)[..., None].float()).square().mean(),
}


@pytest.mark.parametrize("sentence", STEPS)
def test_integer_inputs_are_called_by_what_reads_them(sentence: str) -> None:
    """Through padding, shifting and reshaping; ids of tokens are those of a table with V rows."""
    assert inputs(STEPS[sentence]) == f"Inputs: {sentence}."
