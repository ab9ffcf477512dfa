"""How measuring refuses, and what it leaves alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from calc.errors import BadInputError, DimensionError, MeasurementError, NapkinError, SpecError, UnknownQuantityError
from calc.measure import free_memory, measure
from calc.options import PRECISIONS, Options
from tests.measure import tiny

QUANTITIES = {
    "parameters", "parameters.active", "parameters.non_embedding", "parameters.bytes", "gradients.bytes", "optimizer_state.bytes",
    "activations.bytes", "memory.peak", "memory.peak.first_step",
    "checkpoint.bytes", "flops.forward.matmul", "flops.backward.matmul", "flops.optimizer.matmul", "flops.forward.elementwise",
    "flops.backward.elementwise", "flops.optimizer.elementwise", "bytes_moved.forward", "bytes_moved.backward", "bytes_moved.optimizer",
}  # fmt: skip


def test_every_quantity_of_a_linear_step_is_measured_with_a_named_instrument() -> None:
    """Nothing is missing, and no number stands without saying where it is from."""
    measurement = measure(tiny.linear(), {})

    assert set(measurement) == QUANTITIES
    assert measurement.readings
    assert all(reading.value is not None and reading.instrument for reading in measurement.readings.values())


def test_bytes_moved_and_elementwise_flops_of_a_sum() -> None:
    """Forward of the summed layer: 21 bias additions and 20 of the sum; x 60 + W 140 + b 28 + y 84 written, 84 + 4 for the sum."""
    measurement = measure(tiny.summed(), {}, options=Options(optimizer="sgd"))

    assert 21 + 20 == measurement["flops.forward.elementwise"].value
    assert 60 + 140 + 28 + 84 + 84 + 4 == measurement["bytes_moved.forward"].value


def test_provenance_names_software_machine_format_and_seed() -> None:
    """A number without its origin cannot be compared."""
    assert {"torch", "python", "platform", "device", "dtype", "seed"} == set(measure(tiny.linear(), {}).provenance)


def test_another_seed_draws_other_numbers_and_measures_the_same() -> None:
    """Weights and inputs differ, so no count rests on one draw; the provenance says which."""
    drawn: list[list[float]] = []
    spec = tiny.linear()

    def loss(module: torch.nn.Module, x: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        drawn.append([float(x.flatten()[0]), *(float(p.detach().flatten()[0]) for p in module.parameters())])
        return spec.loss(module, x, *others)

    first, other = (measure(replace(spec, loss=loss), {}, seed=seed) for seed in (0, 7))
    assert first.readings == other.readings
    assert ("0", "7") == (first.provenance["seed"], other.provenance["seed"])
    assert all(a != b for a, b in zip(drawn[0], drawn[len(drawn) // 2], strict=True))


def test_a_measurement_is_plain_data() -> None:
    """Readings that were not taken are null, with the reason beside them."""
    document = measure(tiny.linear(), {"B": 2}).to_json()

    assert {"B": 2, "n": 5, "m": 7} == document["sizes"]
    assert 42 == document["readings"]["parameters"]["value"]


def test_a_quantity_that_is_not_there_is_refused_by_name() -> None:
    """Asking for a wrong name lists the right ones."""
    with pytest.raises(UnknownQuantityError, match=r"^'flops' was not measured: use one of parameters, "):
        measure(tiny.linear(), {})["flops"]


def test_progress_names_every_stage_and_the_step_runs_twice() -> None:
    """All instruments share two steps of one model."""
    told: list[str] = []
    built: list[int] = []

    def build(s: Any) -> nn.Module:
        layer = nn.Linear(s.n, s.m)
        if layer.weight.device.type != "meta":  # where parameters are counted before anything is allocated
            layer.register_forward_hook(lambda *_: built.append(0))
        return layer

    measure(tiny.linear(build=build), {}, progress=told.append)

    assert 2 == len(built)
    assert [
        "building the model",
        "the first step, with live bytes",
        "the second step, with every counter",
        "writing a checkpoint and reading it back",
    ] == told


def test_the_caller_s_random_numbers_are_left_alone() -> None:
    """Seeding a measurement does not reseed the program around it."""
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)

    measure(tiny.linear(), {})

    assert torch.equal(expected, torch.rand(1))


def _raising(s: Any) -> nn.Module:
    raise RuntimeError("no such\nlayer")


class _NoForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"build": _raising}, "linear at B=3, n=5, m=7: building the module raised RuntimeError: no such layer"),
        ({"inputs": lambda s: 1 / 0}, "linear at B=3, n=5, m=7: making the inputs raised ZeroDivisionError: division by zero"),
        ({"inputs": lambda s: (torch.randn(2, 2),)}, "the forward pass raised TypeError"),
    ],
)
def test_a_model_that_raises_gives_one_line_that_says_where(change: dict[str, Any], message: str) -> None:
    """The line names model, sizes and what was being done; no traceback, no line break."""
    with pytest.raises(MeasurementError) as caught:
        measure(tiny.linear(**change), {})

    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"build": lambda s: 3}, r"^spec 'linear': build must return a torch\.nn\.Module, not int$"),
        ({"inputs": lambda s: torch.ones(2)}, r"^spec 'linear': inputs must return a tuple with at least one tensor, not a tensor$"),
        ({"loss": lambda m, x, y: m(x)}, r"^spec 'linear': loss must return a tensor of one element, not a tensor of shape \(3, 7\)$"),
        ({"loss": lambda m, x, y: x.sum()}, r"^spec 'linear': the loss depends on no parameter that requires a gradient$"),
        ({"build": lambda s: nn.ReLU()}, r"^linear: the module has no parameter, so there is nothing to train; .*$"),
        ({"optimizer": lambda p: 3}, r"^linear: optimizer must return a torch\.optim\.Optimizer, not int$"),
    ],
)
def test_a_spec_that_breaks_its_promise_is_refused(change: dict[str, Any], message: str) -> None:
    """What a spec must return is said together with what it did return."""
    with pytest.raises(SpecError, match=message):
        measure(tiny.linear(**change), {}, options=Options(optimizer="spec" if "optimizer" in change else "sgd"))


def test_sizes_that_break_the_model_are_refused_before_it_is_built() -> None:
    """An unknown dimension is the dimension table's refusal, not the model's."""
    with pytest.raises(DimensionError, match="no dimension 'Q'"):
        measure(tiny.linear(build=_raising), {"Q": 3})


def test_a_tied_dimension_in_the_sizes_follows_from_the_others() -> None:
    """A derivation's sizes hold tied dimensions too; they are not an error here."""
    from calc.dimensions import Dim

    spec = tiny.linear(dims={"B": 3, "n": 5, "m": Dim("n + 2", tied=True)})

    assert {"B": 3, "n": 11, "m": 13} == dict(measure(spec, {"n": 11, "m": 7}).sizes)


