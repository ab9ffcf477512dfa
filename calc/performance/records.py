"""Recorded measurements of training steps: read, validated, and matched to a model with its options and sizes.

A record says what was measured, where and when; it stands for that machine and those sizes and for no others. Whatever a record
says that follows from its own repetitions is computed again. Importing this module does not import torch.
"""

from __future__ import annotations

import datetime
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from calc.errors import BadInputError
from calc.hardware.times import Timings
from calc.platform import files

KIND = "measurement of a training step"
# What else Napkin writes, and may lie in the same folder.
OTHER_KINDS = ("measurement of matrix products", "measurement of transfers", "calibration", "prediction", "training run")
VARIABLE = "NAPKIN_MEASUREMENTS"


class EvidenceError(BadInputError):
    """A record of a measurement is missing, malformed, or contradicts itself."""


_FILE = files.Kind(2**24, error=EvidenceError)


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """The step at one size. ``model_flops`` and ``peak`` (FLOP/s, of ``dtype``) are what its MFU was taken from, where it has one.

    ``memory`` is the allocator's largest, in bytes, where it was read."""

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
        """Of a step of so many FLOPs; none where no peak was recorded, or the record is of another number of FLOPs."""
        if self.peak is None or self.model_flops != flops:
            return None
        return flops / self.whole.seconds / self.peak


