"""Which devices a peak of memory is held against: the one that is named, else the common ones that it lies between."""

from __future__ import annotations

from calc.hardware.accelerators import Accelerator, accelerator
from reports.typeset import numbers

COMMON = ("t4", "l4", "rtx5090", "a100-sxm-40", "l40s", "h100-sxm", "h200-sxm", "b200-hgx", "b300")
"""One of the catalogue for each capacity that is often met, the smallest first."""


def beside(peak: int, named: Accelerator | None) -> tuple[Accelerator, ...]:
    """The device that is named; else the largest common one that is too small and the smallest that is not, as far as there are such."""
    if named is not None:
        return (named,)
    common = [accelerator(name) for name in COMMON]
    small = [device for device in common if device.memory < peak][-1:]
    large = [device for device in common if device.memory >= peak][:1]
    return (*small, *large)


def capacity(nbytes: int) -> str:
    """A capacity as its maker writes it: ``80 GB``, or ``32 GiB`` where it is a whole number of those."""
    for unit, size in (("GB", 10**9), ("GiB", 2**30)):
        if nbytes % size == 0:
            return f"{numbers.integer(nbytes // size)}{numbers.NBSP}{unit}"
    return f"{numbers.integer(nbytes)}{numbers.NBSP}bytes"
