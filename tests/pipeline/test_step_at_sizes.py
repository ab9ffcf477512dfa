"""A step at one setting alone: a trace at its sizes has the numbers of the derivation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import calc
from calc.derive.result import Derivation
from calc.dimensions import Dim
from calc.errors import TraceError
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


@pytest.mark.parametrize(
    ("model", "change"),
    few([(m, c) for m in MODELS for c in CHANGES], 1, lambda m, c: f"{m} {c}", lambda m, c: m == "gpt2" and c == {"mode": "infer"}),
)
def test_the_numbers_are_those_of_the_derivation(model: str, change: dict[str, str]) -> None:
    """Every quantity, and the place of the peak."""
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
    assert values == {name: counts.quantities[name] for name in values}
    assert largest.at == counts.peak_at


class Chain(nn.Module):
    """Linear layers in a loop."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(n.d, n.d) for _ in range(n.L))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.nn.functional.gelu(layer(x))
        return x


def chain(**dims: int | str | Dim) -> Spec:
    return Spec("chain", {"B": 7, "d": 13, "L": 23, **dims}, Chain, _inputs, lambda module, x: module(x).sum(), trip_counts=("L",))


@pytest.mark.slow
def test_a_deep_stack_is_derived_with_its_depth_as_the_only_symbol() -> None:
    """Certificates have 5 and 6 layers: 22 are traced, 23 are derived, with the numbers of the general derivation."""
    general, run = calc.derive(chain(), cache=False), Run(made(mode="infer"), cache=False)
    deep = derived_or_traced(general, chain(), {"B": 5}, run)

    assert isinstance(derived_or_traced(general.at_sizes({"L": 22}), chain(), {"L": 22}, run), StepTrace)
    assert isinstance(deep, Derivation)
    assert {"B": 5, "d": 13} == deep.specialized
    expected = calc.derive(chain(), {"B": 5}, mode="infer", cache=False)
    assert {name: deep[name].value for name in deep} == {name: expected[name].value for name in expected}


def test_a_long_step_is_derived(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = calc.load("mlp")
    general, run = calc.derive(spec), Run(made(mode="infer"))

    assert isinstance(derived_or_traced(general, spec, {}, run), StepTrace)
    monkeypatch.setattr(pipeline, "_MOST_CALLS", 0)
    assert isinstance(derived_or_traced(general, spec, {}, run), Derivation)


def test_where_numbers_cannot_be_traced_the_derivation_is_general(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trace with numbers that is refused is no refusal of the step."""
    derived, general = pipeline.derived, calc.derive(chain(), cache=False)

    def refusing(spec: Spec, sizes: Mapping[str, int], run: Run) -> Derivation:
        if run.specialized:
            raise TraceError("refused here")
        return derived(spec, sizes, run)

    monkeypatch.setattr(pipeline, "derived", refusing)
    step = derived_or_traced(general, chain(), {}, Run(made(mode="infer"), cache=False))

    assert isinstance(step, Derivation)
    assert {} == step.specialized


@pytest.mark.parametrize(
    ("dims", "expected"),
    [
        ({}, {"B", "d"}),
        ({"d": 2**18 + 1}, {"B"}),
        ({"B": Dim("L", tied=True)}, {"d"}),
    ],
    ids=["all but the trip count", "not what is too large to evaluate", "not what follows from the trip count"],
)
def test_what_a_trip_count_or_a_large_size_determines_stays_a_symbol(dims: dict[str, int | str | Dim], expected: set[str]) -> None:
    assert expected == {*pipeline._numbers(calc.derive(chain(**dims), mode="infer", cache=False))}


def test_a_step_whose_sizes_depend_on_data_is_derived() -> None:
    general = calc.derive(SELECTING, cache=False)
    changed = derived_or_traced(general, SELECTING, {"B": 11}, Run(made(mode="infer"), cache=False))

    assert isinstance(changed, Derivation)
    assert {"B": 11, "d": 13} == {name: changed.sizes[name] for name in ("B", "d")}
