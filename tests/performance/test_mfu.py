"""What follows from a measured time: throughput, and shares of a peak that is named; and the command that measures."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

import calc
from calc.errors import BadInputError, TraceError
from calc.hardware.accelerators import accelerator
from calc.hardware.calibration import Calibration, CalibrationPoint
from calc.hardware.times import How, Repeat, Timings
from calc.measure.machine import machine
from calc.measure.step_time import StepTime
from calc.measure.timing import Timed
from calc.options import Options
from calc.performance import measuring
from calc.performance.measuring import Expected, MeasuringOptions
from calc.performance.mfu import DensePeak, MatmulFlops, Throughput, as_compiled, ceiling_of, throughput_of, timed_step, work_from, work_of
from reports import cli

TINY = ("-d", "B=7", "-d", "d=11", "-d", "f=13")
QUICK = ("--device", "cpu", "--repeat", "3", "--seconds", "0", "--warm-up", "1")
CPU = {"device": {"kind": "cpu", "name": "Some Processor"}}


def measured(*milliseconds: int, matmul_dtype: str = "bf16") -> StepTime:
    """Repetitions of so many ms."""
    times = Timings(tuple(ms * 10**6 for ms in milliseconds))
    return StepTime({"B": 2, "T": 5}, Timed(times, {}, "a clock", 1), matmul_dtype, False, ({}, {"because": {}}))


def derivation(mode: str = "train", **flops: int | None) -> Any:
    """A derivation as far as it is asked: FLOPs by the last words of their names."""
    actual = {f"flops.{name.replace('_', '.')}": SimpleNamespace(value=value, unknown="nobody knows") for name, value in flops.items()}

    return SimpleNamespace(options={"mode": mode}, quantities=actual)


def test_mfu_is_model_flops_over_the_median_time_over_the_peak() -> None:
    """100 and 120 FLOP in 2 ms are 50 000 and 60 000 FLOP/s: a quarter and three tenths of 200 000. 10 tokens in 2 ms are 5000/s."""
    time = timed_step(measured(1, 2, 9), MatmulFlops(100, 120), Throughput(10, "tokens"), DensePeak("bf16", Fraction(200_000), "as given"))

    assert time.mfu is not None
    assert time.hfu is not None
    assert (Fraction(1, 4), Fraction(3, 10), 5000) == (time.mfu.value, time.hfu.value, time.per_second)
    assert {"mfu": 0.25, "hfu": 0.3, "because": None} == time.to_json()["utilization"]


def test_without_a_peak_the_shares_are_unknown_and_say_why() -> None:
    """Never 0; the throughput stands."""
    time = timed_step(measured(2), MatmulFlops(100, 120), Throughput(10, "tokens"), ceiling_of("fp32", CPU))

    assert {
        "mfu": None,
        "hfu": None,
        "because": "no peak is published here for this processor: give its FLOP/s in fp32 with --peak",
    } == time.to_json()["utilization"]
    assert 5000 == time.per_second


def test_a_share_above_one_is_refused_with_the_peak_that_would_explain_it() -> None:
    """The 1.97 case: a product in bf16 over the fp32 peak of an RTX 3090."""
    card = accelerator("rtx3090")
    ceiling = ceiling_of("fp32", {"device": {"kind": "cuda", "name": "NVIDIA GeForce RTX 3090"}})

    assert (card, card.peak("fp32")) == (ceiling.device, ceiling.rate)
    said = r"^utilization 1\.98 is above 1: .* whose dense peak is 35\.58 TFLOP/s; the matmuls ran in bf16 \("
    with pytest.raises(BadInputError, match=said):
        timed_step(measured(125), MatmulFlops(2 * 16384 * 32768 * 8192, None), Throughput(1, "products"), ceiling)


def test_the_peak_is_that_of_the_format_used() -> None:
    """The one that is given comes first, then the accelerator that is named, then the driver's own name of the device."""
    h100 = {"device": {"kind": "cuda", "name": "NVIDIA H100 80GB HBM3"}}
    unknown = {"device": {"kind": "cuda", "name": "Some Card"}}

    assert accelerator("h100-sxm").peak("tf32") == ceiling_of("tf32", h100).rate
    assert accelerator("a100-sxm-80").peak("bf16") == ceiling_of("bf16", h100, gpu="a100-sxm-80").rate
    given = ceiling_of("bf16", h100, gpu="a100-sxm-80", peak=Fraction(7))
    assert (7, "as given", None) == (given.rate, given.source, given.device)
    said = "no peak is published here for a device that its driver calls Some Card: give its FLOP/s in bf16 with --peak"
    assert said == ceiling_of("bf16", unknown).because
    assert ceiling_of("fp9", h100).because.startswith("NVIDIA H100 SXM5 80GB has no published rate in 'fp9': it has ")


