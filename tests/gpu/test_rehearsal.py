"""The unattended run on a GPU, rehearsed without one: what fails or hangs costs nothing else, and what is rehearsed is no measurement."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from calc.performance import records as evidence
from tests.gpu.__main__ import Run
from tests.gpu.__main__ import main as run_on_gpu
from tests.gpu.plan import REAL, REHEARSED, Task, tasks
from tests.gpu.run import Session, measure
from tests.gpu.simulated import NAME, installed
from tests.gpu.summary import written

ROOT = Path(__file__).resolve().parents[2]
MEASUREMENTS = ROOT / "reports" / "measurements"
WITHOUT = ("math_core", "nh3", "gmpy2")  # packages that the machine with the GPU does not have

# What stands in for the process that measures: each task does what its name says.
_PROCESS = """
import json, os, sys, time
log, names = sys.argv[1], sys.argv[2:]
def say(event, name, **more):
    with open(log, "a") as file: file.write(json.dumps({"event": event, "task": name, "at": time.time(), **more}) + chr(10))
for name in names:
    say("began", name)
    if name == "crash": os._exit(139)
    if name == "hang": time.sleep(60)
    if name == "fail": say("failed", name, because="RuntimeError: no such kernel"); continue
    say("ended", name)
"""


def _run(work: Path, *names: str, seconds: float = 60, limit: float = 30, program: str = _PROCESS) -> Run:
    def command(left: Sequence[Task]) -> list[str]:
        return [sys.executable, "-S", "-c", program, str(work / "log.jsonl"), *(task.name for task in left)]

    left = [Task(name, 0.5 if name == "hang" else limit) for name in names]
    return Run(work, left, time.time() + seconds, command)


def _ended(work: Path) -> list[str]:
    events = map(json.loads, (work / "log.jsonl").read_text().splitlines())
    return [event["task"] for event in events if event["event"] == "ended"]


def test_what_crashes_hangs_or_fails_stops_nothing_else(tmp_path: Path) -> None:
    """The process is started again with the tasks after, and each failure is told."""
    run = _run(tmp_path, "one", "crash", "two", "hang", "three", "fail", "four")

    assert 0 == run.to_the_end()
    assert ["one", "two", "three", "four"] == _ended(tmp_path)
    assert [] == run.left
    told = {"crash": "its process ended with status 139", "hang": "stopped after 0 seconds", "fail": "RuntimeError: no such kernel"}
    assert told == run.failed


def test_a_process_that_comes_to_no_task_is_not_started_forever(tmp_path: Path) -> None:
    """Whatever is wrong with it is wrong with the next one."""
    run = _run(tmp_path, "one", "two", program="raise SystemExit(7)")

    assert 7 == run.to_the_end()
    assert {"every task": "the process for them ended with status 7 before the first began"} == run.failed
    assert ["one", "two"] == [task.name for task in run.left]


@pytest.mark.slow
def test_a_run_whose_time_is_over_stops_and_says_what_it_did_not_begin(tmp_path: Path) -> None:
    """Its process is stopped within a task."""
    run = _run(tmp_path, "one", "hang", "two", seconds=3, limit=30)
    run.left[1] = Task("hang", 30)
    run.to_the_end()

    assert {"hang": "stopped: the time of the whole run was over"} == run.failed
    assert ["two"] == [task.name for task in run.left]


def test_the_most_valuable_comes_first_and_the_rehearsal_goes_through_the_same_parts() -> None:
    """The lecture's products, GPT-2's steps eager and compiled, its memory, a calibration, transfers."""
    real, rehearsed = ([task.part for task in tasks(plan)] for plan in (REAL, REHEARSED))

    assert ["products", "eager", "compiled", "memory", "calibration", "predictions", "transfers"] == list(dict.fromkeys(real))[:7]
    assert {*real} == {*rehearsed}
    assert {"gpt2-124m"} == {task.model for task in list(tasks(REAL))[1:8]} - {""}


def test_a_rehearsal_cannot_write_among_measurements(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither through the command nor past it."""
    for folder in (MEASUREMENTS, MEASUREMENTS / "gpu", tmp_path / "measurements"):
        with pytest.raises(SystemExit) as refused:
            run_on_gpu(["--rehearse", "-o", str(folder)])
        assert 2 == refused.value.code
    assert "a rehearsal measures nothing" in capsys.readouterr().err
    session = Session(MEASUREMENTS, tmp_path, rehearsal=True)
    with pytest.raises(ValueError, match="cannot go to"):
        session.keep(Task("products", 1), "products", {"kind": "measurement", "device": {"name": NAME}})


