"""A measurement on a terminal: what stands beside a time, and what is said of what is not known."""

from __future__ import annotations

import io
from fractions import Fraction
from typing import Any

from calc.hardware.times import Timings
from calc.measure.sites import ModuleTime
from calc.measure.step_time import StepTime
from calc.measure.timing import Timed
from calc.performance.measuring import Expected, Measured, MeasuredRun
from calc.performance.mfu import DensePeak, MatmulFlops, Throughput, timed_step
from reports.views.measuring import show
from reports.writers.terminal import Terminal

MS = 10**6
OPTIONS = {"optimizer": "adamw", "precision": "fp32", "attention": "fused", "mode": "train"}


def shown(peak: int | None = 200_000, expected: Expected | None = None, name: str = "a model") -> list[str]:
    """A step of 2 ms in the median that makes 100 of 120 FLOP for the model, with two layers."""
    times = Timed(Timings((MS, 2 * MS, 9 * MS), warm_up=(50 * MS,)), {"forward": Timings((MS, MS, MS))}, "a clock", 7)
    sites = (ModuleTime("h.0.mlp", MS, 2 * MS), ModuleTime("h.1.mlp", MS, 2 * MS), ModuleTime("(optimizer)", 0, 0, 2 * MS))
    after: dict[str, Any] = {"clock": [1000.0, 3000.0], "temperature": None, "power": None, "because": {"temperature": "no sensor"}}
    step = StepTime({"B": 2, "T": 5}, times, "fp32", False, ({"clock": [900.0, 900.0]}, after), sites)
    ceiling = DensePeak("fp32", None, because="nobody knows it") if peak is None else DensePeak("fp32", Fraction(peak), "as asked")
    time = timed_step(step, MatmulFlops(100, 120), Throughput(10, "tokens"), ceiling)
    found = Measured(name, "built-in", OPTIONS, {"device": {"name": "a machine"}}, (MeasuredRun({"B": 2, "T": 5}, time, None, expected),))
    out = io.StringIO()
    show(found, Terminal(200, out))
    return [line.rstrip() for line in out.getvalue().replace("\u00a0", " ").split("\n")]


def test_every_part_has_its_median_and_spread_and_the_step_what_follows_from_it() -> None:
    """1, 2 and 9 ms have quartiles of 1.5 and 5.5; 10 tokens in 2 ms are 5000 a second; 50 000 of 200 000 FLOP/s are a quarter."""
    lines = shown()

    assert "a model: optimizer adamw, precision fp32, attention fused, mode train, on a machine" == lines[0]
    assert "B=2, T=5   forward   1.00 ms   1.00 ms to 1.00 ms" == lines[3]
    assert "step 2.00 ms 1.50 ms to 5.50 ms 3 5.00 ktokens/s MFU 25.0 %, HFU 30.0 %" == " ".join(lines[4].split())
    assert "peak: 200 kFLOP/s dense in fp32 (as asked); FLOPs are those of matrix products, derived" in lines
    assert "timed by a clock, which moves by 7 ns, after 1 step of warm-up" in lines


def test_conditions_are_read_or_unknown_with_the_reason() -> None:
    lines = shown()

    assert "clock: 900 MHz before, 1000 to 3000 MHz after" in lines
    assert "temperature: unknown (no sensor)" in lines
    assert "power: unknown (not read)" in lines


def test_layers_that_are_called_alike_count_together() -> None:
    """2 · (1 + 2) ms and 2 of the optimizer: three quarters and one."""
    lines = shown()

    assert "h.*.mlp       2.00 ms    4.00 ms           –   75.0 %" in lines
    assert "(optimizer)         –          –     2.00 ms   25.0 %" in lines


def test_without_a_peak_the_share_is_unknown_and_says_why() -> None:
    lines = shown(None)

    assert lines[4].endswith("MFU unknown")
    assert "MFU is unknown, because nobody knows it" in lines


def test_a_prediction_stands_beside_with_its_distance() -> None:
    """1.5 ms where 2 were measured are a quarter less."""
    assert "the calibration predicts a step of 1.50 ms, 1.00 ms to 2.50 ms: −25.0 % off what was measured" in shown(
        expected=Expected(0.0015, (0.001, 0.0025))
    )
    assert "the step was not predicted: no point" in shown(expected=Expected(None, because="no point"))


def test_a_hostile_name_acts_on_no_terminal() -> None:
    assert r"\x1b[31m[bold]red: optimizer" in shown(name="\x1b[31m[bold]red")[0]
