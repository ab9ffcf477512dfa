"""Timing by clocks that only pretend: what is synchronised when, what counts, what is read off it, and clocks that lie."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from fractions import Fraction
from itertools import chain, count, repeat
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from calc.errors import BadInputError, MeasurementError
from calc.measure import timing
from calc.measure.timing import EventWatch, HostWatch, Repeat, Timings, time_of, timed, watch_of

FINE = Repeat(warm_up=2, count=3, seconds=0)


class Clock:
    """Time that passes only when work is done, and by ``tick`` each time it is read; it shows whole multiples of ``grain``."""

    def __init__(self, tick: int = 1, grain: int = 1) -> None:
        self.now = 0
        self.tick, self.grain = tick, grain
        self.calls: list[str] = []

    def __call__(self) -> int:
        self.calls.append("read")
        self.now += self.tick
        return self.now - self.now % self.grain

    def synchronize(self) -> None:
        self.calls.append("synchronize")

    def work(self, nanoseconds: int, name: str = "work") -> None:
        self.calls.append(name)
        self.now += nanoseconds

    def watch(self) -> HostWatch:
        return HostWatch(self, self.synchronize, "a clock of this test")


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_the_device_is_waited_for_before_each_reading(clock: Clock) -> None:
    """Once before the first and once after the last reading of a repetition; the tick of the clock is read before any work."""
    timed(lambda around: clock.work(100), clock.watch(), Repeat(warm_up=0, count=2, seconds=0))
    begin = clock.calls.index("synchronize")

    assert {"read"} == set(clock.calls[:begin])
    assert ["synchronize", "read", "work", "synchronize", "read"] * 2 == clock.calls[begin:]


def test_a_planted_reading_without_waiting_would_be_seen(clock: Clock) -> None:
    """A watch that does not wait leaves another order behind, so the order above is a claim that can fail."""
    forgetful = HostWatch(clock, lambda: None, "a clock of this test")
    timed(lambda around: clock.work(100), forgetful, Repeat(warm_up=0, count=1, seconds=0))

    assert ["read", "work", "read"] == clock.calls[-3:]


def test_warm_up_runs_first_and_does_not_count(clock: Clock) -> None:
    """Two slow runs, then three of 100 ns; each reading itself takes 1 ns."""
    lasting = iter((9000, 5000, 100, 100, 100))
    timings = timed(lambda around: clock.work(next(lasting)), clock.watch(), FINE)

    assert (101, 101, 101) == timings.whole.nanoseconds
    assert (9001, 5001) == timings.whole.warm_up


def test_repetitions_go_on_until_there_are_enough_and_they_took_long_enough(clock: Clock) -> None:
    """A repetition takes 249 + 1 ns. A microsecond takes four of them, where three would have been enough; no more than the most run."""

    def many(repeat: Repeat) -> int:
        return len(timed(lambda around: clock.work(249), clock.watch(), repeat).whole.nanoseconds)

    assert 3 == many(Repeat(0, 3, 0))
    assert 4 == many(Repeat(0, 3, 1e-6))
    assert 7 == many(Repeat(0, 3, 1, most=7))


def test_parts_are_timed_apart_and_those_of_one_name_add_up(clock: Clock) -> None:
    """Forward 100 and backward 200, twice, and 50 beside them; a part has one reading within, and the whole has all nine of them."""

    def step(around: timing.Around) -> None:
        for _ in range(2):
            with around("forward"):
                clock.work(100)
            with around("backward"):
                clock.work(200)
        clock.work(50)

    timings = timed(step, clock.watch(), FINE)

    assert ["forward", "backward"] == list(timings.parts)
    assert (2 * 101,) * 3 == timings.parts["forward"].nanoseconds
    assert (2 * 201,) * 3 == timings.parts["backward"].nanoseconds
    assert (2 * 300 + 50 + 9,) * 3 == timings.whole.nanoseconds


def test_events_are_recorded_without_waiting_and_read_after_the_device_has_finished() -> None:
    """The program waits twice for a repetition, and asks no event before the second."""
    calls: list[str] = []
    places = count()

    class Event:
        def __init__(self) -> None:
            self.at = next(places)
            calls.append("record")

        def elapsed_time(self, other: Event) -> float:
            calls.append("ask")
            return (other.at - self.at) * 0.5  # ms

    def step(around: timing.Around) -> None:
        with around("forward"):
            calls.append("work")

    timings = timed(step, EventWatch(Event, lambda: calls.append("synchronize")), Repeat(0, 1, 0))

    assert ["synchronize", "record", "record", "work", "record", "record", "synchronize", "ask", "ask"] == calls
    assert ((1_500_000,), (500_000,)) == (timings.whole.nanoseconds, timings.parts["forward"].nanoseconds)
    assert ("CUDA events", 500) == (timings.clock, timings.tick)


def test_short_calls_are_timed_together_and_a_time_is_that_of_one(clock: Clock) -> None:
    """A clock of 10 ns must see 2 · 20 · 10 = 400 ns: 16 calls of 30 ns are 480, 8 would be 240."""
    clock.grain = 10
    clock.tick = 0
    watch = clock.watch()
    watch.tick = lambda: 10
    time = time_of(lambda: clock.work(30), watch, FINE)

    assert (16, (480, 480, 480), 30) == (time.calls, time.nanoseconds, time.median)
    assert Fraction(30, 10**9) == time.seconds


def test_calls_that_were_slow_only_at_first_are_made_more_often(clock: Clock) -> None:
    """One call seemed enough, as it took 900 ns; then each takes 30, and 4 times as many, and again, are needed for 20 · 10 ns."""
    clock.grain, clock.tick = 10, 0
    watch = clock.watch()
    watch.tick = lambda: 10
    lasting = chain((900, 900), repeat(30))
    time = time_of(lambda: clock.work(next(lasting)), watch, FINE)

    assert (16, 30) == (time.calls, time.median)
    with pytest.raises(MeasurementError, match=r"^the clock is too coarse: .* a repetition took 30 ns"):
        time_of(lambda: clock.work(30), watch, FINE, calls=1)


def test_median_and_quartiles_of_counted_numbers() -> None:
    """Of 10, 20, 30, 40 the median is 25; quartiles lie 3/4 of a place in from the ends: 10 + 3/4 · 10 and 30 + 1/4 · 10."""
    timings = Timings((40, 10, 30, 20))

    assert (25, (Fraction(35, 2), Fraction(65, 2))) == (timings.median, timings.quartiles)
    assert (10, 40) == (timings.least, timings.most)
    assert (7, (7, 7)) == (Timings((7,)).median, Timings((7,)).quartiles)
    assert Fraction(25, 5) == Timings((40, 10, 30, 20), calls=5).median


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=30))
def test_statistics_are_those_of_numpy(nanoseconds: list[int]) -> None:
    """Its default definition of a quantile, in doubles."""
    numpy = pytest.importorskip("numpy")
    timings = Timings(tuple(nanoseconds))
    low, high = timings.quartiles

    assert numpy.quantile(nanoseconds, (0.25, 0.5, 0.75)) == pytest.approx([float(value) for value in (low, timings.median, high)])


def test_all_repetitions_are_kept_in_order(clock: Clock) -> None:
    lasting = iter((300, 100, 200))
    document = timed(lambda around: clock.work(next(lasting)), clock.watch(), Repeat(0, 3, 0)).to_json()

    assert [301, 101, 201] == document["whole"]["nanoseconds"]
    assert {"median": 201e-9, "lower_quartile": 151e-9, "upper_quartile": 251e-9, "least": 101e-9, "most": 301e-9} == pytest.approx(
        document["whole"]["seconds"]
    )


def test_a_stopped_clock_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything runs."""
    monkeypatch.setattr(timing, "_READINGS", 50)
    stopped = Clock(tick=0)
    said = "^the clock has stopped: a clock of this test gave 0 ns in 50 readings; nothing can be timed by it$"

    with pytest.raises(MeasurementError, match=said):
        timed(lambda around: stopped.work(5), stopped.watch())
    assert "work" not in stopped.calls


