"""Measured steps: their times on any device, and their memory on a CUDA device, compared with the derived values.

One training run serves all sizes of a measurement, so its steps differ only in their inputs. A device that is absent is not replaced:
nothing is measured, and the result says so. Importing this module does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from calc.derive.result import Derivation
from calc.derive.to_json import number
from calc.errors import BadInputError, MeasurementError, NapkinError
from calc.hardware.calibration import Calibration
from calc.hardware.times import How
from calc.memory.device_memory import Memory, PredictedMemory, fitting, largest_expected, predicted
from calc.options import Options
from calc.performance.mfu import MatmulFlops, TimedStep, as_compiled, ceiling_of, throughput_of, timed_step, work_from
from calc.performance.prediction import predict
from calc.performance.records import KIND as KIND
from calc.performance.roofline import RATES
from calc.performance.step_operators import step_operators
from calc.pipeline.pipeline import derive
from calc.platform.progress import Progress
from calc.spec import Spec

if TYPE_CHECKING:
    from calc.measure.cuda_memory import Fits
    from calc.measure.training import Training

Sizes = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Expected:
    """Seconds of a step predicted from a calibration before it runs, with the band; without a prediction, ``because`` is the reason."""

    seconds: float | None
    band: tuple[float, float] = (0.0, 0.0)
    because: str = ""

    def off(self, measured: Fraction) -> float | None:
        """The error relative to the measured time."""
        return None if self.seconds is None else self.seconds / float(measured) - 1

    def to_json(self, measured: Fraction) -> dict[str, Any]:
        low, high = self.band
        predicted = self.seconds is not None
        band = {"low": low, "high": high} if predicted else None
        return {"seconds": self.seconds, "band": band, "off": self.off(measured), "because": self.because or None}


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """One size: the measured and the predicted time of its steps, and their memory if the device's allocator reports it."""

    sizes: Sizes
    time: TimedStep
    memory: Memory | None = None
    expected: Expected | None = None

    def to_json(self) -> dict[str, Any]:
        memory = None if self.memory is None else self.memory.to_json()
        expected = None if self.expected is None else self.expected.to_json(self.time.seconds)
        sizes = {name: number(value) for name, value in self.sizes.items()}
        return {"sizes": sizes, "time": self.time.to_json(), "predicted": expected, "memory": memory}


@dataclass(frozen=True, slots=True)
class Measured:
    """One model and recipe on one machine. ``expected`` is the largest B predicted to fit in ``available`` bytes."""

    model: str
    source: str
    options: Mapping[str, str]
    machine: Mapping[str, Any]
    runs: tuple[MeasuredRun, ...]
    fits: Fits | None = None
    expected: int | None = None
    available: int | None = None
    command: str = ""


@dataclass(frozen=True, slots=True)
class MeasuringOptions:
    """Options of a measurement.

    ``memory`` is the number of steps whose memory is read, on a CUDA device; ``peak`` in FLOP/s and ``gpu`` give the peak to compare with
    if the machine's is unknown; a ``calibration`` of it predicts eager steps, and its highest rate is the peak if none is known; ``work``
    are the FLOPs of each case and ``before`` its predicted memory, if already derived; once ``enough`` returns true, no further case
    begins. Weights and inputs are drawn from ``seed``.
    """

    device: str = "cpu"
    memory: int = 3
    fit: bool = False
    peak: Fraction | None = None
    gpu: str | None = None
    calibration: Calibration | None = None
    how: How = field(default_factory=How)
    work: Sequence[MatmulFlops] | None = None
    before: Sequence[PredictedMemory] | None = None
    enough: Callable[[], bool] = field(default=lambda: False)
    progress: Progress = field(default=lambda _: None)
    seed: int = 0

    @property
    def on_cuda(self) -> bool:
        return self.device.startswith("cuda")

    @property
    def reads_memory(self) -> bool:
        """Whether an allocator exists and its memory is to be read."""
        return self.on_cuda and self.memory > 0


def absent() -> str:
    """Why no CUDA device is measured; empty if there is one."""
    from calc.measure.cuda_memory import require_cuda

    try:
        require_cuda()
    except MeasurementError as error:
        return str(error)
    return ""


