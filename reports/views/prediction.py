"""A predicted step as plain data and on a terminal: its phases with the band, what follows from the time, what takes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from calc.derive.to_json import number
from calc.hardware.accelerators import Accelerator, of_device
from calc.hardware.calibration import Calibration
from calc.performance.mfu import Throughput, throughput_of
from calc.performance.prediction import Prediction, predict
from calc.performance.records import MeasurementRecord, RecordedRun, evidence_for, recorded
from calc.performance.roofline import RATES
from calc.performance.step_operators import StepOperators
from calc.pipeline.pipeline import derive
from reports.jobs import job
from reports.jobs.recorded import FOLDER
from reports.typeset.numbers import bytes_text, duration, percent, rate
from reports.typeset.wording import several, sizes_text
from reports.views.measuring import threads
from reports.writers.terminal import Terminal, bold

BAND = (
    "the band is what the calibration is off by between its own points, and the spread of its repetitions; Python between operators, warm"
    " caches and other programs are not in it"
)
_SHOWN = 15


@dataclass(frozen=True, slots=True)
class Predicted:
    """A prediction with what follows from it. ``peak`` is in FLOP/s; ``because`` says why it is not known. ``memory`` is the step's peak
    memory, and ``device`` where it has to fit; both None where either is unknown. ``runs`` are recordings of this step on such a device,
    eager and in the same number format."""

    model: str
    sizes: Mapping[str, int]
    options: Mapping[str, str]
    calibration: Calibration
    prediction: Prediction
    throughput: Throughput
    peak: Fraction | None
    peak_source: str
    because: str = ""
    memory: int | None = None
    device: Accelerator | None = None
    runs: tuple[tuple[MeasurementRecord, RecordedRun], ...] = ()

    def share(self, flops: int) -> float | None:
        """So many FLOPs in the predicted time, over the peak."""
        return flops / self.prediction.seconds / float(self.peak) if self.peak and flops else None

    @property
    def fits(self) -> bool | None:
        """Whether the device holds the step's peak memory; None where either is unknown."""
        return None if self.memory is None or self.device is None else self.memory <= self.device.memory

    @property
    def per_second(self) -> float:
        return self.throughput.amount / self.prediction.seconds

    def off(self, run: RecordedRun) -> Fraction:
        """The predicted time over a recorded one, less 1."""
        return _exact(self.prediction.seconds) / run.whole.seconds - 1


def compute(request: job.Request, step: StepOperators, calibration: Calibration) -> Predicted:
    """The predicted time of a step's operators on a calibrated machine."""
    prediction = predict(step.works, calibration)
    throughput = throughput_of(step.sizes, int(request.options.accumulation))
    device = of_device(calibration.name)
    peak, source, because = _peak(calibration, device, prediction.product_dtype)
    graph, options = step.operators.graph, request.options.to_json()
    of_step = evidence_for(graph.model, graph.source, options, step.sizes, recorded((FOLDER,))).shown
    form = _format(calibration, prediction.product_dtype)
    runs = tuple((record, run) for record, run in of_step if (record.device, run.dtype, run.compiled) == (calibration.name, form, False))
    memory = derive(graph, request.sizes)["memory.peak"].value if device else None
    return Predicted(graph.model, step.sizes, options, calibration, prediction, throughput, peak, source, because, memory, device, runs)


def _format(calibration: Calibration, dtype: str) -> str:
    """The number format in which matmuls on tensors of that dtype run."""
    return str(calibration.machine.get("float32_products", "fp32")) if dtype == "float32" else RATES.get(dtype, "")


def _peak(calibration: Calibration, entry: Accelerator | None, dtype: str) -> tuple[Fraction | None, str, str]:
    """The published dense peak of the device; of a CPU, which has none here, the highest rate that the calibration saw."""
    if not dtype:
        return None, "", "the step makes no product"
    if entry is not None:
        name = _format(calibration, dtype)
        if name in entry.peaks:
            return entry.peak(name), f"dense {name}, {entry.source}", ""
        return None, "", f"no rate of {dtype} is published for {entry.name}"
    rate = calibration.peaks().get(dtype)
    if rate is None:
        return None, "", f"neither published nor measured: matmuls in {dtype} on {calibration.name}"
    return rate, f"the highest rate of a product in {dtype} in the calibration", ""


