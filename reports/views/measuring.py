"""A measurement on a terminal, and its file: times with their spread, throughput, shares of the peak, and memory beside its prediction."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from calc.memory.device_memory import off
from calc.performance.measuring import Expected, Measured, MeasuredRun
from calc.symbolic.assignments import TYPED, sizes_text
from reports.typeset.numbers import duration, integer, percent, rate
from reports.writers.terminal import Terminal, bold, right

_LISTED = 12
_PROFILED = "operators' own times under torch.profiler, which slows a step down; those of the backward by the module of their forward"

_TIMES = ("Sizes", "Part", *right("Median", "Middle half", "Repetitions", "Throughput"), "Of the peak")
_MODULES = ("Module", *right("Forward", "Backward", "Optimizer", "Share"))
_MEMORY = ("Sizes", *right("Live", "Predicted", "Measured", "Error", "Reserved", "First step"))


def show(measured: Measured, out: Terminal) -> None:
    """The times at each size, what follows from them, the modules that take longest; on a CUDA device memory as well."""
    options = ", ".join(f"{name} {value}" for name, value in measured.options.items())
    out.line(bold(measured.model), f": {options}, on {measured.machine['device']['name']}")
    out.table(_TIMES, _times(measured.runs))
    out.lines(*_notes(measured.runs), style="dim")
    if measured.runs[-1].time.measured.module_times:
        out.table(_MODULES, _modules(measured.runs[-1]))
        out.line(_PROFILED, style="dim")
    if any(run.memory for run in measured.runs):
        out.table(_MEMORY, _memory(measured.runs))
    reasons = dict.fromkeys(run.memory.predicted.unknown for run in measured.runs if run.memory is not None)
    out.lines(*(f"not predicted: {reason}" for reason in reasons if reason), style="dim")
    out.lines(*_fits(measured))


def _times(runs: Sequence[MeasuredRun]) -> Iterator[tuple[str, ...]]:
    """A row for each part of the step, at each size; the step itself comes last."""
    for run in runs:
        times = run.time.measured.times
        for name, part in {**times.parts, "step": times.whole}.items():
            low, high = part.quartiles
            last = name == "step"
            yield (
                _sizes(run.sizes) if name == next(iter(times.parts), "step") else "",
                name,
                duration(part.seconds),
                f"{duration(low / 10**9)} to {duration(high / 10**9)}",
                str(len(part.nanoseconds)) if last else "",
                rate(run.time.per_second, run.time.throughput.unit) if last else "",
                _shares(run) if last else "",
            )


def _shares(run: MeasuredRun) -> str:
    shares = [f"{name} {percent(share.value)}" for name, share in (("MFU", run.time.mfu), ("HFU", run.time.hfu)) if share is not None]
    return ", ".join(shares) or "MFU unknown"


def _notes(runs: Sequence[MeasuredRun]) -> Iterator[str]:
    """What the shares are of, or why there are none; by what clock, and how the device was."""
    times = [run.time for run in runs]
    for dtype, peak, source in dict.fromkeys((t.ceiling.dtype, t.ceiling.rate, t.ceiling.source) for t in times if t.mfu is not None):
        assert peak is not None
        yield f"peak: {rate(peak, 'FLOP')} dense in {dtype} ({source}); FLOPs are those of matrix multiplications, derived"
    for run in runs:
        if run.expected is not None:
            yield _expected(run.expected, run.time.seconds)
    yield from dict.fromkeys(f"MFU is unknown, because {t.unknown}" for t in times if t.unknown)
    yield from dict.fromkeys(f"HFU is unknown, because {t.work.because}" for t in times if t.mfu is not None and t.hfu is None)
    last = runs[-1].time.measured
    dropped = len(last.times.whole.warm_up)
    warm_up = f"{dropped} step{'' if dropped == 1 else 's'} of warm-up"
    yield f"timed by {last.times.clock}, which moves by {last.times.tick} ns, after {warm_up}"
    before, after = last.conditions
    for name, unit in (("clock", "MHz"), ("temperature", "°C"), ("power", "W")):
        if after.get(name) is not None:
            yield f"{name}: {_several(before.get(name))} {unit} before, {_several(after[name])} {unit} after"
        else:
            yield f"{name}: unknown ({after['because'].get(name, 'not read')})"


def _expected(expected: Expected, measured: Fraction) -> str:
    off = expected.off(measured)
    if expected.seconds is None or off is None:
        return f"the step was not predicted: {expected.because}"
    low, high = (duration(Fraction(seconds)) for seconds in expected.band)
    interval = f"{duration(Fraction(expected.seconds))}, {low} to {high}"
    return f"the calibration predicts a step of {interval}: {percent(Fraction(off), signed=True)} off what was measured"


def _several(value: object) -> str:
    if isinstance(value, list) and value:
        low, high = min(value), max(value)
        return f"{low:g}" if low == high else f"{low:g} to {high:g}"
    return f"{value:g}" if isinstance(value, float | int) else "unknown"


def _modules(run: MeasuredRun) -> Iterator[tuple[str, ...]]:
    """The modules that take longest; layers that are called alike count together."""
    sums: dict[str, list[int]] = {}
    for module in run.time.measured.module_times:
        row = sums.setdefault(re.sub(r"(?<=\.)\d+(?=\.|$)", "*", module.module_path), [0, 0, 0])
        for i, value in enumerate((module.forward, module.backward, module.optimizer)):
            row[i] += value
    total = sum(map(sum, sums.values()))
    longest = sorted(sums.items(), key=lambda item: -sum(item[1]))
    shown, smaller = longest[:_LISTED], longest[_LISTED:]
    if smaller:
        shown.append((f"{len(smaller)} others", [sum(values[i] for _, values in smaller) for i in range(3)]))
    for name, values in shown:
        times = (duration(Fraction(value, 10**9)) if value else "–" for value in values)
        yield name, *times, percent(Fraction(sum(values), total))


def _memory(runs: Sequence[MeasuredRun]) -> Iterator[tuple[str, ...]]:
    """The allocator's peaks beside what was predicted, with the error in per cent."""
    for memory, sizes in ((run.memory, run.sizes) for run in runs if run.memory is not None):
        before, after = memory.predicted, memory.measured
        share = memory.off
        predicted = "unknown" if before.allocated is None else integer(before.allocated)
        first = "" if after.first is None else integer(after.first.allocated)
        numbers = (integer(before.steady.live), predicted, integer(after.allocated), "" if share is None else percent(share, signed=True))
        yield _sizes(sizes), *numbers, integer(after.reserved), first


def _sizes(sizes: Mapping[str, int]) -> str:
    return sizes_text({name: size for name, size in sizes.items() if name in ("B", "T")}, TYPED) or "its own"


def _fits(measured: Measured) -> list[str]:
    if measured.fits is None:
        return []
    largest, expected = measured.fits.largest, measured.expected
    distance = off(expected, largest)
    beside = "" if distance is None else f", {percent(distance, signed=True)} off"
    above = "nothing larger was tried" if measured.fits.too_large is None else f"{integer(measured.fits.too_large)} did not fit"
    most = "none" if largest is None else integer(largest)
    predicted = "unknown" if expected is None else integer(expected)
    return [f"largest B that fits: {most} ({above}), predicted {predicted}{beside}"]
