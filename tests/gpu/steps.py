"""Times of steps on a GPU, eager and compiled, beside what a calibration on products and copies alone predicts of the eager ones."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import calc
from calc.measuring import Asked, Measured, Run, measured
from calc.repeat import How, Repeat
from reports.numbers import duration, percent, rate
from tests.gpu.memory import sizes_of
from tests.gpu.models import Format, Model, options_of
from tests.gpu.recording import Derived, named

MEDIAN_AIM, WORST_AIM = 0.10, 0.20
HEAD = ("Model", "Products", "How", "Sizes", "Step", "Middle half", "Throughput", "MFU", "HFU", "Predicted", "Off")
QUICK = Repeat(warm_up=3, count=10, seconds=1.0, most=200)


@dataclass(frozen=True)
class Row:
    """What came of one model in one format, eager or compiled. ``predicted`` are seconds by sizes, with the operators that are not
    calibrated; without an entry, ``because`` says why."""

    model: str
    format: str
    compiled: bool
    found: Measured | None
    predicted: Mapping[str, tuple[float, str]]
    because: str = ""


def row(
    model: Model,
    form: Format,
    compiled: bool,
    device: str,
    known: Mapping[str, Derived],
    calibration: Any,
    enough: Callable[[], bool],
    say: Callable[[str], None],
) -> Row:
    how = "compiled" if compiled else "eager"
    steps = [known[named((model.of, sizes, form.precision))] for sizes in model.sizes]
    asked = Asked(
        device,
        memory=0,
        how=How(QUICK, tf32=form.tf32, compiled=compiled, sites=False),
        work=[step.work for step in steps],
        enough=enough,
        progress=lambda words: say(f"{model.name}, {form.name}, {how}: {words} …"),
    )
    try:
        found = measured(calc.load(model.of), model.sizes, options_of(form.precision), asked)
    except Exception as error:  # whatever a kernel or a compiler raises: the other rows still count
        return Row(model.name, form.name, compiled, None, {}, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
    if compiled:
        return Row(model.name, form.name, compiled, found, {}, "a prediction is of eager steps")
    if calibration is None:
        return Row(model.name, form.name, compiled, found, {}, "not predicted: nothing was calibrated")
    made = {sizes_of(sizes): _predicted(step, calibration) for sizes, step in zip(model.sizes, steps, strict=True)}
    failed = next((words for seconds, words in made.values() if not seconds), "")
    return Row(model.name, form.name, compiled, found, {name: one for name, one in made.items() if one[0]}, failed)


def _predicted(step: Derived, calibration: Any) -> tuple[float, str]:
    """Seconds, and what in them is not calibrated; 0 with the reason where there is no prediction."""
    if step.operators is None:
        return 0.0, step.because
    try:
        from calc.prediction import predict

        found = predict(step.operators, calibration)
    except Exception as error:  # a prediction that fails costs no measurement
        return 0.0, f"not predicted: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    stand_ins = [f"{name} {percent_of(share)}" for name, share in list(found.stand_ins.items())[:3]]
    return found.seconds, ", ".join(stand_ins)


def percent_of(share: float) -> str:
    return f"{100 * share:.0f} %"


def lines(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    for found in rows:
        yield from _lines(found)


def _lines(row: Row) -> Iterator[tuple[str, ...]]:
    head = (row.model, row.format, "compiled" if row.compiled else "eager")
    if row.found is None:
        yield (*head, "", "not measured", row.because, "", "", "", "", "")
        return
    for run in row.found.runs:
        time = run.time
        low, high = time.measured.times.whole.quartiles
        shares = ("unknown" if share is None else percent(share.value) for share in (time.mfu, time.hfu))
        expected = row.predicted.get(sizes_of(run.sizes))
        compared = (row.because, "") if expected is None else (f"{1000 * expected[0]:.2f} ms", f"{100 * _off(run, expected[0]):+.1f} %")
        spread = f"{duration(low / 10**9)} to {duration(high / 10**9)}"
        through = rate(time.per_second, time.throughput.unit)
        yield (*head, sizes_of(run.sizes), duration(time.seconds), spread, through, *shares, *compared)


def _off(run: Run, seconds: float) -> float:
    return seconds / float(run.time.seconds) - 1


def verdict(rows: Sequence[Row]) -> list[str]:
    """How far the predictions are off, the aims, and every miss with what in it is not calibrated."""
    every = [
        (abs(_off(run, row.predicted[sizes_of(run.sizes)][0])), row, run)
        for row in rows
        if row.found is not None
        for run in row.found.runs
        if sizes_of(run.sizes) in row.predicted
    ]
    if not every:
        return ["No step time was predicted."]
    middle, worst = statistics.median(one for one, _, _ in every), max(one for one, _, _ in every)
    met = {True: "met", False: "missed"}
    said = [
        f"Predicted step times are off by {percent_of(middle)} in the median (aim {percent_of(MEDIAN_AIM)}: {met[middle <= MEDIAN_AIM]})"
        f" and {percent_of(worst)} at worst (aim {percent_of(WORST_AIM)}: {met[worst <= WORST_AIM]}), over {len(every)} steps."
    ]
    for one, row, run in every:
        if one > WORST_AIM:
            not_calibrated = row.predicted[sizes_of(run.sizes)][1] or "nothing"
            at = f"{row.model}, {row.format}, {sizes_of(run.sizes)}"
            said.append(f"Missed: {at}: {percent_of(one)}; not calibrated in it: {not_calibrated}.")
    return said