def test_a_record_is_there_after_every_format_and_no_reader_takes_a_rehearsed_one_for_evidence(tmp_path: Path) -> None:
    """The record of products is complete at any moment; reading it as evidence is an error, not a number."""
    session, task = Session(tmp_path / "out", tmp_path, rehearsal=True), Task("products", 1)
    with installed():
        measure(session, task)
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    (name,) = written(tmp_path)
    record = json.loads((tmp_path / "out" / name).read_text())

    assert 5 == len([event for event in log if event["event"] == "wrote"])
    assert ["fp32", "tf32", "bf16", "fp16", "fp8"] == [row["dtype"] for row in record["rows"]]
    assert record["kind"].startswith("rehearsal of a ")
    assert "no measurements" in record["rehearsal"]
    with pytest.raises(evidence.EvidenceError, match="expected a kind of measurement"):
        evidence.read(tmp_path / "out" / name)


def _environment(folder: Path) -> dict[str, str]:
    """Packages that are blocked fail to import, in every process of the run."""
    for name in WITHOUT:
        (folder / f"{name}.py").write_text(f"raise ImportError({f'{name} is not here'!r})\n")
    return {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}


def _command(output: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "tests.gpu", "--rehearse", "-o", str(output), *more]


@pytest.mark.slow
def test_the_whole_run_is_rehearsed_without_a_gpu(tmp_path: Path) -> None:
    """Every task ends, every record has the machine, versions, date, sizes and repetitions, and a summary ends the run."""
    before = sorted(MEASUREMENTS.iterdir())
    command = _command(tmp_path / "out", "--seconds", "1500")
    done = subprocess.run(command, cwd=ROOT, env=_environment(tmp_path), capture_output=True, text=True, timeout=1800, check=False)
    records = [json.loads(file.read_text()) for file in sorted((tmp_path / "out").iterdir())]

    assert 0 == done.returncode, done.stderr
    assert "failed" not in done.stdout + done.stderr
    assert "not begun" not in done.stdout
    assert len(done.stdout.splitlines()) <= 50
    assert f"{len(records)} records in" in done.stdout
    assert before == sorted(MEASUREMENTS.iterdir())
    for record in records:
        machine = record if "device" in record else record["machine"]
        assert (NAME, "000.00") == (machine["device"]["name"], machine["device"]["driver"])
        assert machine["date"]
        assert {"torch", "python", "cuda"} <= machine["versions"].keys()
        assert record["kind"].startswith("rehearsal of a ")
    runs = [run for record in records for run in record.get("runs", ())]
    assert runs
    assert all(run["sizes"] and run["time"]["measured"]["whole"]["nanoseconds"] for run in runs)
    eager = [run for run in runs if run["memory"] is None and not run["time"]["measured"]["compiled"]]
    assert eager
    assert all(run["predicted"]["seconds"] for run in eager)
    assert all(run["memory"]["predicted"]["max_memory_allocated"] for run in runs if run["memory"] is not None)
    assert 3 == sum(bool(record.get("fits")) for record in records)


@pytest.mark.slow
@pytest.mark.parametrize("records", [1, 4])
def test_a_run_that_is_killed_leaves_every_finished_record_whole(tmp_path: Path, records: int) -> None:
    """Killed hard as soon as so many are there."""
    output = tmp_path / "out"
    process = subprocess.Popen(_command(output), cwd=ROOT, env=_environment(tmp_path), start_new_session=True, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 600
    while len(list(output.glob("*.json"))) < records and time.monotonic() < until:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    files = list(output.glob("*.json"))

    assert records <= len(files)
    assert all(json.loads(file.read_text())["kind"].startswith("rehearsal of a ") for file in files)


@pytest.mark.slow
def test_without_a_device_the_run_says_so_and_names_the_rehearsal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And is no failure; nothing is written."""
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a device here")

    assert 0 == run_on_gpu(["-o", str(tmp_path), "--only", "products"])
    assert capsys.readouterr().out.startswith("not measured: there is no CUDA device here")
    assert [] == list(tmp_path.iterdir())
