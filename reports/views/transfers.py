"""Transfers on a terminal: each way with its bandwidth, and a copy overlapped with compute with what the expressions give."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from calc.hardware.times import Timings
from calc.performance.transfers import Transfers, ahead, bandwidth, batch_bytes, beside, copy_time, loop_time
from calc.symbolic.worked import WorkedCalculation
from reports.typeset.numbers import NBSP, bytes_text, duration, integer, rate, times
from reports.writers.terminal import Terminal, bold, right

if TYPE_CHECKING:
    from calc.measure.copies import Copied

_HEADS = ("Way", *right("Bytes", "Median", "Middle half", "Repetitions", "Bandwidth", "Call returned"))


def show(transfers: Transfers, batch: int, length: int, out: Terminal) -> None:
    """The measured copies, then the expressions with what was measured put in."""
    out.line(bold("Transfers"), f" on {transfers.machine['device']['name']}")
    out.table(_HEADS, [_row(copy) for copy in transfers.copies])
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
