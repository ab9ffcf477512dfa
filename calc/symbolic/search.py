"""Searches among the integers for where a statement stops to hold: the largest size that fits, the point at which two curves cross."""

from __future__ import annotations

from collections.abc import Callable


def last(holds: Callable[[int], bool], good: int, bad: int) -> int:
    """The last number from ``good`` towards ``bad``, upwards or downwards, for which ``holds``, by bisection. It is not asked at either: it
    holds at ``good`` and not at ``bad``, and changes once between them."""
    while abs(bad - good) > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if holds(middle) else (good, middle)
    return good


def last_alike(value: Callable[[int], object], start: int, end: int) -> int:
    """The last number from ``start`` towards ``end`` with the same ``value`` as ``start``; that of ``end`` differs, and it changes once."""
    first = value(start)
    return last(lambda n: value(n) == first, start, end)


def largest(fits: Callable[[int], bool], most: int) -> int:
    """The largest number from 1 to ``most`` that fits, 0 if none does, where every number below one that fits fits too: by doubling from 2
    on, then by bisection. 1 is tried only if 2 does not fit: a size of one may be a special case that takes longer."""
    low, high = 0, 2
    while high <= most and fits(high):
        low, high = high, 2 * high
    return last(fits, low, min(high, most + 1))
