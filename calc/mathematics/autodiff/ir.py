"""Tensor equations: each node is one equation for one tensor, by one of a few primitives.

Labels are integers. In a node of rank r, labels 0 … r-1 are the axes of its result, in order; labels from r on are summed over (or
reduced), and their sizes are in ``inner``. An operand gives the label of each of its axes, so a transpose or a broadcast needs no
operator. Plain data; sizes are SymPy expressions in the basis symbols.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import sympy as sp

from calc.mathematics.autodiff.sizes import product

Shape = tuple[sp.Expr, ...]


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor and the label of each of its axes."""

    node: int
    at: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Leaf:
    """A tensor that no equation computes: ``role`` is parameter, buffer, input or random, ``name`` identifies it. Random numbers are drawn
    by an ``operator``, the one with this ``place`` in the run."""

    role: str
    name: str
    operator: str = ""
    place: int = 0


@dataclass(frozen=True, slots=True)
class Literal:
    """Constants from the model's code, in row-major order."""

    data: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Iota:
    """Y[i] = i."""


@dataclass(frozen=True, slots=True)
class Contract:
    """Y[out] = Σ_inner of the product of the operands."""

    operands: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Map:
    """Y[out] = expr, a scalar expression in ``argument(0)``, ``argument(1)``, … for the operands."""

    expr: sp.Expr
    operands: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Reduce:
    """Y[out] = sum, mean, max, min or prod over the inner labels."""

    kind: str
    operand: Operand


@dataclass(frozen=True, slots=True)
class Index:
    """A coordinate computed from the labels: ``place(0)``, ``place(1)``, …"""

    expr: sp.Expr


@dataclass(frozen=True, slots=True)
class Pick:
    """A coordinate read from an integer tensor."""

    operand: Operand


@dataclass(frozen=True, slots=True)
class Gather:
    """Y[out] = source[coordinates]; ``fill`` where a coordinate is out of range (``None``: it never is)."""

    source: int
    coordinates: tuple[Index | Pick, ...]
    fill: sp.Expr | None = None


@dataclass(frozen=True, slots=True)
class Scatter:
    """Y[coordinates] += updates, starting from zeros. Labels are the axes of ``updates``; elements out of range are dropped."""

    updates: int
    coordinates: tuple[Index | Pick, ...]


@dataclass(frozen=True, slots=True)
class Split:
    """Axis ``axis`` of the source, row-major, as ``count`` axes."""

    source: int
    axis: int
    count: int


@dataclass(frozen=True, slots=True)
class Merge:
    """``count`` axes from ``axis`` on as one, row-major."""

    source: int
    axis: int
    count: int


@dataclass(frozen=True, slots=True)
class Concatenate:
    """The parts concatenated along ``axis``; all have the labels in order."""

    parts: tuple[int, ...]
    axis: int


@dataclass(frozen=True, slots=True)
class Cumulate:
    """Running sums along ``axis``, from the end where ``reverse``."""

    source: int
    axis: int
    reverse: bool = False


@dataclass(frozen=True, slots=True)
class Order:
    """Positions that sort the source along ``axis``; no gradient."""

    source: int
    axis: int
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Best:
    """Position of the largest (``max``) or smallest (``min``) element over the inner label; no gradient."""

    kind: str
    operand: Operand


@dataclass(frozen=True, slots=True)
class Delta:
    """δ[…, v] = 1 where v is the number in ``index``, else 0. The new axis is the last; every index is in range."""

    index: Operand


@dataclass(frozen=True, slots=True)
class Hold:
    """The source, as a constant to the chain rule (detach). ``free``: the loss does not depend on its value, so a central difference is
    also 0."""

    source: int
    because: str
    free: bool = False


Primitive = (
    Leaf
    | Literal
    | Iota
    | Contract
    | Map
    | Reduce
    | Gather
    | Scatter
    | Split
    | Merge
    | Concatenate
    | Cumulate
    | Order
    | Best
    | Delta
    | Hold
)


