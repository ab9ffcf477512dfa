"""Convolutions as contractions over shifted positions: Y[b,o,t] = Σ over c, r of W[o,c,r] X[b,c,s t + δ r - p], zeros outside."""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from calc.mathematics.autodiff import ir
from calc.mathematics.autodiff.call import OperatorCall, decomposition
from calc.mathematics.autodiff.ir import Operand, argument, place
from calc.mathematics.autodiff.sizes import product, quotient
from calc.mathematics.autodiff.views import AxisFactor, NodeView

x, y = argument(0), argument(1)


def _each(call: OperatorCall, name: str, count: int, default: int) -> list[sp.Expr]:
    """One number for each axis of places."""
    sizes = call.sizes(name, (default,))
    return sizes if len(sizes) == count else [sizes[0] if sizes else sp.Integer(default)] * count


@decomposition(
    "convolution", "_convolution", "conv1d", "conv2d", "conv3d", "mkldnn_convolution", "cudnn_convolution", "convolution_overrideable"
)
def convolution(call: OperatorCall) -> NodeView:
    view, weight = call.tensor("input"), call.tensor("weight")
    count = len(weight.axes) - 2
    stride, padding, dilation = _each(call, "stride", count, 1), _each(call, "padding", count, 0), _each(call, "dilation", count, 1)
    of = _of(call, view, weight, (stride, padding, dilation))
    result = _transposed(of) if call.raw("transposed", False) else _direct(of)
    if not call.has("bias"):
        return result
    bias = call.tensor("bias")
    return call.pointwise(x + y, (result, NodeView(bias.node, (*bias.axes, *(() for _ in range(count))))))


class ConvolutionAxes:
    """The labels of an equation by name. An axis of size 1 has none."""

    def __init__(self, out: dict[str, sp.Expr], inner: dict[str, sp.Expr]) -> None:
        self.shape = tuple(s for s in out.values() if s != 1)
        self.inner = tuple(s for s in inner.values() if s != 1)
        self._labels = {name: i for i, name in enumerate(n for n, s in (*out.items(), *inner.items()) if s != 1)}

    def at(self, *names: str) -> tuple[int, ...]:
        return tuple(self._labels[n] for n in names if n in self._labels)

    def place(self, name: str) -> sp.Expr:
        return place(self._labels[name]) if name in self._labels else sp.Integer(0)


def _axes(view: NodeView, names: list[str]) -> list[tuple[str, int]]:
    """Each axis of a plain view that its node has, with its name."""
    return [(name, axis[0].axis) for name, axis in zip(names, view.axes, strict=True) if axis and axis[0].axis is not None]


def full(call: OperatorCall, view: NodeView) -> int:
    """A node with one axis for each of the tensor's, those of size 1 too."""
    plain = call.views.plain(view)
    places = [i for i, axis in enumerate(plain.axes) if axis]
    if len(places) == len(plain.axes):
        return plain.node
    return call.equations.map(x, (Operand(plain.node, tuple(places)),), view.shape)


def _slim(call: OperatorCall, node: int) -> NodeView:
    """The node's axes of size 1 as axes of no part."""
    from calc.mathematics.autodiff.views import of_node

    return of_node(call.equations, node)


def _in_groups(call: OperatorCall, view: NodeView, axis: int, groups: sp.Expr, noun: str) -> NodeView:
    """The view with one axis as (group, rest)."""
    per_group = quotient(view.shape[axis], groups)
    if per_group is None:
        raise call.refusal(f"its {view.shape[axis]} {noun} are not divisible into {groups} groups")
    return call.views.plain(call.views.reshaped(view, (*view.shape[:axis], groups, per_group, *view.shape[axis + 1 :])))


@dataclass(frozen=True, slots=True)
class _ConvolutionCall:
    """A convolution in groups: ``size`` has the size of each axis by its name. ``steps`` are (stride, padding, dilation)."""

    call: OperatorCall
    source: NodeView
    kernel: NodeView
    steps: tuple[list[sp.Expr], list[sp.Expr], list[sp.Expr]]
    to: list[str]
    taps: list[str]
    at: list[str]
    size: dict[str, sp.Expr]

    def places(self, axes: ConvolutionAxes) -> dict[str, sp.Expr]:
        """Place s t + δ r - p for place t of one side and place r of the kernel, by the axis' name."""
        stride, padding, dilation = self.steps
        return {
            at: sp.expand(s * axes.place(to) + d * axes.place(tap) - p)
            for at, to, tap, s, p, d in zip(self.at, self.to, self.taps, stride, padding, dilation, strict=True)
        }


def _of(
    call: OperatorCall, view: NodeView, weight: NodeView, steps: tuple[list[sp.Expr], list[sp.Expr], list[sp.Expr]]
) -> _ConvolutionCall:
    """The convolution with named axes. A transposed one has the places of its input, and channels before outputs in its kernel."""
    groups, transposed = call.sizes("groups", (1,))[0], bool(call.raw("transposed", False))
    source, kernel = _in_groups(call, view, 1, groups, "channels"), _in_groups(call, weight, 0, groups, "kernels")
    to, taps, at = ([f"{name}{i}" for i in range(len(weight.axes) - 2)] for name in ("to", "tap", "at"))
    size = {"b": view.shape[0], "g": groups, "c": source.shape[2], "o": kernel.shape[2 if transposed else 1]}
    size |= dict(zip(to, (view.shape if transposed else call.shape())[2:], strict=True))
    size |= dict(zip(taps, weight.shape[2:], strict=True))
    return _ConvolutionCall(call, source, kernel, steps, to, taps, at, size)


