"""Everything that is measured on a CUDA device, in one unattended run: the lecture's matrix product in every number format, a calibration,
step times eager and compiled beside their prediction, transfers, and memory beside its prediction.

Run as ``python -m tests.gpu``, or parts of it with ``--only``. Every measurement is a JSON file of its own, written as soon as it is
there, and tables end the run. Nothing new begins after nine minutes. Without a device it says so and exits 0. A row that cannot be run
says why and does not stop the others; a prediction that misses its aim is shown as a miss.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from calc import matrix_products, transfers
from calc.measuring import absent, document
from calc.repeat import Repeat
from reports.job import json_text, write_all
from tests.gpu import memory, steps
from tests.gpu.models import FORMATS, OF_MEMORY, OF_TIME, Format, Model
from tests.gpu.recording import Derived, Job, deriving, recorded

ROOT = Path(__file__).resolve().parent.parent.parent
OUTPUT = ROOT / "reports" / "measurements"
PARTS = ("products", "calibration", "time", "transfers", "memory")
WAYS = (False, True)  # eager, and through torch.compile
LATE = "not run: no time was left"


@dataclass
class Session:
    """One run on a device: until when something may begin, where files go, and what there is to say at the end."""

    device: str
    folder: Path
    seconds: float
    known: Callable[[], Mapping[str, Derived]] = dict
    begun: float = field(default_factory=time.monotonic)
    said: list[str] = field(default_factory=list)
    calibration: Any = None

    def late(self) -> bool:
        return time.monotonic() - self.begun > self.seconds

    def say(self, words: str) -> None:
        print(f"{time.monotonic() - self.begun:4.0f} s  {words}", file=sys.stderr, flush=True)

    def keep(self, name: str, data: Mapping[str, Any]) -> None:
        """One measurement as a file, named after the device."""
        words = f"python -m tests.gpu --device {self.device}"
        machine = data["device"] if "device" in data else data["machine"]["device"]
        device = re.sub(r"[^a-z0-9]+", "-", str(machine["name"]).lower()).strip("-")
        (path,) = write_all(self.folder, {f"{device}-{name}.json": json_text({**data, "command": words})})
        self.say(f"wrote {path}")

    def table(self, title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        lines = [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]
        self.said.append("\n".join([f"## {title}", "", *lines]))


def main(
    words: Sequence[str] | None = None,
    models: Sequence[Model] = OF_MEMORY,
    timed: Sequence[Model] = OF_TIME,
    formats: Sequence[Format] = FORMATS,
    ways: Sequence[bool] = WAYS,
) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=OUTPUT, help="where the JSON files go (reports/measurements)")
    parser.add_argument("--seconds", type=float, default=540, help="begin nothing new after so many seconds (540)")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="these parts alone, in this order")
    given = parser.parse_args(words)
    if because := absent():
        print(because)
        return 0
    jobs = _jobs(timed, formats) if "time" in given.only and given.seconds > 0 else ()
    with deriving(jobs) as known:
        session = Session(given.device, given.output, given.seconds, known)
        _run(session, given.only, models, timed, formats, ways)
    print("\n\n".join(session.said))
    return 0


def _jobs(models: Sequence[Model], formats: Sequence[Format]) -> list[Job]:
    """Every step that is timed; tf32 is fp32 to whoever derives."""
    precisions = dict.fromkeys(form.precision for form in formats)
    return [(model.of, sizes, precision) for model in models for sizes in model.sizes for precision in precisions]


def _run(
    session: Session,
    chosen: Sequence[str],
    models: Sequence[Model],
    timed: Sequence[Model],
    formats: Sequence[Format],
    ways: Sequence[bool],
) -> None:
    parts: dict[str, Callable[[], None]] = {
        "products": lambda: _products(session),
        "calibration": lambda: _calibration(session),
        "time": lambda: _times(session, timed, formats, ways),
        "transfers": lambda: _transfers(session),
        "memory": lambda: _memory(session, models),
    }
    for name in chosen:
        if session.late():
            session.said.append(f"## {name}\n\n{LATE}")
            continue
        session.say(f"part {name} begins")
        try:
            parts[name]()
        except Exception as error:  # the other parts still count
            session.said.append(f"## {name}\n\n{type(error).__name__}: {' '.join(str(error).split())[:300]}")


def _products(session: Session) -> None:
    """The lecture's product, 16384 × 32768 × 8192, in every format."""
    sizes = matrix_products.sizes_for(session.device, None, None, None)
    found = matrix_products.products(sizes, matrix_products.DTYPES, session.device, Repeat(3, 10, 1.0), progress=session.say)
    session.keep("products", matrix_products.document(found))
    rows = []
    for row in found.rows:
        seconds = None if row.times is None else float(row.times.seconds)
        done = ("not measured", "") if seconds is None else (f"{1000 * seconds:.2f} ms", f"{found.shape.flops / seconds / 1e12:.1f}")
        share = row.because if row.share is None else f"{100 * float(row.share.value):.1f} %"
        rows.append((row.dtype, *done, "unknown" if row.ceiling.rate is None else f"{float(row.ceiling.rate) / 1e12:.0f}", share))
    session.table(f"Matrix product {' × '.join(map(str, sizes))}", ("Format", "Median", "TFLOP/s", "Dense peak", "Of the peak"), rows)


