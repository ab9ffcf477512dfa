"""Bytes of a checkpoint on disk and whether training resumes from it: derived exactly, then written and resumed in a real run.

File sizes at the requested sizes are counted from a trace; the real files and the resumed run use the spec's small sizes. Importing this
module does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from calc.derive.to_json import number
from calc.errors import BadInputError, DimensionError, NapkinError
from calc.memory.checkpoint_files import CheckpointFile, entries_of, safetensors, torch_save
from calc.memory.formulas import SAVING_INTERVAL, TIME_LOST
from calc.memory.progress import GENERATORS, ITERATION, Scheduler, pickled, scheduler
from calc.options import Options
from calc.pipeline.verdict import NOT_MEASURED, Verdict, judged
from calc.platform.progress import Progress
from calc.spec import Spec

if TYPE_CHECKING:
    from calc.measure.resume import CheckpointFiles, Resumption  # which imports torch


PICKLE = "its pickle: names, numbers, one learning rate per group of parameters; an integer takes 2 to 5 bytes by its size"


@dataclass(frozen=True, slots=True)
class Interval:
    """The checkpoint interval ``seconds`` for a time to save and a mean time between failures, all in seconds; ``lost``: the share of time
    that is lost.
    """

    save: float
    failure: float
    seconds: float
    lost: float


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint at ``sizes``, and the results of a real one at ``run_at``, whose weights and inputs are drawn from ``seed``."""

    model: str
    sizes: Mapping[str, int]
    options: Mapping[str, str]
    file: CheckpointFile
    run_at: Mapping[str, int]
    verdicts: tuple[Verdict[int], ...]
    interval: Interval | None = None
    scheduler: str = ""
    seed: int = 0

    @property
    def ok(self) -> bool:
        return not any(v.failed for v in self.verdicts)


def interval(save: float, failure: float) -> Interval:
    """Young's checkpoint interval, and the share of time lost with it."""
    seconds = SAVING_INTERVAL.at(delta=save, M=failure)
    return Interval(save, failure, seconds, TIME_LOST.at(tau=seconds, delta=save, M=failure))


# Steps of the real run. Two follow the checkpoint: a rate that a scheduler would set otherwise acts in the second.
_STEPS, _SAVED_AFTER = 3, 1


def saving(
    spec: Spec,
    sizes: Mapping[str, int] | None = None,
    *,
    options: Options | None = None,
    schedule: str = "",
    seed: int = 0,
    progress: Progress = lambda _: None,
) -> Checkpoint:
    """The files of a checkpoint of ``spec`` at ``sizes``, and a training that is resumed from one at the spec's small sizes, with the
    learning-rate scheduler ``schedule`` if one is named; its weights and inputs are drawn from ``seed``."""
    options = options or Options()
    if schedule:
        scheduler(schedule)  # refused before anything runs
    if not options.trains:
        raise BadInputError(f"mode {options.mode} trains nothing, so there is nothing to resume: use mode train")
    at = spec.sizes(sizes or {})
    small = _small(spec, sizes or {})
    progress("counting the file")
    file = counted(spec, at, options)
    verdicts = _measured(spec, small, options, schedule, seed, progress, file if small == at else None)
    return Checkpoint(spec.name, at, options.to_json(), file, small, verdicts, None, schedule, seed)


def _small(spec: Spec, given: Mapping[str, int]) -> dict[str, int]:
    """Sizes of the real run: the spec's small ones, with given ones that it leaves open; smaller given ones, or all, where these exclude
    the small ones (a given context length of 32 those of 64 tokens)."""
    fixed = {name: size for name, size in given.items() if name not in spec.check_at}
    smaller = {name: min(size, given.get(name, size)) for name, size in spec.check_at.items()}
    for chosen in (spec.check_at, smaller):
        with suppress(DimensionError):
            return spec.sizes({**chosen, **fixed})
    return spec.sizes(given)


def counted(spec: Spec, at: Mapping[str, int], options: Options) -> CheckpointFile:
    """A file of safetensors with model, optimizer state, fp32 copies and iteration."""
    from calc.trace import trace_at

    return safetensors(entries_of(trace_at(spec, {}, at, {}, options)))


