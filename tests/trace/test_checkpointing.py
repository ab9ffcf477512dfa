"""A model that runs layers again in its backward keeps other tensors than autograd says: refused rather than derived wrongly."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import calc
from calc.errors import TraceError
from calc.spec import Spec


class Checkpointed(nn.Module):
    """Two layers, each run again in the backward."""

    def __init__(self, d: int, reentrant: bool) -> None:
        super().__init__()
        self.first, self.second, self.reentrant = nn.Linear(d, d), nn.Linear(d, d), reentrant

    def forward(self, x: Tensor) -> Tensor:
        for layer in (self.first, self.second):
            x = checkpoint(layer, x, use_reentrant=self.reentrant)
        return x


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing_is_refused_by_name(reentrant: bool) -> None:
    """Both forms of torch.utils.checkpoint are named in one line; neither gives a number."""
    spec = Spec(
        name="checkpointed",
        dims={"B": 3, "d": 5},
        build=lambda n: Checkpointed(n.d, reentrant),
        inputs=lambda n: (torch.randn(n.B, n.d, requires_grad=True),),
        loss=lambda module, x: module(x).sum(),
    )

    with pytest.raises(TraceError, match=r"activation checkpointing"):
        calc.derive(spec, cache=False)
