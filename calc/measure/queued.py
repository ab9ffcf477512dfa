"""Times operators on a device that runs asynchronously: what the device takes for them, and what the program takes to issue them.

A single small operator between two events takes as long as the program needs to issue it, since the device waits for the program. So the
operators are issued while the device still computes something else: they wait in its queue, the events around them give the device's time
alone, and the program's clock gives the time to issue them. An event that the device has passed before the last operator was issued shows
that the device did wait, and the repetition is made again behind more work.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from calc.errors import MeasurementError
from calc.hardware.times import BILLION, Repeat, Timings
from calc.measure.collector import collector_off
from calc.measure.timing import EventWatch, passed

_CALLS = 16  # of an operator that takes less than _SHORT: together they last longer than an event's resolution
_SHORT = 10**6  # ns
_TRIES = 4  # of one repetition, each behind at least twice as much work
_SIDE = 2048  # of the matmul that keeps the device busy


@dataclass(frozen=True, slots=True)
class QueuedTimes:
    """Repetitions of ``calls`` calls each: nanoseconds of the device, and of the program that issues them."""

    device: Timings
    program: Timings


@dataclass
class Queue:
    """The queue of a device: ``record`` puts an event into it, ``work`` something to compute, ``synchronize`` waits until it is empty."""

    record: Callable[[], Any]
    work: Callable[[], object]
    synchronize: Callable[[], None]
    clock: Callable[[], int] = time.perf_counter_ns
    _each: float = field(default=0.0, init=False)

    @property
    def watch(self) -> EventWatch:
        return EventWatch(self.record, self.synchronize)

    def busy(self, nanoseconds: float) -> None:
        """Keep the device busy for about so long."""
        for _ in range(math.ceil(nanoseconds / self._one())):
            self.work()

    def _one(self) -> float:
        """Nanoseconds of the device for one piece of work."""
        if not self._each:
            watch, pieces = self.watch, 32
            self.work()
            begin = watch.start()
            for _ in range(pieces):
                self.work()
            self._each = max(1.0, watch.between(begin, watch.stop()) / pieces)
        return self._each


def queue_of(device: str) -> Queue:
    """The current stream of a CUDA device; matmuls keep it busy."""
    square = torch.ones(_SIDE, _SIDE, device=device)
    return Queue(lambda: passed(device), lambda: torch.mm(square, square), lambda: torch.cuda.synchronize(device))


def queued_times(action: Callable[[], object], queue: Queue, repeat: Repeat) -> QueuedTimes:
    """The times of ``action`` in a queue. Raises MeasurementError if the program never gets ahead of the device."""
    with collector_off():
        action()  # the first call compiles, allocates and fills caches
        calls = 1 if _once(action, queue) > _SHORT else _CALLS
        device, program = list[int](), list[int]()
        for number in range(repeat.warm_up + repeat.most):
            if len(device) >= repeat.count and sum(device) >= repeat.seconds * BILLION:
                break
            on_device, issued = _repetition(action, calls, queue)
            if number >= repeat.warm_up:
                device.append(on_device)
                program.append(issued)
    return QueuedTimes(Timings(tuple(device), calls), Timings(tuple(program), calls))


def _once(action: Callable[[], object], queue: Queue) -> int:
    watch = queue.watch
    begin = watch.start()
    action()
    return watch.between(begin, watch.stop())


def _repetition(action: Callable[[], object], calls: int, queue: Queue) -> tuple[int, int]:
    """Nanoseconds of the device and of the program for so many calls that all waited in the queue."""
    ahead = 1.5 * calls * _issuing(action, queue)
    for _ in range(_TRIES):
        queue.synchronize()
        queue.busy(ahead)
        begin, start = queue.record(), queue.clock()
        for _call in range(calls):
            action()
        issued, waited = queue.clock() - start, not begin.query()
        end = queue.record()
        queue.synchronize()
        if waited:
            return queue.watch.between(begin, end), issued
        ahead = max(2 * ahead, 1.5 * issued)
    raise MeasurementError("the device was never behind the program: the operator waits for its result")


def _issuing(action: Callable[[], object], queue: Queue) -> int:
    """Nanoseconds of the program for one call."""
    queue.synchronize()
    start = queue.clock()
    action()
    return queue.clock() - start
