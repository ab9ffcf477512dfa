"""A step at one setting alone: a trace at its sizes has the numbers of the derivation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import calc
from calc.derive.peak import highest_place
from calc.derive.result import Derivation
from calc.graph.step import StepTrace
from calc.options import made
from calc.pipeline import pipeline
from calc.pipeline.pipeline import Run, derived_or_traced
from calc.spec import Spec
from tests.quick import few

# Tied weights; a mixture of experts, whose tokens per expert are data-dependent; images. Each has more layers than any other trace.
MODELS = {"gpt2": {"B": 3, "T": 37, "L": 7}, "mixtral": {"B": 1, "T": 29, "L": 11}, "vit-b": {"B": 2, "L": 13}}
CHANGES = [
    {"checkpointing": "block"},
    {"precision": "bf16-autocast"},
    {"implementation": "fused"},
    {"accumulation": "2"},
    {"mode": "infer"},
]


class Selecting(nn.Module):
    """A layer whose positive outputs alone go on: how many these are depends on data."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(n.d, n.d)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        return y[y > 0].exp()


def _inputs(n: Any) -> tuple[Tensor, ...]:
    return (torch.randn(n.B, n.d),)


SELECTING = Spec("selecting", {"B": 7, "d": 13}, Selecting, _inputs, lambda module, x: module(x).sum())


@pytest.mark.parametrize(("model", "change"), few([(m, c) for m in MODELS for c in CHANGES], 1, ids=lambda m, c: f"{m} {c}"))
def test_the_numbers_are_those_of_the_derivation(model: str, change: dict[str, str]) -> None:
    """Every quantity, and the operator at the peak; where several iterations have the same peak, the trace names the first."""
    spec, sizes = calc.load(model), MODELS[model]
    general = calc.derive(spec, sizes)
    derived = calc.derive(spec, sizes, **change)
    trace = derived_or_traced(general, spec, sizes, Run(made(**change)))
    largest = derived["memory.peak"].largest_candidate

    assert isinstance(trace, StepTrace)
    assert general.count_trace is not None
    assert largest is not None
    values = {name: derived[name].value for name in derived if derived[name].value is not None}
    counts = general.count_trace(trace)
    place = highest_place(trace, step=2)
    assert values == {name: counts[name] for name in values}
    assert (largest.at.phase, largest.at.operator) == (place.phase, place.operator)


def test_a_long_step_is_derived(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = calc.load("mlp")
    general, run = calc.derive(spec), Run(made(mode="infer"))

    assert isinstance(derived_or_traced(general, spec, {}, run), StepTrace)
    monkeypatch.setattr(pipeline, "_MOST_CALLS", 0)
    assert isinstance(derived_or_traced(general, spec, {}, run), Derivation)


def test_a_step_whose_sizes_depend_on_data_is_derived() -> None:
    general = calc.derive(SELECTING, cache=False)
    changed = derived_or_traced(general, SELECTING, {"B": 11}, Run(made(mode="infer"), cache=False))

    assert isinstance(changed, Derivation)
    assert {"B": 11, "d": 13} == {name: changed.sizes[name] for name in ("B", "d")}