def _measured(
    spec: Spec, at: Mapping[str, int], options: Options, schedule: str, seed: int, progress: Progress, file: CheckpointFile | None
) -> tuple[Verdict[int], ...]:
    """Verdicts of a real run ``at`` these sizes, where the file of safetensors is ``file`` if that is counted already."""
    from calc.measure.resume import STEM, resume

    kind = scheduler(schedule) if schedule else None
    resumed = resume(
        spec,
        {name: size for name, size in at.items() if not spec.dimensions[name].tied},
        options=options,
        steps=_STEPS,
        saved_after=_SAVED_AFTER,
        with_files=True,
        schedule=None if kind is None else (kind.kind, kind.arguments(_STEPS)),
        progress=progress,
        seed=seed,
    )
    assert resumed.files is not None
    saved = _judged("bytes of torch.save", lambda: torch_save(resumed.storages, resumed.pickled, STEM), resumed.saved)
    verdicts = (_resuming(resumed), *_beside(resumed.files, kind), saved)
    safe = resumed.files.safetensors
    if isinstance(safe, NapkinError):
        return (*verdicts, Verdict("bytes of safetensors", None, None, "", NOT_MEASURED, because=str(safe)))
    if file is None:
        progress("counting the small file")
    return (*verdicts, _judged("bytes of safetensors", lambda: file or counted(spec, at, options), safe))


def _beside(files: CheckpointFiles, kind: Scheduler | None) -> Iterator[Verdict[int]]:
    """Of the state of a random generator, and of the scheduler's."""
    from calc.measure.resume import STEM

    generator = GENERATORS[0]
    quantity = f"bytes of the state of a random generator ({generator.name})"
    yield judged(quantity, generator.nbytes, files.generator, because=generator.because)
    if kind is not None and files.scheduler is not None:
        measured, groups = files.scheduler
        state = pickled(kind.state(_STEPS, _STEPS, groups))
        yield _judged("bytes of torch.save with the scheduler's state", lambda: torch_save((), state, STEM), measured)


def _resuming(resumed: Resumption) -> Verdict[int]:
    """Whether the resumed training equals the uninterrupted one; not measured where two uninterrupted ones differ too."""
    differing = len(resumed.differing)
    before, after = resumed.saved_after, resumed.steps - resumed.saved_after
    summary = f"{resumed.tensors} tensors after {before} step{'s' * (before > 1)}, a checkpoint and {after} more step{'s' * (after > 1)}"
    detail = f"; the first that differs is {resumed.differing[0]}" if differing else ", all bitwise equal"
    resuming = judged("tensors that differ after resuming", 0, differing, because=summary + detail)
    if resumed.chance and not differing:
        detail = f"; two uninterrupted runs differ as well, first in {resumed.chance[0]}"
        resuming = replace(resuming, verdict=NOT_MEASURED, because=summary + detail)
    return resuming


def _judged(name: str, count: Callable[[], CheckpointFile], measured: int) -> Verdict[int]:
    try:
        file = count()
    except NapkinError as error:
        return Verdict(name, None, measured, "", NOT_MEASURED, because=str(error))
    return judged(name, file.total, measured, because=f"{file.payload:,} of payload; {file.because}")


def progress_parts(schedule: str) -> tuple[tuple[str, int, str], ...]:
    """(name, bytes, reason) of what a run keeps besides model and optimizer, so that training resumes where it was."""
    parts = [("iteration", ITERATION, "an int64; in the file above")]
    parts += [(f"random generator: {g.name}", g.nbytes, g.because) for g in GENERATORS]
    if schedule:
        parts.append((f"scheduler: {scheduler(schedule).kind}", pickled(scheduler(schedule).state(_STEPS, _STEPS)), PICKLE))
    return tuple(parts)


def document(saving: Checkpoint) -> dict[str, Any]:
    """The ``"schema": 1`` document of a checkpoint, as plain data."""
    file = {"kind": saving.file.kind, "payload": number(saving.file.payload), "overhead": number(saving.file.overhead)}
    document_: dict[str, Any] = {
        "schema": 1,
        "model": saving.model,
        "dims": {name: {"value": number(value)} for name, value in saving.sizes.items()},
        "options": dict(saving.options),
        "file": {**file, "value": number(saving.file.total), "unit": "byte", "because": saving.file.because},
        "progress": [{"name": name, "bytes": size, "because": because} for name, size, because in progress_parts(saving.scheduler)],
        "run_at": {name: number(value) for name, value in saving.run_at.items()},
        "seed": saving.seed,
        "checks": [
            {"quantity": v.quantity, "derived": number(v.derived), "measured": number(v.measured)}
            | {"verdict": v.verdict, "because": v.because}
            for v in saving.verdicts
        ],
    }
    if saving.interval is not None:
        i = saving.interval
        sources = {"every": SAVING_INTERVAL.source, "lost": TIME_LOST.source}
        document_["interval"] = {"save": i.save, "failure": i.failure, "every": i.seconds, "lost": i.lost, "unit": "s", "sources": sources}
    return document_
