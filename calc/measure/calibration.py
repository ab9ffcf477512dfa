"""Calibrates this machine: times every primitive by a given clock, in less than a minute.

On a CUDA device each primitive waits in the device's queue when it is timed (``queued``), so that its point has the device's time and the
program's time to issue it; one that itself waits for the device is timed as a whole. Primitives for which a device lacks a kernel or memory
are left out; a prediction that needs one says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import torch

from calc.errors import MeasurementError
from calc.hardware.calibration import Calibration, CalibrationPoint
from calc.hardware.times import Repeat
from calc.measure.collector import collector_off
from calc.measure.machine import machine
from calc.measure.matmul import single_precision
from calc.measure.primitives import Action, Primitive, primitives
from calc.measure.queued import Queue, QueuedTimes, queue_of, queued_times
from calc.measure.timing import HostWatch, Timings, Watch, time_of, watch_of

_LONG = 10**10  # FLOP: larger primitives take 0.1 s and more and are repeated less often
PROCESSOR_TIME = "the processor time of this process (time.process_time_ns)"
_MANY = 64
_REPEAT = Repeat(warm_up=1, count=5, seconds=0.01, most=40)
_REPEAT_LONG = Repeat(warm_up=1, count=3, seconds=0.0, most=3)
_REPEAT_QUEUED = Repeat(warm_up=1, count=9, seconds=0.0, most=9)


def calibrate(
    device: str,
    *,
    processor_time: bool = False,
    tf32: bool = False,
    watch: Watch | None = None,
    chosen: Iterable[Primitive] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Calibration:
    """The calibration of ``device``, timed by its own clock or, with ``processor_time``, by this process's CPU time.

    With ``tf32``, a CUDA device runs its float32 matmuls in TF32, and the calibration applies to steps that do so.
    """
    queue = queue_of(device) if watch is None and device.startswith("cuda") else None
    watch = watch or (processor_watch() if processor_time else watch_of(device))
    points: list[CalibrationPoint] = []
    current = ""
    with single_precision(tf32, device), torch.no_grad(), torch.random.fork_rng(devices=[]), collector_off():
        torch.manual_seed(0)
        for primitive in primitives(device) if chosen is None else chosen:
            if primitive.name != current:
                current = primitive.name
                progress(f"timing {current}")
            point = _timed(primitive, watch, queue)
            points += [] if point is None else [point]
    return Calibration({**machine(device), **({"float32_products": "tf32"} if tf32 else {})}, watch.name, tuple(points))


def processor_watch() -> HostWatch:
    """A clock of this process's CPU time, which does not advance while other programs run; the times of all threads add up."""
    return HostWatch(time.process_time_ns, name=PROCESSOR_TIME)


def _timed(primitive: Primitive, watch: Watch, queue: Queue | None) -> CalibrationPoint | None:
    try:
        action = primitive.make()
        times = _queued(action, queue, primitive) or _whole(action, watch, primitive)
    except RuntimeError:
        return None  # no kernel for it here, or not enough memory
    taken, program = times.device, times.program.nanoseconds
    calls = taken.calls * primitive.repeats
    sizes, flops, nbytes = primitive.sizes, primitive.flops, primitive.bytes
    return CalibrationPoint(primitive.name, primitive.dtype, sizes, flops, nbytes, calls, taken.nanoseconds, program)


def _queued(action: Action, queue: Queue | None, primitive: Primitive) -> QueuedTimes | None:
    """Its times in the device's queue. ``None`` if there is no queue, or if it waits for the device."""
    if queue is None:
        return None
    try:
        return queued_times(action, queue, _how_often(primitive, _REPEAT_QUEUED))
    except MeasurementError:
        return None


def _whole(action: Action, watch: Watch, primitive: Primitive) -> QueuedTimes:
    return QueuedTimes(_times(action, watch, _how_often(primitive, _REPEAT)), Timings(()))


def _how_often(primitive: Primitive, usual: Repeat) -> Repeat:
    return _REPEAT_LONG if primitive.flops > _LONG else usual


def _times(action: Action, watch: Watch, repeat: Repeat) -> Timings:
    """The times of ``action``. If a repetition is too short for the clock, repetitions of more calls are timed."""
    try:
        return time_of(action, watch, repeat)
    except MeasurementError:
        return time_of(action, watch, repeat, calls=_MANY)
