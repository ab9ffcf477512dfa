"""Runs update rules: their equations as SymPy expressions, evaluated in numpy, and their operation counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache, reduce
from typing import Any

import numpy as np
import sympy as sp

from calc.errors import BadInputError
from calc.mathematics.updates.table import UpdateEquation, UpdateRule
from calc.symbolic.algebra import SympyFunctions
from calc.symbolic.evaluation import Arithmetic, ByName
from calc.symbolic.expression import (
    Expression,
    FunctionCall,
    Name,
    Negative,
    Number,
    Piecewise,
    Power,
    Product,
    Quotient,
    Sum,
    children,
    names,
)
from calc.symbolic.parser import parse
from calc.symbolic.writer import as_text

Array = np.ndarray[Any, np.dtype[np.float64]]


def expression(equation: UpdateEquation) -> sp.Expr:
    """The right-hand side in real symbols. Names that SymPy knows otherwise (E, N, S) are variables here."""
    tree = parse(equation.text)
    return tree.value_in(SympyFunctions({name: sp.Symbol(name, real=True) for name in names(tree)}, _functions()))


@cache
def _functions() -> dict[str, Any]:
    of_sympy = {name: getattr(sp, name) for name in ("sqrt", "Abs", "Max", "Min", "sign")}
    return {**of_sympy, **{name: sp.Function(name, real=True) for name in _OF_MATRICES}}


# Means over a matrix: over each of its rows (r x 1), over each of its columns (1 x c), of all, and the root of the mean square.
_OF_MATRICES: dict[str, Callable[[Array], Any]] = {
    "rows": lambda x: np.mean(x, axis=-1, keepdims=True),
    "cols": lambda x: np.mean(x, axis=-2, keepdims=True),
    "mean": np.mean,
    "rms": lambda x: np.sqrt(np.mean(np.square(x))),
}


@cache
def _function(equation: UpdateEquation) -> tuple[tuple[str, ...], Callable[..., Any]]:
    expr = expression(equation)
    symbols = sorted(expr.free_symbols, key=str)
    return tuple(map(str, symbols)), sp.lambdify(symbols, expr, modules=[_OF_MATRICES, "numpy"])


def letters(rule: UpdateRule, overrides: Mapping[str, float]) -> dict[str, float]:
    """Values of the letters that are no state: the defaults, and over them what is given."""
    defaults = rule.defaults()
    for name, value in overrides.items():
        if name not in defaults:
            raise BadInputError(f"{rule.name} has no hyperparameter {name[:40]!r}: it has {', '.join(defaults)}")
        if not np.isfinite(value):
            raise BadInputError(f"{rule.name}: {name} = {value} is not a number to calculate with")
    return {**defaults, **overrides}


def run(rule: UpdateRule, start: Any, gradients: Sequence[Any], overrides: Mapping[str, float]) -> list[dict[str, Array]]:
    """The parameter (``theta``) and what is kept, by letter, after each step, in fp64. ``gradients`` has one of the shape of
    ``start`` for each step: a vector, or a matrix where the rule is of matrices."""
    values: dict[str, Any] = dict(letters(rule, overrides))
    theta = np.asarray(start, dtype=np.float64)
    values["theta"] = theta
    first = {name: _right_side(rule, UpdateEquation(name, text, ""), values) for name, text in {**rule.state, **rule.single}.items()}
    values |= {name: np.full_like(theta, x) if name in rule.state and np.ndim(x) == 0 else x for name, x in first.items()}
    after = []
    for step, gradient in enumerate(gradients, 1):
        values |= {"g": np.asarray(gradient, dtype=np.float64), "t": step}
        for equation in rule.equations:
            values[equation.target] = _right_side(rule, equation, values)
        after.append({name: np.array(values[name], dtype=np.float64) for name in ("theta", *rule.keys)})
    return after


def _right_side(rule: UpdateRule, equation: UpdateEquation, values: Mapping[str, Any]) -> Any:
    names, function = _function(equation)
    try:
        with np.errstate(all="ignore"):  # whoever looks at the result sees infinities and NaN in it
            value = function(*(values[name] for name in names))
    except (ZeroDivisionError, OverflowError):
        listed = ", ".join(f"{name}={values[name]:g}" for name in names if np.ndim(values[name]) == 0)
        raise BadInputError(f"{rule.name}: {equation.target} = {equation.text} has no value at {listed}: choose other values") from None
    if np.iscomplexobj(value):
        raise BadInputError(f"{rule.name}: {equation.target} = {equation.text} is not a real number: choose other values")
    return value


# -- arithmetic as written -------------------------------------------------------------------------------------------------------


def operations(rule: UpdateRule, left_out: Sequence[str] = ()) -> int:
    """Operations for each element in a later step, as the equations are written: what is the same for all elements is 0.

    An operation is one of + - * / **, a root, an absolute value, a maximum or a minimum; comparisons and signs are 0, and of cases
    the last stands. ``left_out`` are letters that are 0: an equation that only adds one of them does not run.
    """
    arrays = {"theta", "g", *rule.state}
    total = 0
    for equation in equations_with_work(rule, left_out):
        work = parse(equation.text).value_in(_Operations(arrays))
        total += work.count
        arrays = arrays | {equation.target} if work.of_arrays else arrays
    return total


def equations_with_work(rule: UpdateRule, zeros: Sequence[str]) -> tuple[UpdateEquation, ...]:
    """The rule's equations without those that only add one of the letters in ``zeros``."""
    return tuple(equation for equation in rule.equations if not _only_adds(parse(equation.text), zeros))


def _only_adds(tree: Expression, zeros: Sequence[str]) -> bool:
    """Whether an equation is ``x + zero*…`` or ``x - lr*zero*…``."""
    match tree:
        case Sum((Name(), Negative(change) | change)):
            factors = change.factors if isinstance(change, Product) else (change,)
            return any(isinstance(factor, Name) and factor.name in zeros for factor in factors)
    return False


@dataclass(frozen=True, slots=True)
class _ElementWork:
    """Operations per element, and whether the result differs from element to element."""

    count: int
    of_arrays: bool


class _Operations(Arithmetic[_ElementWork]):
    """Operations per element of an expression as written, where some variables are arrays."""

    def __init__(self, arrays: Set[str]) -> None:
        self.values = ByName(lambda _: _ElementWork(0, False), dict.fromkeys(arrays, _ElementWork(0, True)))

    def number(self, node: Number) -> _ElementWork:
        return _ElementWork(0, False)

    def negative(self, node: Negative) -> _ElementWork:
        return node.body.value_in(self)

    def sum(self, node: Sum | Product | Quotient | Power) -> _ElementWork:
        return reduce(lambda a, b: self._joined((a, b), 1), [child.value_in(self) for child in children(node)])

    product = quotient = power = sum

    def piecewise(self, node: Piecewise) -> _ElementWork:
        return node.cases[-1][0].value_in(self)

    def call(self, node: FunctionCall) -> _ElementWork:
        arguments = [argument.value_in(self) for argument in node.arguments]
        return self._joined(arguments, 0 if node.function == "sign" else max(1, len(arguments) - 1))

    @staticmethod
    def _joined(parts: Sequence[_ElementWork], own: int) -> _ElementWork:
        of_arrays = any(part.of_arrays for part in parts)
        return _ElementWork(sum(part.count for part in parts) + own * of_arrays, of_arrays)

    def refused(self, node: Expression) -> BadInputError:
        return BadInputError(f"cannot count the operations of {as_text(node, spaced=True)!r}")
