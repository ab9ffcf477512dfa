"""Measurements of steps: on a CUDA device that only pretends, what is recorded beside what was predicted before; and their times."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from click.testing import CliRunner

import calc
from calc.derive.cuda_allocator import WORKSPACES, workspace_of
from calc.hardware.times import How, Repeat
from calc.measure import cuda_memory, machine
from calc.measure import training as training_
from calc.memory import device_memory
from calc.options import Options
from calc.performance import measuring
from calc.performance.measuring import MeasuringOptions
from reports import cli

FITTING = 40
SHORT = ("--repeat", "2", "--seconds", "0", "--warm-up", "1")
QUICK = How(Repeat(warm_up=1, count=3, seconds=0), per_module=False)
ROOM = 2**26
HOPPER = (9, 0)


class Device:
    """torch.cuda as far as it is used. Its peaks are the live bytes that were predicted, so that only what is added shows."""

    def is_available(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        answers = {
            "get_device_properties": SimpleNamespace(name="pretended", total_memory=2**27),
            "get_device_capability": HOPPER,
            "memory_allocated": 1_000,
            "memory_reserved": 2**21,
            "max_memory_allocated": 70_000_000,
            "max_memory_reserved": 80_000_000,
            "mem_get_info": (ROOM - 2**21, 2**27),
        }
        return lambda *_: answers.get(name)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps really run, on the CPU; above B = 40 they are out of memory."""
    real, fed = training_.training, cuda_memory.fed

    @contextmanager
    def training(spec: Any, sizes: Any, options: Any, _: str, seed: int = 0) -> Iterator[Any]:
        with real(spec, sizes, options, "cpu", seed=seed) as run:
            yield run

    def fed_within(run: Any, sizes: Any) -> Any:
        if sizes["B"] > FITTING:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return fed(run, sizes)

    pretended = SimpleNamespace(cuda=Device(), OutOfMemoryError=torch.OutOfMemoryError, version=torch.version, get_num_threads=lambda: 1)
    monkeypatch.setattr(machine, "_nvidia_smi", lambda *_: None)
    monkeypatch.setattr(training_, "training", training)
    monkeypatch.setattr(cuda_memory, "fed", fed_within)
    for module in (cuda_memory, machine):
        monkeypatch.setattr(module, "torch", pretended)


@pytest.mark.usefixtures("device")
def test_a_measurement_holds_every_repetition_beside_its_prediction() -> None:
    """At each of the sizes; the first step is read where the module is new."""
    cases = ({"B": 7, "d": 11, "f": 13}, {"B": 17, "d": 11, "f": 13})
    options = MeasuringOptions("cuda", memory=2, how=QUICK, gpu="h100-sxm")
    measurement = measuring.measured(calc.load("mlp"), cases, Options(implementation="foreach"), options)
    made = measuring.document(measurement)

    assert [7, 17] == [run["sizes"]["B"] for run in made["runs"]]
    assert [2, 2] == [len(run["memory"]["measured"]["repetitions"]) for run in made["runs"]]
    assert [3, 3] == [len(run["time"]["measured"]["whole"]["nanoseconds"]) for run in made["runs"]]
    assert made["runs"][0]["memory"]["measured"]["first_step"] is not None
    assert made["runs"][1]["memory"]["measured"]["first_step"] is None
    for run in made["runs"]:
        predicted = run["memory"]["predicted"]
        assert predicted["max_memory_allocated"] == predicted["allocated"] + 2 * WORKSPACES[1].nbytes
        assert run["memory"]["off"] == (predicted["max_memory_allocated"] - 70_000_000) / 70_000_000
    assert {"name", "capability", "driver", "total_memory", "kind", "allocator"} == set(made["device"])
    assert {"python", "torch", "cuda", "transformers", "numpy"} == set(made["versions"])
    assert json.loads(json.dumps(made)) == made


