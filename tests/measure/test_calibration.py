"""Calibrations by a synthetic clock: what is recorded, what is left out, and that the real primitives run on this machine."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from calc.errors import MeasurementError
from calc.hardware.calibration import COPY, OVERHEADS, PRODUCT
from calc.measure import calibration as measured
from calc.measure.calibration import PROCESSOR_TIME, calibrate
from calc.measure.primitives import Action, Primitive, primitives
from calc.measure.timing import HostWatch
from tests.performance.calibrated import BY_BYTES

REAL = list(primitives("cpu"))
WHAT = dict.fromkeys(p.name for p in REAL)


@dataclass
class Clock:
    """Moves by a nanosecond whenever it is read, and by what an action says that it took."""

    now: int = 0

    def __call__(self) -> int:
        self.now += 1
        return self.now

    def work(self, nanoseconds: int) -> Action:
        def run() -> None:
            self.now += nanoseconds

        return run


def _primitive(make: Callable[[], Action], repeats: int = 1, flops: int = 0) -> Primitive:
    return Primitive(PRODUCT, "float32", {"m": 1, "k": 2, "n": 3}, flops, 24, make, repeats)


def test_every_repetition_is_recorded_with_what_was_done() -> None:
    """1,000 ns of work and one tick of the clock between two readings; 40 repetitions are the most."""
    clock = Clock()

    (point,) = calibrate("cpu", watch=HostWatch(clock), chosen=[_primitive(lambda: clock.work(1000), flops=12)]).points

    assert (PRODUCT, "float32", {"m": 1, "k": 2, "n": 3}, 12, 24, 1) == (
        point.primitive, point.dtype, point.sizes, point.flops, point.bytes, point.calls,
    )  # fmt: skip
    assert (1001,) * 40 == point.nanoseconds


def test_what_the_first_calls_take_does_not_count() -> None:
    """A first call of a second, later ones of 1,000 ns."""
    clock, first = Clock(), [10**9]

    def make() -> Action:
        return lambda: clock.work(first.pop() if first else 1000)()

    (point,) = calibrate("cpu", watch=HostWatch(clock), chosen=[_primitive(make)]).points

    assert {1001} == set(point.nanoseconds)


def test_an_action_that_repeats_itself_counts_as_so_many_calls() -> None:
    """A chain of 64 operators that takes 64 µs: 1 µs each."""
    clock = Clock()

    (point,) = calibrate("cpu", watch=HostWatch(clock), chosen=[_primitive(lambda: clock.work(64_000), repeats=64)]).points

    assert 64 == point.calls
    assert 1e-6 == pytest.approx(float(point.seconds), rel=1e-3)


def test_calls_that_are_too_short_for_the_clock_are_timed_together() -> None:
    """2 ns a call by a clock of 1 ns: 32 calls of 2 ns make 64."""
    clock = Clock()

    (point,) = calibrate("cpu", watch=HostWatch(clock), chosen=[_primitive(lambda: clock.work(2))]).points

    assert point.calls > 1
    assert 2e-9 == pytest.approx(float(point.seconds), rel=0.1)


def test_a_slow_start_does_not_make_a_repetition_too_short() -> None:
    """The calls by which it is decided how many to make take a microsecond, all others a nanosecond: 64 of them are timed together."""
    clock, slow = Clock(), [1000] * 4

    def make() -> Action:
        return lambda: clock.work(slow.pop() if slow else 1)()

    (point,) = calibrate("cpu", watch=HostWatch(clock), chosen=[_primitive(make)]).points

    assert 64 == point.calls
    assert {65} == set(point.nanoseconds)


def test_what_the_device_has_no_kernel_for_is_left_out() -> None:
    """And what does not fit into its memory."""
    clock = Clock()

    def refuse() -> Action:
        raise NotImplementedError("no kernel")

    def full() -> Action:
        raise torch.OutOfMemoryError("no room")

    chosen = [_primitive(refuse), _primitive(full), _primitive(lambda: clock.work(1000))]
    calibration = calibrate("cpu", watch=HostWatch(clock), chosen=chosen)

    assert 1 == len(calibration.points)


def test_a_clock_that_stands_still_is_refused() -> None:
    """Rather than calibrating infinite speed."""
    with pytest.raises(MeasurementError, match=r"^the clock has stopped: "):
        calibrate("cpu", watch=HostWatch(lambda: 7), chosen=[_primitive(lambda: lambda: None)])


def test_a_clock_that_goes_back_is_refused() -> None:
    """Its readings fall."""
    readings = iter(range(10**7, 0, -1))

    with pytest.raises(MeasurementError, match=r"^the clock went back by "):
        calibrate("cpu", watch=HostWatch(lambda: next(readings)), chosen=[_primitive(lambda: lambda: None)])


def test_progress_names_each_operator_once() -> None:
    """Not every size."""
    clock, said = Clock(), list[str]()

    calibrate("cpu", watch=HostWatch(clock), chosen=[_primitive(lambda: clock.work(1000))] * 3, progress=said.append)

    assert [f"timing {PRODUCT}"] == said


def test_processor_time_is_named_as_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that nobody takes it for the wall's."""
    monkeypatch.setattr(measured, "primitives", lambda device: [])

    assert PROCESSOR_TIME == calibrate("cpu", processor_time=True).clock


