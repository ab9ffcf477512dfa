"""A spec whose ``build`` returns a module of its caller: derived and run like one that it builds, and left as it was."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import calc
from calc.spec import Spec
from tests.checks import failures


class Scaled(nn.Module):
    """A layer, its normalization, and a tensor that is neither a parameter nor a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm, self.scale = nn.Linear(7, 7), nn.BatchNorm1d(7), torch.ones(7)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm(self.layer(x)).relu() * self.scale
        return y


def module() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 7), Scaled(), Scaled(), nn.Linear(7, 3))


def spec(build: Any) -> Spec:
    return Spec("built before", {"B": 3}, build, lambda n: (torch.randn(n.B, 5),), lambda m, x: m(x).sum())


@pytest.mark.parametrize("options", [{}, {"checkpointing": "block"}, {"mode": "infer"}], ids=["plain", "checkpointed", "inference"])
def test_a_module_that_was_built_before_is_derived_and_left_as_it_was(options: dict[str, str]) -> None:
    """Its step trains a copy, so that every value is still there after a derivation and a check."""
    before = module()
    values = copy.deepcopy(before.state_dict())
    derived = calc.derive(spec(lambda n: before), cache=False, **options)
    anew = calc.derive(spec(lambda n: module()), cache=False, **options)

    assert [anew[name].text for name in anew] == [derived[name].text for name in anew]
    assert [] == failures(calc.check(derived))
    assert [] == [name for name, value in before.state_dict().items() if not torch.equal(values[name], value)]
    assert before.training
    assert {type(part).forward for part in before.modules()} == {part.forward.__func__ for part in before.modules()}


class Distilled(nn.Module):
    """A module that is built, with a teacher that was built before."""

    def __init__(self, teacher: nn.Module) -> None:
        super().__init__()
        self.student, self.teacher = nn.Linear(5, 3), teacher

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.mse_loss(self.student(x), self.teacher(x))


def test_a_part_that_was_built_before_is_left_as_it_was() -> None:
    """The module around it is the step's own."""
    teacher = module().requires_grad_(False)
    values = copy.deepcopy(teacher.state_dict())

    assert [] == failures(calc.check(calc.derive(spec(lambda n: Distilled(teacher)), cache=False)))
    assert [] == [name for name, value in teacher.state_dict().items() if not torch.equal(values[name], value)]
