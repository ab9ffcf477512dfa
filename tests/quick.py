"""Which members of a family of tests run with the quick ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def few(
    values: Iterable[Any], count: int, ids: Callable[..., str] | None = None, of: Callable[..., bool] = lambda *_: True
) -> list[Any]:
    """All of the values, of which ``count`` are quick, drawn by a seed out of those that are ``of`` the cheap ones; the others wait for
    `make test-all`. ``ids`` names a value."""
    every = [value if isinstance(value, tuple) else (value,) for value in values]
    quick = {*random.Random(0).sample([i for i, value in enumerate(every) if of(*value)], count)}
    return [
        pytest.param(*value, id=ids and ids(*value), marks=[] if i in quick else [pytest.mark.slow]) for i, value in enumerate(every)
    ]
