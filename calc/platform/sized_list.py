"""A list of numbers with a symbolic length, as a config has one number for each pair of rotary positions. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice
from typing import Any


class SizedList(list[float]):
    """Numbers of which there are ``size``, a symbolic integer. Python's own ``len`` knows no symbols and counts those in the list;
    ``torch.tensor`` of it has ``size`` elements while a step is traced."""

    def __init__(self, numbers: Sequence[float], size: Any) -> None:
        super().__init__(numbers)
        self.size = size


def of_size(numbers: Sequence[float], size: Any) -> list[float]:
    """``size`` numbers: the given ones, from the beginning again where they do not suffice."""
    return [*islice(cycle(numbers), size)] if isinstance(size, int) else SizedList(numbers, size)
