"""Inputs of a step as data loaders make them: tensors in dictionaries, lists and named tuples, and numbers beside them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import calc
from calc.errors import SpecError
from calc.experiment.inputs import inputs_at, mapped
from calc.options import Options
from calc.pipeline.verdict import FAILED
from calc.spec import Sizes, Spec


class Targets(NamedTuple):
    """What a loss compares with."""

    y: Tensor
    weights: list[Tensor]


def loss(module: nn.Module, batch: dict[str, Tensor], targets: Targets, heads: int, reduction: str) -> Tensor:
    error = module(batch["x"]) - targets.y
    assert reduction == "sum"
    return sum((error[:, : error.shape[1] // heads].pow(2).mm(weight).sum() for weight in targets.weights), torch.zeros(()))


def inputs(n: Any) -> tuple[Any, ...]:
    weights = [torch.randn(n.d, 1), torch.randn(n.d, 2)]
    return {"x": torch.randn(n.B, n.h * n.d)}, Targets(torch.randn(n.B, n.h * n.d), weights), n.h, "sum"


SPEC = Spec("nested", {"B": 7, "h": 2, "d": 5}, lambda n: nn.Linear(n.h * n.d, n.h * n.d), inputs, loss)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_tensors_in_containers_are_inputs_to_both_routes(precision: str) -> None:
    """All of them are alive before the step starts: each peak and the saved bytes equal those of a real run."""
    derivation = calc.derive(SPEC, cache=False, precision=precision, optimizer="sgd")
    report = calc.check(derivation, B=3, h=2, d=11)

    assert {"memory.peak", "activations.bytes"} <= {v.quantity for v in report.verdicts if v.measured is not None}
    assert [] == [v.quantity for v in report.verdicts if v.verdict == FAILED]


@pytest.mark.parametrize(
    ("predict", "count"),
    [
        (lambda module: module, 0),
        (lambda module, batch: module(batch["x"]), 1),
        (lambda module, batch, targets=None: module(batch["x"]), 2),
        (lambda module, *inputs: module(inputs[0]["x"]), 4),
        (lambda module, batch, *, scale=1: module(batch["x"]), 1),
        (partial(lambda scale, module, batch: module(batch["x"]), 2), 1),
    ],
)
def test_inference_has_as_many_inputs_as_the_prediction_has_parameters(predict: Any, count: int) -> None:
    """The first ones; the other modes have all four."""
    spec, n = replace(SPEC, predict=predict), Sizes(B=3, h=2, d=5)

    assert count == len(inputs_at(spec, n, Options(mode="infer")))
    assert 4 == len(inputs_at(spec, n, Options(mode="eval"))) == len(inputs_at(spec, n))


def test_every_tensor_is_changed_and_containers_keep_their_types() -> None:
    """Numbers and texts stay as they are."""
    moved = mapped(lambda x: x + 1, inputs(Sizes(B=3, h=2, d=5)))

    assert (dict, Targets, int, str) == tuple(type(each) for each in moved)
    assert (2, "sum") == moved[2:]
    assert [(5, 1), (5, 2)] == [tuple(weight.shape) for weight in moved[1].weights]


def test_an_object_that_may_have_tensors_in_it_is_refused() -> None:
    """No route would see its tensors."""
    message = "inputs returned an object of set, but may return tensors and numbers, also in tuples, lists and dictionaries$"
    with pytest.raises(SpecError, match=message):
        inputs_at(Spec("nested", {"B": 2}, SPEC.build, lambda n: ({torch.ones(n.B)},), loss), Sizes(B=2))
