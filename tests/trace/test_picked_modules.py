"""A loop over the experts that were chosen, each a module: which they are depends on the data, what they cost does not."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import calc
from calc import Spec
from calc.errors import DataDependentError
from tests.checks import failures
from tests.trace.refused import refusal


class Expert(nn.Module):
    def __init__(self, d: Any, f: Any) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(d, f, bias=False), nn.Linear(f, d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.relu(self.up(x)))


class OnlyChosen(nn.Module):
    """The experts that at least one token chose, in a list, or in a dict by a name that is made of the index."""

    def __init__(self, n: Any, by_name: bool, widening: int = 0) -> None:
        super().__init__()
        made = [Expert(n.d, n.f + widening * i) for i in range(n.E)]
        self.router, self.by_name, self.count = nn.Linear(n.d, n.E, bias=False), by_name, n.E
        self.experts = nn.ModuleDict({f"expert_{i}": e for i, e in enumerate(made)}) if by_name else nn.ModuleList(made)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(0, 1)
        weights, chosen = self.router(x).softmax(-1).max(-1)
        mask = F.one_hot(chosen, self.count).unsqueeze(1).permute(2, 1, 0)
        out = torch.zeros_like(x)
        for index in torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero():
            _, rows = torch.where(mask[index].squeeze(0))
            expert = self.experts[f"expert_{index[0]}" if self.by_name else index[0]]
            out.index_add_(0, rows, expert(x[rows]) * weights[rows, None])
        return out


def spec(by_name: bool, widening: int = 0) -> Spec:
    return Spec(
        "chosen experts",
        {"B": 2, "T": 17, "d": 7, "f": 11, "E": 8},
        lambda n: OnlyChosen(n, by_name, widening),
        lambda n: (torch.randn(n.B, n.T, n.d),),
        lambda model, x: model(x).square().mean(),
    )


@functools.cache
def derived(by_name: bool) -> calc.Derivation:
    return calc.derive(spec(by_name), cache=False, optimizer="momentum")


@pytest.mark.parametrize("by_name", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_each_iteration_takes_another_of_equal_experts(by_name: bool) -> None:
    """Gradients are those of the n1 experts that were chosen, and a token uses one of E."""
    derivation = derived(by_name)

    assert "2*d*f*E + d*E" == derivation["parameters"].text
    assert "8*d*f*n1 + 4*d*E" == derivation["gradients.bytes"].text
    assert "2*d*f + d*E" == derivation["parameters.active"].text
    assert [] == failures(calc.check(derivation, d=5))


@pytest.mark.slow
def test_experts_of_which_some_are_chosen_by_no_token_are_exact_too() -> None:
    """Two tokens choose at most two of eight experts, the others have no gradient and no state."""
    report = calc.check(derived(by_name=False), B=1, T=2)

    assert [] == failures(report)
    assert report["gradients.bytes"].measured < report["parameters.bytes"].measured


def test_experts_that_differ_are_refused() -> None:
    """What a step costs would depend on the ones that the data choose."""
    error = refusal(spec(by_name=True, widening=1))

    assert isinstance(error, DataDependentError)
    assert 'expert = self.experts[f"expert_{index[0]}" if self.by_name else index[0]]' in str(error)
    assert "among modules of 6 kinds" in str(error)  # those of the trace
