"""Memory on a CUDA device: what is called in which order, on a device that only pretends; the boundary; and a real one where there is."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from calc.errors import MeasurementError
from calc.measure import cuda_memory
from calc.measure.cuda_memory import CudaMemory, Fits, boundary, memory_of, require_cuda, stepped
from calc.measure.training import Training, training
from calc.options import Options
from tests.measure import tiny


class Pretended:
    """torch.cuda as far as it is used, with statistics that say how often a step ran."""

    def __init__(self, fails_above: int = 2**60) -> None:
        self.calls: list[str] = []
        self.steps = 0
        self.fails_above = fails_above

    def is_available(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        def called(*_: Any) -> Any:
            self.calls.append(name)
            numbers = {"memory_allocated": 1000, "max_memory_allocated": 5000 + self.steps, "max_memory_reserved": 2**21}
            if name == "get_device_properties":
                return SimpleNamespace(name="pretended", total_memory=2**30)
            return numbers.get(name)

        return called

    def run(self) -> Any:
        return SimpleNamespace(device="cuda", sizes={"B": 1}, step=self.step)

    def step(self, size: int = 0) -> None:
        self.calls.append("step")
        self.steps += 1
        if size > self.fails_above:
            raise torch.OutOfMemoryError("CUDA out of memory")


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> Pretended:
    cuda = Pretended()

    monkeypatch.setattr(cuda_memory, "torch", SimpleNamespace(cuda=cuda, OutOfMemoryError=torch.OutOfMemoryError))
    return cuda


def measured(run: Training, repetitions: int = 1) -> CudaMemory:
    """The peaks of steps after warm-up, with those of the very first."""
    first = stepped(run, "cuda")
    return replace(memory_of(run, warm_up=1, repetitions=repetitions), first=first)


def test_without_a_device_it_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal says so; no number stands in."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    with pytest.raises(MeasurementError, match=r"^not measured: there is no CUDA device here$"):
        require_cuda()


def test_peaks_are_of_one_step_after_warm_up(pretended: Pretended) -> None:
    """The very first step is read apart; after one more, peaks are forgotten, one step runs, and only then are they read."""
    measurement = measured(pretended.run())

    assert (1000, 5003, 2**21, 2**30) == (measurement.before, measurement.allocated, measurement.reserved, measurement.total)
    assert measurement.first is not None
    assert 5001 == measurement.first.allocated
    one = ["synchronize", "reset_peak_memory_stats", "memory_allocated", "step", "synchronize"]
    assert [*one, "step", *one] == [call for call in pretended.calls if call in one]


def test_every_repetition_is_kept(pretended: Pretended) -> None:
    """Each with its own peaks; the largest is the peak."""
    measurement = measured(pretended.run(), repetitions=3)

    assert [5003, 5004, 5005] == [r.allocated for r in measurement.repetitions]
    assert 5005 == measurement.allocated == measurement.to_json()["max_memory_allocated"]
    assert 3 == len(measurement.to_json()["repetitions"])


def test_the_largest_batch_is_found_between_what_fits_and_what_does_not() -> None:
    """12 fit and 13 do not: doubled to 16, then halved."""
    limit = boundary("B", lambda n: n <= 12, 2**16)

    assert (12, 13) == (limit.largest, limit.too_large)
    assert [1, 2, 4, 8, 16, 12, 14, 13] == [size for size, _ in limit.tried]


def test_another_error_than_memory_is_not_taken_for_a_boundary(pretended: Pretended, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes out as it is."""

    def fails(*_: Any) -> None:
        raise MeasurementError("the model is wrong")

    monkeypatch.setattr(cuda_memory, "fed", fails)
    with (
        training(tiny.linear(), tiny.linear().sizes(), Options(), "cpu") as run,
        pytest.raises(MeasurementError, match=r"^the model is wrong$"),
    ):
        cuda_memory.still_runs(run, {"B": 11, "n": 5, "m": 7})


@pytest.mark.parametrize(
    ("fitting", "limit", "largest", "too_large"),
    [(0, 64, None, 1), (1, 64, 1, 2), (37, 64, 37, 38), (64, 64, 64, None), (1000, 64, 64, None)],
)
def test_the_boundary_of_any_size(fitting: int, limit: int, largest: int | None, too_large: int | None) -> None:
    """Nothing fits, one does, some do, all up to the limit do."""
    actual = boundary("B", lambda n: n <= fitting, limit)

    assert Fits("B", largest, too_large, actual.tried) == actual


@pytest.mark.parametrize("start", [1, 7, 12, 13, 37, 64, 500])
@pytest.mark.parametrize("fitting", [0, 1, 12, 36, 37, 38, 64])
def test_a_boundary_is_found_from_wherever_one_starts(start: int, fitting: int) -> None:
    """The start only saves tries: no size is tried twice, and the answer is the same."""
    limit = boundary("B", lambda n: n <= fitting, 64, start)

    assert (fitting or None, fitting + 1 if fitting < 64 else None) == (limit.largest, limit.too_large)
    assert len({size for size, _ in limit.tried}) == len(limit.tried)


def test_inputs_of_other_sizes_go_through_the_same_module() -> None:
    """What failed for want of memory leaves no gradient behind, and the next size still runs."""
    with training(tiny.linear(), tiny.linear().sizes(), Options(), "cpu") as run:
        more = cuda_memory.fed(run, {"B": 11, "n": 5, "m": 7})
        more.step()

        assert run.module is more.module
        assert (11, 5) == tuple(more.inputs[0].shape)


def test_a_size_without_room_is_told_from_one_that_runs(pretended: Pretended, monkeypatch: pytest.MonkeyPatch) -> None:
    """And its gradients are dropped."""
    with training(tiny.linear(), tiny.linear().sizes(), Options(), "cpu") as run:
        assert cuda_memory.still_runs(run, {"B": 11, "n": 5, "m": 7})

        run.module.weight.grad = torch.ones(7, 5)
        monkeypatch.setattr(cuda_memory, "fed", lambda *_: SimpleNamespace(step=lambda: pretended.step(2**61)))
        assert not cuda_memory.still_runs(run, {"B": 11, "n": 5, "m": 7})
        assert run.module.weight.grad is None


@pytest.mark.gpu
def test_a_real_device_holds_at_least_the_live_bytes() -> None:
    """The simulated peak is the allocator's rounding of what the record has; a real one adds workspaces."""
    from calc.derive.cuda_allocator import WORKSPACES, simulate
    from calc.models.load import load
    from calc.trace import trace_at

    spec = load("mlp")
    sizes = spec.sizes({"B": 256})
    options = Options(implementation="foreach")
    expected = simulate(trace_at(spec, {}, sizes, {}, options))
    with training(spec, sizes, options, "cuda") as run:
        measurement = measured(run)

    assert expected.live <= measurement.allocated <= expected.allocated + max(w.nbytes for w in WORKSPACES)
