"""A calibration on a terminal: the machine, its highest rates, its memory's bandwidth, and what the program takes for an operator."""

from __future__ import annotations

from fractions import Fraction

from calc.hardware.accelerators import of_device
from calc.hardware.calibration import COPY, OVERHEADS, PRODUCT, Calibration, CalibrationPoint
from reports.typeset.numbers import duration, rate
from reports.writers.terminal import Terminal, bold, right


def show(calibration: Calibration, out: Terminal) -> None:
    """Every operator that was timed, at its smallest and its largest size."""
    entry = of_device(calibration.name)
    out.line(bold(calibration.name), f", {threads(calibration)}calibrated {calibration.machine.get('date')}")
    out.line(f"by {calibration.clock}", style="dim")
    if entry is not None:
        out.line(f"in the catalogue as {entry.id}: napkin list hardware {entry.id}", style="dim")
    out.line()
    rates = [(f"highest rate of products in {dtype}", rate(peak, "FLOP")) for dtype, peak in calibration.peaks().items()]
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
