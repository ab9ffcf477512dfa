"""A calibration on a terminal: the machine, its highest rates, its memory's bandwidth, and what the program takes for an operator."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from calc.hardware.accelerators import of_device
from calc.hardware.calibration import COPY, OVERHEADS, PRODUCT, Calibration, CalibrationPoint
from reports.typeset.escape import visible
from reports.typeset.numbers import duration, rate
from reports.writers.columns import columns

if TYPE_CHECKING:
    from rich.console import Console


def show(found: Calibration, out: Console) -> None:
    """Every operator that was timed, at its smallest and its largest size."""
    from rich.text import Text

    entry = of_device(found.name)
    out.print(
        Text.assemble((visible(found.name), "bold"), f", {visible(threads(found))}calibrated {visible(str(found.machine.get('date')))}")
    )
    out.print(Text(visible(f"by {found.clock}"), style="dim"))
    if entry is not None:
        out.print(Text(f"in the catalogue as {entry.id}: napkin list hardware {entry.id}", style="dim"))
    out.print()
    table = columns("", ("measured", "right"))
    for dtype, peak in found.peaks().items():
        table.add_row(Text(visible(f"highest rate of products in {dtype}")), rate(peak, "FLOP"))
    table.add_row("bandwidth of the largest copy", rate(found.bandwidth(), "B"))
    for what in OVERHEADS:
        table.add_row(what, duration(found.by_what[what, "float32"][0].seconds))
    out.print(table)
    out.print()
    _operators(found, out)


def threads(found: Calibration) -> str:
    """How many threads of a CPU took part."""
    many = found.machine["device"].get("threads")
    return "" if many is None else f"{many} thread{'' if many == 1 else 's'}, "


def _operators(found: Calibration, out: Console) -> None:
    from rich.text import Text

    table = columns("operator", "dtype", *((head, "right") for head in ("sizes", "slowest", "fastest", "spread")))
    for (what, dtype), points in found.by_what.items():
        if what in OVERHEADS:
            continue
        speeds = sorted(_speed(p) for p in points)
        unit = "FLOP" if points[0].flops else "B"
        spread = sorted(p.spread for p in points)[len(points) // 2]
        cells = (str(len(points)), rate(speeds[0], unit), rate(speeds[-1], unit), f"{100 * float(spread):.0f} %")
        table.add_row(Text(visible(what)), Text(visible(dtype)), *cells)
    out.print(table)
    out.print(Text(f"rates of {PRODUCT} and the like over all shapes, bandwidths of {COPY} and the like over all sizes", style="dim"))


def _speed(point: CalibrationPoint) -> Fraction:
    return point.rate if point.flops else point.bandwidth
