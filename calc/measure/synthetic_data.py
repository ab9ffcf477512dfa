"""Learnable synthetic data: a linear function of the input, and text in which a token mostly determines the next.

Each batch depends only on the seed and its step's number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from calc.measure.training import SEED, seed_of

_TOKENS = 2**16
_MULTIPLIER, _SHIFT = 3, 7
_NOISE = 0.1  # fraction of tokens drawn independently of the previous one


def linear(sizes: Mapping[str, int], seed: int = SEED) -> Callable[[int], tuple[Tensor, ...]]:
    """Batches by step: x (B, D) standard normal and y = x w (B,), w = (0, 1, …, D - 1)/D, the lecture's true weights scaled by 1/D."""
    weights = torch.arange(sizes["D"], dtype=torch.float32) / sizes["D"]

    def batch(step: int) -> tuple[Tensor, ...]:
        x = torch.randn(sizes["B"], sizes["D"], generator=_generator(seed, step))
        return x, x @ weights

    return batch


def tokens(sizes: Mapping[str, int], seed: int = SEED) -> Callable[[int], tuple[Tensor, ...]]:
    """Batches by step: tokens and targets (B, T) from one long text; token (3 t + 7) mod V follows token t 9 times in 10."""
    text = _text(sizes["V"], sizes["T"], seed)

    def batch(step: int) -> tuple[Tensor, ...]:
        starts = torch.randint(len(text) - sizes["T"], (sizes["B"], 1), generator=_generator(seed, step))
        positions = starts + torch.arange(sizes["T"])
        return text[positions], text[positions + 1]

    return batch


def _text(vocabulary: int, length: int, seed: int) -> Tensor:
    count = max(_TOKENS, 2 * length)
    generator = _generator(seed, 0)
    drawn = torch.randint(vocabulary, (count,), generator=generator).tolist()
    free = (torch.rand(count, generator=generator) < _NOISE).tolist()
    text = [drawn[0]]
    for chance, token in zip(free[1:], drawn[1:], strict=True):
        text.append(token if chance else (_MULTIPLIER * text[-1] + _SHIFT) % vocabulary)
    return torch.tensor(text)


def _generator(seed: int, step: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed_of(seed, step))