def _calibration(session: Session) -> None:
    """What a prediction goes by: products, copies and launches alone."""
    try:
        from calc.measure.calibration import calibrate
    except ImportError:
        session.said.append("## calibration\n\nnot run: this version calibrates nothing")
        return
    session.say("waiting until every step is derived: other work would slow the program's own part of a launch")
    session.known()
    session.calibration = calibrate(session.device, progress=session.say)
    session.keep("calibration", session.calibration.to_json())
    session.said.append(f"## Calibration\n\n{len(session.calibration.points)} points by {session.calibration.clock}")


def _times(session: Session, models: Sequence[Model], formats: Sequence[Format], ways: Sequence[bool]) -> None:
    """All eager steps, then the compiled ones, which take longest to begin."""
    known = session.known()
    if session.calibration is None:
        _calibration(session)
    rows = [_time(session, model, form, compiled, known) for compiled in ways for form in formats for model in models]
    session.table("Step times", steps.HEAD, steps.lines(rows))
    session.said.extend(steps.verdict(rows))


def _time(session: Session, model: Model, form: Format, compiled: bool, known: Mapping[str, Derived]) -> steps.Row:
    if session.late():
        return steps.Row(model.name, form.name, compiled, None, {}, LATE)
    row = steps.row(model, form, compiled, session.device, known, session.calibration, session.late, session.say)
    if row.found is not None:
        how = "compiled" if compiled else "eager"
        session.keep(f"{model.name}-{form.name}-{how}-time", document(row.found))
    return row


def _transfers(session: Session) -> None:
    found = transfers.measured(2**28, 32, 1024, session.device, Repeat(2, 10, 0.5), progress=session.say)
    session.keep("transfers", transfers.document(found))
    rows = [(c.name, f"{float(transfers.bandwidth(c)) / 1e9:.2f}", _milliseconds(c.times), _milliseconds(c.returned)) for c in found.copies]
    session.table("Transfers", ("Way", "GB/s", "Median", "Call returned"), rows)
    if found.beside is not None:
        expected = transfers.beside(found.beside.copy.seconds, found.beside.compute.seconds)
        both = (("one after the other", found.beside.after, expected["a"]), ("at the same time", found.beside.beside, expected["o"]))
        rows = [(name, _milliseconds(times), f"{1000 * float(value):.2f} ms") for name, times, value in both]
        session.table("A copy and compute", ("How", "Measured", "Expression"), rows)


def _milliseconds(times: Any) -> str:
    return "" if times is None else f"{1000 * float(times.seconds):.3f} ms"


def _memory(session: Session, models: Sequence[Model]) -> None:
    if len(models) > 1 and os.environ.get("NAPKIN_CACHE") != "off":
        recorded([(model.of, model.sizes[0], recipe) for model in models for recipe in memory.RECIPES])
    rows = []
    for model in models:
        for recipe in memory.RECIPES:
            late = memory.Row(model.name, recipe, None, LATE)
            rows.append(late if session.late() else memory.row(model, recipe, session.device, session.say))
            found = rows[-1].found
            if found is not None:
                session.keep(f"{model.name}-{recipe}", document(found))
    session.table("Memory", memory.HEAD, memory.lines(rows))


if __name__ == "__main__":
    sys.exit(main())
