"""One parameter tensor and nothing else, to show what an optimizer's step costs for it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from calc.spec import Spec


class OneTensor(nn.Module):
    """A vector of n elements or a matrix of r rows and c columns."""

    def __init__(self, *shape: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(*shape))


def _loss(model: OneTensor, x: Tensor) -> Tensor:
    return (model.weight * x).sum()


def vector() -> Spec:
    """Spec of a vector of n elements."""
    return Spec("one tensor", {"n": 1009}, lambda n: OneTensor(n.n), lambda n: (torch.randn(n.n),), _loss, source="built-in")


def matrix() -> Spec:
    """Spec of a matrix of r rows and c columns, fewer rows than columns."""
    dims = {"r": 1009, "c": 2003}
    return Spec("one matrix", dims, lambda n: OneTensor(n.r, n.c), lambda n: (torch.randn(n.r, n.c),), _loss, source="built-in")
