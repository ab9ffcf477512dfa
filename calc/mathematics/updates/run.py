"""Rules at work: their equations as SymPy expressions, carried out in numpy, and the arithmetic they take as written."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import sympy as sp

from calc.errors import BadInputError
from calc.mathematics.updates.rules import UpdateEquation, UpdateRule

Array = np.ndarray[Any, np.dtype[np.float64]]


def expression(equation: UpdateEquation) -> sp.Expr:
    """The right-hand side in real symbols. Names that SymPy knows otherwise (E, N, S) are letters here."""
    names = {node.id for node in ast.walk(ast.parse(equation.text)) if isinstance(node, ast.Name)} - _FUNCTIONS
    own = {name: sp.Function(name, real=True) for name in _OF_MATRICES}
    return sp.sympify(equation.text, locals={**{name: sp.Symbol(name, real=True) for name in names}, **own})


# Means over a matrix: over each of its rows (r x 1), over each of its columns (1 x c), of all, and the root of the mean square.
_OF_MATRICES: dict[str, Callable[[Array], Any]] = {
    "rows": lambda x: np.mean(x, axis=-1, keepdims=True),
    "cols": lambda x: np.mean(x, axis=-2, keepdims=True),
    "mean": np.mean,
    "rms": lambda x: np.sqrt(np.mean(np.square(x))),
}
_FUNCTIONS = {"sqrt", "Abs", "Max", "Min", "sign", "Piecewise", "Eq", *_OF_MATRICES}


@cache
def _function(equation: UpdateEquation) -> tuple[tuple[str, ...], Callable[..., Any]]:
    made = expression(equation)
    symbols = sorted(made.free_symbols, key=str)
    return tuple(map(str, symbols)), sp.lambdify(symbols, made, modules=[_OF_MATRICES, "numpy"])


def letters(rule: UpdateRule, given: Mapping[str, float]) -> dict[str, float]:
    """Values of the letters that are no state: the defaults, and over them what is given."""
    defaults = rule.defaults()
    for name, value in given.items():
        if name not in defaults:
            raise BadInputError(f"{rule.name} has no letter {name[:40]!r}: it has {', '.join(defaults)}")
        if not np.isfinite(value):
            raise BadInputError(f"{rule.name}: {name} = {value} is no number to calculate with")
    return {**defaults, **given}


def run(rule: UpdateRule, start: Any, gradients: Sequence[Any], given: Mapping[str, float]) -> list[dict[str, Array]]:
    """The parameter (``theta``) and what is kept, by letter, after each step, in fp64. ``gradients`` has one of the shape of
    ``start`` for each step: a vector, or a matrix where the rule is of matrices."""
    values: dict[str, Any] = dict(letters(rule, given))
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
        said = ", ".join(f"{name}={values[name]:g}" for name in names if np.ndim(values[name]) == 0)
        raise BadInputError(f"{rule.name}: {equation.target} = {equation.text} has no value at {said}: choose other values") from None
    if np.iscomplexobj(value):
        raise BadInputError(f"{rule.name}: {equation.target} = {equation.text} leaves the real numbers: choose other values")
    return value


# -- arithmetic as written -------------------------------------------------------------------------------------------------------


def operations(rule: UpdateRule, left_out: Sequence[str] = ()) -> int:
    """Operations for each element in a later step, as the equations are written: what is the same for all elements is 0.

    An operation is one of + - * / **, a root, an absolute value, a maximum or a minimum; comparisons and signs are 0, and of cases
    the last stands. ``left_out`` are letters that are 0: an equation that only adds one of them does not run.
    """
    arrays = {"theta", "g", *rule.state}
    total = 0
    for equation in rule.equations:
        tree = ast.parse(equation.text, mode="eval").body
        if _only_adds(tree, left_out):
            continue
        count, of_arrays = _count(tree, arrays)
        total += count
        arrays = arrays | {equation.target} if of_arrays else arrays
    return total


def _only_adds(tree: ast.expr, zeros: Sequence[str]) -> bool:
    """Whether an equation is ``x + zero*…`` or ``x - lr*zero*…``."""
    if not (isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Add | ast.Sub) and isinstance(tree.left, ast.Name)):
        return False
    factors, node = [], tree.right
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        factors.append(node.right)
        node = node.left
    return any(isinstance(f, ast.Name) and f.id in zeros for f in [*factors, node])


def _count(node: ast.expr, arrays: set[str]) -> tuple[int, bool]:
    """Operations per element below a node, and whether it differs from element to element."""
    match node:
        case ast.Name(id=name):
            return 0, name in arrays
        case ast.Constant():
            return 0, False
        case ast.UnaryOp(operand=operand):
            return _count(operand, arrays)
        case ast.BinOp(left=left, right=right):
            return _joined([left, right], arrays, 1)
        case ast.Call(func=ast.Name(id="Piecewise"), args=[*_, ast.Tuple(elts=[last, _])]):
            return _count(last, arrays)
        case ast.Call(func=ast.Name(id=name), args=args):
            return _joined(args, arrays, 0 if name == "sign" else max(1, len(args) - 1))
    raise BadInputError(f"cannot count the operations of {ast.unparse(node)!r}")


def _joined(parts: Sequence[ast.expr], arrays: set[str], own: int) -> tuple[int, bool]:
    counts = [_count(part, arrays) for part in parts]
    differs = any(of_arrays for _, of_arrays in counts)
    return sum(count for count, _ in counts) + own * differs, differs
