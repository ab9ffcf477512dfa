"""Memory of steps beside its prediction, and the largest batch, on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import calc
from calc.device_memory import off
from calc.measuring import Asked, Measured, measured
from calc.repeat import How, Repeat
from tests.gpu.models import Model, options_of

RECIPES = ("fp32", "bf16-autocast", "bf16-master")
PEAK_AIM, BATCH_AIM = Fraction(1, 100), Fraction(2, 100)
HEAD = ("Model", "Recipe", "Sizes", "What", "Predicted", "Measured", "Off", "Aim")


@dataclass(frozen=True)
class Row:
    """What came of one model and recipe: a measurement, or why there is none."""

    model: str
    recipe: str
    found: Measured | None
    because: str = ""


def row(model: Model, recipe: str, device: str, say: Callable[[str], None]) -> Row:
    how = How(Repeat(warm_up=2, count=3, seconds=0), sites=False)
    asked = Asked(device, fit=True, how=how, progress=lambda words: say(f"{model.name}, {recipe}: {words} …"))
    try:
        return Row(model.name, recipe, measured(calc.load(model.of), model.sizes, options_of(recipe), asked))
    except Exception as error:  # whatever a kernel raises: the other rows still count
        return Row(model.name, recipe, None, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")


def lines(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    """Every prediction beside what was measured, in per cent, with the aim and whether it was met."""
    for found in rows:
        yield from _lines(found)


def _lines(row: Row) -> Iterator[tuple[str, ...]]:
    head = (row.model, row.recipe)
    if row.found is None:
        yield (*head, "", row.because, "", "", "", "not measured")
        return
    for run in row.found.runs:
        assert run.memory is not None
        memory = (run.memory.predicted.allocated, run.memory.measured.allocated)
        yield (*head, sizes_of(run.sizes), "max_memory_allocated", *_compared(*memory, PEAK_AIM))
    if row.found.fits is not None:
        yield (*head, "", "largest B", *_compared(row.found.expected, row.found.fits.largest, BATCH_AIM))


def sizes_of(sizes: object) -> str:
    """Those that change from run to run."""
    assert isinstance(sizes, dict)
    return ", ".join(f"{name}={sizes[name]}" for name in ("B", "T", "S") if name in sizes)


def _compared(predicted: int | None, measured: int | None, aim: Fraction) -> tuple[str, str, str, str]:
    share = off(predicted, measured)
    before, after = ("unknown" if value is None else f"{value:,}" for value in (predicted, measured))
    if share is None:
        return before, after, "", "not compared"
    return before, after, f"{float(100 * share):+.2f} %", f"within {100 * aim} %: {'met' if abs(share) <= aim else 'missed'}"
