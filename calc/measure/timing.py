"""Times code by a clock that is itself checked: warm-up, synchronization, repetitions, median and spread.

A device runs asynchronously, so a time is valid only once the device has finished. On CUDA the clock is its events, and the program
waits for them once per repetition; on a CPU it is the machine's monotonic clock. A clock that stops, goes back or is too coarse raises
an error instead of giving a number. Clock and synchronization are parameters, so tests need neither time nor device.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import torch

from calc.errors import MeasurementError
from calc.hardware.times import BILLION
from calc.hardware.times import Repeat as Repeat
from calc.hardware.times import Timings as Timings
from calc.measure.collector import collector_off

COARSE = 20  # ticks: a shorter time has an error of more than 1/20 by the clock alone
_READINGS = 2_000_000  # of a clock that does not advance: at least 0.1 s on any machine
_TICKS = 20
_MOST_CALLS = 2**20
_EVENT_TICK = 500  # ns: "resolution of approximately 0.5 microseconds", CUDA Runtime API, cudaEventElapsedTime

Clock = Callable[[], int]
Around = Callable[[str], AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True)
class Timed:
    """Times of a whole and of its parts, which need not add up to it: time between parts belongs to none.

    ``clock`` is the clock's name, ``tick`` its resolution in nanoseconds.
    """

    whole: Timings
    parts: Mapping[str, Timings]
    clock: str
    tick: int

    def to_json(self) -> dict[str, Any]:
        parts = {name: times.to_json() for name, times in self.parts.items()}
        return {"clock": self.clock, "tick_nanoseconds": self.tick, "whole": self.whole.to_json(), "parts": parts}


class CoarseClockError(MeasurementError):
    """The clock's resolution is too coarse for the measured time."""


class Watch(Protocol):
    """A clock for work on a device. ``start`` waits for earlier work, ``stop`` for all work; readings are opaque until ``between``
    gives the nanoseconds from one to another, after ``stop``."""

    @property
    def name(self) -> str: ...

    def tick(self) -> int: ...

    def start(self) -> Any: ...

    def mark(self) -> Any: ...

    def stop(self) -> Any: ...

    def between(self, begin: Any, end: Any) -> int: ...


class HostWatch:
    """A clock of the host, read after synchronizing with the device."""

    def __init__(self, clock: Clock = time.perf_counter_ns, synchronize: Callable[[], None] = lambda: None, name: str = "") -> None:
        self._clock, self._synchronize = clock, synchronize
        self._last: int | None = None
        self.name = name or "the machine's monotonic clock (time.perf_counter_ns)"

    def tick(self) -> int:
        """The smallest increment of the clock in nanoseconds over repeated readings."""
        return min(self._step() for _ in range(_TICKS))

    def _step(self) -> int:
        clock, begin = self._clock, self._read()
        for _ in range(_READINGS):
            if (now := clock()) != begin:  # no other work between two readings: it would add to the tick
                return self._nonnegative(begin, now)
        raise MeasurementError(f"the clock has stopped: {self.name} gave {begin} ns in {_READINGS:,} readings; nothing can be timed by it")

    def mark(self) -> int:
        self._synchronize()
        return self._read()

    start = stop = mark

    def between(self, begin: int, end: int) -> int:
        return end - begin

    def _read(self) -> int:
        now = self._clock()
        self._nonnegative(now if self._last is None else self._last, now)
        self._last = now
        return now

    def _nonnegative(self, begin: int, end: int) -> int:
        if end < begin:
            raise MeasurementError(f"the clock went back by {begin - end} ns: {self.name} is not monotonic, so it gives no time")
        return end - begin


class EventWatch:
    """A device's own clock: events in its stream. The program waits only at ``start`` and ``stop``."""

    name = "CUDA events"

    def __init__(self, record: Callable[[], Any], synchronize: Callable[[], None]) -> None:
        """``record`` returns a new event recorded in the device's stream."""
        self._record, self._synchronize = record, synchronize

    def tick(self) -> int:
        return _EVENT_TICK

    def start(self) -> Any:
        self._synchronize()
        return self._record()

    def mark(self) -> Any:
        return self._record()

    def stop(self) -> Any:
        event = self._record()
        self._synchronize()
        return event

    def between(self, begin: Any, end: Any) -> int:
        nanoseconds = int(round(begin.elapsed_time(end) * 10**6))  # noqa: RUF046  # opaque to types; events give milliseconds
        if nanoseconds < 0:
            raise MeasurementError(f"the clock went back by {-nanoseconds} ns between two {self.name}, so they give no time")
        return nanoseconds