def measured(spec: Spec, cases: Sequence[Sizes], options: Options, request: MeasuringOptions) -> Measured:
    """Steps of ``spec`` at each of ``cases``. The module is built once, for the first: the others may differ only in sizes that inputs
    alone depend on. Memory is read before anything is timed, so that it excludes the memory of other instruments. What is derived is the
    step by the device's kernels, before the run: a step is not traced beside a real one."""
    from calc.measure.cuda_memory import available_bytes, empty_cache, require_cuda
    from calc.measure.free_memory import require_free_memory
    from calc.measure.machine import machine
    from calc.measure.training import training

    if request.on_cuda:
        require_cuda()
        empty_cache()
    else:
        require_free_memory(spec, spec.sizes(cases[0]), options.trains)
    facts = machine(request.device)
    _require_same_machine(request.calibration, facts)
    on_device = replace(options, kernels="cuda") if request.on_cuda else options
    derivations = _derivations(spec, cases, on_device, request)
    before: Sequence[PredictedMemory] = ()
    if request.reads_memory:
        before = request.before or [predicted(derivation(), _capability(facts), request.progress) for derivation in derivations]
    work = request.work or [work_from(derivation) for derivation in derivations]
    forecast = [_expected(spec, case, on_device, request) for case in cases]
    room = available_bytes(request.device) if request.fit and request.on_cuda else 0
    most = largest_expected(derivations[-1](), room, _capability(facts), request.progress) if room else None
    with training(spec, spec.sizes(cases[0]), options, request.device, seed=request.seed) as run:
        request.progress(f"running on {facts['device']['name']}")
        memory = _memory(run, cases, before, request) or [None] * len(cases)
        times = list(_times(run, cases, work, facts, request))
        fits = fitting(run, spec.sizes(cases[-1]), most or 1, request.progress) if room else None
    rows = zip(times, memory, forecast, strict=False)  # fewer times, if ``enough`` stopped them
    runs = tuple(MeasuredRun(time.measured.sizes, time, read, expected) for time, read, expected in rows)
    return Measured(spec.name, spec.source, options.to_json(), facts, runs, fits, most, room or None)


def _derivations(spec: Spec, cases: Sequence[Sizes], options: Options, request: MeasuringOptions) -> list[Callable[[], Derivation]]:
    """One function per case that derives it on the first call and caches the result."""
    return [cache(partial(derive, spec, case, options=options, progress=request.progress)) for case in cases]


def _require_same_machine(calibration: Calibration | None, facts: Mapping[str, Any]) -> None:
    """Refuse a calibration of another device, or of another number of threads."""
    if calibration is None:
        return
    calibrated_device, this_device = (_device_of(machine) for machine in (calibration.machine, facts))
    if calibrated_device != this_device:
        raise BadInputError(
            f"the calibration is of {calibrated_device}, but this is {this_device}: calibrate here, napkin calibrate -o FILE"
        )


def _device_of(machine: Mapping[str, Any]) -> str:
    device = machine["device"]
    return f"{device['name']} with {device['threads']} threads" if device.get("threads") else str(device["name"])


def _expected(spec: Spec, case: Sizes, options: Options, request: MeasuringOptions) -> Expected | None:
    """The time of an eager step that the calibration predicts."""
    if request.calibration is None:
        return None
    if request.how.compiled:
        return Expected(None, because="a calibration is of eager steps")
    try:
        prediction = predict(step_operators(spec, case, options=options, progress=request.progress).works, request.calibration)
    except NapkinError as error:
        return Expected(None, because=str(error))
    return Expected(prediction.seconds, prediction.band)


def _capability(facts: Mapping[str, Any]) -> tuple[int, int]:
    major, minor = facts["device"]["capability"]
    return major, minor


def _memory(run: Training, cases: Sequence[Sizes], expected: Sequence[PredictedMemory], request: MeasuringOptions) -> list[Memory | None]:
    """The allocator's peaks at each size; the very first step of the module belongs to the first size."""
    from calc.measure.cuda_memory import fed, memory_of, stepped

    if not expected:
        return []
    first, memories = stepped(run, request.device), []
    for i, (case, before) in enumerate(zip(cases, expected, strict=True)):
        read = memory_of(fed(run, run.spec.sizes(case)), repetitions=request.memory)
        memories.append(Memory(before, replace(read, first=None if i else first)))
    return [*memories]


def _times(
    run: Training, cases: Sequence[Sizes], work: Sequence[MatmulFlops], facts: Mapping[str, Any], request: MeasuringOptions
) -> Iterator[TimedStep]:
    """The time at each size until the time limit; at least one."""
    from calc.measure.cuda_memory import fed

    for i, (case, does) in enumerate(zip(cases, work, strict=True)):
        if i and request.enough():
            return
        yield _timed(fed(run, run.spec.sizes(case)), does, facts, request)


def _timed(run: Training, work: MatmulFlops, facts: Mapping[str, Any], request: MeasuringOptions) -> TimedStep:
    from calc.measure.step_time import time_of_steps

    request.progress(f"timing {', '.join(f'{name}={run.sizes[name]}' for name in ('B', 'T') if name in run.sizes) or 'steps'}")
    timing = time_of_steps(run, request.how)
    rates = {} if request.calibration is None else request.calibration.peaks()
    measured_rates = {RATES[dtype]: rate for dtype, rate in rates.items() if dtype in RATES}
    ceiling = ceiling_of(timing.matmul_dtype, facts, gpu=request.gpu, peak=request.peak, measured_rates=measured_rates)
    executed = as_compiled(work) if timing.compiled else work
    return timed_step(timing, executed, throughput_of(run.sizes, run.batches), ceiling)


def document(measurement: Measured) -> dict[str, Any]:
    """The ``"schema": 2`` document of a measurement, as plain data."""
    fits = None
    if measurement.fits is not None:
        fits = {**measurement.fits.to_json(), "predicted": measurement.expected, "room": number(measurement.available)}
    return {
        "schema": 2,
        "kind": KIND,
        "model": {"name": measurement.model, "source": measurement.source},
        "options": dict(measurement.options),
        "command": measurement.command,
        **measurement.machine,
        "runs": [run.to_json() for run in measurement.runs],
        "fits": fits,
    }
