"""Predicted against measured step time, in one process: calibrate, measure GPT-2 small at twelve sizes and ResNet-18 at four, calibrate.

Each step is timed by two clocks at once: the wall's, and the processor time of this process, which other programs on the machine lengthen
only through caches and memory. A prediction is the mean of those from the two calibrations by the same clock. One thread, so that both
clocks count the same thing on an idle machine.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import calc
from calc.calibration import Calibration
from calc.options import Options
from calc.prediction import predict
from calc.spec import Spec
from calc.stepwork import step_work

RESNET_18 = {
    "architectures": ["ResNetForImageClassification"],
    "model_type": "resnet",
    "depths": [2, 2, 2, 2],
    "hidden_sizes": [64, 128, 256, 512],
    "embedding_size": 64,
    "layer_type": "basic",
    "num_channels": 3,
    "hidden_act": "relu",
    "num_labels": 1000,
}
GPT2_SIZES = [{"B": batch, "T": length} for batch, length in itertools.product((1, 2, 4), (16, 32, 64, 128))]
RESNET_SIZES = [{"B": batch} for batch in (1, 2, 4, 8)]
REPETITIONS = 3
CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}


@dataclass(frozen=True)
class Compared:
    """One model at one size by one clock, in seconds."""

    model: str
    sizes: Mapping[str, int]
    clock: str
    predicted: float
    low: float
    high: float
    measured: float

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted / self.measured - 1


def main() -> None:
    import torch

    torch.set_num_threads(1)
    found = list(compared())
    for c in found:
        at = ", ".join(f"{name} = {size}" for name, size in c.sizes.items())
        words = f"{c.predicted:.3f} s predicted ({c.low:.3f} to {c.high:.3f}), {c.measured:.3f} s measured, {100 * c.error:+.0f} %"
        print(f"{c.model} at {at}, {c.clock} time: {words}", file=sys.stderr)
    for clock in CLOCKS:
        print(f"median error, {clock} time: {100 * median_error(found, clock):.0f} %", file=sys.stderr)
    print(json.dumps([asdict(c) for c in found]))


def compared() -> Iterator[Compared]:
    """Every size of both models by both clocks."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(RESNET_18), encoding="utf-8")
        models = (("GPT-2 small", calc.load("gpt2"), GPT2_SIZES), ("ResNet-18", calc.load(f"hf:{folder}"), RESNET_SIZES))
        known = {name: step_work(spec, at[-1]).operators for name, spec, at in models}  # a minute, before any clock runs
        cases = [(name, spec, sizes, known[name].at(sizes)) for name, spec, at in models for sizes in at]
        before = calibrations()
        measured = [step_seconds(spec, sizes) for _, spec, sizes, _ in cases]
        after = calibrations()
    for (name, _, sizes, works), by_clock in zip(cases, measured, strict=True):
        for clock, seconds in by_clock.items():
            both = [predict(works, calibrated[clock]) for calibrated in (before, after)]
            predicted, low, high = (statistics.mean(v) for v in zip(*((p.seconds, *p.band) for p in both), strict=True))
            yield Compared(name, sizes, clock, predicted, low, high, seconds)


def median_error(found: Iterable[Compared], clock: str) -> float:
    """The median of the errors' sizes, by one clock."""
    return statistics.median(abs(c.error) for c in found if c.clock == clock)


def calibrations() -> dict[str, Calibration]:
    """One by each clock."""
    from calc.measure.calibration import calibrate

    return {clock: calibrate("cpu", processor_time=clock == "processor") for clock in CLOCKS}


def step_seconds(spec: Spec, sizes: Mapping[str, int]) -> dict[str, float]:
    """The median of a few steps after one that does not count, by each clock."""
    from calc.measure.training import training

    taken: dict[str, list[float]] = {clock: [] for clock in CLOCKS}
    print(f"{spec.name} at {dict(sizes)} …", file=sys.stderr)
    with training(spec, spec.sizes(sizes), Options(), "cpu") as run:
        run.step()
        for _ in range(REPETITIONS):
            begin = {clock: read() for clock, read in CLOCKS.items()}
            run.step()
            for clock, read in CLOCKS.items():
                taken[clock].append(read() - begin[clock])
    return {clock: statistics.median(times) for clock, times in taken.items()}


if __name__ == "__main__":
    main()
