"""Which module the profiled operators of a step count for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from calc.measure.step_time import GRADIENTS, LOSS, OPTIMIZER, module_times, summed
from calc.measure.training import training
from calc.options import Options
from tests.measure import tiny


def event(name: str, parent: Any = None, took: float = 0, number: int = -1, start: float = 0) -> Any:
    """An event of the profiler: ``took`` µs by itself."""
    times = {"self_cpu_time_total": took, "self_device_time_total": 10 * took, "time_range": SimpleNamespace(start=start)}
    return SimpleNamespace(name=name, cpu_parent=parent, sequence_nr=number, device_type=torch.autograd.DeviceType.CPU, **times)


def test_operators_count_for_the_innermost_module_and_backward_ones_for_that_of_their_forward() -> None:
    """Numbers of autograd join the two; what has none and gathers gradients is apart; what marks a span is no operator."""
    model = event("napkin site (model)", took=500)
    inner = event("napkin site layer", model)
    product = event("aten::addmm", inner, 3, number=7)
    node = event("autograd::engine::evaluate_function: AddmmBackward0", number=7)
    gathering = event("autograd::engine::evaluate_function: AccumulateGrad", number=-1)
    stepping = event("napkin phase optimizer")
    operators = [
        event("aten::add", model, 2),
        product,
        event("aten::copy_", product, 1),
        event("aten::mm", event("AddmmBackward0", node, 1), 4),
        event("aten::detach", gathering, 5),
        event("aten::lerp_", stepping, 6),
        event("aten::nll_loss", None, 7),
    ]
    actual = {site.module_path: site for site in summed([model, inner, node, gathering, stepping, *operators], on_device=False)}

    assert (2000, 0) == (actual["(model)"].forward, actual["(model)"].backward)
    assert (4000, 4000) == (actual["layer"].forward, actual["layer"].backward)
    assert (5000, 6000, 7000) == (actual[GRADIENTS].backward, actual[OPTIMIZER].optimizer, actual[LOSS].forward)


def test_of_operators_with_one_number_the_last_is_the_one_that_autograd_keeps() -> None:
    """A dropout of nothing makes no node, and the layer norm behind it has the same number."""
    drop, norm = event("napkin site drop"), event("napkin site norm")
    node = event("autograd::engine::evaluate_function: NativeLayerNormBackward0", number=7)
    events = [event("aten::native_layer_norm", norm, 1, 7, start=2), event("aten::dropout", drop, 1, 7, start=1), event("mul", node, 1)]

    assert 1000 == next(site.backward for site in summed(events, on_device=False) if site.module_path == "norm")


def test_on_a_device_the_times_are_those_of_its_kernels() -> None:
    inner = event("napkin site layer")

    assert 30_000 == summed([event("aten::mm", inner, 3)], on_device=True)[0].forward


def test_a_forward_that_runs_again_in_the_backward_counts_for_its_module() -> None:
    node = event("autograd::engine::evaluate_function: CheckpointFunctionBackward", number=3)
    again = event("aten::mm", event("napkin site layer", node), 4)

    assert (0, 4000) == (lambda site: (site.forward, site.backward))(summed([again], on_device=False)[0])


@pytest.fixture(scope="module")
def real() -> Any:
    spec = tiny.attention()
    with training(spec, spec.sizes(), Options(), "cpu") as run:
        run.step()
        actual = module_times(run, 1)
        left = [len(part._forward_hooks) + len(part._forward_pre_hooks) for part in run.module.modules()]
    return actual, left


def test_every_module_of_a_real_step_has_a_forward_and_a_backward(real: Any) -> None:
    """Embedding, projections and the optimizer, by the names of the module; the head is tied but a module of its own."""
    actual = {site.module_path: site for site in real[0]}

    for name in ("embed", "qkv", "out", "head", "(model)", LOSS):
        assert actual[name].forward > 0, name
        assert actual[name].backward > 0, name
    assert actual[OPTIMIZER].optimizer > 0


def test_no_hook_stays_behind(real: Any) -> None:
    assert {0} == set(real[1])
