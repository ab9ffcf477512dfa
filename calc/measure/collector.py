"""Disables Python's cyclic garbage collector during a measurement.

A storage in a reference cycle would be freed at an arbitrary moment, and a collection inside a repetition would add its own time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_off() -> Iterator[None]:
    """Context without garbage collection; the young generations are collected on entry."""
    was_on = gc.isenabled()
    gc.collect(1)  # garbage of an earlier run is there; collecting the whole heap would take longer than a small run
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