def _direct(of: _ConvolutionCall) -> NodeView:
    call, to, taps, size = of.call, of.to, of.taps, of.size
    # Patches: X'[b, g, c, t, r] = X[b, g, c, s t + δ r - p].
    patches = ConvolutionAxes({n: size[n] for n in ("b", "g", "c", *to, *taps)}, {})
    moved = of.places(patches)
    coordinates = [ir.Index(sp.Integer(0))] * len(call.equations[of.source.node].shape)
    for name, axis in _axes(of.source, ["b", "g", "c", *of.at]):
        coordinates[axis] = ir.Index(moved[name] if name in moved else patches.place(name))
    fill = sp.Integer(0) if any(p != 0 for p in of.steps[1]) else None
    gathered = call.equations.add(ir.Gather(of.source.node, tuple(coordinates), fill), patches.shape, name="X'")
    axes = ConvolutionAxes({n: size[n] for n in ("b", "g", "o", *to)}, {n: size[n] for n in ("c", *taps)})
    operands = (
        Operand(gathered, axes.at("b", "g", "c", *to, *taps)),
        Operand(of.kernel.node, axes.at(*(name for name, _ in _axes(of.kernel, ["g", "o", "c", *taps])))),
    )
    return _result(call, call.equations.add(ir.Contract(operands), axes.shape, axes.inner), [size[n] for n in ("b", "g", "o", *to)])


def _result(call: OperatorCall, node: int, sizes: list[sp.Expr]) -> NodeView:
    """The node as (batch, group, out, places…), as the tensor that torch gives."""
    numbers = iter(range(len(sizes)))
    return call.views.reshaped(NodeView(node, tuple((AxisFactor(next(numbers), s),) if s != 1 else () for s in sizes)), call.shape())


def _transposed(of: _ConvolutionCall) -> NodeView:
    """Every element adds the kernel, times itself, around its position."""
    call, to, taps, size = of.call, of.to, of.taps, of.size
    axes = ConvolutionAxes({n: size[n] for n in ("b", "g", "o", *to, *taps)}, {"c": size["c"]})
    operands = (
        Operand(of.source.node, axes.at(*(n for n, _ in _axes(of.source, ["b", "g", "c", *to])))),
        Operand(of.kernel.node, axes.at(*(n for n, _ in _axes(of.kernel, ["g", "c", "o", *taps])))),
    )
    updates = call.equations.add(ir.Contract(operands), axes.shape, axes.inner)
    moved = of.places(axes)
    sizes = [size["b"], size["g"], size["o"], *call.shape()[2:]]
    sized = [(n, s) for n, s in zip(["b", "g", "o", *of.at], sizes, strict=True) if s != 1]
    coordinates = tuple(ir.Index(moved[n] if n in moved else axes.place(n)) for n, _ in sized)
    return _result(call, call.equations.add(ir.Scatter(updates, coordinates), tuple(s for _, s in sized)), sizes)


@decomposition("im2col", "unfold_im2col")
def columns(call: OperatorCall) -> NodeView:
    """A column for every position of the kernel."""
    view = call.tensor("self")
    kernel, dilation = _each(call, "kernel_size", 2, 1), _each(call, "dilation", 2, 1)
    padding, stride = _each(call, "padding", 2, 0), _each(call, "stride", 2, 1)
    spots = [
        sp.floor((s + 2 * p - d * (k - 1) - 1) / t) + 1 if t != 1 else sp.expand(s + 2 * p - d * (k - 1))
        for s, k, d, p, t in zip(view.shape[-2:], kernel, dilation, padding, stride, strict=True)
    ]
    lead = view.shape[:-2]
    shape = (*lead, *kernel, *spots)
    n = len(lead)
    places = [ir.Index(place(i)) for i in range(n)]
    places += [ir.Index(sp.expand(stride[i] * place(n + 2 + i) + dilation[i] * place(n + i) - padding[i])) for i in range(2)]
    node = call.equations.add(ir.Gather(full(call, view), tuple(places), sp.Integer(0)), shape)
    return call.views.reshaped(_slim(call, node), (*lead[:-1], product((lead[-1], *kernel)), product(spots)))


@decomposition("unfold")
def unfold(call: OperatorCall) -> NodeView:
    """Windows along one axis; the place in the window is the last axis."""
    view = call.tensor("self")
    axis = call.axis(view, "dimension")
    step = call.integer("step", 1)
    shape = call.shape()
    source = full(call, view)
    last = len(shape) - 1
    places = tuple(ir.Index(place(i) * step + place(last) if i == axis else place(i)) for i in range(last))
    return _slim(call, call.equations.add(ir.Gather(source, places), shape))