class Operators(TorchDispatchMode):
    """Notes the packets of the operators that run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(str(func.overloadpacket))
        return func(*args, **(kwargs or {}))


def assert_runs_what_it_names(primitive: Primitive, times: int) -> None:
    """As it is timed: without gradients but where it asks for them. Not every torch's counter sees fused attention on CPU."""
    action = primitive.make()
    with torch.no_grad(), FlopCounterMode(display=False) as counter, Operators() as ran:
        for _ in range(times):
            action()

    is_seen = not primitive.name.startswith("attention") or torch.ops.aten._scaled_dot_product_flash_attention_for_cpu in flop_registry
    counted = times * primitive.flops if is_seen else 0
    assert counted == counter.get_total_flops()
    assert not primitive.name.startswith("aten.") or primitive.name in ran.names


@pytest.mark.parametrize("what", WHAT)
def test_a_primitive_runs_the_operator_that_it_is_named_after(what: str) -> None:
    """At its smallest size, more than once, with the FLOPs that it states."""
    assert_runs_what_it_names(min((p for p in REAL if p.name == what), key=lambda p: (p.bytes, p.flops)), times=2)


@pytest.mark.slow
def test_every_primitive_runs_at_every_size() -> None:
    """The same."""
    assert len(REAL) > len(WHAT)
    for primitive in REAL:
        assert_runs_what_it_names(primitive, times=1)


def test_products_of_all_kinds_have_flops_and_their_sizes() -> None:
    """2·m·k·n of a product and of a convolution, b times that of a batch; attention makes two forward and five backward."""
    for p in REAL:
        whole = 2 * math.prod(size for name, size in p.sizes.items() if name != "side")
        products = 5 if "attention backward" in p.name else 2 if "attention" in p.name or p.name.endswith("convolution_backward") else 1
        assert p.flops == (0 if "bytes" in p.sizes or not p.sizes else products * whole), p


def test_what_a_prediction_cannot_do_without_is_timed() -> None:
    """Overheads, a copy, a product, and the pointwise operators that stand for others."""
    assert {*OVERHEADS, COPY, PRODUCT, *BY_BYTES} <= WHAT.keys()


def test_results_of_what_memory_bounds_are_too_small_to_be_fetched_anew() -> None:
    """Below 32 MiB, from which on glibc asks the system for every allocation: that cost is timed by itself."""
    bound = [p for p in REAL if "bytes" in p.sizes and "memory" not in p.name]
    assert bound
    assert all(p.bytes <= 4 * 28 * 2**20 for p in bound)


@pytest.mark.gpu
def test_a_cuda_device_is_calibrated_by_its_own_events() -> None:
    """Everything that a prediction needs is among the points, in half precision too; the device is named by its driver."""
    calibration = calibrate("cuda")

    assert "CUDA events" == calibration.clock
    assert torch.cuda.get_device_name() == calibration.name
    assert {*OVERHEADS, COPY, PRODUCT, *BY_BYTES} <= {what for what, _ in calibration.by_what}
    assert {"float32", "bfloat16", "float16"} <= calibration.peaks().keys()
