"""Matrix multiplications in all their forms: each is a sum over labels of a product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy as sp

from calc.errors import UnknownOperatorError
from calc.mathematics.autodiff import ir
from calc.mathematics.autodiff.call import OperatorCall, decomposition
from calc.mathematics.autodiff.decompositions.creation import positions
from calc.mathematics.autodiff.decompositions.reductions import reduce
from calc.mathematics.autodiff.ir import Index, Operand, Pick, argument, place
from calc.mathematics.autodiff.views import AxisFactor, NodeView


def contract(call: OperatorCall, views: Sequence[NodeView], letters: Sequence[str], out: str, name: str = "") -> NodeView:
    """Σ over the letters that ``out`` lacks of the product of the views, whose axes are named by ``letters``."""
    views = list(views)
    for letter in dict.fromkeys("".join(letters)):
        views = call.views.aligned(views, [each.index(letter) if letter in each else None for each in letters])
    labels: dict[tuple[str, int], int] = {}
    parts: dict[str, tuple[AxisFactor, ...]] = {}
    for letter in (*out, *dict.fromkeys(x for x in "".join(letters) if x not in out)):
        axes = [v.axes[each.index(letter)] for v, each in zip(views, letters, strict=True) if letter in each]
        parts[letter] = next((axis for axis in axes if axis), ())
        for n in range(len(parts[letter])):
            real = any(axis and axis[n].axis is not None for axis in axes)
            if real or letter not in out:
                labels[letter, n] = len(labels)
    sizes = [parts[letter][n].size for letter, n in labels]
    rank = sum(letter in out for letter, _ in labels)
    operands = []
    for view, each in zip(views, letters, strict=True):
        at = {
            part.axis: labels[letter, n]
            for letter, axis in zip(each, view.axes, strict=True)
            for n, part in enumerate(axis)
            if part.axis is not None
        }
        operands.append(Operand(view.node, tuple(at[i] for i in range(len(at)))))
    node = call.equations.add(ir.Contract(tuple(operands)), tuple(sizes[:rank]), tuple(sizes[rank:]), name=name)
    return NodeView(node, tuple(tuple(AxisFactor(labels.get((letter, n)), p.size) for n, p in enumerate(parts[letter])) for letter in out))


@decomposition("mm")
def mm(call: OperatorCall) -> NodeView:
    """C[i,j] = Σₖ A[i,k] B[k,j]."""
    return contract(call, (call.tensor("self"), call.tensor("mat2")), ("ik", "kj"), "ij")


@decomposition("bmm")
def bmm(call: OperatorCall) -> NodeView:
    """C[b,i,j] = Σₖ A[b,i,k] B[b,k,j]."""
    return contract(call, (call.tensor("self"), call.tensor("mat2")), ("bik", "bkj"), "bij")


@decomposition("mv")
def mv(call: OperatorCall) -> NodeView:
    """c[i] = Σₖ A[i,k] b[k]."""
    return contract(call, (call.tensor("self"), call.tensor("vec")), ("ik", "k"), "i")


@decomposition("dot", "vdot")
def dot(call: OperatorCall) -> NodeView:
    """c = Σₖ a[k] b[k]."""
    argument_name = "tensor" if call.has("tensor") else "other"
    return contract(call, (call.tensor("self"), call.tensor(argument_name)), ("k", "k"), "")


@decomposition("addmm")
def addmm(call: OperatorCall) -> NodeView:
    """β C + α Σₖ A[i,k] B[k,j]."""
    return _plus(call, contract(call, (call.tensor("mat1"), call.tensor("mat2")), ("ik", "kj"), "ij"))


@decomposition("baddbmm")
def baddbmm(call: OperatorCall) -> NodeView:
    """β C + α Σₖ A[b,i,k] B[b,k,j]."""
    return _plus(call, contract(call, (call.tensor("batch1"), call.tensor("batch2")), ("bik", "bkj"), "bij"))


@decomposition("addbmm")
def addbmm(call: OperatorCall) -> NodeView:
    """β C + α Σ over b, k of A[b,i,k] B[b,k,j]."""
    return _plus(call, contract(call, (call.tensor("batch1"), call.tensor("batch2")), ("bik", "bkj"), "ij"))


@decomposition("addmv")
def addmv(call: OperatorCall) -> NodeView:
    """β c + α Σₖ A[i,k] b[k]."""
    return _plus(call, contract(call, (call.tensor("mat"), call.tensor("vec")), ("ik", "k"), "i"))


@decomposition("addr")
def addr(call: OperatorCall) -> NodeView:
    """β C + α a[i] b[j]."""
    return _plus(call, contract(call, (call.tensor("vec1"), call.tensor("vec2")), ("i", "j"), "ij"))


def _plus(call: OperatorCall, matrix: NodeView) -> NodeView:
    beta, alpha = call.number("beta", 1), call.number("alpha", 1)
    if beta == 0:
        return call.pointwise(alpha * argument(0), (matrix,))
    return call.pointwise(alpha * argument(0) + beta * argument(1), (matrix, call.tensor("self")))


@decomposition("_scaled_mm", "_scaled_mm_v2")
def scaled_mm(call: OperatorCall) -> NodeView:
    """s[i] t[j] Σₖ A[i,k] B[k,j] + c[j], where s and t scale the fp8 operands: one number each, or one for each row and each column.

    Raises ``UnknownOperatorError`` where autograd needs a derivative, which torch does not have: only within a custom function, whose
    backward is its own, or where no operand depends on a parameter, can a training step run it.
    """
    operands = (call.tensor("self"), call.tensor("mat2"))
    scales = [each for name in ("scale_a", "scale_b") for each in call.tensor_or_tensors(name)]
    if not call.converter.by_hand(call.instruction) and any(call.converter.active(view.node) for view in (*operands, *scales)):
        raise UnknownOperatorError(
            f"torch has no derivative of {call.instruction.name} at {call.instruction.module_path}: multiply in fp8 within a"
            " torch.autograd.Function, whose backward you write"
        )
    if call.has("scale_result"):
        raise call.refusal("its result is scaled again")
    product = contract(call, operands, ("ik", "kj"), "ij")
    bias = [call.tensor("bias")] if call.has("bias") else []
    scaled = argument(0) * argument(1) * argument(2)
    return call.pointwise(scaled + argument(3) if bias else scaled, (product, *scales, *bias))


@decomposition("_trilinear")
def trilinear(call: OperatorCall) -> NodeView:
    """Σ of the products of three tensors, each with the axes that it lacks."""
    tensors = [call.tensor(f"i{n}") for n in (1, 2, 3)]
    lacking: list[Any] = [call.raw(f"expand{n}") for n in (1, 2, 3)]
    sums = set(call.raw("sumdim"))
    rank = len(tensors[0].axes) + len(lacking[0])
    every = "abcdefgh"[:rank]
    letters = ["".join(x for i, x in enumerate(every) if i not in lacks) for lacks in lacking]
    return contract(call, tensors, letters, "".join(x for i, x in enumerate(every) if i not in sums))


@decomposition("cross", "linalg_cross")
def cross(call: OperatorCall) -> NodeView:
    """The vector product: c[i] = a[i+1] b[i+2] - a[i+2] b[i+1], indices modulo 3."""
    a, b = call.tensor("self" if call.has("self") else "input"), call.tensor("other")
    axis = call.axis(a)
    rolled = [[_rolled(call, v, axis, by) for by in (1, 2)] for v in (a, b)]
    x = [argument(i) for i in range(4)]
    return call.pointwise(x[0] * x[3] - x[1] * x[2], (rolled[0][0], rolled[0][1], rolled[1][0], rolled[1][1]))


def _rolled(call: OperatorCall, view: NodeView, axis: int, by: int) -> NodeView:
    view = call.views.plain(view)
    at = view.axes[axis][0].axis
    shape = call.equations[view.node].shape
    places = tuple(ir.Index(sp.Mod(ir.place(i) + by, 3) if i == at else ir.place(i)) for i in range(len(shape)))
    return NodeView(call.equations.add(ir.Gather(view.node, places), shape), view.axes)


# -- routing to experts -----------------------------------------------------------------------------------------------
# What routing to experts is made of: places in sorted numbers, products of rows with the matrix of their group.


x, y = argument(0), argument(1)


def _smaller(call: OperatorCall, ordered: NodeView, values: NodeView, ties: bool) -> NodeView:
    """How many of the ordered numbers are smaller than each value (or equal, with ``ties``)."""
    spread = NodeView(values.node, (*values.axes, ()))
    row = NodeView(ordered.node, (*(() for _ in values.axes), ordered.axes[-1]))
    marked = call.converter.truth(x <= y if ties else x < y, (row, spread))
    return reduce(call, marked, (len(values.axes),))


@decomposition("searchsorted", "bucketize")
def searchsorted(call: OperatorCall) -> NodeView:
    """The first insertion position of a value, or with ``right`` the last."""
    values = call.tensor("self")
    ordered = call.tensor("sorted_sequence" if call.has("sorted_sequence") else "boundaries")
    if len(ordered.axes) != 1:
        raise call.refusal("its sorted sequence has several rows")
    right = bool(call.raw("right", False)) or call.raw("side") == "right"
    return _smaller(call, ordered, values, ties=right)


@decomposition("bincount", "histc")
def counts(call: OperatorCall) -> NodeView:
    """The number of occurrences of each integer."""
    view = call.tensor("self")
    if call.has("weights") or (".histc" in call.instruction.name and not _whole_bins(call)):
        raise call.refusal("its bins are not the integers from 0 on")
    flat = call.views.merged(NodeView(view.node, (tuple(view.parts),)), 0)
    (length,) = call.shape()
    numbers = positions(call, length)
    marked = call.converter.truth(sp.Eq(x, y), (NodeView(numbers.node, (*numbers.axes, ())), flat))
    return reduce(call, marked, (1,))


def _whole_bins(call: OperatorCall) -> bool:
    bins, low, high = call.number("bins", 100), call.number("min", 0), call.number("max", 0)
    return bool(low == 0 and sp.expand(high - bins) in (0, -1))


@decomposition("_grouped_mm")
def grouped_mm(call: OperatorCall) -> NodeView:
    """Y[m, n] = Σₖ A[m, k] B[g(m), k, n], where row m is of the group g(m) whose offset is the first beyond it."""
    a, b = call.tensor("self"), call.views.plain(call.tensor("mat2"))
    if not call.has("offs") or len(a.axes) != 2 or len(b.axes) != 3:
        raise call.refusal("its groups are not slices of rows")
    rows = positions(call, a.shape[0])
    group = call.views.plain(_smaller(call, call.tensor("offs"), rows, ties=True))
    rank = len(call.equations[b.node].shape)
    picked = tuple(Pick(Operand(group.node, (0,))) if i == 0 else Index(place(i)) for i in range(rank))
    shape = (a.shape[0], *call.equations[b.node].shape[1:])
    matrices = NodeView(call.equations.add(ir.Gather(b.node, picked), shape), tuple((AxisFactor(i, s),) for i, s in enumerate(shape)))
    return contract(call, (a, matrices), ("mk", "mkn"), "mn")
