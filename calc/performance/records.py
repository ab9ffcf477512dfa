"""Stored measurements of training steps: reads and validates them, and matches them to a model with its options and sizes.

A record states what was measured, where and when; it is valid only for that machine and those sizes. Numbers that follow from a record's
repetitions are recomputed. Importing this module does not import torch.
"""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from calc.errors import BadInputError
from calc.hardware.times import Timings
from calc.platform import files
from calc.platform.reading import (
    Read,
    T,
    Wrong,
    at,
    each,
    flag,
    mapping,
    maybe,
    one_of,
    optional,
    part,
    positive,
    refuse,
    text,
    whole,
    written,
)

KIND = "measurement of a training step"
# Other documents that Napkin writes, which may be in the same folder.
OTHER_KINDS = ("measurement of matrix multiplications", "measurement of transfers", "calibration", "prediction", "training run")
VARIABLE = "NAPKIN_MEASUREMENTS"


class EvidenceError(BadInputError):
    """A record of a measurement is missing, malformed, or contradicts itself."""


_FILE = files.Kind(2**24, error=EvidenceError)


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """The step at one size. ``model_flops`` and ``peak`` (FLOP/s, of ``dtype``) are the inputs of its MFU, if it has one.

    ``memory`` is the allocator's peak in bytes, if it was read.
    """

    sizes: Mapping[str, int]
    whole: Timings
    parts: Mapping[str, Timings]
    amount: int
    unit: str
    dtype: str
    compiled: bool
    model_flops: int | None
    peak: Fraction | None
    peak_source: str
    memory: int | None

    @property
    def per_second(self) -> Fraction:
        return self.amount / self.whole.seconds

    def mfu(self, flops: int) -> Fraction | None:
        """MFU of a step with ``flops`` FLOPs; None if no peak was stored, or the record has another number of FLOPs."""
        if self.peak is None or self.model_flops != flops:
            return None
        return flops / self.whole.seconds / self.peak


@dataclass(frozen=True, slots=True)
class MeasurementRecord:
    """One measurement: the model, the method, the machine, the date, and the command. ``capability`` is that of a CUDA device."""

    file: str
    model: str
    source: str
    options: Mapping[str, str]
    device: str
    driver: str | None
    versions: Mapping[str, str]
    date: datetime.datetime
    command: str
    clock: str
    runs: tuple[RecordedRun, ...]
    capability: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """Records of a step: ``shown`` are its runs, ``otherwise`` those of the same model with other sizes or options."""

    shown: tuple[tuple[MeasurementRecord, RecordedRun], ...]
    otherwise: tuple[tuple[MeasurementRecord, RecordedRun], ...]


def evidence_for(
    model: str, source: str, options: Mapping[str, str], sizes: Mapping[str, int], records: Iterable[MeasurementRecord]
) -> Evidence:
    """The runs in ``records`` of exactly this step, newest first, and those of this model in another step. A record says itself on which
    device it ran, and so by whose kernels."""
    of_step = {name: value for name, value in options.items() if name != "kernels"}
    runs: dict[bool, list[tuple[MeasurementRecord, RecordedRun]]] = {True: [], False: []}
    for record in sorted(records, key=lambda r: r.date, reverse=True):
        if (record.model, record.source) == (model, source):
            for run in record.runs:
                runs[dict(record.options) == of_step and _same(run.sizes, sizes)].append((record, run))
    return Evidence(tuple(runs[True]), tuple(runs[False]))


def _same(recorded: Mapping[str, int], sizes: Mapping[str, int]) -> bool:
    """Whether every stored size equals that of the step; only the step has data-dependent sizes."""
    return all(sizes.get(name, value) == value for name, value in recorded.items()) and bool(recorded.keys() & sizes.keys())


def recorded(folders: Iterable[Path]) -> tuple[MeasurementRecord, ...]:
    """The records of training steps in the folders and in the one that ``NAPKIN_MEASUREMENTS`` names; skips other measurements."""
    return tuple(record for file in files_in(folders) if (record := read(file)) is not None)


