"""Changes of a step that lower its peak memory, each with the peak of its own step. Torch-free.

No effect is quoted or estimated: each change is derived, or counted in a trace at these sizes, as a step of its own. A change that the
model refuses is left out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from calc.derive.names import PeakPlace
from calc.derive.result import Candidate, Derivation
from calc.derive.to_json import number
from calc.errors import NapkinError
from calc.graph.step import StepTrace
from calc.options import NAMED_OPTIMIZERS, Options, trains
from calc.platform.process_copy import shared

BATCH = "B"
Changed = Callable[[Options, Mapping[str, int]], Derivation | StepTrace]


@dataclass(frozen=True, slots=True)
class StepChange:
    """A change of a step: options and sizes that differ from it."""

    options: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PeakLever:
    """A change and the step that it gives: ``peak`` in bytes, the operator ``at`` which it is, and ``matmul`` FLOPs of forward and backward
    (``None``: unknown)."""

    change: StepChange
    peak: int
    at: PeakPlace | None
    matmul: int | None


def changes(options: Mapping[str, str], sizes: Mapping[str, int]) -> Iterator[StepChange]:
    """The changes that are worth a derivation for a step with these options and sizes."""
    half = {BATCH: sizes[BATCH] // 2} if sizes.get(BATCH, 0) % 2 == 0 and sizes.get(BATCH, 0) > 1 else {}
    if half:
        yield StepChange(sizes=half)
    if options.get("precision") == "fp32" and trains(options):
        yield StepChange({"precision": "bf16-autocast"})
    if options.get("precision") in ("fp32", "bf16-autocast"):
        yield StepChange({"precision": "bf16"})
    if not trains(options):
        return
    if half and options.get("accumulation", "1") == "1":
        yield StepChange({"accumulation": "2"}, half)
    if options.get("checkpointing", "none") == "none":
        yield StepChange({"checkpointing": "block"})
    entry = NAMED_OPTIMIZERS.get(options.get("optimizer", ""))
    if entry is not None and "fused" in entry.ways and options.get("implementation", "loop") != "fused":
        yield StepChange({"implementation": "fused"})


def peak_levers(derivation: Derivation, changed: Changed, beside: Changed | None = None) -> tuple[PeakLever, ...]:
    """The changes of a step by the peak that they give, lowest first. ``changed`` returns the step of the same model with options at sizes,
    derived or traced; ``beside`` is the same for a copy of this process, which prints nothing."""
    if derivation.quantities.get("memory.peak") is None or derivation["memory.peak"].value is None:
        return ()
    each, lever = tuple(changes(derivation.options, derivation.sizes)), functools.partial(_lever, derivation)
    levers = shared(each, functools.partial(lever, changed), functools.partial(lever, beside or changed))
    return tuple(sorted((lever for lever in levers if lever is not None), key=lambda lever: lever.peak))


def _lever(derivation: Derivation, changed: Changed, change: StepChange) -> PeakLever | None:
    """The effect of a change; ``None`` if its step cannot be derived or has no peak."""
    try:
        if change.options:
            step = changed(Options(**{**derivation.options, **change.options}), change.sizes)
        else:
            step = derivation.at_sizes(change.sizes)
    except NapkinError:
        return None
    if isinstance(step, StepTrace):
        return _counted(derivation, change, step)
    peak = step["memory.peak"]
    if peak.value is None:
        return None
    largest = peak.largest_candidate
    return PeakLever(change, peak.value, largest.at if largest is not None else None, matmul(step))


def _counted(derivation: Derivation, change: StepChange, trace: StepTrace) -> PeakLever:
    """The effect of a change by a trace of its step, counted by the rules of ``derivation``. Its matmul FLOPs are unknown where those of
    ``derivation`` are."""
    assert derivation.count_trace is not None
    counts = derivation.count_trace(trace)
    flops = None if matmul(derivation) is None else sum(counts.quantities.get(name, 0) for name in _MATMUL)
    return PeakLever(change, counts.quantities["memory.peak"], counts.peak_at, flops)


_MATMUL = ("flops.forward.matmul", "flops.backward.matmul")


def matmul(derivation: Derivation) -> int | None:
    """The matmul FLOPs of forward and, in training, backward; ``None`` if one of them is unknown."""
    run = _MATMUL if trains(derivation.options) else _MATMUL[:1]
    names = [name for name in run if name in derivation.quantities]
    values = [derivation[name].value for name in names]
    return None if None in values else sum(value for value in values if value is not None)


@dataclass(frozen=True, slots=True)
class ZeroStage:
    """A ZeRO stage over ``devices`` data-parallel ranks, each with the batch of the step. ``peak``: a lower bound in bytes for each rank,
    since buffers of the communication come on top; ``at``: the operator at which it is."""

    stage: int
    devices: int
    peak: int
    at: PeakPlace


_DEVICES = 8
_UPDATE, _TEMPORARY = "optimizer", "temporary"
# Rajbhandari et al. 2019, section 5: stage 1 divides the first, stage 2 the first two, stage 3 all.
_DIVIDED = ("optimizer state", "gradient", "parameter")


def zero_stages(derivation: Derivation) -> tuple[ZeroStage, ...]:
    """The peak of each stage that divides something: the largest peak candidate with the divided roles divided among ``_DEVICES``."""
    candidates = derivation["memory.peak"].candidates if "memory.peak" in derivation.quantities else ()
    if not trains(derivation.options):
        return ()
    stages = []
    for stage in range(1, len(_DIVIDED) + 1):
        peaks = [(c.value - divided + -(-divided // _DEVICES), c.at) for c in candidates for divided in [_divided(c, stage)]]
        if any(_bytes_of(c, _DIVIDED[stage - 1 : stage]) for c in candidates):
            stages.append(ZeroStage(stage, _DEVICES, *max(peaks, key=lambda peak: (peak[0], str(peak[1])))))
    return tuple(stages)


def _divided(candidate: Candidate, stage: int) -> int:
    """The bytes that a stage divides among the ranks. Each rank updates its own share of the parameters, so that what the update allocates
    meanwhile is divided as well."""
    roles = (*_DIVIDED[:stage], _TEMPORARY) if candidate.at.phase == _UPDATE else _DIVIDED[:stage]
    return _bytes_of(candidate, roles)


def _bytes_of(candidate: Candidate, roles: Sequence[str]) -> int:
    return sum(candidate.part_values.get(role, 0) for role in roles)


def zero_document(stages: Sequence[ZeroStage]) -> list[dict[str, object]]:
    """The stages as plain data."""
    return [{"stage": z.stage, "devices": z.devices, "peak_at_least": number(z.peak), "at": str(z.at)} for z in stages]


def levers_document(levers: tuple[PeakLever, ...]) -> list[dict[str, object]]:
    """The levers as plain data."""
    return [
        {
            "options": dict(lever.change.options),
            "sizes": {name: number(size) for name, size in lever.change.sizes.items()},
            "peak": number(lever.peak),
            "at": str(lever.at or ""),
            "matmul": number(lever.matmul),
        }
        for lever in levers
    ]
