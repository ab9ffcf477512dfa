"""A step derived at one setting, with its sizes as numbers: the numbers of the general derivation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import calc
from calc.derive.result import Derivation
from calc.dimensions import Dim
from calc.errors import TraceError
from calc.options import Options, made
from calc.pipeline import pipeline
from calc.spec import Spec
from tests.quick import few

# Tied weights; a mixture of experts, whose tokens per expert are data-dependent; images. Each has more layers than any trace.
MODELS = {"gpt2": {"B": 3, "T": 37, "L": 7}, "mixtral": {"B": 1, "T": 29, "L": 11}, "vit-b": {"B": 2, "L": 13}}
CHANGES = [
    {"checkpointing": "block"},
    {"precision": "bf16-autocast"},
    {"implementation": "fused"},
    {"accumulation": "2"},
    {"mode": "infer"},
]


class Chain(nn.Module):
    """Linear layers in a loop."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(n.d, n.d) for _ in range(n.L))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = F.gelu(layer(x))
        return x


def _inputs(n: Any) -> tuple[Tensor, ...]:
    return (torch.randn(n.B, n.d),)


def chain() -> Spec:
    return Spec(
        "chain", {"B": 7, "d": 13, "L": 19}, Chain, _inputs, lambda module, x: module(x).sum(), trip_counts=("L",), key="test_derive_at:1"
    )


def numbers(derivation: Derivation) -> dict[str, Any]:
    """The value of every quantity, and where the peak is."""
    largest = derivation["memory.peak"].largest_candidate
    return {**{name: derivation[name].value for name in derivation}, "at": largest and largest.at}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache of this test's own."""
    monkeypatch.setenv("NAPKIN_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize(("model", "change"), few([(m, c) for m in MODELS for c in CHANGES], 1, ids=lambda m, c: f"{m} {c}"))
def test_the_numbers_are_those_of_the_general_derivation(model: str, change: dict[str, str]) -> None:
    """Every quantity, and the peak's place; all but the number of layers are numbers."""
    spec, sizes = calc.load(model), MODELS[model]
    here = pipeline.derive_at(calc.derive(spec, sizes), spec, sizes, pipeline.Run(made(**change)))

    assert numbers(here) == numbers(calc.derive(spec, sizes, **change))
    assert {*spec.dims} - {*here.specialized} == {"L"}


def test_one_setting_is_traced_at_its_own_sizes_and_cached_by_them(cache: None) -> None:
    """Two settings one after the other, then the general derivation: each as without a cache, and the second time without a trace."""
    general, infer = calc.derive(chain(), cache=False), Options(mode="infer")
    said: list[str] = []

    def at(sizes: dict[str, int], cache: bool) -> Derivation:
        return pipeline.derive_at(general.at_sizes(sizes), chain(), sizes, pipeline.Run(infer, cache, said.append))

    for sizes in ({"B": 1}, {"B": 7, "d": 17}):
        assert numbers(at(sizes, cache=True)) == numbers(at(sizes, cache=False)) == numbers(calc.derive(chain(), sizes, mode="infer"))
    said.clear()
    at({"B": 1}, cache=True)

    assert ["trace read from the cache"] == said


def test_where_numbers_cannot_be_traced_the_derivation_is_general(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trace with numbers that is refused is no refusal of the step."""
    derived, general, specialized = pipeline.derived, calc.derive(chain(), cache=False), list[object]()

    def refusing(spec: Spec, sizes: Mapping[str, int], run: Any) -> Derivation:
        specialized.append(run.specialized)
        if run.specialized:
            raise TraceError("refused here")
        return derived(spec, sizes, run)

    monkeypatch.setattr(pipeline, "derived", refusing)
    here = pipeline.derive_at(general, chain(), {}, pipeline.Run(Options(mode="infer"), cache=False))

    assert numbers(here) == numbers(calc.derive(chain(), cache=False, mode="infer"))
    assert [bool(names) for names in specialized[:2]] == [True, False]


@pytest.mark.parametrize(
    ("dims", "expected"),
    [
        ({"B": 7, "d": 13, "L": 19}, {"B", "d"}),
        ({"B": 7, "d": 2**18 + 1, "L": 19}, {"B"}),
        ({"B": Dim("L", tied=True), "d": 13, "L": 19}, {"d"}),
    ],
    ids=["all but the trip count", "not what is too large to evaluate", "not what follows from the trip count"],
)
def test_what_a_trip_count_or_a_large_size_determines_stays_a_symbol(dims: dict[str, int | str | Dim], expected: set[str]) -> None:
    """Of a chain whose layers are the trip count."""
    derivation = calc.derive(replace(chain(), dims=dims, key=""), mode="infer", cache=False)

    assert expected == {*pipeline._numbers(derivation)}
