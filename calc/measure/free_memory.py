"""Checks that a real run fits in memory before anything is allocated, so that a too large model is an error, not a killed process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import torch

from calc.errors import DimensionError, FreeMemoryError
from calc.platform.model_files import on_meta_device
from calc.spec import Sizes, Spec

# fp32 weights, gradients and two moments: the most that an optimizer keeps per parameter.
BYTES_PER_PARAMETER = 16
# A forward alone needs the weights.
BYTES_PER_WEIGHT = 4


def require_free_memory(spec: Spec, sizes: Mapping[str, int], trains: bool = True) -> None:
    """Raises ``FreeMemoryError`` if the weights (or, if ``trains``, the training state) alone exceed the free memory."""
    parameters = _parameters(spec, sizes)
    if parameters is None:
        return
    step, each = ("training step", BYTES_PER_PARAMETER) if trains else ("forward", BYTES_PER_WEIGHT)
    required, free = each * parameters, available_bytes()
    if required > free:
        needs = f"{spec.name} has {parameters:,} parameters at these sizes: a {step} needs at least {required:,} bytes"
        raise FreeMemoryError(needs, free, f"; lower {', '.join(_that_matter(spec, sizes, parameters)) or 'the sizes'}")


def available_bytes() -> int:
    """Bytes that can still be allocated: the machine's free memory or, if lower, the rest of the container's limit."""
    free = [_machine_free()]
    limit, used = _number("/sys/fs/cgroup/memory.max"), _number("/sys/fs/cgroup/memory.current")
    if limit is not None and used is not None:
        free.append(limit - used + _page_cache())
    return max(0, min(free))


def _machine_free() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))


def _page_cache() -> int:
    """Bytes of the container's file pages, which the kernel reclaims on demand."""
    try:
        lines = Path("/sys/fs/cgroup/memory.stat").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(("inactive_file ", "active_file ")))


def _number(path: str) -> int | None:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):  # no such limit, or "max"
        return None


def _parameters(spec: Spec, sizes: Mapping[str, int]) -> int | None:
    """The number of parameters, from the module built on the meta device; ``None`` if that fails."""
    try:
        with torch.random.fork_rng(devices=[]), on_meta_device():
            module = spec.build(Sizes(**sizes))
        return sum(int(p.numel()) for p in module.parameters())
    except Exception:
        # Not an error yet: the real build that follows reports what is wrong, if anything is.
        return None


def _that_matter(spec: Spec, sizes: Mapping[str, int], parameters: int) -> list[str]:
    """Up to three dimensions whose halving removes most parameters, most effective first."""
    dims = spec.dimensions
    free = {name: value for name, value in sizes.items() if not dims[name].tied}
    counts: dict[str, int] = {}
    for name, value in free.items():
        try:
            smaller = spec.sizes({**free, name: max(1, value // 2)})
        except DimensionError:
            continue
        count = _parameters(spec, smaller)
        if count is not None and count < parameters:
            counts[name] = count
    return sorted(counts, key=lambda name: counts[name])[:3]
