"""Live bytes of a step, counted by hand, and against the allocator's own account of the same step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from calc.measure import measure
from calc.measure.steps import watch_of
from calc.measure.storages import StorageWatch, distinct_storages
from calc.measure.training import training
from calc.models.load import load
from calc.options import Options
from calc.spec import Spec
from tests.measure import tiny
from tests.quick import few

SGD = Options(optimizer="sgd")


def peaks(spec: Spec, optimizer: str = "sgd") -> tuple[int | None, int | None]:
    readings = measure(spec, {}, options=Options(optimizer=optimizer))
    return readings["memory.peak.first_step"].value, readings["memory.peak"].value


def test_the_peak_of_a_linear_layer_is_in_its_backward() -> None:
    """Weights 168 + x 60, and when the bias's gradient is born: loss 4, its gradient 4, dW 140, db 28. SGD adds nothing."""
    assert (404, 404) == peaks(tiny.summed())


def test_mean_squared_error_keeps_a_storage_of_all_its_elements() -> None:
    """Torch's CPU kernel gives a scalar loss whose storage still has the 3*7 single errors.

    Weights 168 + x 60 + y 84, then loss 84, its gradient 4, the prediction's gradient 84, dW 140, db 28.
    """
    assert (652, 652) == peaks(tiny.linear())


def test_adamw_peaks_at_the_denominator_of_its_largest_weight() -> None:
    """Weights 168 + x 60 + state 8*42 + 4*2; loss 4, gradients 168; the root 140 and the quotient 140 of the weight.

    The first step is the same: all state is made before the first weight is changed.
    """
    expected = 168 + 60 + 344 + 4 + 168 + 140 + 140

    assert (expected, expected) == peaks(tiny.summed(), "adamw")


def test_the_first_step_of_momentum_makes_its_state_as_it_goes() -> None:
    """First step: weights 168, x 60, loss 4, gradients 168, and 168 of buffers as the last is made. Second: 404 + the 168."""
    assert (168 + 60 + 4 + 168 + 168, 404 + 168) == peaks(tiny.summed(), "momentum")


def test_a_planted_leak_shows_in_the_peak() -> None:
    """A module that keeps its output (84 bytes) holds one of them at the first step's peak and two at the second's."""

    class Leaking(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            y = super().forward(x)
            self.__dict__.setdefault("leak", []).append(y.detach())
            return y

    assert (404 + 84, 404 + 2 * 84) == peaks(tiny.summed(build=lambda s: Leaking(s.n, s.m)))


def test_a_view_counts_its_whole_storage() -> None:
    """An input that is 3 rows of a table of 13 holds all 13 * 5 elements: 40 bytes a row more, for 10 rows."""
    spec = tiny.summed(inputs=lambda s: (torch.randn(13, s.n)[: s.B],))

    assert (404 + 10 * 4 * 5,) * 2 == peaks(spec)


def test_the_peak_is_what_the_allocator_says_where_operators_need_no_scratch() -> None:
    """A second step under torch's profiler, no dispatch mode in sight, allocates the same peak to the byte."""
    spec = Spec(
        name="mlp",
        dims={"B": 3, "n": 5, "f": 23},
        build=lambda s: nn.Sequential(nn.Linear(s.n, s.f), nn.GELU(), nn.Linear(s.f, s.n)),
        inputs=lambda s: (torch.randn(s.B, s.n), torch.randn(s.B, s.n)),
        loss=lambda module, x, y: F.mse_loss(module(x), y),
    )
    with training(spec, spec.sizes(), SGD, "cpu") as run:
        run.step()
        at_start = sum(distinct_storages([*run.module.parameters(), *run.inputs]).values())
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            run.step()

    assert at_start + _highest(profiler) == peaks(spec)[1]


def _highest(profiler: Any) -> int:
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    live, highest = 0, 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        live += event.nbytes()
        highest = max(highest, live)
    return highest


def test_a_storage_leaves_when_its_last_reference_goes() -> None:
    """A view keeps the storage of its base; the watch counts it until the view is gone too."""
    with StorageWatch() as watch:
        base = torch.empty(10)
        view = base[2:5]
        del base
        assert 40 == watch.live
        del view
        assert 0 == watch.live
    assert 40 == watch.peak


def test_a_storage_resized_in_place_counts_with_its_new_size() -> None:
    """Growing a tensor from 2 to 7 elements adds 20 bytes."""
    with StorageWatch() as watch:
        x = torch.empty(2)
        x.resize_(7)
        assert 28 == watch.live


@pytest.mark.parametrize("attention", ["fused", "math"])
def test_two_runs_give_the_same_readings(attention: str) -> None:
    """Everything is seeded, so a measurement repeats exactly."""
    options = Options(attention=attention)

    assert measure(tiny.attention(), {}, options=options) == measure(tiny.attention(), {}, options=options)


@pytest.mark.parametrize("options", few([Options(checkpointing="block"), Options(accumulation="2"), Options(precision="bf16-autocast")], 1))
def test_other_instruments_do_not_move_the_peak(options: Options) -> None:
    """Two steps with nothing attached but the watch hold the same bytes at their peaks as with saved-tensor hooks and counters."""
    spec = load("gpt2")
    sizes = spec.sizes({"L": 2, "d": 12, "h": 3, "B": 2, "T": 5, "V": 17, "C": 7})
    alone = []
    with training(spec, sizes, options, "cpu") as run:
        watch = watch_of(run)
        for _ in range(2):
            watch.open_window()
            with watch:
                run.step()
            alone.append(watch.peak)

    readings = measure(spec, sizes, options=options)
    assert alone == [readings[name].value for name in ("memory.peak.first_step", "memory.peak")]
