"""Named products of the forward (P = E/Z, n = c r): each expresses one of its factors in terms of the product."""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from calc.mathematics.autodiff import ir
from calc.mathematics.autodiff.ir import Equations, argument
from calc.mathematics.autodiff.terms import TooLarge, expand


@dataclass(frozen=True, slots=True)
class Relation:
    """``gone`` = ``expr`` of the result (``argument(0)``) and of its other operand i (``argument(i + 1)``).

    ``at`` is the label of the result for each axis of ``gone``, which has all labels. ``partners`` are the other operands.
    """

    result: int
    gone: int
    at: tuple[int, ...]
    partners: frozenset[int]
    expr: sp.Expr


def relations(equations: Equations, forward: int) -> list[Relation]:
    """Every relation that expresses a factor of a named product by that product."""
    relations = []
    for node in equations.nodes[:forward]:
        if isinstance(node.op, ir.Map) and len(node.op.operands) > 1 and len({o.node for o in node.op.operands}) == len(node.op.operands):
            relations += _of(node, node.op)
    return relations


def _of(node: ir.Node, op: ir.Map) -> list[Relation]:
    try:
        poly = expand(op.expr)
    except TooLarge:
        return []
    if len(poly) != 1:
        return []
    ((monomial, coefficient),) = poly.items()
    powers = dict(monomial)
    count = len(op.operands)
    if not all(argument(i) in powers for i in range(count)) or any(not f.is_Symbol for f in powers):
        return []
    relations = []
    for i, operand in enumerate(op.operands):
        power = powers[argument(i)]
        if power not in (1, -1) or sorted(operand.at) != list(range(len(node.shape))):
            continue
        cofactor = sp.Mul(coefficient, *(f**p for f, p in powers.items() if f != argument(i)))
        shifted = cofactor.xreplace({argument(j): argument(j + 1) for j in range(count)})
        expr = (argument(0) / shifted) ** power
        partners = frozenset(o.node for j, o in enumerate(op.operands) if j != i)
        relations.append(Relation(node.index, operand.node, operand.at, partners, expr))
    return relations