def test_a_calibration_s_highest_rate_is_a_peak_only_where_none_is_published() -> None:
    """Of the very format."""
    seen = {"fp32": Fraction(5), "bf16": Fraction(7)}
    h100 = {"device": {"kind": "cuda", "name": "NVIDIA H100 80GB HBM3"}}

    assert (5, "the highest rate of a product in the calibration") == _said(ceiling_of("fp32", CPU, measured_rates=seen))
    assert (9, "as given") == _said(ceiling_of("fp32", CPU, peak=Fraction(9), measured_rates=seen))
    assert accelerator("h100-sxm").peak("fp32") == ceiling_of("fp32", h100, measured_rates=seen).rate
    assert ceiling_of("fp16", CPU, measured_rates=seen).rate is None


def _said(ceiling: DensePeak) -> tuple[Fraction | None, str]:
    return ceiling.rate, ceiling.source


def test_model_flops_leave_out_what_runs_again_and_hardware_flops_hold_all_products() -> None:
    """Forward 100, backward 250 of which 50 repeat the forward, optimizer 7: 300 the model needs, 357 run."""
    result = derivation(forward_matmul=100, backward_matmul=250, backward_recompute=50, optimizer_matmul=7)

    assert MatmulFlops(300, 357) == work_of(result)
    assert MatmulFlops(300, None, "what torch.compile saves and recomputes is not traced") == as_compiled(work_of(result))
    assert MatmulFlops(100, 100) == work_of(derivation("infer", forward_matmul=100))
    assert MatmulFlops(None, None, "nobody knows") == work_of(derivation("infer", forward_matmul=None))
    assert MatmulFlops(None, None, "flops.forward.matmul is unknown") == work_of(derivation("infer"))


def test_a_step_that_is_not_derived_is_timed_all_the_same() -> None:
    def refused() -> Any:
        raise TraceError("it cannot be recorded")

    assert MatmulFlops(None, None, "the step is not derived: it cannot be recorded") == work_from(refused)


def test_the_flops_are_those_of_the_derivation() -> None:
    """mlp at B = 7, d = 11, f = 13 and 19 classes: 2·7·11·13 + 2·7·13·19 forward; backward twice the second and once the first."""
    actual = work_of(calc.derive(calc.load("mlp"), {"B": 7, "d": 11, "f": 13, "K": 19}))
    first, second = 2 * 7 * 11 * 13, 2 * 7 * 13 * 19

    assert MatmulFlops(2 * first + 3 * second, 2 * first + 3 * second) == actual


def test_a_step_gets_tokens_or_samples_done() -> None:
    assert Throughput(3 * 2 * 5, "tokens") == throughput_of({"B": 2, "T": 5}, 3)
    assert Throughput(2, "samples") == throughput_of({"B": 2, "S": 224})
    assert Throughput(1, "samples") == throughput_of({"d": 8})


def test_a_prediction_stands_beside_the_measured_time_with_its_distance() -> None:
    """3 ms where 4 were measured are a quarter less."""
    document = Expected(0.003, (0.002, 0.005)).to_json(Fraction(4, 1000))

    assert {"seconds": 0.003, "band": {"low": 0.002, "high": 0.005}, "off": -0.25, "because": None} == document
    assert {"seconds": None, "band": None, "off": None, "because": "why"} == Expected(None, because="why").to_json(Fraction(1))


def calibration(**changes: Any) -> Calibration:
    """Of this machine, with one product that did 3 FLOP in 1 ns."""
    facts = machine("cpu")
    point = CalibrationPoint("aten.mm", "float32", {"m": 1}, 3, 12, 1, (1,))
    return Calibration({**facts, "device": {**facts["device"], **changes}}, "a clock", (point,))


def measured_with(calibration: Calibration, compiled: bool = False) -> Any:
    how = How(Repeat(1, 3, 0), per_module=False, compiled=compiled)
    return measuring.measured(
        calc.load("mlp"), ({"B": 7, "d": 11, "f": 13},), Options(), MeasuringOptions(calibration=calibration, how=how)
    )


