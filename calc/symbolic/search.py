"""The search for the largest size that fits."""

from __future__ import annotations

from collections.abc import Callable


def largest(fits: Callable[[int], bool], most: int) -> int:
    """The largest number from 1 to ``most`` that fits, 0 if none does, where every number below one that fits fits too: by doubling from 2
    on, then by bisection. 1 is tried only if 2 does not fit: a size of one may be a special case that takes longer."""
    low, high = 0, 2
    while high <= most and fits(high):
        low, high = high, 2 * high
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
