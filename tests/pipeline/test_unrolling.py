"""The second of two depths is unrolled from the first: as if it were traced, and refuted by a certificate where iterations differ."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import calc
from calc.derive.result import Derivation
from calc.graph.basis import basis_of
from calc.options import Options
from calc.spec import Spec
from calc.trace.hints import hints
from calc.trace.step import TracedRun, trace_step, unrolled_run
from calc.trace.tracing import StepSizes
from tests.quick import few
from tests.trace.modules import spec
from tests.trace.test_repeated import _at

_TRACER = sys.modules["calc.trace.tracer"]
_AT_FOUR = "tracing the step with symbolic sizes at L = 4"


class Padded(nn.Module):
    """A layer ``d -> d`` with a tanh of its result and some zeros."""

    def __init__(self, d: Any, zeros: int) -> None:
        super().__init__()
        self.linear = nn.Linear(d, d)
        self.zeros = zeros

    def forward(self, x: Tensor) -> Tensor:
        padded = torch.cat([self.linear(x), torch.zeros(x.shape[0], self.zeros)], dim=1)
        return torch.tanh(padded)[:, : x.shape[1]]


class Stemmed(nn.Module):
    """L layers after a first one, so that each of them has a gradient of its input. All have two zeros but the second."""

    def __init__(self, n: Any, second: int) -> None:
        super().__init__()
        self.stem = nn.Linear(n.d, n.d)
        self.layers = nn.ModuleList([Padded(n.d, second if i == 1 else 2) for i in range(n.L)])

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for layer in self.layers:
            x = layer(x)
        return x


def stemmed(second: int) -> Spec:
    return spec(lambda n: Stemmed(n, second), dims={"B": 7, "d": 13, "L": 19}, trip_counts=("L",))


def _sizes(model: Spec, depth: int) -> StepSizes:
    basis = basis_of(model.dimensions, {})
    return StepSizes(basis, hints(basis, model.sizes()), {"L": depth})


def _unrolled(model: Spec, options: Options) -> tuple[TracedRun, TracedRun | None]:
    """The trace of three layers, and that of four that is made of it."""
    three = trace_step(model, _sizes(model, 3), options)
    return three, unrolled_run(model, three, _sizes(model, 4), options)


def _texts(derivation: Derivation) -> dict[str, str | None]:
    return {name: quantity.text for name, quantity in derivation.quantities.items()}


_WAYS = ({}, {"checkpointing": "block"}, {"precision": "bf16-autocast", "accumulation": 2}, {"optimizer": "adafactor", "attention": "math"})


@pytest.mark.parametrize("options", few([*_WAYS], 1, of=lambda way: not way.keys() & {"optimizer", "accumulation"}), ids=str)
def test_an_unrolled_trace_is_what_tracing_gives(options: dict[str, Any]) -> None:
    """Every operator with its arguments, storage, lifetime, saved tensor, call, gradient and state."""
    model, chosen = calc.load("gpt2"), Options(**options)
    three, four = _unrolled(model, chosen)

    assert four is not None
    assert four.unrolled
    assert _at(four.trace, model) == _at(trace_step(model, _sizes(model, 4), chosen, like=three.repeats).trace, model)


def test_what_uses_all_layers_at_once_is_traced() -> None:
    """An operator of the foreach implementation updates the parameters of every layer."""
    assert _unrolled(calc.load("gpt2"), Options(implementation="foreach"))[1] is None


@pytest.mark.slow
def test_iterations_that_differ_are_traced_after_a_certificate_has_shown_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The iteration in the middle of three is no model of the others: the closed forms are those without unrolling."""
    said: list[str] = []
    derivation = calc.derive(stemmed(second=1), cache=False, optimizer="sgd", progress=said.append)
    monkeypatch.setattr(_TRACER, "unrolled_run", lambda *_: None)
    traced = calc.derive(stemmed(second=1), cache=False, optimizer="sgd")

    assert _texts(derivation) == _texts(traced)
    assert any(line.startswith("tracing a certificate") for line in said[: said.index(_AT_FOUR)])


def test_a_wrong_unrolled_trace_changes_no_closed_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has no more layers than the trace it is made of."""
    said: list[str] = []
    right = calc.derive(stemmed(second=2), cache=False, optimizer="sgd", progress=said.append)
    assert not [line for line in said if line == _AT_FOUR]

    def wrong(_: Spec, run: TracedRun, at: StepSizes, __: Options) -> TracedRun:
        return replace(run, trace=replace(run.trace, sizes=at.fixed), unrolled=True)

    monkeypatch.setattr(_TRACER, "unrolled_run", wrong)
    derivation = calc.derive(stemmed(second=2), cache=False, optimizer="sgd", progress=said.append)

    assert _texts(derivation) == _texts(right)
    assert _AT_FOUR in said
