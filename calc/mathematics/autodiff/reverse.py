"""Reverse mode: from the loss back, each equation passes its share of the gradient to its operands, by the rule of its primitive.

For Y = f(X, …) and a loss ℒ, the gradient of X is Σ ∂ℒ/∂Y · ∂Y/∂X over every equation that reads X (the chain rule). Each primitive has one
rule, and each rule yields equations. SymPy differentiates scalar expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import sympy as sp

from calc.errors import NapkinError
from calc.mathematics.autodiff import ir
from calc.mathematics.autodiff.ir import Equations, Node, Operand, argument, place
from calc.mathematics.autodiff.scalar import RESULT, kept_whole, partial, truth
from calc.mathematics.autodiff.sizes import product

# (equations, node, gradient of the node, which of its sources) → the equation of that source's share; nothing where it is zero.
Rule = Callable[[Equations, Node, int, int], int | None]
RULES: dict[type[Any], Rule] = {}
SAYING: dict[type[Any], str] = {}


def rule(*kinds: type[Any], saying: str) -> Callable[[Rule], Rule]:
    """A decorator that registers the reverse rule of ``kinds``; ``saying`` states it."""
    def put(function: Rule) -> Rule:
        for kind in kinds:
            RULES[kind] = function
            SAYING[kind] = saying
        return function

    return put


@dataclass(frozen=True, slots=True)
class GradientShare:
    """The share of ``target``'s gradient from one equation: ``node``, None if it is zero."""

    target: int
    through: int
    node: int | None
    because: str


@dataclass(frozen=True, slots=True)
class Gradients:
    """``of`` maps a node to the equation of its gradient; a node that is reached and not in it has the gradient 0."""

    loss: int
    of: Mapping[int, int]
    shares: tuple[GradientShare, ...]
    reached: frozenset[int]


def gradients(equations: Equations, loss: int, targets: Collection[int]) -> Gradients:
    """The gradients of the scalar ``loss`` with respect to the nodes ``targets`` and everything between."""
    if equations[loss].shape:
        raise NapkinError(f"a gradient needs a scalar loss, but this one has {len(equations[loss].shape)} axes: reduce it to one number")
    nodes = equations.nodes[: loss + 1]
    active = _active(nodes, targets)
    shares: list[GradientShare] = []
    pending: dict[int, list[int]] = {loss: [equations.map(sp.Integer(1), (), ())]}
    of: dict[int, int] = {}
    reached = {loss}
    for node in reversed(nodes):
        if node.index not in active or node.index not in reached:
            continue
        equations.module_path, equations.operator = node.module_path, node.operator
        contributions = pending.pop(node.index, [])
        if contributions:
            of[node.index] = added(equations, contributions)
        for i, source in enumerate(ir.sources(node.op)):
            if source in active and not isinstance(node.op, ir.Hold):
                reached.add(source)
                share = RULES[type(node.op)](equations, node, of[node.index], i) if contributions else None
                shares.append(GradientShare(source, node.index, share, SAYING[type(node.op)]))
                if share is not None:
                    pending.setdefault(source, []).append(share)
    return Gradients(loss, of, tuple(shares), frozenset(reached))


def _active(nodes: list[Node], targets: Collection[int]) -> set[int]:
    """The wanted nodes and all that depend on them."""
    active = set(targets)
    for node in nodes:
        if not node.integral and not isinstance(node.op, ir.Hold) and any(s in active for s in ir.sources(node.op)):
            active.add(node.index)
    return active


def added(equations: Equations, parts: list[int]) -> int:
    """The sum of several shares: a tensor that is used several times gets a share from each use."""
    if len(parts) == 1:
        return parts[0]
    operands = tuple(equations.same(part) for part in parts)
    return equations.map(sp.Add(*(argument(i) for i in range(len(parts)))), operands, equations[parts[0]].shape)


# -- the rules -------------------------------------------------------------------------------------------------------------


@rule(ir.Contract, saying="Y = Σ A B: the gradient of A is Σ of ∂ℒ/∂Y times the other factors, over the labels that A lacks")
def contract(equations: Equations, node: Node, gradient: int, i: int) -> int | None:
    """Y[o] = Σ A[a] B[b] → ∂ℒ/∂A[a] = Σ ∂ℒ/∂Y[o] B[b]."""
    op = node.op
    assert isinstance(op, ir.Contract)
    mine = op.operands[i]
    labels = {label: new for new, label in enumerate(mine.at)}
    factors = [*(o for j, o in enumerate(op.operands) if j != i), equations.same(gradient)]
    for operand in factors:
        for label in operand.at:
            labels.setdefault(label, len(labels))
    # The gradient takes the position of its tensor: dA = dY Bᵀ, dB = Aᵀ dY.
    operands = tuple(Operand(o.node, tuple(labels[label] for label in o.at)) for o in (*factors[:i], factors[-1], *factors[i:-1]))
    inner = tuple(node.size(label) for label in list(labels)[len(mine.at) :])
    return equations.add(ir.Contract(operands), equations[mine.node].shape, inner)


@rule(ir.Map, saying="Y = f(X, …) element by element: ∂ℒ/∂X = ∂ℒ/∂Y · ∂f/∂X, summed over the labels along which X is repeated")
def mapped(equations: Equations, node: Node, gradient: int, i: int) -> int | None:
    op = node.op
    assert isinstance(op, ir.Map)
    derivative = partial(op.expr, i)
    if derivative == 0:
        return None
    count = len(op.operands)
    expr = (kept_whole(derivative, node.operator) * argument(count)).xreplace({RESULT: argument(count + 1)})
    operands = (*op.operands, equations.same(gradient), equations.same(node.index))
    unsummed = equations.map(expr, operands, node.shape)
    return repeated(equations, unsummed, op.operands[i], node)


