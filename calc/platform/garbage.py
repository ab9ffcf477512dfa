"""How often Python searches for reference cycles while a step is derived."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

# Objects between two searches. What a derivation makes it mostly keeps to its end, and a search goes through all of it: at Python's default
# of 700 a quarter of the time is spent on them, and a derivation of a large model has fewer than two million objects.
BETWEEN_SEARCHES = 2_000_000


@contextlib.contextmanager
def rarely_searched() -> Iterator[None]:
    """Context in which cycles are searched for as rarely as while a command runs; Python's own setting afterwards."""
    youngest, *older = gc.get_threshold()
    if youngest:  # 0: the caller has switched searches off
        gc.set_threshold(max(youngest, BETWEEN_SEARCHES), *older)
    try:
        yield
    finally:
        gc.set_threshold(youngest, *older)
