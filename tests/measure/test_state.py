"""Parameters, gradients, optimizer state and checkpoints of tiny modules, counted by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from calc.errors import BadInputError
from calc.measure import measure
from calc.options import Options
from calc.spec import Spec
from tests.measure import tiny


def measured(spec: Spec, quantity: str, optimizer: str = "sgd") -> int | None:
    return measure(spec, {}, options=Options(optimizer=optimizer))[quantity].value


def test_a_linear_layer_has_a_weight_and_a_bias() -> None:
    """5*7 + 7 = 42 parameters, whose fp32 gradients take 4*42 = 168 bytes."""
    assert 42 == measured(tiny.linear(), "parameters")
    assert 168 == measured(tiny.linear(), "gradients.bytes")


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        ("sgd", 0),
        ("momentum", 4 * 42),  # one buffer
        ("adagrad", 4 * 42 + 4 * 2),  # sum of squares, and a step counter for each of 2 tensors
        ("rmsprop", 4 * 42 + 4 * 2),
        ("adam", 8 * 42 + 4 * 2),  # two moments, and the counters
        ("adamw", 8 * 42 + 4 * 2),
    ],
)
def test_optimizer_state_is_every_tensor_with_its_step_counters(optimizer: str, expected: int) -> None:
    """The state of N = 42 parameters in 2 tensors, by optimizer."""
    assert expected == measured(tiny.linear(), "optimizer_state.bytes", optimizer)


def test_a_checkpoint_holds_model_optimizer_state_and_iteration() -> None:
    """4*42 of weights + 8*42 + 4*2 of AdamW + one int64 iteration = 520 bytes of payload."""
    assert 168 + 344 + 8 == measured(tiny.linear(), "checkpoint.bytes", "adamw")


def test_tied_weights_count_once_everywhere() -> None:
    """The tied head adds nothing: V*d + (3*d*d + 3*d) + (d*d + d) = 204 + 468 + 156 = 828, also in gradients and checkpoint."""
    readings = measure(tiny.attention(), {}, options=Options(optimizer="sgd"))

    assert 828 == readings["parameters"].value
    assert 4 * 828 == readings["gradients.bytes"].value
    assert 4 * 828 + 8 == readings["checkpoint.bytes"].value


def test_two_parameter_objects_over_one_memory_count_once() -> None:
    """A second Parameter made of the first one's data is the same 35 elements."""

    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Parameter(torch.randn(5, 7))
            self.b = nn.Parameter(self.a.data)

    spec = tiny.summed(build=lambda s: Shared(), loss=lambda module, x: (x @ module.a + x @ module.b).sum())

    assert 35 == measured(spec, "parameters")


def test_a_module_used_twice_has_its_parameters_once() -> None:
    """A square layer applied twice has 5*5 + 5 = 30 parameters."""
    spec = tiny.summed(build=lambda s: nn.Linear(s.n, s.n), loss=lambda module, x: module(module(x)).sum())

    assert 30 == measured(spec, "parameters")


def test_a_frozen_parameter_has_no_gradient_and_no_state() -> None:
    """Freezing the bias leaves the weight's 35 elements: 4*35 bytes of gradient, 8*35 + 4 of AdamW."""

    def build(s: object) -> nn.Module:
        module = nn.Linear(5, 7)
        module.bias.requires_grad_(False)
        return module

    readings = measure(tiny.summed(build=build), {}, options=Options(optimizer="adamw"))

    assert 42 == readings["parameters"].value
    assert 4 * 35 == readings["gradients.bytes"].value
    assert 8 * 35 + 4 == readings["optimizer_state.bytes"].value


def test_the_optimizer_of_the_spec_is_used_when_asked_for() -> None:
    """The spec's own SGD with momentum keeps one buffer of 4*42 bytes."""
    spec = tiny.linear(optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.5))

    assert 4 * 42 == measured(spec, "optimizer_state.bytes", "spec")


def test_asking_for_the_spec_s_optimizer_where_there_is_none_is_refused() -> None:
    """The refusal names the optimizers that can be chosen instead."""
    refusal = r"^linear brings no optimizer of its own: give its spec optimizer=… or choose one of sgd, .*, muon$"
    with pytest.raises(BadInputError, match=refusal):
        measured(tiny.linear(), "parameters", "spec")


def test_sparse_gradients_are_not_measured_rather_than_guessed() -> None:
    """A sparse gradient has no storage: its bytes, and the live bytes, are left out with the reason."""
    spec = Spec(
        name="sparse",
        dims={"V": 11, "d": 3},
        build=lambda s: nn.Embedding(s.V, s.d, sparse=True),
        inputs=lambda s: (torch.arange(s.d),),
        loss=lambda module, ids: module(ids).sum(),
    )

    readings = measure(spec, {}, options=Options(optimizer="sgd"))

    assert readings["gradients.bytes"].value is None
    assert readings["gradients.bytes"].because == "a gradient holds a tensor without a storage (sparse)"
    assert readings["memory.peak"].value is None
    assert "sparse_coo tensor" in readings["memory.peak"].because
