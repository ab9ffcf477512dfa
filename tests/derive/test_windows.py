"""Sizes that are defined at some sizes only: a length divided by its number of windows, which is 0 where a window is longer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import calc
from calc import Spec


class Windows(nn.Module):
    """A sequence cut into as many windows as fit, each of as many places as come out."""

    def __init__(self, d: int, w: int) -> None:
        super().__init__()
        self.linear, self.w = nn.Linear(d, d), w

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        count = length // self.w
        parts = self.linear(x)[:, : count * self.w].reshape(batch, count, -1, width)
        return torch.softmax(parts @ parts.transpose(-1, -2), -1) @ parts


SPEC = Spec(
    "windows",
    {"B": 2, "T": 64, "d": 32, "w": 16},
    lambda n: Windows(n.d, n.w),
    lambda n: (torch.randn(n.B, n.T, n.d),),
    lambda model, x: model(x).square().mean(),
)


@pytest.mark.slow
def test_a_maximum_is_compared_where_all_sizes_are_defined() -> None:
    """No number is divided by no windows at the random sizes at which the moments of a peak are compared; every count is the measured."""
    report = calc.check(calc.derive(SPEC, cache=False))

    assert report.failed == 0
    assert report["memory.peak"].verdict == "exact"