@dataclass(frozen=True, slots=True)
class Node:
    """One equation. ``module_path`` is where it runs, ``name`` names the tensor, ``integral`` marks integers or booleans. ``inside``
    marks a step within a definition, such as the sum in a softmax."""

    index: int
    op: Primitive
    shape: Shape
    inner: Shape = ()
    module_path: str = ""
    name: str = ""
    integral: bool = False
    inside: bool = False
    operator: str = ""

    def size(self, label: int) -> sp.Expr:
        return (*self.shape, *self.inner)[label]

    @property
    def multiplications(self) -> sp.Expr:
        """The product of all sizes: how often a contraction multiplies and adds."""
        return product((*self.shape, *self.inner))


def argument(i: int) -> sp.Symbol:
    """The symbol of a Map's operand i."""
    return sp.Symbol(f"x_{i}", real=True)


def place(label: int) -> sp.Symbol:
    """The symbol of a label in a coordinate."""
    return sp.Symbol(f"i_{label}", integer=True, nonnegative=True)


def sources(op: Primitive) -> tuple[int, ...]:
    """The nodes that an equation reads, in order, with repetitions."""
    match op:
        case Contract(operands) | Map(_, operands):
            return tuple(o.node for o in operands)
        case Reduce(_, operand) | Best(_, operand) | Delta(operand):
            return (operand.node,)
        case Gather(source, coordinates, _) | Scatter(source, coordinates):
            return (source, *(c.operand.node for c in coordinates if isinstance(c, Pick)))
        case Concatenate(parts, _):
            return parts
        case Leaf() | Literal() | Iota():
            return ()
    return (op.source,)


class Equations:
    """A growing list of equations without duplicates; but a contraction that a forward executes twice (``run`` distinguishes the calls)
    appears twice."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._indices: dict[Any, int] = {}
        self.module_path = ""
        self.operator = ""
        self.inside = False
        self.run: int | None = None

    def __getitem__(self, index: int) -> Node:
        return self.nodes[index]

    def add(self, op: Primitive, shape: Shape, inner: Shape = (), name: str = "", integral: bool = False) -> int:
        """The index of the node with this equation."""
        key = (op, shape, inner, self.run if isinstance(op, Contract) else None)
        existing = self._indices.get(key)
        if existing is not None:
            return existing
        index = len(self.nodes)
        self.nodes.append(Node(index, op, shape, inner, self.module_path, name, integral, self.inside, self.operator))
        self._indices[key] = index
        return index

    def call(self, node: int, name: str) -> None:
        """Name a node that has no name yet."""
        unnamed = self.nodes[node]
        if not unnamed.name and not isinstance(unnamed.op, Leaf | Literal):
            self.nodes[node] = replace(unnamed, name=name)

    def same(self, node: int) -> Operand:
        """The node with its labels in order."""
        return Operand(node, tuple(range(len(self[node].shape))))

    def map(self, expr: sp.Expr, operands: tuple[Operand, ...], shape: Shape, **about: Any) -> int:
        """A Map with only the operands that occur in it, each once, and constants as numbers."""
        distinct: list[Operand] = []
        names: dict[sp.Symbol, sp.Expr] = {}
        for i, operand in enumerate(operands):
            number = self[operand.node].op
            if isinstance(number, Map) and not number.operands:
                names[argument(i)] = number.expr
            elif expr.has(argument(i)):
                if operand not in distinct:
                    distinct.append(operand)
                names[argument(i)] = argument(distinct.index(operand))
        expr = expr.xreplace(names)
        if expr == argument(0) and distinct == [Operand(distinct[0].node, tuple(range(len(shape))))]:
            return distinct[0].node
        return self.add(Map(expr, tuple(distinct)), shape, **about)

    def total(self, operand: Operand, shape: Shape, inner: Shape, kind: str = "sum", **about: Any) -> int:
        """A reduction, or the operand itself if no label is reduced."""
        if not inner and operand.at == tuple(range(len(shape))):
            return operand.node
        if not inner:
            return self.map(argument(0), (operand,), shape, **about)
        return self.add(Reduce(kind, operand), shape, inner, **about)