def test_a_clock_that_stops_meanwhile_is_detected(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """No repetition takes 0 ns."""
    monkeypatch.setattr(timing, "_READINGS", 50)

    def stop(_: timing.Around) -> None:
        clock.tick = 0

    with pytest.raises(MeasurementError, match=r"^the clock has stopped: a clock of this test gave \d+ ns in 50 readings; "):
        timed(stop, clock.watch(), FINE)


def test_a_clock_that_stands_still_for_one_repetition_is_detected(clock: Clock) -> None:
    """The median would not show it."""
    lasting = iter((100, 100, 100, -1, 100))  # the reading's own nanosecond is taken back
    said = "^the clock stood still: by a clock of this test repetition 2 of a repetition took no time; measure again$"

    with pytest.raises(MeasurementError, match=said):
        timed(lambda around: clock.work(next(lasting)), clock.watch(), FINE)


def test_a_clock_that_goes_back_is_detected(clock: Clock) -> None:
    """By as much as it went back: 700 ns, of which the reading takes 1."""
    said = "^the clock went back by 699 ns: a clock of this test is not monotonic, so it gives no time$"

    with pytest.raises(MeasurementError, match=said):
        timed(lambda around: clock.work(-700), clock.watch(), FINE)


def test_events_that_go_back_are_detected() -> None:
    event = SimpleNamespace(elapsed_time=lambda other: -0.002)

    said = "^the clock went back by 2000 ns between two CUDA events, so they give no time$"

    with pytest.raises(MeasurementError, match=said):
        timed(lambda around: None, EventWatch(lambda: event, lambda: None), FINE)


def test_a_clock_coarser_than_what_is_timed_is_detected() -> None:
    """It shows microseconds, and 15 of them are less than 20."""
    coarse = Clock(tick=1, grain=1000)
    said = (
        "^the clock is too coarse: a clock of this test moves by 1000 ns and a repetition took 15000 ns, less than 20 times that;"
        " time more of it together, or larger sizes$"
    )

    with pytest.raises(MeasurementError, match=said):
        timed(lambda around: coarse.work(15_000), coarse.watch(), FINE)
    assert 21_000 == timed(lambda around: coarse.work(21_000), Clock.watch(coarse), FINE).whole.median


def test_a_part_that_is_too_short_for_the_clock_is_named() -> None:
    coarse = Clock(tick=1, grain=1000)

    def step(around: timing.Around) -> None:
        coarse.work(10**6)
        with around("optimizer"):
            coarse.work(2000)

    with pytest.raises(MeasurementError, match="moves by 1000 ns and optimizer took 2000 ns, less than 20 times that"):
        timed(step, coarse.watch(), FINE)


def test_a_part_that_runs_only_sometimes_is_refused(clock: Clock) -> None:
    runs: Iterator[int] = count()

    def step(around: timing.Around) -> None:
        with around("forward" if next(runs) % 2 else "backward"):
            clock.work(100)

    with pytest.raises(MeasurementError, match=r"did not run in every repetition, so the repetitions differ$"):
        timed(step, clock.watch(), FINE)


def test_nothing_is_collected_while_the_clock_runs(clock: Clock) -> None:
    """And afterwards it is on again, also when what was timed raised."""
    seen: list[bool] = []
    timed(lambda around: (clock.work(100), seen.append(gc.isenabled())), clock.watch(), FINE)
    with pytest.raises(ZeroDivisionError):
        time_of(lambda: 1 / 0, clock.watch())

    assert {False} == set(seen)
    assert gc.isenabled()


@pytest.mark.parametrize("wrong", [{"warm_up": -1}, {"count": 0}, {"most": 2}, {"seconds": -1}, {"seconds": float("nan")}])
def test_repetitions_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInputError, match=r"is invalid: warm_up must be at least 0, count at least 1, most at least count$"):
        Repeat(**wrong)


def test_this_machine_s_clock_passes() -> None:
    """It moves, and a product of two matrices is long enough for it."""
    a = torch.randn(64, 64)
    time = time_of(lambda: a @ a, watch_of("cpu"), Repeat(1, 3, 0))

    assert 3 == len(time.nanoseconds)
    assert 0 < time.least <= time.median <= time.most
