"""The machine of a measurement: device, driver, versions, date. A fact that cannot be read is ``None``, never a guess."""

from __future__ import annotations

import datetime
import os
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

_PACKAGES = ("torch", "transformers", "numpy")
CPUINFO = Path("/proc/cpuinfo")


def machine(device: str) -> dict[str, Any]:
    """The machine's facts as plain data; ``date`` is in UTC, to the second."""
    now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    return {"date": now.isoformat(), "device": _cuda(device) if device.startswith("cuda") else _cpu(), "versions": _versions()}


def _cpu() -> dict[str, Any]:
    return {"kind": "cpu", "name": cpu_name(), "cores": os.cpu_count(), "threads": torch.get_num_threads()}


def cpu_name(cpuinfo: Path = CPUINFO) -> str:
    """The processor's model name; its architecture if the system does not give one."""
    match = re.search(r"^model name\s*:\s*(.+)$", _text(cpuinfo), re.MULTILINE)
    return match[1].strip() if match else platform.processor() or platform.machine()


def conditions(device: str) -> dict[str, Any]:
    """Current clocks in MHz, temperature in °C and power in W. A value that cannot be read is ``None``, with the reason in ``because``."""
    return _cuda_conditions(device) if device.startswith("cuda") else cpu_conditions()


def cpu_conditions(cpuinfo: Path = CPUINFO) -> dict[str, Any]:
    """The clock of each core in MHz, from ``cpuinfo``; temperature and power are ``None``: they need privileges or extra drivers."""
    clocks = [float(mhz) for mhz in re.findall(r"^cpu MHz\s*:\s*([\d.]+)$", _text(cpuinfo), re.MULTILINE)]
    reasons = {} if clocks else {"clock": f"{cpuinfo} names no clock"}
    reasons |= dict.fromkeys(("temperature", "power"), "not read on a CPU")
    return {"clock": clocks or None, "temperature": None, "power": None, "because": reasons}


_QUERIES = {"clock": "clocks.sm", "memory_clock": "clocks.mem", "temperature": "temperature.gpu", "power": "power.draw"}


def _cuda_conditions(device: str) -> dict[str, Any]:
    name = getattr(torch.cuda.get_device_properties(device), "uuid", None)  # nvidia-smi also counts devices hidden from us
    output = None if name is None else _nvidia_smi(",".join(_QUERIES.values()), f"--id=GPU-{name}")
    values = [_number(text) for text in (output or "").split(",")] if output else [None] * len(_QUERIES)
    because = "nvidia-smi is not installed or does not list this device" if output is None else "the driver does not report it"
    conditions = dict(zip(_QUERIES, values, strict=False))
    return {**conditions, "because": {name: because for name, value in conditions.items() if value is None}}


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # "[N/A]", "[Not Supported]"
        return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _cuda(device: str) -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(device)
    capability = [int(part) for part in torch.cuda.get_device_capability(device)]
    memory = {"total_memory": properties.total_memory, "allocator": os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "default settings")}
    return {"kind": "cuda", "name": properties.name, "capability": capability, "driver": _driver(), **memory}


def _driver() -> str | None:
    """The driver's version from ``nvidia-smi``."""
    return next(iter((_nvidia_smi("driver_version") or "").split()), None)


def _nvidia_smi(query: str, *options: str) -> str | None:
    """The output of ``nvidia-smi``; ``None`` if it is not installed or fails."""
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits", *options]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None


def _versions() -> dict[str, str | None]:
    versions: dict[str, str | None] = {"python": platform.python_version(), "cuda": torch.version.cuda}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return versions
