"""Transfers on a terminal: each way with its bandwidth, and a copy beside compute with what the expressions give."""

from __future__ import annotations

from fractions import Fraction

from rich.console import Console
from rich.text import Text

from calc.hardware.times import Timings
from calc.performance.transfers import Transfers, bandwidth, batch_bytes, beside, copy_time
from calc.symbolic.worked import Reckoning
from calc.units import Unit
from reports.typeset.escape import visible
from reports.typeset.numbers import amount, duration, rate, times
from reports.writers.columns import columns


def show(found: Transfers, batch: int, length: int, out: Console) -> None:
    """Expressions first, then what was measured."""
    out.print(Text.assemble(("Transfers", "bold"), f" on {visible(str(found.machine['device']['name']))}"))
    table = columns("Way", *((head, "right") for head in ("Bytes", "Median", "Middle half", "Repetitions", "Bandwidth", "Call returned")))
    for copied in found.copies:
        low, high = copied.times.quartiles
        returned = "" if copied.returned is None else duration(copied.returned.seconds)
        took = (duration(copied.times.seconds), f"{duration(low / 10**9)} to {duration(high / 10**9)}", str(len(copied.times.nanoseconds)))
        table.add_row(copied.name, amount(copied.nbytes, Unit.BYTE).headline, *took, rate(bandwidth(copied), "B"), returned)
    out.print(table)
    out.print(Text(visible(f"timed by {found.clock}"), style="dim"))
    nbytes = batch_bytes(batch, length)
    _steps(nbytes, out)
    fastest = next(c for c in reversed(found.copies) if c.name.startswith(("host to device, pinned", "host to host")))
    _steps(copy_time(nbytes.value, bandwidth(fastest), f"measured: {fastest.name}"), out)
    for one in found.unmeasured:
        out.print(Text(visible(f"{one.name}: {one.because}"), style="dim"))
    if found.beside is not None:
        expected = beside(found.beside.copy.seconds, found.beside.compute.seconds)
        _steps(expected, out)
        _both(found.beside.after, expected["a"], "one after the other", out)
        _both(found.beside.beside, expected["o"], "at the same time", out)


def _both(measured: Timings, expected: Fraction, words: str, out: Console) -> None:
    out.print(Text(f"  {words}: measured {duration(measured.seconds)}, {times(measured.seconds / expected)} of the expression"))


def _steps(found: Reckoning, out: Console) -> None:
    for line in found.lines:
        value = amount(int(line.value), Unit.BYTE).headline if line.unit == "bytes" else duration(line.value)
        out.print(Text.assemble((f"  {line.letter} = {line.expr}", "bold"), f" = {value}: {line.meaning}; {line.because}"))
