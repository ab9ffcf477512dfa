"""Made-up data that can be learned: a linear function of the input, and text in which a token mostly decides the next.

Each batch follows from the number of its step alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from calc.measure.training import SEED

_TOKENS = 2**16
_MULTIPLIER, _SHIFT = 3, 7
_NOISE = 0.1  # of the tokens are drawn, whatever stands before them


def linear(sizes: Mapping[str, int]) -> Callable[[int], tuple[Tensor, ...]]:
    """x (B, D) normal, y (B,) = x w with w = 0, 1, …, D - 1, over D: the lecture's true weights, made smaller."""
    weights = torch.arange(sizes["D"], dtype=torch.float32) / sizes["D"]

    def batch(step: int) -> tuple[Tensor, ...]:
        x = torch.randn(sizes["B"], sizes["D"], generator=_generator(step))
        return x, x @ weights

    return batch


def tokens(sizes: Mapping[str, int]) -> Callable[[int], tuple[Tensor, ...]]:
    """Stretches (B, T) of one long text, and the same one token on; after token t comes 3 t + 7 modulo V nine times in ten."""
    text = _text(sizes["V"], sizes["T"])

    def batch(step: int) -> tuple[Tensor, ...]:
        places = torch.randint(len(text) - sizes["T"], (sizes["B"], 1), generator=_generator(step))
        stretch = places + torch.arange(sizes["T"])
        return text[stretch], text[stretch + 1]

    return batch


def _text(vocabulary: int, length: int) -> Tensor:
    count = max(_TOKENS, 2 * length)
    generator = _generator(0)
    drawn = torch.randint(vocabulary, (count,), generator=generator).tolist()
    free = (torch.rand(count, generator=generator) < _NOISE).tolist()
    text = [drawn[0]]
    for chance, token in zip(free[1:], drawn[1:], strict=True):
        text.append(token if chance else (_MULTIPLIER * text[-1] + _SHIFT) % vocabulary)
    return torch.tensor(text)


def _generator(step: int) -> torch.Generator:
    return torch.Generator().manual_seed(SEED + step)
