"""Python's collector of reference cycles, out of the way of what is measured.

A storage that waits for it would die at a moment that is chance, and a collection in the middle of a repetition is time that the
repetition did not take.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_off() -> Iterator[None]:
    """No collection inside; what an earlier run left is collected before."""
    was_on = gc.isenabled()
    gc.collect(1)  # the young generations hold what an earlier run left; the whole heap would take longer than a small run
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
