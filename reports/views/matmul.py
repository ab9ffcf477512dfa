"""A matrix product in several number formats, on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from calc.performance.matmul import SMALLER, MatmulRow, Products
from calc.units import Unit
from reports.typeset.escape import visible
from reports.typeset.numbers import amount, duration, percent, rate
from reports.writers.columns import columns


def show(found: Products, default: bool, out: Console) -> None:
    """A row for each format; ``default``: nobody chose the sizes."""
    shape, device = found.shape, found.machine["device"]
    flops = amount(shape.flops, Unit.FLOP)
    head = f": {flops.headline}, one multiply-add = 2 FLOP, on {visible(str(device['name']))}"
    out.print(Text.assemble((f"{shape.m} × {shape.k} times {shape.k} × {shape.n}", "bold"), head))
    if default and device["kind"] == "cpu":
        out.print(Text(f"sizes are a {SMALLER}nd of the lecture's in each direction: on a CPU those take minutes", style="dim"))
    table = columns("Format", *((head, "right") for head in ("Median", "Middle half", "Repetitions", "Rate", "Dense peak", "Of the peak")))
    for row in found.rows:
        table.add_row(row.dtype, *_cells(row, shape.flops))
    out.print(table)
    for reason in dict.fromkeys(f"{row.dtype}: {row.because}" for row in found.rows if row.because):
        out.print(Text(visible(reason), style="dim"))
    sources = dict.fromkeys(row.ceiling.source for row in found.rows if row.share is not None)
    out.print(Text(visible(f"timed by {found.clock}{''.join(f'; peaks: {source}' for source in sources)}"), style="dim"))


def _cells(row: MatmulRow, flops: int) -> tuple[str, ...]:
    peak = "unknown" if row.ceiling.rate is None else rate(row.ceiling.rate, "FLOP")
    if row.times is None:
        return ("not measured", "", "", "", peak, "")
    low, high = row.times.quartiles
    spread = f"{duration(low / 10**9)} to {duration(high / 10**9)}"
    share = "unknown" if row.ceiling.rate is None else "refused" if row.share is None else percent(row.share.value)
    return (duration(row.times.seconds), spread, str(len(row.times.nanoseconds)), rate(flops / row.times.seconds, "FLOP"), peak, share)
