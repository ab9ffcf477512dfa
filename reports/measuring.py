"""A measurement of memory on a terminal, and its file: what was predicted beside what was read, with the distance in per cent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from calc.measuring import Measured, document, off
from reports import job
from reports.escape import visible
from reports.numbers import integer, percent

_KINDS = ("Live", "Predicted", "Measured", "Off", "Reserved", "First step", "Seconds")


def show(found: Measured, out: Console) -> None:
    """A row for each set of sizes, then the largest batch."""
    options = ", ".join(found.options.values())
    device = found.machine["device"]
    out.print(Text.assemble((visible(found.model), "bold"), f": {options}, on {visible(str(device['name']))}"))
    out.print(_table(found))
    for before, _ in found.runs:
        if before.unknown:
            out.print(Text(visible(f"not predicted: {before.unknown}"), style="dim"))
    for line in _fits(found):
        out.print(Text(visible(line)))


def _table(found: Measured) -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False)
    table.add_column("Sizes")
    for heading in _KINDS:
        table.add_column(heading, justify="right")
    for before, after in found.runs:
        share = off(before.allocated, after.allocated)
        predicted = "unknown" if before.allocated is None else integer(before.allocated)
        first = "" if after.first is None else integer(after.first.allocated)
        numbers = (integer(before.steady.live), predicted, integer(after.allocated), "" if share is None else percent(share, signed=True))
        seconds = ", ".join(f"{r.seconds:.4f}" for r in after.repetitions)
        table.add_row(_sizes(after.sizes), *numbers, integer(after.reserved), first, seconds)
    return table


def _sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sizes.items() if name in ("B", "T")) or "its own"


def _fits(found: Measured) -> list[str]:
    if found.fits is None:
        return []
    largest, expected = found.fits.largest, found.expected
    share = off(expected, largest)
    distance = "" if share is None else f", {percent(share, signed=True)} off"
    above = "nothing larger was tried" if found.fits.too_large is None else f"{integer(found.fits.too_large)} did not fit"
    most = "none" if largest is None else integer(largest)
    predicted = "unknown" if expected is None else integer(expected)
    return [f"largest B that fits: {most} ({above}), predicted {predicted}{distance}"]


def write(found: Measured, path: Path) -> None:
    """The measurement as JSON, whole or not at all."""
    job.write_all(path.parent, {path.name: job.json_text(document(found))})
