"""The period of a sequence of layers. Torch-free."""

from __future__ import annotations

from collections.abc import Hashable, Sequence


def period_of(kinds: Sequence[Hashable]) -> tuple[int, int, int] | None:
    """(before, period, after) of the ``kinds`` of layers, with the smallest sum such that the period repeats at least twice and makes up
    half of the layers, or None."""
    numbers: dict[Hashable, int] = {}
    ids = [numbers.setdefault(kind, len(numbers)) for kind in kinds]
    depth = len(ids)
    best: tuple[int, int, int] | None = None  # layers in all, period, before
    for period in range(1, depth // 2 + 1):
        if best is not None and period >= best[0]:
            break
        unlike = depth - period  # the first layer from ``before`` on that differs from the one a period later
        for before in reversed(range(depth - period)):
            if ids[before] != ids[before + period]:
                unlike = before
            repeats = (unlike + period - before) // period
            irregular = depth - repeats * period
            if repeats >= 2 and 2 * irregular <= depth:
                candidate = (period + irregular, period, before)
                best = candidate if best is None else min(best, candidate)
    return None if best is None else (best[2], best[1], best[0] - best[1] - best[2])
