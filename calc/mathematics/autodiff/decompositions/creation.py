"""Tensors without tensor operands: constants, positions, and random draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy as sp

from calc.graph.step import bare_name
from calc.mathematics.autodiff import ir
from calc.mathematics.autodiff.call import OperatorCall, decomposition
from calc.mathematics.autodiff.ir import argument
from calc.mathematics.autodiff.scalar import where
from calc.mathematics.autodiff.views import AxisFactor, NodeView

x = argument(0)


def constant(call: OperatorCall, value: sp.Expr, shape: Sequence[sp.Expr]) -> NodeView:
    """A constant tensor."""
    node = call.equations.map(value, (), ())
    return NodeView(node, tuple(() if s == 1 else (AxisFactor(None, s),) for s in shape))


@decomposition("zeros", "new_zeros", "empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided", "empty_permuted")
def zeros(call: OperatorCall) -> NodeView:
    return constant(call, sp.Integer(0), call.shape())


@decomposition("ones", "ones_like", "new_ones")
def ones(call: OperatorCall) -> NodeView:
    return constant(call, sp.Integer(1), call.shape())


@decomposition("full", "full_like", "new_full")
def full(call: OperatorCall) -> NodeView:
    return constant(call, call.number("fill_value"), call.shape())


@decomposition("scalar_tensor")
def scalar(call: OperatorCall) -> NodeView:
    return constant(call, call.number("s"), ())


def positions(call: OperatorCall, length: sp.Expr) -> NodeView:
    """0, 1, 2, …"""
    return NodeView(call.equations.add(ir.Iota(), (length,), integral=True), ((AxisFactor(0, length),),))


@decomposition("arange")
def arange(call: OperatorCall) -> NodeView:
    """start, start + step, …"""
    (length,) = call.shape()
    start, step = call.number("start", 0), call.number("step", 1)
    if length == 1:
        return constant(call, start, (length,))
    return call.pointwise(start + step * x, (positions(call, length),), integral=call.dtype().startswith("int"))


@decomposition("linspace")
def linspace(call: OperatorCall) -> NodeView:
    """Equally spaced numbers from start to end."""
    (length,) = call.shape()
    start, end = call.number("start"), call.number("end")
    return call.pointwise(start + (end - start) * x / (length - 1), (positions(call, length),), integral=False)


@decomposition("eye")
def eye(call: OperatorCall) -> NodeView:
    """1 on the diagonal."""
    rows, columns = (positions(call, s) for s in call.shape())
    return call.pointwise(where(sp.Eq(x, argument(1)), 1, 0), (_column(rows), columns), integral=False)


def _column(view: NodeView) -> NodeView:
    return NodeView(view.node, (*view.axes, ()))


@decomposition("tril", "triu")
def triangle(call: OperatorCall) -> NodeView:
    """The elements on or below (above) the given diagonal, else 0."""
    view = call.tensor("self")
    rows, columns = (positions(call, s) for s in view.shape[-2:])
    offset = call.number("diagonal", 0)
    distance = argument(2) - argument(1)
    inside = distance <= offset if ".tril" in call.instruction.name else distance >= offset
    return call.pointwise(where(inside, x, 0), (view, _column(rows), columns), integral=call.equations[view.node].integral)


@decomposition("diag_embed")
def diag_embed(call: OperatorCall) -> NodeView:
    """The last axis on the diagonal of two."""
    if (call.raw("offset") or 0, call.raw("dim1", -2), call.raw("dim2", -1)) != (0, -2, -1):
        raise call.refusal("its diagonal is not the main one of the last two axes")
    view = call.tensor("self")
    rows, columns = (positions(call, view.shape[-1]) for _ in range(2))
    expr = where(sp.Eq(argument(1), argument(2)), x, 0)
    return call.pointwise(expr, (NodeView(view.node, (*view.axes, ())), _column(rows), columns), integral=False)


# -- random draws: constants to the chain rule, with the values of the run that is compared -------------------------------


def drawn(call: OperatorCall, output: int = 0) -> NodeView:
    """A leaf for the numbers that this operator draws, in the order of the run."""
    operator, index = bare_name(call.instruction.name), call.instruction.index
    node = call.equations.add(ir.Leaf("random", f"{operator} #{index}", operator, index), call.shape(output))
    from calc.mathematics.autodiff.views import of_node

    return of_node(call.equations, node)


@decomposition(
    *("rand", "randn", "rand_like", "randn_like", "randint", "randint_like", "randperm", "normal", "normal_functional"),
    *("bernoulli", "uniform", "multinomial", "exponential", "poisson", "_sample_dirichlet", "_standard_gamma"),
)
def random(call: OperatorCall) -> NodeView:
    return drawn(call)


@decomposition("native_dropout")
def native_dropout(call: OperatorCall) -> list[Any]:
    """Y = X · mask/(1 - p)."""
    rate = call.number("p")
    view = call.tensor("input")
    if rate == 0 or call.raw("train") is False:
        return [view, constant(call, sp.Integer(1), call.shape(1))]
    mask = drawn(call, 1)
    return [call.pointwise(x * argument(1) / (1 - rate), (view, mask)), mask]
