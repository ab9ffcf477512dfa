"""Operators timed in a device's queue, on a synthetic device whose clock and the program's move only by what is written here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from calc.errors import MeasurementError
from calc.hardware.times import Repeat
from calc.measure import calibration as measured
from calc.measure.calibration import calibrate
from calc.measure.primitives import Action, Primitive
from calc.measure.queued import Queue, queued_times

REPEAT = Repeat(warm_up=1, count=5, seconds=0, most=5)


@dataclass
class Device:
    """``now`` is the program's time and ``until`` that at which the device has done what is queued, in nanoseconds."""

    now: int = 0
    until: int = 0

    def kernel(self, issuing: int, running: int) -> Action:
        """An operator that the program issues in so many nanoseconds and the device runs in so many."""

        def run() -> None:
            self.now += issuing
            self.until = max(self.until, self.now) + running

        return run

    def reading(self, issuing: int, running: int) -> Action:
        """An operator whose result the program waits for."""
        kernel = self.kernel(issuing, running)

        def run() -> None:
            kernel()
            self.synchronize()

        return run

    def synchronize(self) -> None:
        self.now = max(self.now, self.until)

    def record(self) -> Event:
        return Event(max(self.until, self.now), lambda: self.now)

    def queue(self) -> Queue:
        return Queue(self.record, self.kernel(1_000, 300_000), self.synchronize, lambda: self.now)


@dataclass
class Event:
    """A place in the queue, which the device reaches at ``at``."""

    at: int
    now: Callable[[], int]

    def query(self) -> bool:
        return self.at <= self.now()

    def elapsed_time(self, end: Event) -> float:
        return (end.at - self.at) / 10**6


@pytest.mark.parametrize(("issuing", "running"), [(10_000, 2_000), (3_000, 40_000), (250_000, 7_000)])
def test_the_device_and_the_program_have_a_time_each(issuing: int, running: int) -> None:
    """Whichever is longer: 16 calls wait in the queue together."""
    device = Device()

    times = queued_times(device.kernel(issuing, running), device.queue(), REPEAT)

    assert (5 * (16 * running,), 16) == (times.device.nanoseconds, times.device.calls)
    assert 5 * (16 * issuing,) == times.program.nanoseconds


def test_a_single_call_between_two_events_would_take_what_issuing_takes() -> None:
    """So that the test above can fail: the device waits for the program."""
    device = Device()
    kernel = device.kernel(10_000, 2_000)

    begin = device.record()
    kernel()

    assert 12_000 == device.record().at - begin.at


def test_an_operator_of_a_millisecond_is_called_once() -> None:
    """Long enough for an event's resolution."""
    device = Device()

    times = queued_times(device.kernel(10_000, 1_500_000), device.queue(), REPEAT)

    assert (1, 5 * (1_500_000,)) == (times.device.calls, times.device.nanoseconds)


def test_what_is_issued_more_slowly_than_it_was_waits_behind_more_work() -> None:
    """Its first calls take 1 µs to issue and later ones 100 µs."""
    device, quick = Device(), [1_000] * 3

    def run() -> None:
        device.kernel(quick.pop() if quick else 100_000, 5_000)()

    assert 5_000 == queued_times(run, device.queue(), REPEAT).device.median


def test_an_operator_that_waits_for_its_result_has_no_time_in_a_queue() -> None:
    """The program never gets ahead."""
    device = Device()

    with pytest.raises(MeasurementError, match="never behind the program"):
        queued_times(device.reading(10_000, 2_000), device.queue(), REPEAT)


def test_a_calibration_of_a_cuda_device_has_both_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for an operator that waits for its result, which is timed as a whole by the device's events."""
    device = Device()
    monkeypatch.setattr(measured, "queue_of", lambda _: device.queue())
    monkeypatch.setattr(measured, "watch_of", lambda _: device.queue().watch)
    monkeypatch.setattr(measured, "machine", lambda _: {"device": {"kind": "cuda", "name": "synthetic"}})
    actions = {"ahead": device.kernel(10_000, 2_000), "waiting": device.reading(10_000, 90_000)}
    chosen = [Primitive(name, "float32", {"bytes": 8}, 0, 8, lambda action=action: action) for name, action in actions.items()]

    ahead, waiting = calibrate("cuda", chosen=chosen).points

    assert (2e-6, 1e-5) == (float(ahead.seconds), float(ahead.issued))
    assert ((), 1e-4) == (waiting.program, float(waiting.seconds))
