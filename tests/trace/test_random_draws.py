"""Numbers that a step draws: they may be computed with, and nothing may depend on them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import calc
from calc.errors import DataDependentError
from calc.spec import Spec
from calc.trace.random_draws import extreme
from tests.checks import failures
from tests.trace.refused import refusal


class Layers(nn.Module):
    """Three layers, of each of which ``pick`` makes one in a step."""

    def __init__(self, n: Any, pick: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.layers, self.pick = nn.ModuleList([nn.Linear(n.d, n.d) for _ in range(3)]), pick

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = self.pick(layer, x)
        return x


def spec(pick: Callable[[Any, Tensor], Tensor]) -> Spec:
    dims, inputs = {"B": 5, "d": 7}, lambda n: (torch.randn(n.B, n.d),)
    return Spec("layers", dims, lambda n: Layers(n, pick), inputs, lambda model, x: model(x).square().mean())


def skipped_by_python(layer: Any, x: Tensor) -> Tensor:
    return x if random.random() < 0.1 else x + layer(x)


def skipped_by_numpy(layer: Any, x: Tensor) -> Tensor:
    return x + layer(x) if np.random.rand() > 0.9 else x


def cut_somewhere(layer: Any, x: Tensor) -> Tensor:
    return layer(x)[: random.randint(2, 5)]


def one_of_two(layer: Any, x: Tensor) -> Tensor:
    return random.choice([torch.relu, torch.tanh])(layer(x))


def skipped_by_torch(layer: Any, x: Tensor) -> Tensor:
    return x if torch.rand(1).item() < 0.1 else x + layer(x)


def skipped_by_a_tensor(layer: Any, x: Tensor) -> Tensor:
    return x if torch.empty([]).uniform_() >= 0.9 else x + layer(x)


def skipped_between(layer: Any, x: Tensor) -> Tensor:
    return x if 0.25 < torch.rand(1).item() < 0.5 else x + layer(x)


DEPENDING = [skipped_by_python, skipped_by_numpy, cut_somewhere, one_of_two, skipped_by_torch, skipped_by_a_tensor, skipped_between]


@pytest.mark.parametrize("pick", DEPENDING)
def test_a_step_that_runs_otherwise_for_other_draws_is_refused(pick: Callable[[Any, Tensor], Tensor]) -> None:
    """At any probability: one trace sees the least numbers, another one the largest."""
    error = refusal(spec(pick))

    assert isinstance(error, DataDependentError)
    assert "draws random numbers, and runs other operators where these are others" in str(error)


@pytest.mark.parametrize(
    "drawn",
    [
        lambda: random.random() <= 0.0,
        lambda: np.random.rand() <= 0.0,
        lambda: torch.rand(1).item() <= 0.0,
        lambda: torch.rand(1).item() >= 1.0,
        lambda: torch.rand([]) < 0.0,
        lambda: torch.empty(1).uniform_(0, 1) >= 1,
        lambda: not torch.rand(1) > 0,
    ],
)
def test_a_layer_that_is_skipped_at_a_probability_of_0_is_never_skipped(drawn: Callable[[], bool]) -> None:
    derivation = calc.derive(spec(lambda layer, x: x if drawn() else x + layer(x)), cache=False, optimizer="sgd")

    assert 3 * 2 * 5 * 7 * 7 == derivation["flops.forward.matmul"].value
    assert [] == failures(calc.check(derivation, B=3))


def test_draws_that_are_only_computed_with_are_exact() -> None:
    """A time step of a diffusion, or a share that mixes two inputs."""

    def mixed(layer: Any, x: Tensor) -> Tensor:
        share = random.uniform(0.2, 0.8) * np.random.beta(2, 2) * torch.rand(1).item()
        return share * x + (1 - share) * layer(x)

    derivation = calc.derive(spec(mixed), cache=False, optimizer="sgd")

    assert [] == failures(calc.check(derivation, B=3))


@pytest.mark.parametrize("largest", [False, True])
def test_the_generators_give_extremes_and_go_on_as_before(largest: bool) -> None:
    """The numbers next to 0 and 1, of both; afterwards as if nothing had been drawn."""
    before = random.getstate(), np.random.get_state()[1].tolist()
    with extreme(largest) as drew:
        assert not drew()
        drawn = [random.random(), np.random.rand()]
        assert drew()

    assert [1 - 2**-53 if largest else 2**-53] * 2 == drawn
    assert before == (random.getstate(), np.random.get_state()[1].tolist())


def test_a_generator_of_its_own_is_left_as_it_is() -> None:
    """It is seeded, and Napkin has some as well."""
    numbers = [random.Random(3).randint(0, 99) for _ in range(2)]
    with extreme(largest=True) as drew:
        assert numbers == [random.Random(3).randint(0, 99) for _ in range(2)]
        assert not drew()


def test_drawing_until_a_number_fits_ends() -> None:
    """Not all draws are extremes, or this would go on for ever."""
    with extreme(largest=False):
        while random.random() < 0.5:
            pass
    with extreme(largest=True):
        assert random.randint(0, 9) in range(10)