def files_in(folders: Iterable[Path], pattern: str = "*.json") -> list[Path]:
    """The files of the folders and of the one that ``NAPKIN_MEASUREMENTS`` names. Raises EvidenceError if that is none."""
    own = os.environ.get(VARIABLE)
    if own and not os.path.isdir(own):
        raise EvidenceError(f"{VARIABLE} = {own[:200]!r} is not a folder: name one that holds measurements, or leave it out")
    return [file for folder in (*folders, *([Path(own)] if own else [])) for file in sorted(folder.glob(pattern))]


def read(file: Path) -> MeasurementRecord | None:
    """The record in ``file``; ``None`` if it is a measurement of another kind."""
    try:
        data = json.loads(_FILE.read_text(file), parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise EvidenceError(f"{file} is not JSON: {str(error) or 'nested too deeply'}") from None
    try:
        if part(data, "kind", one_of((KIND, *OTHER_KINDS), "a kind of measurement")) != KIND:
            return None
        part(data, "schema", one_of((2,), "the schema that this reads"))
        return _record(file.name, data)
    except Wrong as wrong:
        raise EvidenceError(f"{file}: {wrong}") from None


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not a number")


_COUNT = written(whole(1))


def _record(file: str, data: Any) -> MeasurementRecord:
    runs = part(data, "runs", each(_run, least=1))
    options = part(data, "options", mapping(text, maybe(text)))
    versions = part(data, "versions", mapping(text, maybe(text)))
    return MeasurementRecord(
        file=file,
        model=at(data, "model.name", text),
        source=at(data, "model.source", text),
        options={name: value for name, value in options.items() if value is not None},
        device=at(data, "device.name", text),
        driver=part(data, "device", lambda device: optional(device, "driver", text)),
        versions={name: value for name, value in versions.items() if value is not None},
        date=part(data, "date", _date),
        command=part(data, "command", text),
        clock=at(data["runs"][0], "time.measured.clock", text),
        runs=runs,
        capability=part(data, "device", lambda device: optional(device, "capability", _capability)),
    )


def _run(data: Any) -> RecordedRun:
    def peak(key: str, read: Read[T]) -> T | None:
        return at(data, "time.peak", lambda value: optional(value, key, read))

    return RecordedRun(
        sizes=part(data, "sizes", mapping(text, _COUNT)),
        whole=at(data, "time.measured.whole", _times),
        parts=at(data, "time.measured.parts", mapping(text, _times)),
        amount=at(data, "time.throughput.amount", _COUNT),
        unit=at(data, "time.throughput.unit", text),
        dtype=at(data, "time.peak.dtype", text),
        compiled=at(data, "time.measured.compiled", flag),
        model_flops=at(data, "time.flops", lambda value: optional(value, "model", _COUNT)),
        peak=peak("flops_per_second", positive),
        peak_source=peak("source", text) or "",
        memory=optional(data, "memory", lambda value: at(value, "measured.max_memory_allocated", _COUNT)),
    )


def _times(data: Any) -> Timings:
    """Repetitions; the stored median must be their median."""
    times = Timings(part(data, "nanoseconds", each(_COUNT, least=1)), part(data, "calls", _COUNT), part(data, "warm_up", each(_COUNT)))
    median = at(data, "seconds.median", positive)
    if abs(median - times.seconds) * 10**9 > times.seconds:
        raise Wrong(f"has a median written as {float(median):g} s, and it is {float(times.seconds):g} s")
    return times


def _capability(value: Any) -> tuple[int, int]:
    numbers = each(whole(0, 1000))(value)
    if len(numbers) != 2:
        refuse(value, "a compute capability, as [9, 0]")
    return numbers[0], numbers[1]


def _date(value: Any) -> datetime.datetime:
    moment = None
    with suppress(TypeError, ValueError):
        moment = datetime.datetime.fromisoformat(value)
    if moment is None or moment.tzinfo is None:
        refuse(value, "a date and time with its zone, as 2026-01-31T12:00:00+00:00")
    return moment
