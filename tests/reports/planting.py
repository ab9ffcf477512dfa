"""The sample's derivation, checks, timeline and records with hostile names wherever a model, a spec, a tool or a record brings text."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from fractions import Fraction
from typing import Any

from calc.derive.live_bytes import Timeline
from calc.derive.result import Derivation
from calc.derive.rules_of_thumb import compare
from calc.derive.to_json import to_json
from calc.hardware.times import Timings
from calc.performance.records import Evidence, MeasurementRecord, RecordedRun
from reports.figures.roofline import figure
from reports.page.build import PageContent, build
from reports.page.inputs import Inputs
from reports.page.model import Command
from reports.page.report import Page
from tests.reports import drawings, live_bytes, sample

# By field, whatever holds it: what is no expression and no key of Napkin's own.
_FREE = {
    "at", "because", "command", "device", "driver", "file", "instrument", "label", "meaning", "model", "module_path", "node", "operator",
    "peak_source", "result", "rule", "same_as", "source", "tensor", "title", "tolerance", "unbacked_at", "unknown",
}  # fmt: skip
_FREE_OF = {"Alive": {"name", "role"}, "SavedTensor": {"dtype"}, "TensorName": {"owner", "part"}, "RecordedRun": {"dtype"}}
_TEXTS = {"notes", "provenance", "versions"}


def _planted(value: Any, names: Iterator[str]) -> Any:
    """``value`` with the next name in every text that is somebody else's."""
    if is_dataclass(value) and not isinstance(value, type):
        free = _FREE | _FREE_OF.get(type(value).__name__, set())
        made: dict[str, Any] = {}
        for field in fields(value):
            actual = getattr(value, field.name)
            if isinstance(actual, str):
                if field.name in free and actual:
                    made[field.name] = next(names)
            elif field.name in _TEXTS:
                made[field.name] = _texts(actual, names)
            else:
                made[field.name] = _planted(actual, names)
        return replace(value, **{name: new for name, new in made.items() if new is not getattr(value, name)})
    if isinstance(value, tuple):
        new = tuple(_planted(each, names) for each in value)
        return value if all(a is b for a, b in zip(new, value, strict=True)) else new
    if isinstance(value, Mapping):
        return {key: _planted(each, names) for key, each in value.items()}
    return value


def _texts(actual: Any, names: Iterator[str]) -> Any:
    return {next(names): next(names) for _ in range(2)} if isinstance(actual, Mapping) else (next(names), next(names))


def _evidence() -> Evidence:
    times = Timings((2_000_000_000, 2_000_000_001, 2_000_000_002))
    run = RecordedRun(dict(sample.SIZES), times, {}, 10, "token", "fp32", False, 1000, Fraction(10**12), "peak of it", 10**6)
    when = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    record = MeasurementRecord(
        "f.json", "m", "s", {"optimizer": "adamw"}, "dev", "drv", {"torch": "2"}, when, "napkin measure", "wall", (run,)
    )
    return Evidence(((record, run),), ((record, run),))


def derivation(names: Sequence[str], steps: int | None = None) -> Derivation:
    """The sample under other names; options hold one as well. With ``steps``, so many of them and no candidates."""
    turn = itertools.cycle(names)
    full = replace(sample.derivation(), notes=("a", "b"))
    if steps is not None:
        quantities = {name: replace(q, candidates=()) for name, q in full.quantities.items()}
        full = replace(full, steps=full.steps[:steps], quantities=quantities)
    actual: Derivation = _planted(full, turn)
    return replace(actual, options={"optimizer": next(turn)})


def timeline(names: Sequence[str]) -> Timeline:
    actual = live_bytes.timeline()
    turn = itertools.cycle(names)
    planted: Timeline = _planted(actual, turn)
    return replace(planted, landmarks=tuple((next(turn), instant) for _, instant in planted.landmarks))


def page(names: Sequence[str], steps: int | None = None) -> Page:
    """Every text of somebody else's is one of ``names``, in turn. With ``steps`` it is a short page, without rules of thumb."""
    turn = itertools.cycle(names)
    made = derivation(names, steps)
    return build(PageContent(
        made,
        checks(turn),
        compare(made) if steps is None else (),
        (Command(next(turn), next(turn)),),
        unchecked=next(turn),
        timeline=timeline(names),
        inputs=Inputs("report", next(turn), environment={next(turn): next(turn)}, date="2026-01-01"),
        evidence=_planted(_evidence(), turn),
        roof=figure(drawings.rooflines(tuple(next(turn) for _ in drawings.MODULE_PATHS))),
    ))


def checks(turn: Iterator[str]) -> sample.CheckReport:
    """The sample's checks and a failed one, with the next names of ``turn``."""
    verdict = sample.Verdict(next(turn), 1, 2, next(turn), "failed", because=next(turn))
    planted: sample.CheckReport = _planted(sample.checks(verdict), turn)
    return planted


def document(names: Sequence[str]) -> dict[str, Any]:
    """The same as plain data."""
    made = derivation(names)
    return to_json(made, sample.checks(), compare(made), timeline(names))
