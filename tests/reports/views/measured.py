"""A measurement by hand, as a terminal shows it: a step of 2 ms in the median that makes 100 of 120 FLOP for the model, with two layers."""

from __future__ import annotations

import io
from fractions import Fraction
from typing import Any

from calc.hardware.times import Timings
from calc.measure.step_time import ModuleTime, StepTime
from calc.measure.timing import Timed
from calc.performance.measuring import Expected, Measured, MeasuredRun
from calc.performance.mfu import DensePeak, MatmulFlops, Throughput, timed_step
from reports.views.measuring import show
from reports.writers.terminal import Terminal

MS = 10**6
OPTIONS = {"optimizer": "adamw", "precision": "fp32", "attention": "fused", "mode": "train"}


def shown(peak: int | None = 200_000, expected: Expected | None = None, name: str = "a model") -> str:
    """With a peak in FLOP/s, or why there is none; beside what was predicted.

    1, 2 and 9 ms have quartiles of 1.5 and 5.5; 10 tokens in 2 ms are 5,000 a second; 50,000 of 200,000 FLOP/s are a quarter. Layers that
    are called alike take 2 · (1 + 2) ms, and the optimizer 2: three quarters and one.
    """
    times = Timed(Timings((MS, 2 * MS, 9 * MS), warm_up=(50 * MS,)), {"forward": Timings((MS, MS, MS))}, "a clock", 7)
    module_paths = (ModuleTime("h.0.mlp", MS, 2 * MS), ModuleTime("h.1.mlp", MS, 2 * MS), ModuleTime("(optimizer)", 0, 0, 2 * MS))
    after: dict[str, Any] = {"clock": [1000.0, 3000.0], "temperature": None, "power": None, "because": {"temperature": "no sensor"}}
    step = StepTime({"B": 2, "T": 5}, times, "fp32", False, ({"clock": [900.0, 900.0]}, after), module_paths)
    ceiling = DensePeak("fp32", None, because="nobody knows it") if peak is None else DensePeak("fp32", Fraction(peak), "as given")
    time = timed_step(step, MatmulFlops(100, 120), Throughput(10, "tokens"), ceiling)
    run = MeasuredRun({"B": 2, "T": 5}, time, None, expected)
    measured = Measured(name, "built-in", OPTIONS, {"device": {"name": "a machine"}}, (run,))
    out = io.StringIO()
    show(measured, Terminal(200, out))
    return out.getvalue()


def everything() -> str:
    """The share of a peak that is known, and of none; a prediction that is 25 % below, and none."""
    predicted, unpredicted = Expected(0.0015, (0.001, 0.0025)), Expected(None, because="no point")
    return "\n".join((shown(), shown(None), shown(expected=predicted), shown(expected=unpredicted)))