@dataclass(frozen=True, slots=True)
class MeasurementRecord:
    """One measurement: of which model, how, on what machine, when, and by which command."""

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


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is recorded of a step: ``shown`` are the runs of it, ``otherwise`` those of the same model with other sizes or options."""

    shown: tuple[tuple[MeasurementRecord, RecordedRun], ...]
    otherwise: tuple[tuple[MeasurementRecord, RecordedRun], ...]


def evidence_for(
    model: str, source: str, options: Mapping[str, str], sizes: Mapping[str, int], records: Iterable[MeasurementRecord]
) -> Evidence:
    """The runs of ``records`` that are of this very step, newest first, and those that are of this model in another step."""
    runs: dict[bool, list[tuple[MeasurementRecord, RecordedRun]]] = {True: [], False: []}
    for record in sorted(records, key=lambda r: r.date, reverse=True):
        if (record.model, record.source) == (model, source):
            for run in record.runs:
                runs[dict(record.options) == dict(options) and _same(run.sizes, sizes)].append((record, run))
    return Evidence(tuple(runs[True]), tuple(runs[False]))


def _same(recorded: Mapping[str, int], sizes: Mapping[str, int]) -> bool:
    """Every size that was recorded is that of the step; sizes that data decide are in the step alone."""
    return all(sizes.get(name, value) == value for name, value in recorded.items()) and bool(recorded.keys() & sizes.keys())


def recorded(folders: Iterable[Path]) -> tuple[MeasurementRecord, ...]:
    """The records of training steps in the folders, and in that which ``NAPKIN_MEASUREMENTS`` names; other measurements are left out."""
    own = os.environ.get(VARIABLE)
    if own and not os.path.isdir(own):
        raise EvidenceError(f"{VARIABLE} = {own[:200]!r} is no folder: name one that holds measurements, or leave it out")
    files = [file for folder in (*folders, *([Path(own)] if own else [])) for file in sorted(folder.glob("*.json"))]
    return tuple(record for file in files if (record := read(file)) is not None)


def read(file: Path) -> MeasurementRecord | None:
    """The record in ``file``; ``None`` where it is a measurement of another kind."""
    try:
        data = json.loads(_FILE.read_text(file), parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise EvidenceError(f"{file} is not JSON: {str(error) or 'nested too deeply'}") from None
    top = _Entry(str(file), "the record", data)
    kind = top.text("kind")
    if kind in OTHER_KINDS:
        return None
    if kind != KIND:
        raise EvidenceError(f"{file}: {kind[:60]!r} is no kind of measurement that is known here")
    if top.integer("schema") != 1:
        raise EvidenceError(f"{file}: schema {top.integer('schema')} is not known: this reads schema 1")
    return _record(str(file), top)


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _record(file: str, top: _Entry) -> MeasurementRecord:
    model, device = top.entry("model"), top.entry("device")
    runs = tuple(_run(run) for run in top.entries("runs"))
    if not runs:
        raise EvidenceError(f"{file}: runs is empty, so nothing was measured")
    return MeasurementRecord(
        file=Path(file).name,
        model=model.text("name"),
        source=model.text("source"),
        options=top.entry("options").texts(),
        device=device.text("name"),
        driver=device.text("driver") if device.has("driver") else None,
        versions=top.entry("versions").texts(),
        date=top.date("date"),
        command=top.text("command"),
        clock=top.entries("runs")[0].entry("time").entry("measured").text("clock"),
        runs=runs,
    )


def _run(run: _Entry) -> RecordedRun:
    time = run.entry("time")
    measured, throughput, flops, peak = time.entry("measured"), time.entry("throughput"), time.entry("flops"), time.entry("peak")
    memory = run.entry("memory").entry("measured").integer("max_memory_allocated") if run.has("memory") else None
    return RecordedRun(
        sizes=run.entry("sizes").integers(),
        whole=_times(measured.entry("whole")),
        parts={name: _times(part) for name, part in measured.entry("parts").named()},
        amount=throughput.integer("amount"),
        unit=throughput.text("unit"),
        dtype=peak.text("dtype"),
        compiled=measured.truth("compiled"),
        model_flops=flops.integer("model") if flops.has("model") else None,
        peak=peak.positive("flops_per_second") if peak.has("flops_per_second") else None,
        peak_source=peak.text("source") if peak.has("source") else "",
        memory=memory,
    )


def _times(entry: _Entry) -> Timings:
    """Repetitions, of which the median that is written beside them must be the median."""
    times = Timings(entry.list_of_integers("nanoseconds"), entry.integer("calls"), entry.list_of_integers("warm_up", empty=True))
    written = entry.entry("seconds").positive("median")
    if abs(written - times.seconds) * 10**9 > times.seconds:
        raise EvidenceError(
            f"{entry.file}: {entry.place}: the median is written as {float(written):g} s, and is {float(times.seconds):g} s"
        )
    return times


@dataclass(frozen=True, slots=True)
class _Entry:
    """A part of a record, which knows what it is called in it. Whatever is missing or of another kind is refused by that name."""

    file: str
    place: str
    data: Any

    def has(self, key: str) -> bool:
        return isinstance(self.data, dict) and self.data.get(key) is not None

    def entry(self, key: str) -> _Entry:
        return _Entry(self.file, self._name(key), self._of(key, dict, "an object"))

    def entries(self, key: str) -> list[_Entry]:
        parts = self._of(key, list, "a list")
        return [_Entry(self.file, f"{self._name(key)}[{i}]", part) for i, part in enumerate(parts)]

    def named(self) -> list[tuple[str, _Entry]]:
        return [(name, self.entry(name)) for name in self.data]

    def text(self, key: str) -> str:
        return str(self._of(key, str, "a text"))

    def texts(self) -> dict[str, str]:
        return {name: self.text(name) for name, value in self.data.items() if value is not None}

    def truth(self, key: str) -> bool:
        return bool(self._of(key, bool, "true or false"))

    def integer(self, key: str) -> int:
        """A positive integer; beyond 2**53 it is written as a text."""
        value = self._of(key, (int, str), "a positive integer")
        return self._positive_integer(self._name(key), value)

    def integers(self) -> dict[str, int]:
        return {name: self.integer(name) for name in self.data}

    def list_of_integers(self, key: str, empty: bool = False) -> tuple[int, ...]:
        values = self._of(key, list, "a list")
        if not values and not empty:
            raise EvidenceError(f"{self.file}: {self._name(key)} is empty")
        return tuple(self._positive_integer(f"{self._name(key)}[{i}]", value) for i, value in enumerate(values))

    def positive(self, key: str) -> Fraction:
        value = self._of(key, (int, float), "a number above 0")
        if isinstance(value, bool) or not 0 < value < math.inf:
            raise EvidenceError(f"{self.file}: {self._name(key)} must be a number above 0")
        return Fraction(str(value))

    def date(self, key: str) -> datetime.datetime:
        try:
            moment = datetime.datetime.fromisoformat(self.text(key))
        except ValueError:
            raise EvidenceError(
                f"{self.file}: {self._name(key)} must be a date and time with its zone, as 2026-01-31T12:00:00+00:00"
            ) from None
        if moment.tzinfo is None:
            raise EvidenceError(f"{self.file}: {self._name(key)} has no time zone")
        return moment

    def _positive_integer(self, name: str, value: Any) -> int:
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 40:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise EvidenceError(f"{self.file}: {name} must be a positive integer")
        return value

    def _of(self, key: str, kind: type | tuple[type, ...], words: str) -> Any:
        if not isinstance(self.data, dict):
            raise EvidenceError(f"{self.file}: {self.place} must be an object")
        if not isinstance(self.data.get(key), kind):
            raise EvidenceError(f"{self.file}: {self._name(key)} must be {words}")
        return self.data[key]

    def _name(self, key: str) -> str:
        return key if self.place == "the record" else f"{self.place}.{key}"
