"""A matrix multiplication in several number formats, on a terminal."""

from __future__ import annotations

from calc.performance.matmul import SMALLER, MatmulRow, Products
from calc.units import Unit
from reports.typeset.numbers import amount, duration, percent, rate
from reports.writers.terminal import Terminal, bold, right

_HEADS = ("Format", *right("Median", "Middle half", "Repetitions", "Rate", "Dense peak", "Of the peak"))


def show(products: Products, default: bool, out: Terminal) -> None:
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