def document(predicted: Predicted) -> dict[str, Any]:
    """Everything, in seconds; a share of an unknown peak is ``null`` with the reason."""
    prediction = predicted.prediction
    low, high = prediction.band
    return {
        "schema": 2,
        "kind": "prediction",
        "model": {"name": predicted.model},
        "sizes": {name: number(size) for name, size in predicted.sizes.items()},
        "options": dict(predicted.options),
        "calibration": {"machine": dict(predicted.calibration.machine), "clock": predicted.calibration.clock},
        "seconds": prediction.seconds,
        "band": {"low": low, "high": high, "because": BAND},
        "phases": dict(prediction.phases),
        "recorded": [
            {"date": record.date.isoformat(), "seconds": float(run.whole.seconds), "off": float(predicted.off(run))}
            for record, run in predicted.runs
        ],
        "memory": {
            "peak": None if predicted.memory is None else number(predicted.memory),
            "capacity": None if predicted.device is None else number(predicted.device.memory),
            "fits": predicted.fits,
        },
        "throughput": {"amount": predicted.throughput.amount, "unit": predicted.throughput.unit, "per_second": predicted.per_second},
        "flops": {"model": number(prediction.model_flops), "hardware": number(prediction.product_flops)},
        "peak": {
            "dtype": prediction.product_dtype or None,
            "flops_per_second": None if predicted.peak is None else float(predicted.peak),
            "source": predicted.peak_source or None,
        },
        "utilization": {
            "mfu": predicted.share(prediction.model_flops),
            "hfu": predicted.share(prediction.product_flops),
            "because": predicted.because or None,
        },
        "inexact_proxies": dict(prediction.inexact_proxies),
        "operators": [
            {
                "phase": row.phase,
                "module_path": row.module_path,
                "operator": row.name,
                "times": number(row.times),
                "proxy": row.like,
                "exact": row.exact,
                "seconds": row.seconds,
                "error": row.error,
            }
            for row in prediction.rows
        ],
    }


def show(predicted: Predicted, out: Terminal) -> None:
    """The phases, what follows from them, and the kinds of operators that take longest."""
    prediction, calibration = predicted.prediction, predicted.calibration
    low, high = (duration(_exact(seconds)) for seconds in prediction.band)
    sizes = sizes_text(predicted.sizes)
    out.line(bold(predicted.model), f" on {calibration.name}: {sizes}")
    out.line(f"{threads(calibration)}calibrated {calibration.machine.get('date')} by {calibration.clock}", style="dim")
    out.line()
    out.line(bold(f"A step takes {duration(_exact(prediction.seconds))}, {low} to {high}."))
    if predicted.fits is False and predicted.memory is not None and predicted.device is not None:
        peak, capacity = bytes_text(predicted.memory), bytes_text(predicted.device.memory)
        out.line(bold(f"It does not fit: the peak of {peak} is more than the {capacity} of {predicted.device.name}."))
    for record, run in predicted.runs:
        off = percent(predicted.off(run), signed=True)
        out.line(f"recorded on {record.date:%Y-%m-%d}: {duration(run.whole.seconds)} (predicted: {off})")
    out.line()
    heads = ("phase", ("predicted", "right"), ("share", "right"))
    out.table(heads, [(phase, *_time_and_share(seconds, prediction)) for phase, seconds in prediction.phases.items()])
    out.line()
    out.line(f"{rate(_exact(predicted.per_second), predicted.throughput.unit)}{_utilization(predicted)}")
    out.line()
    _show_operators(prediction, out)
    for name, share in prediction.inexact_proxies.items():
        because = "is not calibrated, and is predicted from its bytes or FLOPs"
        out.line(f"{name} {because}: {percent(_exact(share))} of the time", style="dim")
    out.line(BAND, style="dim")


def _time_and_share(seconds: float, prediction: Prediction) -> tuple[str, str]:
    return duration(_exact(seconds)), percent(_exact(seconds / prediction.seconds))


def _utilization(predicted: Predicted) -> str:
    mfu, hfu = predicted.share(predicted.prediction.model_flops), predicted.share(predicted.prediction.product_flops)
    if mfu is None or hfu is None or predicted.peak is None:
        return f"; MFU unknown: {predicted.because}" if predicted.because else ""
    return f"; MFU {percent(_exact(mfu))}, HFU {percent(_exact(hfu))} of {rate(predicted.peak, 'FLOP')}, {predicted.peak_source}"


def _show_operators(prediction: Prediction, out: Terminal) -> None:
    together: dict[tuple[str, str, str], list[float]] = {}
    for row in prediction.rows:
        together.setdefault((row.phase, row.name, row.like), []).append(row.total)
    ordered = sorted(((sum(times), key) for key, times in together.items()), reverse=True)
    rows = [(f"{phase} {name}", proxy, *_time_and_share(seconds, prediction)) for seconds, (phase, name, proxy) in ordered[:_SHOWN]]
    out.table(("operators", "timed as", ("predicted", "right"), ("share", "right")), rows)
    if len(ordered) > _SHOWN:
        out.line(f"and {several(len(ordered) - _SHOWN, 'more kind')}: --json shows all, one by one", style="dim")


def _exact(value: float) -> Fraction:
    return Fraction(value)