def watch_of(device: str) -> Watch:
    """The clock for work on ``device``: its events on CUDA, else the machine's monotonic clock."""
    if not device.startswith("cuda"):
        return HostWatch()
    return EventWatch(lambda: passed(device), lambda: torch.cuda.synchronize(device))


def passed(device: str) -> Any:
    """A CUDA event recorded in the current stream of ``device``, after all work queued so far."""
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch leaves it untyped
    event.record(torch.cuda.current_stream(device))
    return event


def time_of(action: Callable[[], object], watch: Watch, repeat: Repeat | None = None, calls: int | None = None) -> Timings:
    """Times of ``action``. Unless ``calls`` is given, a repetition has as many calls as the clock's resolution requires."""
    how = repeat or Repeat()
    with collector_off():
        many = calls or _enough_calls(action, watch)
        while True:
            try:
                return replace(_timed(partial(_repeat, action, many), watch, how).whole, calls=many)
            except CoarseClockError:
                if calls is not None or many >= _MOST_CALLS:
                    raise
                many *= 4  # the trial calls were slower than the timed ones: something else ran meanwhile


def timed(body: Callable[[Around], object], watch: Watch, repeat: Repeat | None = None) -> Timed:
    """Times of ``body`` and of each part that it runs within ``around(name)``; parts with the same name in one run add up."""
    with collector_off():
        return _timed(body, watch, repeat or Repeat())


def _repeat(action: Callable[[], object], calls: int, _: Around | None = None) -> None:
    for _call in range(calls):
        action()


def _enough_calls(action: Callable[[], object], watch: Watch) -> int:
    """The smallest power of two of calls whose time the clock can resolve."""
    tick, calls = watch.tick(), 1
    action()  # the first call compiles, allocates and fills caches
    while calls < _MOST_CALLS:
        begin = watch.start()
        _repeat(action, calls)
        if watch.between(begin, watch.stop()) >= 2 * COARSE * tick:
            break
        calls *= 2
    return calls


@dataclass(frozen=True, slots=True)
class _TimedRun:
    """Nanoseconds of one run, and of its parts."""

    whole: int
    parts: Mapping[str, int]


def _timed(body: Callable[[Around], object], watch: Watch, how: Repeat) -> Timed:
    tick = watch.tick()
    dropped = [_run_once(body, watch) for _ in range(how.warm_up)]
    timed_runs: list[_TimedRun] = []
    total = 0
    while len(timed_runs) < how.count or (total < how.seconds * BILLION and len(timed_runs) < how.most):
        timed_runs.append(_run_once(body, watch))
        total += timed_runs[-1].whole
    repetition = Timings(tuple(run.whole for run in timed_runs), warm_up=tuple(run.whole for run in dropped))
    parts = {name: _part(name, timed_runs, dropped) for name in dict.fromkeys(name for run in timed_runs for name in run.parts)}
    for name, times in {"a repetition": repetition, **parts}.items():
        _require_resolved(name, times, watch, tick)
    return Timed(repetition, parts, watch.name, tick)


def _part(name: str, timed_runs: Sequence[_TimedRun], dropped: Sequence[_TimedRun]) -> Timings:
    if not all(name in run.parts for run in timed_runs):
        raise MeasurementError(f"{name} did not run in every repetition, so the repetitions differ")
    return Timings(tuple(run.parts[name] for run in timed_runs), warm_up=tuple(run.parts.get(name, 0) for run in dropped))


def _run_once(body: Callable[[Around], object], watch: Watch) -> _TimedRun:
    marks: list[tuple[str, Any, Any]] = []

    @contextmanager
    def around(name: str) -> Iterator[None]:
        begin = watch.mark()
        yield
        marks.append((name, begin, watch.mark()))

    begin = watch.start()
    body(around)
    end = watch.stop()
    parts: dict[str, int] = {}
    for name, first, last in marks:
        parts[name] = parts.get(name, 0) + watch.between(first, last)
    return _TimedRun(watch.between(begin, end), parts)


def _require_resolved(name: str, times: Timings, watch: Watch, tick: int) -> None:
    """Raises ``CoarseClockError`` for times below the clock's resolution; reading the tick once more detects a stopped clock."""
    if 0 in times.nanoseconds:
        tick = max(tick, watch.tick())
    if times.median < COARSE * tick:
        raise CoarseClockError(
            f"the clock is too coarse: {watch.name} moves by {tick} ns and {name} took {float(times.median):.0f} ns, less than {COARSE}"
            " times that; time more of it together, or larger sizes"
        )
    if 0 in times.nanoseconds:
        raise MeasurementError(
            f"the clock stood still: by {watch.name} repetition {times.nanoseconds.index(0) + 1} of {name} took no time; measure again"
        )
