"""How evenly attention averages at initialization: E[Σ p²], and how much the averages of two positions share.

A softmax over n scores that are normal with variance s² has weights near 1/n, and Σ p² is near (1 + (1 - 1/n)(e^{s²} - 1))/n: for s = 0 the
plain average, for one key 1. Compare Noci et al. 2022, Signal propagation in transformers (arXiv:2206.03126).
"""

from __future__ import annotations

import math


def own(keys: int, spread: float, causal: bool) -> float:
    """E[Σ p²], averaged over the queries. A causal query at t sees the first t keys."""
    key_counts = range(1, keys + 1) if causal else (keys,)
    return sum(_squares(n, spread) for n in key_counts) / len(key_counts)


def _squares(n: int, spread: float) -> float:
    return min((1 + (1 - 1 / n) * math.expm1(spread)) / n, 1.0)


def common(keys: int, causal: bool) -> float:
    """E[Σ p p'] of two different queries, with even weights."""
    if not causal or keys < 2:
        return 1 / keys
    harmonic = sum(1 / t for t in range(1, keys + 1))
    return 2 * (keys - harmonic) / (keys * (keys - 1))
