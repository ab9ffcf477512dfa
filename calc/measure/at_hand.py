"""The machine at hand: what its processor or GPU calls itself, and which entry of the catalogue that is.

A CPU has no published peak here: its rates are measured by a calibration.
"""

from __future__ import annotations

import platform
from pathlib import Path

import torch

from calc.hardware import Accelerator, of_device

_CPU_FACTS = Path("/proc/cpuinfo")
_NAMES = ("model name", "Hardware", "cpu model")


def device_name(device: str) -> str:
    """The driver's name of a GPU, the processor's own name of a CPU."""
    return str(torch.cuda.get_device_name(device)) if device.startswith("cuda") else cpu_name()


def entry_at_hand(device: str, file: str | Path | None = None) -> Accelerator | None:
    """The catalogue's entry of the GPU at hand; none of a CPU, or where no entry has the driver's name for it."""
    return of_device(device_name(device), file) if device.startswith("cuda") else None


def cpu_name(facts: Path = _CPU_FACTS) -> str:
    """As the kernel tells it; else what Python knows, at the least the family."""
    try:
        lines = facts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    told = (value.strip() for key, _, value in (line.partition(":") for line in lines) if key.strip() in _NAMES)
    return next(filter(None, told), "") or platform.processor() or platform.machine()
