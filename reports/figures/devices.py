"""The devices that a memory peak is compared with: the named one, else the two common ones around the peak."""

from __future__ import annotations

from calc.hardware.accelerators import Accelerator, accelerator
from reports.typeset import numbers

COMMON = ("t4", "l4", "rtx5090", "a100-sxm-40", "l40s", "h100-sxm", "h200-sxm", "b200-hgx", "b300")
"""Ids of the catalogue, one for each common capacity, smallest first."""


def beside(peak: int, chosen: Accelerator | None) -> tuple[Accelerator, ...]:
    """The named device; else the largest common one below ``peak`` bytes and the smallest one that holds them, if they exist."""
    if chosen is not None:
        return (chosen,)
    common = [accelerator(name) for name in COMMON]
    small = [device for device in common if device.memory < peak][-1:]
    large = [device for device in common if device.memory >= peak][:1]
    return (*small, *large)


def capacity(nbytes: int) -> str:
    """A capacity in bytes as vendors write it: ``80 GB``, or ``32 GiB`` if only that is a whole number."""
    for unit, size in (("GB", 10**9), ("GiB", 2**30)):
        if nbytes % size == 0:
            return f"{numbers.integer(nbytes // size)}{numbers.NBSP}{unit}"
    return f"{numbers.integer(nbytes)}{numbers.NBSP}bytes"
