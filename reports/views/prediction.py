"""A predicted step as plain data and on a terminal: its phases with the band, what follows from the time, what takes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from calc.derive.to_json import number
from calc.hardware.accelerators import of_device
from calc.hardware.calibration import Calibration
from calc.performance.mfu import Throughput, throughput_of
from calc.performance.prediction import Prediction, predict
from calc.performance.roofline import RATES
from calc.performance.step_operators import StepWork
from reports.jobs import job
from reports.typeset.escape import visible
from reports.typeset.numbers import duration, percent, rate
from reports.views.calibration import threads

if TYPE_CHECKING:
    from rich.console import Console

BAND = (
    "the band is what the calibration is off by between its own points, and the spread of its repetitions; Python between operators, warm"
    " caches and other programs are not in it"
)
_SHOWN = 15


@dataclass(frozen=True, slots=True)
class Predicted:
    """A prediction with what follows from it. ``peak`` is in FLOP/s; ``because`` says why it is not known."""

    model: str
    sizes: Mapping[str, int]
    options: Mapping[str, str]
    calibration: Calibration
    prediction: Prediction
    throughput: Throughput
    peak: Fraction | None
    peak_source: str
    because: str = ""

    def share(self, flops: int) -> float | None:
        """So many FLOPs in the predicted time, over the peak."""
        return flops / self.prediction.seconds / float(self.peak) if self.peak and flops else None

    @property
    def per_second(self) -> float:
        return self.throughput.amount / self.prediction.seconds


def compute(request: job.Request, step: StepWork, calibration: Calibration) -> Predicted:
    """The predicted time of a step's operators on a calibrated machine."""
    found = predict(step.works, calibration)
    throughput = throughput_of(step.sizes, int(request.options.accumulation))
    peak, source, because = _peak(calibration, found.product_dtype)
    model = step.operators.graph.model
    return Predicted(model, step.sizes, request.options.to_json(), calibration, found, throughput, peak, source, because)


def _peak(calibration: Calibration, dtype: str) -> tuple[Fraction | None, str, str]:
    """The published dense peak of the device; of a CPU, which has none here, the highest rate that the calibration saw."""
    if not dtype:
        return None, "", "the step makes no product"
    entry = of_device(calibration.name)
    if entry is not None:
        name = str(calibration.machine.get("float32_products", "fp32")) if dtype == "float32" else RATES.get(dtype, "")
        if name in entry.peaks:
            return entry.peak(name), f"dense {name}, {entry.source}", ""
        return None, "", f"no rate of {dtype} is published for {entry.name}"
    seen = calibration.peaks().get(dtype)
    if seen is None:
        return None, "", f"neither published nor measured: products in {dtype} on {calibration.name}"
    return seen, f"the highest rate of a product in {dtype} in the calibration", ""


def document(found: Predicted) -> dict[str, Any]:
    """Everything, in seconds; a share of an unknown peak is ``null`` with the reason."""
    prediction = found.prediction
    low, high = prediction.band
    return {
        "schema": 1,
        "kind": "prediction",
        "model": {"name": found.model},
        "sizes": {name: number(size) for name, size in found.sizes.items()},
        "options": dict(found.options),
        "calibration": {"machine": dict(found.calibration.machine), "clock": found.calibration.clock},
        "seconds": prediction.seconds,
        "band": {"low": low, "high": high, "because": BAND},
        "phases": dict(prediction.phases),
        "throughput": {"amount": found.throughput.amount, "unit": found.throughput.unit, "per_second": found.per_second},
        "flops": {"model": number(prediction.model_flops), "hardware": number(prediction.product_flops)},
        "peak": {
            "dtype": prediction.product_dtype or None,
            "flops_per_second": None if found.peak is None else float(found.peak),
            "source": found.peak_source or None,
        },
        "utilization": {
            "mfu": found.share(prediction.model_flops),
            "hfu": found.share(prediction.product_flops),
            "because": found.because or None,
        },
        "stand_ins": dict(prediction.stand_ins),
        "operators": [
            {
                "phase": row.phase,
                "site": row.site,
                "operator": row.name,
                "times": number(row.times),
                "timed_as": row.like,
                "exact": row.exact,
                "seconds": row.seconds,
                "error": row.error,
            }
            for row in prediction.rows
        ],
    }


def show(found: Predicted, out: Console) -> None:
    """The phases, what follows from them, and the kinds of operators that take longest."""
    from rich.text import Text

    prediction, calibration = found.prediction, found.calibration
    low, high = (duration(_exact(seconds)) for seconds in prediction.band)
    sizes = ", ".join(f"{name} = {size:,}" for name, size in found.sizes.items())
    out.print(Text.assemble((visible(found.model), "bold"), f" on {visible(calibration.name)}: {visible(sizes)}"))
    words = f"{threads(calibration)}calibrated {calibration.machine.get('date')} by {calibration.clock}"
    out.print(Text(visible(words), style="dim"))
    out.print()
    out.print(Text(f"A step takes {duration(_exact(prediction.seconds))}, {low} to {high}.", style="bold"))
    out.print()
    _phases(prediction, out)
    out.print()
    out.print(Text(f"{rate(_exact(found.per_second), found.throughput.unit)}{_utilization(found)}"))
    out.print()
    _operators(prediction, out)
    for name, share in prediction.stand_ins.items():
        out.print(
            Text(visible(f"{name} is not calibrated, and goes by its bytes or FLOPs: {percent(_exact(share))} of the time"), style="dim")
        )
    out.print(Text(BAND, style="dim"))


def _phases(prediction: Prediction, out: Console) -> None:
    from reports.writers.columns import columns

    table = columns("phase", ("predicted", "right"), ("share", "right"))
    for phase, seconds in prediction.phases.items():
        table.add_row(phase, duration(_exact(seconds)), percent(_exact(seconds / prediction.seconds)))
    out.print(table)


def _utilization(found: Predicted) -> str:
    mfu, hfu = found.share(found.prediction.model_flops), found.share(found.prediction.product_flops)
    if mfu is None or hfu is None or found.peak is None:
        return f"; MFU unknown: {visible(found.because)}" if found.because else ""
    of = f"{rate(found.peak, 'FLOP')}, {visible(found.peak_source)}"
    return f"; MFU {percent(_exact(mfu))}, HFU {percent(_exact(hfu))} of {of}"


def _operators(prediction: Prediction, out: Console) -> None:
    from rich.text import Text

    from reports.writers.columns import columns

    together: dict[tuple[str, str, str], list[float]] = {}
    for row in prediction.rows:
        together.setdefault((row.phase, row.name, row.like), []).append(row.total)
    ordered = sorted(((sum(times), key) for key, times in together.items()), reverse=True)
    table = columns("operators", "timed as", ("predicted", "right"), ("share", "right"))
    for seconds, (phase, name, like) in ordered[:_SHOWN]:
        cells = (Text(visible(f"{phase} {name}")), Text(visible(like)))
        table.add_row(*cells, duration(_exact(seconds)), percent(_exact(seconds / prediction.seconds)))
    out.print(table)
    if len(ordered) > _SHOWN:
        out.print(Text(f"and {len(ordered) - _SHOWN} more kinds: --json shows all, one by one", style="dim"))


def _exact(value: float) -> Fraction:
    return Fraction(value)
