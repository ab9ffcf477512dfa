"""Probability laws of initialized parameters: their means and variances.

The bounds of a truncated normal law are absolute, as in ``torch.nn.init.trunc_normal_``: ``a=-3`` cuts at -3, not at 3 standard deviations.
Moments of the truncated law: Johnson, Kotz and Balakrishnan 1994, Continuous Univariate Distributions 1, section 10.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

NORMAL, UNIFORM, TRUNCATED, CONSTANT, MIXED = "normal", "uniform", "truncated normal", "constant", "mixed"


@dataclass(frozen=True, slots=True)
class Law:
    """A law by its mean and variance. ``text`` is its usual notation."""

    kind: str
    mean: float
    variance: float
    text: str

    @property
    def second(self) -> float:
        """E[w²]."""
        return self.variance + self.mean**2

    def scaled(self, by: float) -> Law:
        """The law of ``by`` times the variable."""
        if by == 1:
            return self
        return Law(self.kind, self.mean * by, self.variance * by**2, f"{_number(by)} × {self.text}")

    def shifted(self, by: float) -> Law:
        """The law of ``by`` plus the variable."""
        return self if by == 0 else replace(self, mean=self.mean + by, text=f"{_number(by)} + {self.text}")

    def overwritten(self, by: Law, share: float) -> Law:
        """The law of a random element after a ``share`` of the elements is drawn from another law, ``by``."""
        if share >= 1:
            return by
        mean = (1 - share) * self.mean + share * by.mean
        second = (1 - share) * self.second + share * by.second
        return Law(MIXED, mean, second - mean**2, f"{by.text} in a share of {_number(share)}, else {self.text}")


def normal(mean: float, std: float) -> Law:
    """The law of independent normal values."""
    return Law(NORMAL, mean, std**2, f"N({_number(mean)}, {_number(std)}²)")


def uniform(low: float, high: float) -> Law:
    """The law of independent values, uniform from ``low`` to ``high``."""
    return Law(UNIFORM, (low + high) / 2, (high - low) ** 2 / 12, f"U({_number(low)}, {_number(high)})")


def constant(value: float) -> Law:
    """The law of one constant."""
    return Law(CONSTANT, value, 0.0, _number(value))


def truncated(mean: float, std: float, low: float, high: float) -> Law:
    """A normal law truncated to [``low``, ``high``]."""
    text = f"N({_number(mean)}, {_number(std)}²) within [{_number(low)}, {_number(high)}]"
    a, b = (low - mean) / std, (high - mean) / std
    inside = _cdf(b) - _cdf(a)
    first = (_density(a) - _density(b)) / inside
    second = 1 + (_finite(a) * _density(a) - _finite(b) * _density(b)) / inside
    return Law(TRUNCATED, mean + std * first, std**2 * (second - first**2), text)


def _finite(x: float) -> float:
    """``x``, or 0 where the density is 0 in double precision: an infinite bound times 0 would be NaN."""
    return x if abs(x) < 40 else 0.0


def _density(x: float) -> float:
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def _cdf(x: float) -> float:
    return (1 + math.erf(x / math.sqrt(2))) / 2


def _number(x: float) -> str:
    return f"{x:.6g}"