def test_a_model_larger_than_memory_is_refused_before_it_is_built() -> None:
    """The line has the bytes needed, the bytes there, and the dimension to lower; B does not matter to it."""
    refusal = r"^linear has [\d,]+ parameters at these sizes: .* bytes and [\d,]+ are free; lower (n, m|m, n)$"
    with pytest.raises(MeasurementError, match=refusal):
        measure(tiny.linear(), {"n": 10**7, "m": 10**7})


def test_a_model_that_cannot_be_built_without_memory_is_tried_for_real(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard is no obstacle to a module that reads values while it is built."""
    monkeypatch.setattr(free_memory, "available_bytes", lambda: 0)

    def build(s: Any) -> nn.Module:
        return nn.Linear(int(torch.tensor(5).item()), 7)

    assert 42 == measure(tiny.linear(build=build), {})["parameters"].value


@pytest.mark.parametrize("device", ["tpu", "cuda:x", ""])
def test_an_unknown_device_is_refused(device: str) -> None:
    """The known ones are listed."""
    with pytest.raises(BadInputError, match="use cpu or cuda"):
        measure(tiny.linear(), {}, device=device)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_cuda_device_that_is_not_there_is_refused() -> None:
    """One line, with both ways out."""
    with pytest.raises(MeasurementError, match=r"^there is no CUDA device here: measure on cpu"):
        measure(tiny.linear(), {}, device="cuda")


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"optimizer": "adamx"}, "unknown optimizer 'adamx': did you mean adamax?"),
        ({"attention": "flash"}, "unknown attention 'flash': use one of fused, math"),
        ({"precision": "fp32-tf32"}, f"precision 'fp32-tf32' is not built yet: use {', '.join(PRECISIONS)}"),
        ({"precision": "bf16-mixed"}, f"unknown precision 'bf16-mixed': did you mean bf16-autocast? ({', '.join(PRECISIONS)})"),
        ({"precision": "fp12"}, f"unknown precision 'fp12': did you mean fp32? ({', '.join(PRECISIONS)})"),
        ({"mode": "dream"}, "unknown mode 'dream': use one of train, eval, infer"),
    ],
)
def test_an_option_that_is_not_there_is_refused_in_one_line(option: dict[str, str], message: str) -> None:
    """What is unknown and what is only not built yet are told apart."""
    with pytest.raises(NapkinError) as caught:
        Options(**option)

    assert message == str(caught.value)


def test_options_are_plain_data_in_a_fixed_order() -> None:
    """The document of a report starts from these."""
    expected = {"optimizer": "adamw", "precision": "fp32", "attention": "fused", "mode": "train"}

    assert list(expected.items()) == list(Options().to_json().items())
