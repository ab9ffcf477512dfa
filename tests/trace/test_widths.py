"""Sizes that are read as numbers and are no iterations of a loop: interpolated, and right at every size all the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import calc
from calc import Spec
from calc.graph import trip_counts


def _read(size: Any) -> int:
    """A number, however the size was made: a list has so many places."""
    return [0].__mul__(size).__len__()


def _spec(multiplier: float) -> Spec:
    """A feed-forward block whose inner width is made of the number that its width is."""

    def build(n: Any) -> nn.Module:
        width = _read(n.d)
        return nn.Sequential(
            nn.Linear(n.c, width), nn.Linear(width, int(width * multiplier)), nn.ReLU(), nn.Linear(int(width * multiplier), width)
        )

    return Spec("blocks", {"B": 7, "c": 5, "d": 192}, build, lambda n: (torch.randn(n.B, n.c),), lambda module, x: module(x).sum())


def _parameters(multiplier: float, d: int) -> int:
    """Of c → d → f → d: c·d + d, d·f + f, f·d + d."""
    f = int(d * multiplier)
    return 5 * d + d + d * f + f + f * d + d


@pytest.mark.parametrize("multiplier", [4 / 3, pytest.param(2.0, marks=pytest.mark.slow)])
def test_a_width_read_as_a_number_is_right_at_every_size(multiplier: float) -> None:
    """Whether it is interpolated (2·d is a polynomial) or stays a number (⌊4·d/3⌋ is none)."""
    for d in (192, 100):
        derivation = calc.derive(_spec(multiplier), {"d": d}, cache=False, mode="infer")

        assert _parameters(multiplier, d) == derivation["parameters"].value
        assert (multiplier != 2.0) == ("d" in derivation.specialized)


@pytest.mark.slow
def test_counts_at_which_a_wrong_polynomial_holds_are_no_proof_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the widths traced and certified are all multiples of three, at which ⌊4·d/3⌋ is 4·d/3. At 100 the step is traced."""
    monkeypatch.setattr(trip_counts, "traced_counts", lambda _, loops, *limits: dict.fromkeys(loops, (3, 6, 9)))
    monkeypatch.setattr(trip_counts, "certified_counts", lambda _, loops, limits: [dict.fromkeys(loops, 12), dict.fromkeys(loops, 15)])

    for d in (192, 100):
        assert _parameters(4 / 3, d) == calc.derive(_spec(4 / 3), {"d": d}, cache=False, mode="infer")["parameters"].value


class Attention(nn.Module):
    """Heads apart, and the number of examples read from the tensor itself."""

    def __init__(self, d: Any, h: Any, multiplier: float) -> None:
        super().__init__()
        self.heads, self.inner = h, int(d * multiplier)
        self.project, self.up, self.down = nn.Linear(d, d), nn.Linear(d, 2 * self.inner), nn.Linear(self.inner, d)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens = len(x), x.shape[1]
        x = self.project(x).reshape(batch, tokens, self.heads, -1).transpose(1, 2).reshape(batch, self.heads * tokens, -1)
        x = x.reshape(batch, self.heads, tokens, -1).transpose(1, 2).reshape(batch, tokens, -1)
        a, b = self.up(x).chunk(2, dim=-1)
        y: torch.Tensor = self.down(a * b.relu())
        return y


def test_a_batch_is_a_size_where_its_length_is_read() -> None:
    """d² + d, 2·d·f + 2·f and f·d + d parameters, with f = ⌊4·d/3⌋."""
    spec = Spec(
        "tokens",
        {"B": 6, "T": 5, "h": 8, "d": calc.Dim(192, multiple_of="h")},
        lambda n: Attention(n.d, n.h, 4 / 3),
        lambda n: (torch.randn(n.B, n.T, n.d),),
        lambda module, x: module(x).sum(),
    )
    derivation = calc.derive(spec, cache=False, mode="infer")

    assert {} == derivation.specialized
    for d in (192, 64, 200):
        f = 4 * d // 3
        assert d * d + d + 2 * d * f + 2 * f + f * d + d == derivation["parameters"].at(d=d)
