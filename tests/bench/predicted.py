"""Predicted against measured step time, in one process: calibrate, measure GPT-2 small at twelve sizes and ResNet-18 at four, calibrate.

Each step is timed by two clocks at once: the wall's, and the processor time of this process, which other programs on the machine lengthen
only through caches and memory. A prediction is the mean of those from the two calibrations by the same clock. One thread, so that both
clocks count the same thing on an idle machine. A size at which no step can be predicted or measured is named with the reason.

Run as ``python -m tests.bench.predicted [--toy]``: with that, one small step of each model after a short calibration.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import calc
from calc.errors import NapkinError
from calc.hardware.calibration import Calibration
from calc.options import Options
from calc.performance.prediction import predict
from calc.performance.step_operators import StepOperators, step_operators
from calc.spec import Spec

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
SIZES = {
    "GPT-2 small": [{"B": batch, "T": length} for batch, length in itertools.product((1, 2, 4), (16, 32, 64, 128))],
    "ResNet-18": [{"B": batch} for batch in (1, 2, 4, 8)],
}
TOY = {"GPT-2 small": [{"B": 1, "T": 8, "L": 1, "d": 24, "V": 59}], "ResNet-18": [{"B": 1}]}
TOY_WORK = 10**7  # FLOP, and bytes, of the largest primitive of a short calibration
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


@dataclass(frozen=True)
class Failed:
    """One model at one size where nothing was compared, and why."""

    model: str
    sizes: Mapping[str, int]
    failed: str


def main(toy: bool) -> None:
    import torch

    torch.set_num_threads(1)
    actual = list(compared(TOY, TOY_WORK) if toy else compared(SIZES))
    for c in actual:
        at = f"{c.model} at {', '.join(f'{name} = {size}' for name, size in c.sizes.items())}"
        if isinstance(c, Failed):
            print(f"{at}: {c.failed}", file=sys.stderr)
        else:
            words = f"{c.predicted:.3f} s predicted ({c.low:.3f} to {c.high:.3f}), {c.measured:.3f} s measured, {100 * c.error:+.0f} %"
            print(f"{at}, {c.clock} time: {words}", file=sys.stderr)
    print(json.dumps([asdict(c) for c in actual]))


def compared(sizes: Mapping[str, Sequence[Mapping[str, int]]], most: int | None = None) -> Iterator[Compared | Failed]:
    """Every size of both models by both clocks. Primitives of more than ``most`` FLOP or bytes are not calibrated."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(RESNET_18), encoding="utf-8")
        specs = {"GPT-2 small": calc.load("gpt2"), "ResNet-18": calc.load(f"hf:{folder}")}
        cases = [(name, at) for name, all_ in sizes.items() for at in all_]
        works = [
            _tried(step_operators, specs[name], at) for name, at in cases
        ]  # of the case that holds there; minutes, before any clock runs
        before = calibrations(most)
        measured = [
            work if isinstance(work, NapkinError) else _tried(step_seconds, specs[name], at)
            for (name, at), work in zip(cases, works, strict=True)
        ]
        after = calibrations(most)
    for (name, at), work, by_clock in zip(cases, works, measured, strict=True):
        actual = by_clock if isinstance(by_clock, NapkinError) else _tried(_beside, name, at, work, by_clock, (before, after))
        yield from [Failed(name, at, str(actual))] if isinstance(actual, NapkinError) else actual


def _tried(make: Callable[..., Any], *given: Any) -> Any:
    """What is made, or the error that says why it is not."""
    try:
        return make(*given)
    except NapkinError as error:
        return error


def _beside(
    name: str, sizes: Mapping[str, int], work: StepOperators, by_clock: Mapping[str, float], known: Sequence[Mapping[str, Calibration]]
) -> list[Compared]:
    """What was measured by each clock with the mean of the predictions from the ``known`` calibrations."""
    actual = []
    for clock, seconds in by_clock.items():
        told = (predict(work.works, calibrated[clock]) for calibrated in known)
        predicted, low, high = (statistics.mean(v) for v in zip(*((p.seconds, *p.band) for p in told), strict=True))
        actual.append(Compared(name, sizes, clock, predicted, low, high, seconds))
    return actual


def median_error(actual: Iterable[Compared], clock: str) -> float:
    """The median of the errors' sizes, by one clock."""
    return statistics.median(abs(c.error) for c in actual if c.clock == clock)


def calibrations(most: int | None) -> dict[str, Calibration]:
    """One by each clock, of primitives of at most so many FLOP and bytes."""
    from calc.measure.calibration import calibrate
    from calc.measure.primitives import primitives

    chosen = [p for p in primitives("cpu") if most is None or max(p.flops, p.bytes) <= most]
    return {clock: calibrate("cpu", processor_time=clock == "processor", chosen=chosen) for clock in CLOCKS}


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
    main("--toy" in sys.argv)
