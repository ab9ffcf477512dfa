"""Memory that a run frees and allocates again. By default glibc gives the pages of each large tensor back to the system when it is freed,
and the system clears new ones for the next tensor, which for gigabytes takes as long as the arithmetic."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # names of mallopt(3)
_NEVER, _DEFAULT = 2**31 - 1, {_TRIM_THRESHOLD: 128 * 1024, _MMAP_MAX: 65_536}


@contextmanager
def freed_memory_is_reused() -> Iterator[None]:
    """Within, freed memory stays with this process and serves its next tensors; at the end it is given back. Has no effect where the C
    library is not glibc."""
    c = ctypes.CDLL(None)
    if not (hasattr(c, "mallopt") and hasattr(c, "malloc_trim")):
        yield
        return
    c.mallopt(_MMAP_MAX, 0)
    c.mallopt(_TRIM_THRESHOLD, _NEVER)
    try:
        yield
    finally:
        for name, value in _DEFAULT.items():
            c.mallopt(name, value)
        c.malloc_trim(0)
