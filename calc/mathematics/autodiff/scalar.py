"""Scalar functions that SymPy lacks, derivatives in textbook form, and their numpy functions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import sympy as sp

from calc.graph.step import bare_name
from calc.mathematics.autodiff.ir import argument
from calc.mathematics.autodiff.sizes import INFINITY

# Stands for the result of a map in its own derivative: tanh' = 1 - y².
RESULT = sp.Symbol("y", real=True)


class Sigmoid(sp.Function):  # type: ignore[misc]  # SymPy publishes no types
    """σ(x) = 1/(1 + exp(-x))."""

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        return self * (1 - self)


class Softplus(sp.Function):  # type: ignore[misc]  # as above
    """log(1 + exp(x))."""

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        return Sigmoid(self.args[0])


class _Step(sp.Function):  # type: ignore[misc]  # as above
    """A function that is constant between its jumps: its derivative counts as 0, as in torch."""

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        return sp.Integer(0)


class Floor(_Step):
    """The largest integer not above x."""


class Ceiling(_Step):
    """The smallest integer not below x."""


class Round(_Step):
    """The nearest integer, halves to even."""


class Truncate(_Step):
    """x without its fraction."""


class Sign(_Step):
    """-1, 0 or 1."""


class Whole(sp.Function):  # type: ignore[misc]  # as above
    """An expression that is not expanded, such as the derivative of an activation. The second argument is the
    number of the function's name in ``WHOLE_NAMES``."""


WHOLE_NAMES: list[str] = []


def kept_whole(derivative: sp.Expr, operator: str) -> sp.Expr:
    """A derivative that is a sum of functions, as one unexpanded factor; ``operator`` is the differentiated operator."""
    if not derivative.atoms(sp.Function) - derivative.atoms(sp.Piecewise) or not derivative.atoms(sp.Add):
        return derivative
    name = bare_name(operator) or "f"
    if name not in WHOLE_NAMES:
        WHOLE_NAMES.append(name)
    return Whole(derivative, sp.Integer(WHOLE_NAMES.index(name)))


def where(condition: Any, yes: Any, no: Any) -> sp.Expr:
    """``yes`` where the condition holds, else ``no``."""
    return sp.Piecewise((sp.sympify(yes), condition), (sp.sympify(no), True))


def truth(condition: Any) -> sp.Expr:
    """1 where the condition holds, else 0."""
    return where(condition, 1, 0)


def larger(a: sp.Expr, b: sp.Expr) -> sp.Expr:
    """max(a, b); equal arguments share the gradient, as in torch."""
    return sp.Piecewise((a, a > b), (b, a < b), ((a + b) / 2, True))


def smaller(a: sp.Expr, b: sp.Expr) -> sp.Expr:
    """min(a, b); equal arguments share the gradient, as in torch."""
    return sp.Piecewise((a, a < b), (b, a > b), ((a + b) / 2, True))


def _arguments(expr: sp.Expr) -> set[sp.Symbol]:
    return {s for s in expr.free_symbols if s.name.startswith("x_")}


@functools.lru_cache(maxsize=4096)
def partial(expr: sp.Expr, i: int) -> sp.Expr:
    """∂expr/∂argument(i), in terms of the result (``RESULT``) where that is shorter and divides by nothing that the derivative does not
    divide by: x y z has the derivative y z, which (x y z)/x is not where x = 0."""
    x = argument(i)
    derivative = sp.diff(expr, x).replace(sp.sign, Sign)
    if not derivative.free_symbols & _arguments(expr):
        return derivative
    candidates = [derivative]
    if not expr.is_Symbol and not expr.has(sp.Piecewise):
        candidates.append(derivative.xreplace({expr: RESULT}))
        if expr.is_Pow and not (expr.exp.is_Integer and expr.exp > 0) and expr.exp.is_Rational:
            candidates.append(derivative.replace(lambda e: e.is_Pow and e.base == expr.base, lambda e: RESULT ** (e.exp / expr.exp)))
        elif expr.is_Mul and not derivative.atoms(sp.Function) and sp.fraction(derivative)[1].has(x):
            candidates.append(RESULT * sp.cancel(derivative / expr))
    return min(candidates, key=lambda e: (sp.count_ops(e), e.has(RESULT)))


def _erf(x: Any) -> Any:
    return np.vectorize(math.erf, otypes=[float])(x)


def _log_gamma(x: Any) -> Any:
    return np.vectorize(math.lgamma, otypes=[float])(x)


_NUMPY: dict[str, Callable[..., Any]] = {
    "Whole": lambda x, _: x,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Softplus": lambda x: np.logaddexp(0, x),
    "Floor": np.floor,
    "Ceiling": np.ceil,
    "Round": np.round,
    "Truncate": np.trunc,
    "Sign": np.sign,
    "erf": _erf,
    "erfc": lambda x: 1 - _erf(x),
    "loggamma": _log_gamma,
}


@functools.lru_cache(maxsize=4096)
def function(expr: sp.Expr, count: int) -> Callable[..., Any]:
    """``expr`` without symbols of sizes as a numpy function of ``count`` operands."""
    compiled = sp.lambdify([*map(argument, range(count)), INFINITY], expr, modules=[_NUMPY, "numpy"], cse=True)

    def run(*operands: Any) -> Any:
        with np.errstate(all="ignore"):  # a branch that is not taken may be undefined there
            return compiled(*operands, np.inf)

    return run
