"""Recorded measurements of a step as table rows: machine, date, method, times. Nothing is interpolated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from calc.derive.live_bytes import Timeline
from calc.derive.result import Derivation
from calc.derive.to_json import number
from calc.memory.device_memory import of_live_bytes, off
from calc.options import by_cuda
from calc.performance.mfu import work_of
from calc.performance.records import VARIABLE, Evidence, MeasurementRecord, RecordedRun
from reports.page.parts import sizes_text
from reports.typeset.numbers import bytes_text, duration, percent, rate


@dataclass(frozen=True, slots=True)
class RecordedRow:
    """A recorded measurement of the page's step: machine, date, method, median and middle half of its repetitions."""

    machine: str
    date: str
    how: str
    step: str
    spread: str
    parts: tuple[tuple[str, str], ...]
    throughput: str
    share: str
    memory: str
    command: str


@dataclass(frozen=True, slots=True)
class RecordedRuns:
    """The recordings of this step. ``why``: why there is none. ``otherwise``: recordings of this model with other options or sizes."""

    rows: tuple[RecordedRow, ...]
    why: str
    otherwise: tuple[str, ...]


_NONE = f"there is no recording of this model with these options and sizes, neither bundled nor in the folder that {VARIABLE} names"
_MOST_OTHERS = 12


def recorded(derivation: Derivation, evidence: Evidence | None, live: Timeline | None = None) -> RecordedRuns:
    """The section on measured time. A recorded peak stands beside the derived one, where the step is by that device's kernels and ``live``
    are its bytes."""
    if evidence is None:
        return RecordedRuns((), "no recordings were searched", ())
    flops = work_of(derivation).model
    rows = tuple(_row(record, run, flops, _peak_on(record, derivation, live)) for record, run in evidence.shown)
    return RecordedRuns(rows, "" if rows else _NONE, tuple(_recorded_otherwise(derivation, evidence)))


def _row(record: MeasurementRecord, run: RecordedRun, flops: int | None, peak: int | None) -> RecordedRow:
    low, high = run.whole.quartiles
    return RecordedRow(
        machine=_machine(record),
        date=f"{record.date:%Y-%m-%d %H:%M %Z}",
        how=_how(record, run),
        step=duration(run.whole.seconds),
        spread=f"{duration(low / 10**9)} to {duration(high / 10**9)}",
        parts=tuple((name, duration(part.seconds)) for name, part in run.parts.items()),
        throughput=rate(run.per_second, run.unit),
        share=_share(run, flops),
        memory=_memory(run, peak),
        command=record.command,
    )


def _peak_on(record: MeasurementRecord, derivation: Derivation, live: Timeline | None) -> int | None:
    """Bytes allocated at the derived peak on the record's device: live bytes, the allocator's rounding, workspaces. ``None`` if unknown."""
    if not by_cuda(derivation.options) or record.capability is None or live is None:
        return None
    prediction = of_live_bytes(live, record.capability)
    return None if prediction is None else prediction.allocated


def _memory(run: RecordedRun, peak: int | None) -> str:
    if run.memory is None:
        return "not measured"
    share = off(peak, run.memory)
    if peak is None or share is None:
        return bytes_text(run.memory)
    return f"{bytes_text(run.memory)}; derived {bytes_text(peak)} ({percent(share, signed=True)})"


def _machine(record: MeasurementRecord) -> str:
    driver = f", driver {record.driver}" if record.driver else ""
    return f"{record.device}{driver}, torch {record.versions.get('torch', 'unknown')}"


def _how(record: MeasurementRecord, run: RecordedRun) -> str:
    compiled = ", torch.compile" if run.compiled else ""
    return f"matmuls in {run.dtype}{compiled}; {len(run.whole.nanoseconds)} repetitions, timed by {record.clock}"


def _share(run: RecordedRun, flops: int | None) -> str:
    """MFU by the FLOPs derived here; unknown for a recording with other FLOPs, which is of another step."""
    if run.peak is None:
        return f"unknown: the recording has no peak rate in {run.dtype}"
    share = None if flops is None else run.mfu(flops)
    if share is None:
        return "unknown: the recorded step has other FLOPs than the derived one"
    if share > 1:
        return f"refused: {percent(share)} of {rate(run.peak, 'FLOP')} in {run.dtype} is above the peak rate"
    return f"MFU {percent(share)} of {rate(run.peak, 'FLOP')} in {run.dtype} ({run.peak_source})"


def _recorded_otherwise(derivation: Derivation, evidence: Evidence) -> Iterator[str]:
    """One line for all runs of one machine, day and way to run: what differs from the page's step, with the sizes of each."""
    together: dict[str, dict[str, None]] = {}
    for record, run in evidence.otherwise:
        differing = {name: size for name, size in run.sizes.items() if derivation.sizes.get(name) != size}
        together.setdefault(_way(record, run), {})[sizes_text(differing) or "at these sizes"] = None
    lines = [f"{way}: {'; '.join(sizes)}" for way, sizes in together.items()]
    yield from lines[:_MOST_OTHERS]
    if len(lines) > _MOST_OTHERS:
        yield f"and {len(lines) - _MOST_OTHERS} more"


def _way(record: MeasurementRecord, run: RecordedRun) -> str:
    options = ", ".join(f"{name} {value}" for name, value in record.options.items())
    how = ", torch.compile" if run.compiled else ""
    return f"{options}, matmuls in {run.dtype}{how} ({record.device}, {record.date:%Y-%m-%d})"


def measurements(evidence: Evidence) -> list[dict[str, Any]]:
    """The recordings shown, as JSON-ready dictionaries with every repetition in nanoseconds."""
    return [
        {
            "device": record.device,
            "driver": record.driver,
            "versions": dict(record.versions),
            "date": record.date.isoformat(),
            "command": record.command,
            "clock": record.clock,
            "sizes": {name: number(size) for name, size in run.sizes.items()},
            "matmul_dtype": run.dtype,
            "compiled": run.compiled,
            "whole": run.whole.to_json(),
            "parts": {name: part.to_json() for name, part in run.parts.items()},
            "max_memory_allocated": number(run.memory),
        }
        for record, run in evidence.shown
    ]
