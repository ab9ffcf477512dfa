"""Moments of a function of Gaussian variables: what an activation makes of a sum of many independent terms.

``x`` is normal with mean 0 and variance ``q``; ``y`` is another such, with covariance ``c``. Closed forms where there are
any; else the integral, written as it is and taken by Gauss–Hermite quadrature.

Sources: ReLU's two moments are those of He et al. 2015 (arXiv:1502.01852, section 2.2) and of Cho and Saul 2009 (the arc-cosine
kernel of degree 1); GELU's mean and second moment follow from E[x Φ(x)] and from Owen's table of normal integrals (1980).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Function = Callable[[Values], Values]

# Where a function has a kink the quadrature is in halves, each smooth; so many nodes leave an error below 1e-12 for smooth ones.
_NODES = 200
_FURTHEST = 12.0


@dataclass(frozen=True, slots=True)
class Activation:
    """An elementwise function with its moments under a normal variable.

    ``mean`` and ``second`` are in terms of the variance ``q``, as a person would write them; ``None`` where only the integral stands.
    ``variant``: which of the functions of that name.
    """

    name: str
    apply: Function
    mean: str | None = None
    second: str | None = None
    variant: str = ""

    def mean_at(self, q: float) -> float:
        """E[f(x)] for x ~ N(0, q)."""
        nodes, weights = _rule()
        return float(weights @ self.apply(math.sqrt(q) * nodes))

    def second_at(self, q: float) -> float:
        """E[f(x)²] for x ~ N(0, q)."""
        nodes, weights = _rule()
        return float(weights @ self.apply(math.sqrt(q) * nodes) ** 2)

    def cross_at(self, q: float, c: float) -> float:
        """E[f(x) f(y)] for x, y ~ N(0, q) with covariance c, 0 ≤ c ≤ q."""
        if q == 0:
            return float(self.apply(np.zeros(1))[0]) ** 2
        shared, own = math.sqrt(max(c, 0.0)), math.sqrt(max(q - c, 0.0))
        nodes, weights = _rule()
        conditional = self.apply(shared * nodes[:, None] + own * nodes[None, :]) @ weights  # E[f(x) | what x and y share]
        return float(weights @ conditional**2)


@functools.cache
def _rule() -> tuple[Values, Values]:
    """Nodes and weights of the standard normal density, Gauss–Legendre on either side of 0, where the kinks are."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    half = (nodes + 1) * _FURTHEST / 2
    density = weights * _FURTHEST / 2 * np.exp(-(half**2) / 2) / math.sqrt(2 * math.pi)
    return np.concatenate([-half[::-1], half]), np.concatenate([density[::-1], density])


def _sigmoid(x: Values) -> Values:
    raised: Values = np.exp(-x)
    return 1 / (1 + raised)


def _gelu(x: Values) -> Values:
    error = np.array([math.erf(each / math.sqrt(2)) for each in x.ravel()]).reshape(x.shape)
    values: Values = x * (1 + error) / 2
    return values


def _gelu_tanh(x: Values) -> Values:
    bent: Values = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    return x * (1 + bent) / 2


RELU = Activation("relu", lambda x: np.maximum(x, 0), "sqrt(q/(2*pi))", "q/2")
GELU = Activation(
    "gelu",
    _gelu,
    "q/sqrt(2*pi*(1 + q))",
    "q/4 + (q/(2*pi))*(asin(q/(1 + q)) + 2*q/((1 + q)*sqrt(1 + 2*q)))",
)
GELU_TANH = Activation("gelu", _gelu_tanh, variant=", tanh form")
SILU = Activation("silu", lambda x: x * _sigmoid(x))
SIGMOID = Activation("sigmoid", _sigmoid, "1/2")
TANH = Activation("tanh", np.tanh, "0")
