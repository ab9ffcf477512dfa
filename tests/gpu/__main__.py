"""Measure memory on a CUDA device: three models, three recipes, three sizes each, and the largest batch; predictions stand beside.

Run as ``python -m tests.gpu``; every measurement is a JSON file of its own, written as soon as it is there, and a table ends the run.
Without a device it says so and exits 0. A row that cannot be run says why and does not stop the others; a prediction that misses
its aim is shown as a miss.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import calc
from calc.device_memory import off
from calc.measuring import Asked, Measured, absent, measured
from reports.measuring import write
from tests.gpu.recording import options_of, recorded

ROOT = Path(__file__).resolve().parent.parent.parent
OUTPUT = ROOT / "reports" / "measurements"
RECIPES = ("fp32", "bf16-autocast", "bf16-master")
PEAK_AIM, BATCH_AIM = Fraction(1, 100), Fraction(2, 100)


@dataclass(frozen=True)
class Model:
    """A built-in model at fixed widths, and the sizes of the inputs with which its steps run."""

    name: str
    of: str
    widths: Mapping[str, int]
    cases: tuple[Mapping[str, int], ...]

    @property
    def sizes(self) -> tuple[dict[str, int], ...]:
        return tuple({**self.widths, **case} for case in self.cases)


def _tokens(*cases: tuple[int, int]) -> tuple[Mapping[str, int], ...]:
    return tuple({"B": batch, "T": length} for batch, length in cases)


_LLAMA = {"d": 2048, "h": 32, "g": 8, "f": 8192, "L": 16, "V": 32000}
_EXPERTS = {"d": 1024, "h": 16, "g": 4, "f": 3584, "L": 8, "V": 32000}
MODELS = (
    Model("gpt2-124m", "gpt2", {}, _tokens((4, 512), (7, 769), (8, 1024))),
    Model("llama-1b", "llama3-8b", _LLAMA, _tokens((1, 1024), (2, 1536), (4, 1024))),
    Model("moe", "mixtral", _EXPERTS, _tokens((2, 512), (3, 769), (4, 1024))),
)


@dataclass(frozen=True)
class Row:
    """What came of one model and recipe: a measurement, or why there is none."""

    model: str
    recipe: str
    found: Measured | None
    because: str = ""


def main(words: Sequence[str] | None = None, models: Sequence[Model] = MODELS) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=OUTPUT, help="where the JSON files go (reports/measurements)")
    parser.add_argument("--seconds", type=float, default=540, help="begin no further measurement after so many seconds (540)")
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args(words)
    if because := absent():
        print(because)
        return 0
    begin = time.monotonic()
    if len(models) > 1 and os.environ.get("NAPKIN_CACHE") != "off":
        recorded([(model.of, model.sizes[0], recipe) for model in models for recipe in RECIPES])
    rows = []
    for model in models:
        for recipe in RECIPES:
            late = time.monotonic() - begin > given.seconds
            rows.append(Row(model.name, recipe, None, "not run: no time was left") if late else _row(model, recipe, given.device))
            _kept(rows[-1], given.output)
    print(summary(rows))
    return 0


def _row(model: Model, recipe: str, device: str) -> Row:
    def say(words: str) -> None:
        print(f"{model.name}, {recipe}: {words} …", file=sys.stderr, flush=True)

    try:
        found = measured(calc.load(model.of), model.sizes, options_of(recipe), Asked(device, fit=True, progress=say))
    except Exception as error:  # whatever a kernel raises: the other rows still count
        return Row(model.name, recipe, None, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
    return Row(model.name, recipe, found)


def _kept(row: Row, folder: Path) -> None:
    if row.found is None:
        return
    device = re.sub(r"[^a-z0-9]+", "-", str(row.found.machine["device"]["name"]).lower()).strip("-")
    path = folder / f"{device}-{row.model}-{row.recipe}.json"
    write(row.found, path)
    print(f"wrote {path}", file=sys.stderr, flush=True)


def summary(rows: Sequence[Row]) -> str:
    """A table in Markdown: every prediction beside what was measured, in per cent, with the aim and whether it was met."""
    lines: list[tuple[str, ...]] = [("Model", "Recipe", "Sizes", "What", "Predicted", "Measured", "Off", "Aim")]
    for row in rows:
        lines += list(_lines(row))
    body = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([body[0], "|---|---|---|---|---:|---:|---:|---|", *body[1:]])


def _lines(row: Row) -> Iterator[tuple[str, ...]]:
    head = (row.model, row.recipe)
    if row.found is None:
        yield (*head, "", row.because, "", "", "", "not measured")
        return
    for run in row.found.runs:
        assert run.memory is not None
        at = ", ".join(f"{name}={run.sizes[name]}" for name in ("B", "T") if name in run.sizes)
        memory = (run.memory.predicted.allocated, run.memory.measured.allocated)
        yield (*head, at, "max_memory_allocated", *_compared(*memory, PEAK_AIM))
    if row.found.fits is not None:
        yield (*head, "", "largest B", *_compared(row.found.expected, row.found.fits.largest, BATCH_AIM))


def _compared(predicted: int | None, measured: int | None, aim: Fraction) -> tuple[str, str, str, str]:
    share = off(predicted, measured)
    before, after = ("unknown" if value is None else f"{value:,}" for value in (predicted, measured))
    if share is None:
        return before, after, "", "not compared"
    return before, after, f"{float(100 * share):+.2f} %", f"within {100 * aim} %: {'met' if abs(share) <= aim else 'missed'}"


if __name__ == "__main__":
    sys.exit(main())
