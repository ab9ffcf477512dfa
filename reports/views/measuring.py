"""What was measured, on a terminal: steps, one matrix multiplication, a calibration and transfers, each with its spread, beside what
was predicted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from calc.hardware.accelerators import of_device
from calc.hardware.calibration import COPY, OVERHEADS, PRODUCT, Calibration, CalibrationPoint
from calc.hardware.times import Timings
from calc.memory.device_memory import off
from calc.performance.matmul import SMALLER, MatmulRow, Products
from calc.performance.measuring import Expected, Measured, MeasuredRun
from calc.performance.transfers import Transfers, ahead, bandwidth, batch_bytes, beside, copy_time, loop_time
from calc.symbolic.assignments import TYPED, sizes_text
from calc.symbolic.worked import WorkedCalculation
from calc.units import Unit
from reports.typeset.numbers import NBSP, amount, bytes_text, duration, integer, percent, rate, times
from reports.writers.terminal import Terminal, bold, right

if TYPE_CHECKING:
    from calc.measure.copies import Copied


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


# -- one matrix multiplication ----------------------------------------------------------------------------------------


_HEADS = ("Format", *right("Median", "Middle half", "Repetitions", "Rate", "Dense peak", "Of the peak"))


def show_matmul(products: Products, default: bool, out: Terminal) -> None:
    """A row for each format; ``default``: nobody chose the sizes."""
    shape, device = products.shape, products.machine["device"]
    flops = amount(shape.flops, Unit.FLOP)
    head = f": {flops.headline}, one multiply-add = 2 FLOP, on {device['name']}"
    out.line(bold(f"{shape.m} × {shape.k} times {shape.k} × {shape.n}"), head)
    if default and device["kind"] == "cpu":
        out.line(f"sizes are a {SMALLER}nd of the lecture's in each direction: on a CPU those take minutes", style="dim")
    out.table(_HEADS, [(row.dtype, *_cells(row, shape.flops)) for row in products.rows])
    out.lines(*dict.fromkeys(f"{row.dtype}: {row.because}" for row in products.rows if row.because), style="dim")
    sources = dict.fromkeys(row.ceiling.source for row in products.rows if row.share is not None)
    out.line(f"timed by {products.clock}{''.join(f'; peaks: {source}' for source in sources)}", style="dim")


def _cells(row: MatmulRow, flops: int) -> tuple[str, ...]:
    peak = "unknown" if row.ceiling.rate is None else rate(row.ceiling.rate, "FLOP")
    if row.times is None:
        return ("not measured", "", "", "", peak, "")
    low, high = row.times.quartiles
    spread = f"{duration(low / 10**9)} to {duration(high / 10**9)}"
    share = "unknown" if row.ceiling.rate is None else "refused" if row.share is None else percent(row.share.value)
    return (duration(row.times.seconds), spread, str(len(row.times.nanoseconds)), rate(flops / row.times.seconds, "FLOP"), peak, share)


# -- a calibration ----------------------------------------------------------------------------------------------------


def show_calibration(calibration: Calibration, out: Terminal) -> None:
    """Every operator that was timed, at its smallest and its largest size."""
    entry = of_device(calibration.name)
    out.line(bold(calibration.name), f", {threads(calibration)}calibrated {calibration.machine.get('date')}")
    out.line(f"by {calibration.clock}", style="dim")
    if entry is not None:
        out.line(f"in the catalogue as {entry.id}: napkin list hardware {entry.id}", style="dim")
    out.line()
    rates = [(f"highest rate of matmuls in {dtype}", rate(peak, "FLOP")) for dtype, peak in calibration.peaks().items()]
    copy = ("bandwidth of the largest copy", rate(calibration.bandwidth(), "B"))
    times = [(primitive, duration(calibration.by_what[primitive, "float32"][0].seconds)) for primitive in OVERHEADS]
    out.table(("", ("measured", "right")), [*rates, copy, *times])
    out.line()
    _show_operators(calibration, out)


def threads(calibration: Calibration) -> str:
    """How many threads of a CPU took part."""
    count = calibration.machine["device"].get("threads")
    return "" if count is None else f"{count} thread{'' if count == 1 else 's'}, "


def _show_operators(calibration: Calibration, out: Terminal) -> None:
    rows = []
    for (primitive, dtype), points in calibration.by_what.items():
        if primitive in OVERHEADS:
            continue
        speeds = sorted(_speed(p) for p in points)
        unit = "FLOP" if points[0].flops else "B"
        spread = sorted(p.spread for p in points)[len(points) // 2]
        cells = (str(len(points)), rate(speeds[0], unit), rate(speeds[-1], unit), f"{100 * float(spread):.0f} %")
        rows.append((primitive, dtype, *cells))
    out.table(("operator", "dtype", *right("sizes", "slowest", "fastest", "spread")), rows)
    out.line(f"rates of {PRODUCT} and the like over all shapes, bandwidths of {COPY} and the like over all sizes", style="dim")


def _speed(point: CalibrationPoint) -> Fraction:
    return point.rate if point.flops else point.bandwidth


# -- transfers --------------------------------------------------------------------------------------------------------


_COPY_HEADS = ("Way", *right("Bytes", "Median", "Middle half", "Repetitions", "Bandwidth", "Call returned"))


def show_transfers(transfers: Transfers, batch: int, length: int, out: Terminal) -> None:
    """The measured copies, then the expressions with what was measured put in."""
    out.line(bold("Transfers"), f" on {transfers.machine['device']['name']}")
    out.table(_COPY_HEADS, [_row(copy) for copy in transfers.copies])
    out.line(f"timed by {transfers.clock}", style="dim")
    nbytes = batch_bytes(batch, length)
    _show_steps(nbytes, out)
    fastest = next(c for c in reversed(transfers.copies) if c.name.startswith(("host to device, pinned", "host to host")))
    _show_steps(copy_time(nbytes.value, bandwidth(fastest), f"measured: {fastest.name}"), out)
    _show_loaders(transfers, nbytes.value, out)
    out.lines(*(f"{way.name}: {way.because}" for way in transfers.unmeasured), style="dim")
    if transfers.beside is not None:
        expected = beside(transfers.beside.copy.seconds, transfers.beside.compute.seconds)
        _show_steps(expected, out)
        _show_both(transfers.beside.after, expected["a"], "one after the other", out)
        _show_both(transfers.beside.beside, expected["o"], "at the same time", out)


def _show_loaders(transfers: Transfers, nbytes: Fraction, out: Terminal) -> None:
    """Times of every data loader beside their expression, and the batches that workers load ahead."""
    if not transfers.loaders:
        return
    wait = duration(Fraction(transfers.loaders[0].step))
    heads = ("Data loader", *right("A batch alone", f"A step with a wait of {wait}", "Expected", "Batches ahead", "Expected"))
    rows = [
        (
            *(loaded.name, duration(loaded.alone.seconds), duration(loaded.in_loop.seconds), duration(loop_time(loaded))),
            *(integer(loaded.ahead), integer(loaded.workers * transfers.prefetch)),
        )
        for loaded in transfers.loaders
    ]
    out.table(heads, rows)
    workers = transfers.loaders[-1].workers
    if workers:
        _show_steps(ahead(workers, transfers.prefetch, nbytes), out)


def _row(copy: Copied) -> tuple[str, ...]:
    low, high = copy.times.quartiles
    returned = "" if copy.returned is None else duration(copy.returned.seconds)
    spread = f"{duration(low / 10**9)} to {duration(high / 10**9)}"
    repetitions, size = str(len(copy.times.nanoseconds)), bytes_text(copy.nbytes)
    return copy.name, size, duration(copy.times.seconds), spread, repetitions, rate(bandwidth(copy), "B"), returned


def _value(value: Fraction, unit: str) -> str:
    if unit == "bytes":
        return bytes_text(int(value))
    return f"{integer(int(value))}{NBSP}{unit}" if unit == "batches" else duration(value)


def _show_both(measured: Timings, expected: Fraction, label: str, out: Terminal) -> None:
    out.line(f"  {label}: measured {duration(measured.seconds)}, {times(measured.seconds / expected)} of the expression")


def _show_steps(calculation: WorkedCalculation, out: Terminal) -> None:
    for line in calculation.steps:
        value = _value(line.value, line.unit)
        out.line(bold(f"  {line.symbol} = {line.expr}"), f" = {value}: {line.meaning}; {line.because}")
