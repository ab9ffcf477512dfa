"""The period of a sequence of layers."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest

from calc.graph.periods import period_of


@pytest.mark.parametrize("depth", [9, 12])
def test_the_pattern_of_layers_is_the_shortest_that_repeats(depth: int) -> None:
    """By trying all: few layers in all first, then a short period, then few before it."""

    def tried(kinds: Sequence[str]) -> tuple[int, int, int] | None:
        for size in range(1, depth):
            for period, before in ((p, b) for p in range(1, size + 1) for b in range(size - p + 1)):
                after = size - period - before
                middle = kinds[before : depth - after]
                same = [kind == middle[i % period] for i, kind in enumerate(middle)]
                if 2 * (before + after) <= depth and len(middle) >= 2 * period and len(middle) % period == 0 and all(same):
                    return before, period, after
        return None

    chance = random.Random(depth)
    for kinds in itertools.islice(itertools.product("ab", repeat=depth), 1, None, 17):
        mixed = [*kinds, "c"][chance.randrange(2) :][:depth]
        assert tried(mixed) == period_of(mixed), mixed


def test_a_thousand_layers_without_a_pattern_are_soon_seen_to_have_none() -> None:
    """All are unlike: nearly a million places to begin and to end a pattern."""
    assert period_of(range(1000)) is None
