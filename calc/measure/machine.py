"""What a measurement ran on: device, driver, versions, date. A fact that cannot be read is ``None``, never a guess."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from importlib import metadata
from typing import Any

import torch

_PACKAGES = ("torch", "transformers", "numpy")


def machine(device: str) -> dict[str, Any]:
    """Facts of the machine as plain data; ``date`` is in UTC, to the second."""
    now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    return {"date": now.isoformat(), "device": _cuda(device) if device.startswith("cuda") else _cpu(), "versions": _versions()}


def _cpu() -> dict[str, Any]:
    return {"kind": "cpu", "name": platform.processor() or platform.machine(), "cores": os.cpu_count(), "threads": torch.get_num_threads()}


def _cuda(device: str) -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(device)
    capability = [int(part) for part in torch.cuda.get_device_capability(device)]
    memory = {"total_memory": properties.total_memory, "allocator": os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "default settings")}
    return {"kind": "cuda", "name": properties.name, "capability": capability, "driver": _driver(), **memory}


def _driver() -> str | None:
    """The version of the driver, as its own tool says it."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return next(iter(done.stdout.split()), None)


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {"python": platform.python_version(), "cuda": torch.version.cuda}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found
