"""Memory on a CUDA device: what is called in which order, on a device that only pretends; the boundary; and a real one where there is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from calc.errors import BadInputError, MeasurementError
from calc.measure import cuda_memory
from calc.measure.cuda_memory import Fits, boundary, largest_that_fits
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

    def step(self, size: int = 0) -> None:
        self.calls.append("step")
        self.steps += 1
        if size > self.fails_above:
            raise torch.OutOfMemoryError("CUDA out of memory")


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> Pretended:
    cuda = Pretended()

    @contextmanager
    def training(spec: Any, sizes: Any, options: Any, device: str) -> Iterator[Any]:
        yield SimpleNamespace(step=lambda: cuda.step(sizes["B"]))

    monkeypatch.setattr(cuda_memory, "training", training)
    monkeypatch.setattr(cuda_memory, "torch", SimpleNamespace(cuda=cuda, OutOfMemoryError=torch.OutOfMemoryError))
    return cuda


def test_without_a_device_it_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal says so; no number stands in."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    said = "^not measured: there is no CUDA device here, and the allocator's statistics exist only on one$"

    with pytest.raises(MeasurementError, match=said):
        cuda_memory.cuda_memory(tiny.linear())
    with pytest.raises(MeasurementError, match=said):
        largest_that_fits(tiny.linear(), "B")


def test_peaks_are_of_one_step_after_warm_up(pretended: Pretended) -> None:
    """Two steps, peaks forgotten, one step, and only then are they read."""
    found = cuda_memory.cuda_memory(tiny.linear())

    assert (1000, 5003, 2**21, 2**30) == (found.before, found.allocated, found.reserved, found.total)
    order = ["step", "step", "synchronize", "reset_peak_memory_stats", "memory_allocated", "step", "synchronize"]
    assert order == [call for call in pretended.calls if call in order]


def test_the_largest_batch_is_found_between_what_fits_and_what_does_not(pretended: Pretended) -> None:
    """12 fit and 13 do not: doubled to 16, then halved."""
    pretended.fails_above = 12

    found = largest_that_fits(tiny.linear(), "B")

    assert (12, 13) == (found.largest, found.too_large)
    assert [1, 2, 4, 8, 16, 12, 14, 13] == [size for size, _ in found.tried]


def test_another_error_than_memory_is_not_taken_for_a_boundary(pretended: Pretended, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes out as it is."""

    def fails(size: int) -> None:
        raise MeasurementError("the model is wrong")

    monkeypatch.setattr(pretended, "step", fails)
    with pytest.raises(MeasurementError, match=r"^the model is wrong$"):
        cuda_memory.runs(tiny.linear(), {}, Options(), "cuda")


@pytest.mark.parametrize(
    ("fitting", "limit", "largest", "too_large"),
    [(0, 64, None, 1), (1, 64, 1, 2), (37, 64, 37, 38), (64, 64, 64, None), (1000, 64, 64, None)],
)
def test_the_boundary_of_any_size(fitting: int, limit: int, largest: int | None, too_large: int | None) -> None:
    """Nothing fits, one does, some do, all up to the limit do."""
    found = boundary("B", lambda n: n <= fitting, limit)

    assert Fits("B", largest, too_large, found.tried) == found


def test_a_dimension_that_is_none_is_refused(pretended: Pretended) -> None:
    with pytest.raises(BadInputError, match=r"^linear has no dimension 'T' to set: it has B, n, m$"):
        largest_that_fits(tiny.linear(), "T")


@pytest.mark.gpu
def test_a_real_device_holds_at_least_the_live_bytes() -> None:
    """The simulated peak is the allocator's rounding of what the record has; a real one adds workspaces."""
    from calc.allocator import WORKSPACES, simulate
    from calc.load import load
    from calc.trace import again

    spec = load("mlp")
    sizes = spec.sizes({"B": 256})
    options = Options(implementation="foreach")
    expected = simulate(again(spec, {}, sizes, {}, options))
    found = cuda_memory.cuda_memory(spec, {"B": 256}, options=options)

    assert expected.live <= found.allocated <= expected.allocated + max(w.nbytes for w in WORKSPACES)
