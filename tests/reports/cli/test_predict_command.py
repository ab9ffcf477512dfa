"""``napkin calibrate`` writes what it timed, and ``napkin predict`` tells a step's time from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from calc.hardware.calibration import read
from reports import cli
from reports.views import prediction
from tests.performance.calibrated import GIGA, LAUNCH, OVERHEAD, RATE, VIEW, added, made

SIZES = ("-d", "B=3", "-d", "D=7", "-d", "K=5", "--optimizer", "sgd")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The calibration of the synthetic machine."""
    path = tmp_path / "toy.json"
    path.write_text(json.dumps(made().to_json()), encoding="utf-8")
    return path


def _run(*words: str) -> Result:
    return CliRunner().invoke(cli.napkin, list(words))


def _predict(file: Path, *words: str) -> Result:
    return _run("predict", "two-layer", *SIZES, "--calibration", str(file), *words)


def test_a_table_says_how_many_kinds_of_operators_follow_and_nothing_where_none_does(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {(row["phase"], row["operator"], row["proxy"]) for row in json.loads(_predict(file, "--json").stdout)["operators"]}
    monkeypatch.setattr(prediction, "_SHOWN", len(kinds))
    whole = _predict(file).stdout
    monkeypatch.setattr(prediction, "_SHOWN", len(kinds) - 1)

    assert "more kind" not in whole
    assert "\nand 1 more kind: --json shows all, one by one\n" in _predict(file).stdout


def test_a_small_step_takes_what_the_program_takes_for_its_operators(file: Path) -> None:
    """At these sizes every kernel takes a launch, and the program its part: counted from the operators in the document."""
    actual = json.loads(_predict(file, "--json").stdout)
    taken = [row["times"] * (OVERHEAD[VIEW if row["proxy"] == VIEW else LAUNCH] + added()[row["phase"]]) for row in actual["operators"]]

    assert sum(taken) * 1e-9 == pytest.approx(actual["seconds"])
    assert actual["seconds"] == pytest.approx(sum(actual["phases"].values()))
    assert actual["band"]["low"] <= actual["seconds"] <= actual["band"]["high"]


def test_throughput_and_utilization_follow_from_the_time(file: Path) -> None:
    """3 samples; products of 3 x 7 x 7 and 3 x 7 x 5, the first without a gradient of its input; of 100 GFLOP/s."""
    actual = json.loads(_predict(file, "--json").stdout)
    flops = 2 * (2 * 3 * 7 * 7 + 3 * 7 * 5 * 3)

    assert {"amount": 3, "unit": "samples"} == {key: actual["throughput"][key] for key in ("amount", "unit")}
    assert 3 / actual["seconds"] == pytest.approx(actual["throughput"]["per_second"])
    assert {"model": flops, "hardware": flops} == actual["flops"]
    assert flops / actual["seconds"] / (RATE * GIGA) == pytest.approx(actual["utilization"]["mfu"])


def test_the_table_says_what_it_rests_on(file: Path) -> None:
    """The machine, the clock, the date, the peak, and what the band does not cover."""
    text = " ".join(_predict(file).stdout.replace("\u00a0", " ").split())

    assert "two-layer on Toy: B = 3" in text
    assert "1 thread, calibrated 2026-01-02T03:04:05+00:00 by a synthetic clock" in text
    assert "of 100 GFLOP/s, the highest rate of a product in float32 in the calibration" in text
    assert "Python between operators, warm caches and other programs are not in it" in text


def test_a_calibration_is_written_and_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here of the synthetic machine, since the real one takes its time."""
    monkeypatch.setattr("calc.measure.calibration.calibrate", lambda device, **how: made())
    path = tmp_path / "c.json"

    actual = _run("calibrate", "--device", "cpu", "-o", str(path))

    assert 0 == actual.exit_code, actual.stderr
    assert made() == read(path)
    assert "100 GFLOP/s" in actual.stdout.replace("\u00a0", " ")
    assert f"wrote {path}" in actual.stderr


def test_without_a_file_this_machine_is_calibrated(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    """The same answer as with the file that it would have written."""
    monkeypatch.setattr("calc.measure.calibration.calibrate", lambda device, **how: made())

    assert _predict(file, "--json").stdout == _run("predict", "two-layer", *SIZES, "--json").stdout


BAD = {
    "a device": (("calibrate", "--device", "abacus"), "napkin: unknown device 'abacus': use cpu, cuda, or cuda:1 and so on"),
    "tf32 on a CPU": (("calibrate", "--device", "cpu", "--tf32"), "napkin: --tf32 needs a CUDA device: leave it out on a CPU"),
    "a folder that cannot be": (
        ("calibrate", "--device", "cpu", "-o", "/proc/none/c.json"),
        "napkin: cannot write a report to /proc/none/c.json: there is no folder /proc/none",
    ),
    "no calibration": (
        ("predict", "two-layer", "--calibration", "/nowhere.json"),
        "napkin: cannot read a calibration from /nowhere.json: No such file or directory; make one with",
    ),
}


@pytest.mark.parametrize("case", BAD.values(), ids=BAD)
def test_bad_input_is_one_line_and_exit_2(case: tuple[tuple[str, ...], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing on standard output."""
    monkeypatch.setattr("calc.measure.calibration.calibrate", lambda device, **how: made())
    words, line = case

    actual = _run(*words)

    assert (2, "") == (actual.exit_code, actual.stdout)
    assert actual.stderr.startswith(line)
    assert 1 == actual.stderr.count("\n")


@pytest.mark.slow
def test_a_step_is_predicted_for_a_gpu_that_is_not_here_beside_what_was_recorded_on_it() -> None:
    """By the operators that were timed on an H100: by its kernels, so that its own runs of GPT-2 in fp32 are of this step."""
    result = _run("predict", "gpt2", "B=8", "T=1024", "--gpu", "h100-sxm", "--json")
    actual = json.loads(result.stdout)

    assert ("cuda", "foreach") == (actual["options"]["kernels"], actual["options"]["implementation"])
    assert "NVIDIA H100 80GB HBM3" == actual["calibration"]["machine"]["device"]["name"]
    assert 2 == len(actual["recorded"])
    assert all(run["off"] == pytest.approx(actual["seconds"] / run["seconds"] - 1) for run in actual["recorded"])
    assert max(abs(run["off"]) for run in actual["recorded"]) < 0.1
    assert {"capacity": 80 * 10**9, "fits": True} == {key: actual["memory"][key] for key in ("capacity", "fits")}


def test_a_step_that_does_not_fit_the_gpu_is_said_not_to() -> None:
    """400 million samples of 53 numbers in fp32 are 85 GB."""
    words = ("predict", "two-layer", "B=400_000_000", "D=53", "K=7", "--optimizer", "sgd", "--gpu", "h100-sxm")
    memory = json.loads(_run(*words, "--json").stdout)["memory"]

    assert not memory["fits"]
    assert memory["peak"] > 400_000_000 * 53 * 4
    assert "than the 80.0 GB of NVIDIA H100 SXM5 80GB." in " ".join(_run(*words).stdout.replace("\u00a0", " ").split())


@pytest.mark.parametrize(
    ("words", "because"),
    [
        (("--gpu", "a100-sxm-80"), "no calibration of NVIDIA A100 SXM4 80GB is recorded: make one there with napkin calibrate -o FILE"),
        (("--gpu", "nothing"), "unknown accelerator 'nothing'"),
        (("--gpu", "h100-sxm", "--calibration", "some.json"), "--gpu has no effect beside --calibration"),
    ],
)
def test_a_gpu_without_a_recorded_calibration_is_refused(words: tuple[str, ...], because: str) -> None:
    """In one line, with the way out."""
    result = _run("predict", "two-layer", *words)

    assert 2 == result.exit_code
    assert because in result.stderr
