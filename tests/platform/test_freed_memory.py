"""Freed memory stays with the process only where that is wanted."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

from calc.platform import freed_memory
from calc.platform.freed_memory import freed_memory_is_reused

_STATM = Path("/proc/self/statm")
_BYTES = 256 * 2**20


def _resident() -> int:
    return int(_STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not (_STATM.exists() and hasattr(ctypes.CDLL(None), "mallopt")), reason="reads Linux's statm, and glibc's allocator")
def test_freed_memory_stays_within_and_is_given_back_at_the_end() -> None:
    """A quarter of a gibibyte, freed at once; before and after, freeing gives it back."""
    unused = _resident()
    with freed_memory_is_reused():
        assert len(b"\1" * _BYTES) == _BYTES
        kept = _resident() - unused
    left = _resident() - unused
    assert len(b"\1" * _BYTES) == _BYTES

    assert kept > _BYTES * 0.9
    assert max(left, _resident() - unused) < _BYTES * 0.1


def test_another_allocator_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a C library without glibc's functions nothing is called."""
    monkeypatch.setattr(freed_memory.ctypes, "CDLL", lambda _: object())

    with freed_memory_is_reused():
        pass
