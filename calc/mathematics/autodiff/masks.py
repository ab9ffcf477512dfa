"""Where a tensor is zero because a mask added -∞ before an exponential: there P = 0, so P times the mask is P."""

from __future__ import annotations

import sympy as sp

from calc.mathematics.autodiff import ir
from calc.mathematics.autodiff.ir import Equations, argument
from calc.mathematics.autodiff.sizes import INFINITY
from calc.mathematics.autodiff.terms import Symbols

# Libraries write -∞ as the lowest number of a format. Its exponential is 0 in every format.
_LOW = -1e4


class Masks:
    """Conditions (over labels 0, 1, … of a node) outside which the node is 0."""

    def __init__(self, equations: Equations, symbols: Symbols) -> None:
        self._equations = equations
        self._symbols = symbols
        self._masks: dict[tuple[int, bool], frozenset[sp.Expr]] = {}

    def zero_unless(self, node: int) -> frozenset[sp.Expr]:
        """A node is 0 wherever one of these does not hold."""
        return self._unless(node, lowest=False)

    def _unless(self, node: int, lowest: bool) -> frozenset[sp.Expr]:
        """Conditions outside which the node is 0, or -∞ if ``lowest``."""
        key = (node, lowest)
        if key not in self._masks:
            self._masks[key] = frozenset()
            op = self._equations[node].op
            if isinstance(op, ir.Map):
                self._masks[key] = frozenset(self._of(op, lowest))
        return self._masks[key]

    def _of(self, op: ir.Map, lowest: bool) -> set[sp.Expr]:
        parts = {argument(i): self._symbols.element(o.node, o.at) for i, o in enumerate(op.operands)}
        expr = op.expr
        conditions: set[sp.Expr] = set()
        if isinstance(expr, sp.Piecewise) and len(expr.args) == 2:
            (first, condition), (second, _) = expr.args
            if _is(first, lowest):
                conditions.add(_normal(sp.Not(condition).xreplace(parts)))
            if _is(second, lowest):
                conditions.add(_normal(condition.xreplace(parts)))
            inner = second if _is(first, lowest) else first
            if _is(first, lowest) or _is(second, lowest):
                conditions |= self._through(inner, op, lowest)
            return conditions
        return self._through(expr, op, lowest)

    def _through(self, expr: sp.Expr, op: ir.Map, lowest: bool) -> set[sp.Expr]:
        """The conditions of an operand that the result inherits: by a sum with -∞, its exponential, a product with 0."""
        conditions: set[sp.Expr] = set()
        for i, operand in enumerate(op.operands):
            x = argument(i)
            if lowest:
                passes = expr == x or (expr.is_Add and x in expr.args) or (expr.is_Mul and x in expr.args and (expr / x).is_positive)
                source = self._unless(operand.node, True) if passes else frozenset()
            elif isinstance(expr, sp.exp):
                source = self._unless(operand.node, True) if expr.args[0] == x else frozenset()
            else:
                passes = expr == x or (expr.is_Mul and x in expr.args)
                source = self._unless(operand.node, False) if passes else frozenset()
            conditions |= {self._symbols.renamed(condition, dict(enumerate(operand.at))) for condition in source}
        return conditions


def _is(value: sp.Expr, lowest: bool) -> bool:
    if not lowest:
        return bool(value == 0)
    return value == -INFINITY or bool(value.is_number and value.is_real and value <= _LOW)


def _normal(condition: sp.Expr) -> sp.Expr:
    return getattr(condition, "canonical", condition)


def truth_of(mask: sp.Piecewise) -> sp.Expr | None:
    """The condition of a mask that is 1 where it holds and 0 elsewhere."""
    if len(mask.args) != 2:
        return None
    (first, condition), (second, _) = mask.args
    if (first, second) == (1, 0):
        return _normal(condition)
    return _normal(sp.Not(condition)) if (first, second) == (0, 1) else None