def repeated(equations: Equations, unsummed: int, operand: Operand, node: Node) -> int:
    """``unsummed``, over all labels of ``node``, summed over those that ``operand`` does not have."""
    labels = {label: new for new, label in enumerate(operand.at)}
    missing = [label for label in range(len(node.shape)) if label not in labels]
    labels.update({label: len(operand.at) + j for j, label in enumerate(missing)})
    at = tuple(labels[label] for label in range(len(node.shape)))
    return equations.total(Operand(unsummed, at), equations[operand.node].shape, tuple(node.shape[label] for label in missing))


@rule(ir.Reduce, saying="a sum passes its gradient to every addend, a mean 1/n of it, a maximum to where it is attained")
def reduced(equations: Equations, node: Node, gradient: int, _: int) -> int | None:
    op = node.op
    assert isinstance(op, ir.Reduce)
    source = op.operand
    place_of = {label: j for j, label in enumerate(source.at)}
    if len(place_of) < len(source.at):
        raise NapkinError("a reduction over a diagonal has no rule")
    back = Operand(gradient, tuple(place_of[label] for label in range(len(node.shape))))
    shape = equations[source.node].shape
    g, x, y = argument(0), argument(1), argument(2)
    result = Operand(node.index, back.at)
    match op.kind:
        case "sum":
            return equations.map(g, (back,), shape)
        case "mean":
            return equations.map(g / product(node.inner), (back,), shape)
        case "prod":
            return equations.map(g * y / x, (back, equations.same(source.node), result), shape)
        case "max" | "min":
            hits = equations.map(truth(sp.Eq(x, y)), (back, equations.same(source.node), result), shape)
            ties = equations.total(Operand(hits, source.at), node.shape, node.inner)
            return equations.map(g * x / y, (back, equations.same(hits), Operand(ties, back.at)), shape)
    raise NapkinError(f"no rule for the gradient of a reduction by {op.kind}")


@rule(ir.Gather, saying="a gather passes its gradient back to the positions read; several reads add up")
def gathered(equations: Equations, node: Node, gradient: int, i: int) -> int | None:
    op = node.op
    assert isinstance(op, ir.Gather)
    return equations.add(ir.Scatter(gradient, op.coordinates), equations[op.source].shape) if i == 0 else None


@rule(ir.Scatter, saying="a scatter takes the gradient at its positions")
def scattered(equations: Equations, node: Node, gradient: int, i: int) -> int | None:
    op = node.op
    assert isinstance(op, ir.Scatter)
    if i != 0:
        return None
    return equations.add(ir.Gather(gradient, op.coordinates, sp.Integer(0)), equations[op.updates].shape)


@rule(ir.Split, saying="an axis that was split is merged again")
def split(equations: Equations, node: Node, gradient: int, _: int) -> int | None:
    op = node.op
    assert isinstance(op, ir.Split)
    return equations.add(ir.Merge(gradient, op.axis, op.count), equations[op.source].shape)


@rule(ir.Merge, saying="axes that were merged are split again")
def merged(equations: Equations, node: Node, gradient: int, _: int) -> int | None:
    op = node.op
    assert isinstance(op, ir.Merge)
    return equations.add(ir.Split(gradient, op.axis, op.count), equations[op.source].shape)


@rule(ir.Concatenate, saying="each part takes its slice of the gradient")
def concatenated(equations: Equations, node: Node, gradient: int, i: int) -> int | None:
    op = node.op
    assert isinstance(op, ir.Concatenate)
    axis = op.axis
    before = sp.expand(sp.Add(*(equations[part].shape[axis] for part in op.parts[:i])))
    return sliced(equations, gradient, axis, before, equations[op.parts[i]].shape[axis])


def sliced(equations: Equations, source: int, axis: int, start: sp.Expr, length: sp.Expr) -> int:
    """``length`` positions of one axis, from ``start`` on."""
    shape = equations[source].shape
    if start == 0 and length == shape[axis]:
        return source
    places = tuple(ir.Index(place(j) + start if j == axis else place(j)) for j in range(len(shape)))
    return equations.add(ir.Gather(source, places), (*shape[:axis], length, *shape[axis + 1 :]))


@rule(ir.Cumulate, saying="an element is in every running sum from its position on, so gradients are summed from the end")
def cumulated(equations: Equations, node: Node, gradient: int, _: int) -> int | None:
    op = node.op
    assert isinstance(op, ir.Cumulate)
    return equations.add(ir.Cumulate(gradient, op.axis, not op.reverse), node.shape)


def pulled(equations: Equations, source: int, result: int, gradient: int) -> int:
    """``gradient`` of ``result`` carried back to ``source``, which ``result`` is a rearrangement of."""
    if source == result:
        return gradient
    pending: dict[int, list[int]] = {result: [gradient]}
    waiting = {result}
    while waiting:
        index = max(waiting)
        waiting.discard(index)
        if index == source:
            break
        node, summed = equations[index], added(equations, pending.pop(index))
        for i, read in enumerate(ir.sources(node.op)):
            share = RULES[type(node.op)](equations, node, summed, i) if i == 0 and type(node.op) in RULES else None
            if share is not None and read >= source:
                pending.setdefault(read, []).append(share)
                waiting.add(read)
    if source not in pending:
        raise NapkinError("a tensor that is overwritten is not a rearrangement of its storage")
    return added(equations, pending[source])