def test_a_calibration_of_this_machine_predicts_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its highest rate, 3 GFLOP/s, is the peak; what cannot be predicted says why, and is measured all the same."""
    monkeypatch.setattr(measuring, "predict", lambda works, known: SimpleNamespace(seconds=0.5, band=(0.25, 1.0)))
    (run,) = measured_with(calibration()).runs

    assert Expected(0.5, (0.25, 1.0)) == run.expected
    assert 3 * 10**9 == run.time.ceiling.rate

    def refused(*_: Any) -> Any:
        raise BadInputError("it lacks a point")

    monkeypatch.setattr(measuring, "predict", refused)
    assert Expected(None, because="it lacks a point") == measured_with(calibration()).runs[0].expected


@pytest.mark.parametrize("changes", [{"name": "Another"}, {"threads": 97}])
def test_a_calibration_of_another_machine_is_refused(changes: dict[str, Any]) -> None:
    """The name counts, and the threads."""
    with pytest.raises(BadInputError, match=r"^the calibration is of .*, but this is .*: calibrate here, napkin calibrate -o FILE$"):
        measured_with(calibration(**changes))


# -- the command -----------------------------------------------------------------------------------------------------------


def napkin(*words: str) -> Result:
    return CliRunner().invoke(cli.napkin, words)


def test_the_command_times_the_parts_of_a_step_and_keeps_every_repetition(tmp_path: Path) -> None:
    """On a CPU, with a peak that is given; there is no allocator to ask."""
    file = tmp_path / "mlp.json"
    shown = napkin("measure", "mlp", *TINY, *QUICK, "--peak", "1PFLOP/s", "-o", str(file))
    document = json.loads(file.read_text())
    (run,) = document["runs"]
    measured = run["time"]["measured"]

    assert 0 == shown.exit_code, shown.stderr
    assert ["forward", "backward", "optimizer"] == list(measured["parts"])
    assert {3} == {len(part["nanoseconds"]) for part in (*measured["parts"].values(), measured["whole"])}
    assert {1} == {len(part["warm_up"]) for part in measured["parts"].values()}
    assert ("cpu", torch.__version__.partition("+")[0]) == (document["device"]["kind"], document["versions"]["torch"].partition("+")[0])
    assert (None, 1e15, "fp32") == (run["memory"], run["time"]["peak"]["flops_per_second"], run["time"]["peak"]["dtype"])
    assert 0 < run["time"]["utilization"]["mfu"] <= run["time"]["utilization"]["hfu"] < 1
    assert 7 / measured["whole"]["seconds"]["median"] == pytest.approx(run["time"]["throughput"]["per_second"])
    assert "samples/s" in shown.stdout
    assert "MFU" in shown.stdout


def test_the_command_shows_json_instead() -> None:
    shown = napkin("measure", "mlp", *TINY, *QUICK, "--json", "--mode", "infer")
    (run,) = json.loads(shown.stdout)["runs"]

    assert ["forward"] == list(run["time"]["measured"]["parts"])
    assert "no peak is published here for this processor: give its FLOP/s in fp32 with --peak" == run["time"]["utilization"]["because"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--device", "tpu"], "unknown device 'tpu': use cpu, cuda, or cuda:1 and so on"),
        (["--device", "cpu", "--tf32"], "--tf32 is of CUDA devices, and not of cpu: leave it out"),
        (["--device", "cpu", "--fit"], "--fit is of CUDA devices, and not of cpu: leave it out"),
        (["--device", "cpu", "--gpu", "gb200"], "--gpu names a CUDA device whose peak counts: on cpu give the peak itself, --peak 100e9"),
        (["--device", "cpu", "--peak", "0"], "--peak = '0' must be more than 0"),
        (["--device", "cpu", "--peak", "fast"], "--peak = 'fast' is not a number: write it as 70e9, 15T, 80GB, 30days, 50% or 3.35TB/s"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_runs(words: list[str], said: str) -> None:
    result = napkin("measure", "mlp", *words)

    assert (2, "", f"napkin: {said}\n") == (result.exit_code, result.stdout, result.stderr)


def test_a_peak_below_what_was_done_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    result = napkin("measure", "mlp", *TINY, *QUICK, "--peak", "1", "-o", str(tmp_path / "mlp.json"))

    assert 2 == result.exit_code
    assert "is above 1: no device outruns its peak, so the peak is not that of fp32" in result.stderr
    assert [] == list(tmp_path.iterdir())
