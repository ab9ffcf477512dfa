"""What a measurement says of its machine: what is read, and what is unknown and why."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from calc.measure import machine

CPUINFO = "processor\t: 0\nmodel name\t: Some Processor 9000\ncpu MHz\t\t: 2596.120\n\nprocessor\t: 1\ncpu MHz\t\t: 3100.000\n"


def test_the_clock_of_each_core_is_read(tmp_path: Path) -> None:
    """Temperature and power are not, and that is said."""
    file = tmp_path / "cpuinfo"
    file.write_text(CPUINFO)
    conditions = machine.cpu_conditions(file)

    assert [2596.12, 3100.0] == conditions["clock"]
    assert {"temperature": "not read on a CPU", "power": "not read on a CPU"} == conditions["because"]
    assert "Some Processor 9000" == machine.cpu_name(file)


def test_a_system_that_names_no_clock_leaves_it_unknown_with_the_reason(tmp_path: Path) -> None:
    gone = tmp_path / "cpuinfo"
    conditions = machine.cpu_conditions(gone)

    assert conditions["clock"] is None
    assert f"{gone} names no clock" == conditions["because"]["clock"]
    assert machine.cpu_name(gone)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SimpleNamespace(uuid="1234")
    monkeypatch.setattr(machine, "torch", SimpleNamespace(cuda=SimpleNamespace(get_device_properties=lambda device: properties)))


@pytest.mark.usefixtures("cuda")
def test_the_device_is_asked_by_its_own_name_through_the_driver_s_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the tool does not support is unknown."""
    asked: list[Any] = []

    def run(command: Any, **_: Any) -> Any:
        asked.append(command)
        return SimpleNamespace(stdout="1980, 3201, 41, [N/A]\n")

    monkeypatch.setattr(subprocess, "run", run)
    conditions = machine.conditions("cuda:0")

    assert "--id=GPU-1234" in asked[0]
    assert (1980, 3201, 41, None) == tuple(conditions[name] for name in ("clock", "memory_clock", "temperature", "power"))
    assert {"power": "the driver does not report it"} == conditions["because"]


@pytest.mark.usefixtures("cuda")
def test_without_the_driver_s_tool_all_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any, **__: Any) -> Any:
        raise FileNotFoundError

    monkeypatch.setattr(subprocess, "run", run)
    conditions = machine.conditions("cuda")

    assert {"nvidia-smi is not installed or does not list this device"} == set(conditions["because"].values())
    assert {None} == {conditions[name] for name in conditions["because"]}
    assert 4 == len(conditions["because"])