@pytest.mark.slow
@pytest.mark.usefixtures("device")
def test_the_boundary_is_found_from_the_prediction_and_shown_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """40 fit and 41 do not, whatever was predicted."""
    monkeypatch.setattr(measuring, "largest_expected", lambda *_: 35)
    options = MeasuringOptions("cuda", memory=1, fit=True, how=QUICK)
    measurement = measuring.measured(calc.load("mlp"), ({"B": 7, "d": 11, "f": 13},), Options(), options)

    assert measurement.fits is not None
    assert (40, 41, 35, 35) == (measurement.fits.largest, measurement.fits.too_large, measurement.expected, measurement.fits.tried[0][0])
    assert ROOM == measurement.available
    assert Fraction(-1, 8) == device_memory.off(measurement.expected, measurement.fits.largest)


@pytest.mark.slow
def test_the_largest_batch_expected_is_the_last_whose_prediction_fits() -> None:
    """Rounding and workspaces are in it: one more would not fit."""
    derivation = calc.derive(calc.load("mlp"), {"B": 7, "d": 11, "f": 13}, cache=False)
    most = device_memory.largest_expected(derivation, ROOM + 2**24, HOPPER)
    assert most is not None

    whole = [device_memory.predicted(calc.derive(calc.load("mlp"), {"B": n, "d": 11, "f": 13}), HOPPER).allocated for n in (most, 2 * most)]

    assert whole[0] <= ROOM + 2**24 < whole[1]


def test_a_device_without_stated_workspaces_is_not_predicted() -> None:
    """Unknown with its reason, and no share is off from it."""
    derivation = calc.derive(calc.load("mlp"), {"B": 7, "d": 11, "f": 13}, cache=False)
    actual = device_memory.predicted(derivation, (12, 0))

    assert (None, None) == (actual.allocated, workspace_of((12, 0)))
    assert "no source is stated for the workspaces of compute capability 12.0" == actual.unknown
    assert device_memory.off(actual.allocated, 5) is None
    assert device_memory.largest_expected(derivation, ROOM, (12, 0)) is None
    assert 8_519_680 == workspace_of((8, 6))


@pytest.mark.usefixtures("device")
def test_the_command_writes_what_it_shows(tmp_path: Path) -> None:
    """With -o the JSON as a file, and a table on standard output; torch's default on a device is foreach."""
    file = tmp_path / "mlp.json"
    shown = CliRunner().invoke(cli.napkin, ["measure", "mlp", "-d", "B=7", "--device", "cuda", *SHORT, "-o", str(file)])
    made = json.loads(file.read_text())

    assert 0 == shown.exit_code, shown.stderr
    assert "70,000,000" in shown.stdout
    assert "foreach" == made["options"]["implementation"]
    assert 2 == len(made["runs"][0]["memory"]["measured"]["repetitions"])
    assert made["command"].startswith("napkin")


def test_without_a_device_nothing_is_measured_and_nothing_is_written(tmp_path: Path) -> None:
    """That is said, and is no failure unless strict."""
    if torch.cuda.is_available():
        pytest.skip("there is a device here")
    words = ["measure", "mlp", "--device", "cuda", "-o", str(tmp_path / "mlp.json")]
    actual, strict = (CliRunner().invoke(cli.napkin, [*words, *more]) for more in ((), ("--strict",)))

    assert (0, 1) == (actual.exit_code, strict.exit_code)
    assert actual.stdout.startswith("not measured: there is no CUDA device here")
    assert [] == list(tmp_path.iterdir())


@pytest.mark.usefixtures("device")
def test_a_run_that_has_enough_begins_no_further_size() -> None:
    """The first is timed in any case."""
    options = MeasuringOptions("cuda", memory=0, how=QUICK, enough=lambda: True)
    cases = ({"B": 7, "d": 11, "f": 13}, {"B": 17, "d": 11, "f": 13})
    measurement = measuring.measured(calc.load("mlp"), cases, Options(), options)

    assert [7] == [run.sizes["B"] for run in measurement.runs]
    assert measurement.runs[0].memory is None
