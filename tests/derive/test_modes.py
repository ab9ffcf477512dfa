"""A model that is used rather than trained: what runs is counted, and what does not is unknown with its reason, never 0."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import calc
from calc.derive.result import Derivation
from calc.errors import BadInputError
from calc.mathematics.gradients import gradients, traced
from calc.options import Options
from calc.pipeline.verdict import EXACT
from calc.spec import Spec

MODES = ("eval", "infer")
ABSENT = {
    "gradients.bytes": "runs no backward",
    "activations.bytes": "saves nothing for backward",
    "optimizer_state.bytes": "runs no optimizer step",
    "flops.backward.matmul": "runs no backward",
    "flops.backward.recompute": "runs no backward",
    "flops.backward.total": "runs no backward",
    "flops.optimizer.total": "runs no optimizer step",
    "bytes_moved.backward": "runs no backward",
    "bytes_moved.optimizer": "runs no optimizer step",
}


def classifier(**changes: Any) -> Spec:
    """Two layers with dropout between them, and a norm that trains differently."""
    parts: dict[str, Any] = {
        "name": "classifier",
        "dims": {"B": 3, "d": 5, "f": 11},
        "build": lambda n: nn.Sequential(nn.Linear(n.d, n.f), nn.BatchNorm1d(n.f), nn.Dropout(0.1), nn.Linear(n.f, n.d)),
        "inputs": lambda n: (torch.randn(n.B, n.d),),
        "loss": lambda module, x: module(x).square().mean(),
    }
    return Spec(**{**parts, **changes})


@pytest.fixture(scope="module")
def used() -> dict[str, Derivation]:
    return {mode: calc.derive(classifier(), mode=mode, cache=False) for mode in MODES}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("quantity", ABSENT)
def test_what_does_not_run_is_unknown_with_its_reason(used: dict[str, Derivation], mode: str, quantity: str) -> None:
    """Neither 0 nor left out."""
    quantity_there = used[mode][quantity]

    assert (None, None, f"mode {mode} {ABSENT[quantity]}") == (quantity_there.text, quantity_there.value, quantity_there.unknown)


@pytest.mark.parametrize("mode", MODES)
def test_what_runs_equals_a_real_run(used: dict[str, Derivation], mode: str) -> None:
    """All that is derived, at other sizes; of a causal mask, nothing is asked where there is no attention."""
    report = calc.check(used[mode], B=7, d=2, f=3)

    assert report.passed
    assert [] == [str(v) for v in report.verdicts if v.verdict != EXACT]
    assert "flops.forward.causal" not in [v.quantity for v in report.verdicts]


@pytest.mark.parametrize("mode", MODES)
def test_the_whole_step_is_the_forward(used: dict[str, Derivation], mode: str) -> None:
    """Its FLOPs are all there are, and its second run needs what its first did."""
    assert used[mode]["flops.forward.total"].text == used[mode]["flops.step.total"].text
    assert used[mode]["memory.peak.first_step"].text == used[mode]["memory.peak"].text


def test_a_checkpoint_of_a_model_that_is_used_is_the_model(used: dict[str, Derivation]) -> None:
    """Weights, and of the norm two running statistics of f and an int64 count: no optimizer state, no iteration."""
    d, f = 5, 11

    assert used["eval"]["checkpoint.bytes"].at(B=3, d=d, f=f) == 4 * (2 * d * f + d + f + 2 * f + 2 * f) + 8


def test_a_step_without_an_optimizer_names_none(used: dict[str, Derivation]) -> None:
    """The options say what the numbers depend on."""
    assert {"precision": "fp32", "attention": "fused", "mode": "eval"} == dict(used["eval"].options)


def test_inference_runs_the_prediction_where_the_spec_has_one() -> None:
    """Without the loss: the square and the mean of B·d numbers, 2·B·d FLOP, are not there."""
    B, d, f = 3, 5, 11
    predicting = classifier(predict=lambda module, x: module(x))
    with_loss, without = (calc.derive(s, mode="infer", cache=False) for s in (classifier(), predicting))

    assert 2 * B * d == with_loss["flops.step.total"].at(B=B, d=d, f=f) - without["flops.step.total"].at(B=B, d=d, f=f)
    assert calc.check(without).ok


def _paired(n: Any) -> tuple[torch.Tensor, ...]:
    return torch.randn(n.B, n.d), torch.randn(n.B, n.d)


def _error(module: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (module(x) - y).square().mean()


def test_inference_has_only_the_inputs_that_the_prediction_takes() -> None:
    """Targets of B·d fp32 numbers are not there: 4·B·d bytes fewer at the peak, derived and measured. ``*inputs`` takes all."""
    B, d, f = 3, 5, 11
    one, both = (
        calc.derive(classifier(inputs=_paired, loss=_error, predict=predict), mode="infer", cache=False)
        for predict in (lambda module, x: module(x), lambda module, *inputs: module(inputs[0]))
    )

    assert 4 * B * d == both["memory.peak"].at(B=B, d=d, f=f) - one["memory.peak"].at(B=B, d=d, f=f)
    assert calc.check(one, B=7, d=2, f=13).ok
    assert calc.check(both, B=7, d=2, f=13).ok


def test_what_a_prediction_computes_outside_the_module_is_not_the_loss() -> None:
    """A softmax of the logits is of the model; in evaluation the loss is what runs there."""
    spec = classifier(predict=lambda module, x: module(x).softmax(-1))
    paths = {mode: {op.module_path for op in calc.trace(spec, mode=mode, cache=False).traces[0].ops} for mode in MODES}

    assert {"0", "1", "3", "(loss)"} == paths["eval"]
    assert {"0", "1", "3", "(model)"} == paths["infer"]


def test_a_module_without_parameters_can_be_used() -> None:
    """There is nothing to train, and all the same something to count: 5 operations of a softmax, less 2 reductions' last."""
    spec = classifier(build=lambda n: nn.Softmax(-1), predict=lambda module, x: module(x), dims={"B": 3, "d": 5})
    result = calc.derive(spec, mode="infer", cache=False)

    assert result["parameters"].value == 0
    assert result["flops.forward.elementwise"].text == "5*B*d - 2*B"
    assert calc.check(result).ok


@pytest.mark.parametrize("mode", MODES)
def test_what_is_not_trained_has_no_gradients(mode: str) -> None:
    """Its equations are derived all the same."""
    with pytest.raises(BadInputError, match=f"^mode {mode} takes no gradients: use mode train$"):
        gradients(classifier(), options=Options(mode=mode))
    assert "f" in traced(classifier(), options=Options(mode=mode)).symbols


def test_training_is_the_default_mode() -> None:
    """The default of the option, for users and for both routes."""
    assert Options().mode == "train"
    assert Options().trains
    assert not Options(mode="eval").trains


def test_evaluation_needs_less_memory_than_training() -> None:
    """Nothing is saved for backward, and there is no gradient and no state."""
    training = calc.derive(classifier(), cache=False)

    assert training["memory.peak"].value is not None
    assert training["memory.peak"].value > 2 * (calc.derive(classifier(), mode="eval", cache=False)["memory.peak"].value or 0)
