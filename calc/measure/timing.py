"""How long something takes, by a clock that is itself examined: warm-up, synchronisation, repetitions, median and spread.

A device works behind the program's back, so that a reading of the time means something only once the device has finished. On CUDA
its own events are the clock, and the program waits for them once for each repetition; on a CPU it is the monotonic clock of the
machine. A clock that stands still, goes back or is coarser than what it times is an error, never a number. Clock and synchroniser
are handed in, so that tests need neither time nor device.
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
from calc.hardware.benchmark import Repeat as Repeat
from calc.hardware.times import BILLION
from calc.hardware.times import Timings as Timings
from calc.measure.collector import collector_off

COARSE = 20  # ticks: what takes fewer is off by more than a twentieth, whatever else is right
_READINGS = 2_000_000  # of a clock that does not move: a tenth of a second and more on any machine
_TICKS = 20
_MOST_CALLS = 2**20
_EVENT_TICK = 500  # ns: "resolution of approximately 0.5 microseconds", CUDA Runtime API, cudaEventElapsedTime

Clock = Callable[[], int]
Around = Callable[[str], AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True)
class Timed:
    """One thing with its parts. ``parts`` need not add up to ``whole``: what lies between them belongs to none.

    ``clock`` names the clock; ``tick`` are the nanoseconds that it moves by.
    """

    whole: Timings
    parts: Mapping[str, Timings]
    clock: str
    tick: int

    def to_json(self) -> dict[str, Any]:
        parts = {name: times.to_json() for name, times in self.parts.items()}
        return {"clock": self.clock, "tick_nanoseconds": self.tick, "whole": self.whole.to_json(), "parts": parts}


class CoarseClockError(MeasurementError):
    """The clock moves in steps that are too large for what it times."""


class Watch(Protocol):
    """A clock that knows when a device has finished. ``start`` waits for earlier work, ``stop`` for all of it; a reading is opaque
    until the watch has stopped."""

    @property
    def name(self) -> str: ...

    def tick(self) -> int: ...

    def start(self) -> Any: ...

    def mark(self) -> Any: ...

    def stop(self) -> Any: ...

    def between(self, begin: Any, end: Any) -> int: ...


class HostWatch:
    """A clock of the host, read each time that the device has finished what it was given."""

    def __init__(self, clock: Clock = time.perf_counter_ns, synchronize: Callable[[], None] = lambda: None, name: str = "") -> None:
        self._clock, self._synchronize = clock, synchronize
        self._last: int | None = None
        self.name = name or "the machine's monotonic clock (time.perf_counter_ns)"

    def tick(self) -> int:
        """The least nanoseconds by which the clock was seen to move, reading it again and again."""
        return min(self._step() for _ in range(_TICKS))

    def _step(self) -> int:
        clock, begin = self._clock, self._read()
        for _ in range(_READINGS):
            if (now := clock()) != begin:  # nothing else between two readings: it would count as the clock's
                return self._moved(begin, now)
        raise MeasurementError(f"the clock has stopped: {self.name} gave {begin} ns in {_READINGS:,} readings; nothing can be timed by it")

    def mark(self) -> int:
        self._synchronize()
        return self._read()

    start = stop = mark

    def between(self, begin: int, end: int) -> int:
        return end - begin

    def _read(self) -> int:
        now = self._clock()
        self._moved(now if self._last is None else self._last, now)
        self._last = now
        return now

    def _moved(self, begin: int, end: int) -> int:
        if end < begin:
            raise MeasurementError(f"the clock went back by {begin - end} ns: {self.name} is not monotonic, so no time can be read off it")
        return end - begin


class EventWatch:
    """A device's own clock: events that it passes as it works. The program waits only before the first and after the last."""

    name = "CUDA events"

    def __init__(self, record: Callable[[], Any], synchronize: Callable[[], None]) -> None:
        """``record`` gives an event that the device passes when it comes to it."""
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
            raise MeasurementError(f"the clock went back by {-nanoseconds} ns between two {self.name}, so no time can be read off them")
        return nanoseconds


def watch_of(device: str) -> Watch:
    """What times work on ``device``: its events on CUDA, else the machine's monotonic clock."""
    if not device.startswith("cuda"):
        return HostWatch()
    return EventWatch(lambda: _passed(device), lambda: torch.cuda.synchronize(device))


def _passed(device: str) -> Any:
    """An event behind what ``device`` was given so far, on its current stream."""
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch leaves it untyped
    event.record(torch.cuda.current_stream(device))
    return event


def time_of(action: Callable[[], object], watch: Watch, repeat: Repeat | None = None, calls: int | None = None) -> Timings:
    """How long ``action`` takes. Where ``calls`` is not given, as many calls make one repetition as the clock needs to tell it."""
    how = repeat or Repeat()
    with collector_off():
        many = calls or _enough_calls(action, watch)
        while True:
            try:
                return replace(_timed(partial(_several, action, many), watch, how).whole, calls=many)
            except CoarseClockError:
                if calls is not None or many >= _MOST_CALLS:
                    raise
                many *= 4  # the calls that were tried were slower than those that count: something else ran meanwhile


def timed(body: Callable[[Around], object], watch: Watch, repeat: Repeat | None = None) -> Timed:
    """How long ``body`` takes, and each part of it that it runs within ``around(name)``; parts of one name in one run add up."""
    with collector_off():
        return _timed(body, watch, repeat or Repeat())


def _several(action: Callable[[], object], calls: int, _: Around | None = None) -> None:
    for _call in range(calls):
        action()


def _enough_calls(action: Callable[[], object], watch: Watch) -> int:
    """The least power of two of calls that take as long as a repetition must for this clock."""
    tick, calls = watch.tick(), 1
    action()  # the first call compiles, allocates and fills caches
    while calls < _MOST_CALLS:
        begin = watch.start()
        _several(action, calls)
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
    dropped = [_once(body, watch) for _ in range(how.warm_up)]
    timed_runs: list[_TimedRun] = []
    total = 0
    while len(timed_runs) < how.count or (total < how.seconds * BILLION and len(timed_runs) < how.most):
        timed_runs.append(_once(body, watch))
        total += timed_runs[-1].whole
    whole = Timings(tuple(run.whole for run in timed_runs), warm_up=tuple(run.whole for run in dropped))
    parts = {name: _part(name, timed_runs, dropped) for name in dict.fromkeys(name for run in timed_runs for name in run.parts)}
    for name, times in {"a repetition": whole, **parts}.items():
        _require_told(name, times, watch, tick)
    return Timed(whole, parts, watch.name, tick)


def _part(name: str, timed_runs: Sequence[_TimedRun], dropped: Sequence[_TimedRun]) -> Timings:
    if not all(name in run.parts for run in timed_runs):
        raise MeasurementError(f"{name} did not run in every repetition, so the repetitions are not of the same thing")
    return Timings(tuple(run.parts[name] for run in timed_runs), warm_up=tuple(run.parts.get(name, 0) for run in dropped))


def _once(body: Callable[[Around], object], watch: Watch) -> _TimedRun:
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


def _require_told(name: str, times: Timings, watch: Watch, tick: int) -> None:
    """Refuse what is shorter than the clock can tell. One that has stopped meanwhile says so when its tick is read again."""
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
