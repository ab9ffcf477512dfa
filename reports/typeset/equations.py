"""Equations written out, in index notation or as matrices, as text or as LaTeX. A tensor of the forward stands by its name; a step of
a gradient that has no name stands inside the equation that reads it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import sympy as sp

from calc.errors import listed
from calc.mathematics.autodiff import ir
from calc.mathematics.autodiff.ir import Operand, argument, place
from calc.mathematics.autodiff.reverse import GradientShare
from calc.mathematics.autodiff.sizes import INFINITY, folded, in_dimensions
from reports.typeset.letters import Letters, contraction_flops_text, flops_text, shape_text
from reports.typeset.matmuls import MatrixProduct, matrix_product
from reports.typeset.padding import bounds
from reports.typeset.scalars import Latex, Style, Text, raised
from reports.typeset.sympy_text import IndexText, Written
from reports.typeset.tensor_names import TensorNames

_PRODUCT, _SUM = 50, 20
_SINGLE_FACTOR = _PRODUCT + 1  # needs no brackets in a product, but under a power or a transpose: A B, ∂ℒ/∂Y
OUTSIDE = "an element outside its tensor is 0"
MERGED = "(a b) is one index over axes a and b, row-major"
CONCATENATED = "[x; y] is x followed by y along the axis that has another index on the left"
INDICATOR = "[a = b] is 1 where a = b, else 0"
RUNNING = "Σ_a≤b is a running sum: over all a up to b"
TIES = "where several elements of a max-pool's window are the maximum, they share the gradient here; torch gives it to the first"
NOISE = "noise is what a dropout or another operator draws at random, anew in each step"


@dataclass(frozen=True, slots=True)
class EquationLine:
    """One line: what it is of, what that is, its shape, its FLOPs, also as text."""

    left: str
    right: str
    shape: str
    flops: sp.Expr
    flops_text: str = ""

    def __str__(self) -> str:
        return f"{self.left} = {self.right}"


@dataclass(slots=True)
class _Notation:
    """What the equation that is being written uses: notes, notation for a legend, letters; whether it needs indices to be true."""

    notes: dict[str, None] = field(default_factory=dict)
    legend: dict[str, None] = field(default_factory=dict)
    letters: set[str] = field(default_factory=set)
    batch: set[str] = field(default_factory=set)
    needs_indices: bool = False


# Steps that are written without indices as well.
_WITHOUT_INDICES = (ir.Contract, ir.Map, ir.Reduce, ir.Hold, ir.Leaf, ir.Literal)


class Writer:
    """Writes the equations of one derivation, in index notation or, where they are true without indices, with ``matrix`` as matrices."""

    def __init__(self, names: TensorNames, latex: bool = False, matrix: bool = False) -> None:
        self._names = names
        self._derived = names.derived
        self._equations = names.derived.equations
        self._style: Style = Latex() if latex else Text()
        self._matrix = matrix
        self._letters = Letters(names.derived.program, names.all)
        self._forward = False
        self._taken: list[str] = []  # letters of the equations around the one that is being written
        self._page = _Notation()
        self._products = False  # matmuls as matrices within an equation that has indices

    @property
    def notes(self) -> tuple[str, ...]:
        """What only this equation needs: the formula of a derivative, what noise is."""
        return tuple(self._page.notes)

    @property
    def legend(self) -> tuple[str, ...]:
        """What the notation of the equation means."""
        return tuple(self._page.legend)

    @property
    def indices(self) -> tuple[tuple[str, str], ...]:
        """Each index that is not the initial of its size, and that size."""
        shown = self._shown
        return tuple((letter, size) for letter, sizes in self._letters.sizes.items() if letter in shown for size in sizes)

    @property
    def has_other_indices(self) -> bool:
        """Whether the equation has an index that is of no one size."""
        return bool(self._shown - self._letters.sizes.keys() - {"0"})

    @property
    def _shown(self) -> set[str]:
        return self._page.letters if self._page.needs_indices or not self._matrix else self._page.batch

    # -- lines --------------------------------------------------------------------------------------------------------

    def forward(self, node: int) -> EquationLine:
        """The equation of a tensor of the forward."""
        return self._readable(lambda: self._forward_line(node))

    def gradient(self, target: int) -> EquationLine:
        """The equation of a tensor's gradient."""
        return self._readable(lambda: self._gradient_line(target))

    def _readable(self, write: Callable[[], EquationLine]) -> EquationLine:
        """An equation as matrices; with indices where it has anything but elementwise operations and products of two matrices: Σ_j,m,n X W
        would not say what of X is multiplied by what of W."""
        outside = len(self._names.outside)
        line = self._attempt(write)
        if self._matrix and self._page.needs_indices:
            del self._names.outside[outside:]
            self._matrix, self._products = False, True
            line = self._attempt(write)
            self._matrix, self._products = True, False
        return line

    def _attempt(self, write: Callable[[], EquationLine]) -> EquationLine:
        self._page = _Notation()
        return write()

    def _forward_line(self, node: int) -> EquationLine:
        letters = self._start(node)
        self._forward = True
        line = self._equation(self._name(node, letters), node, letters)
        self._forward = False
        return line

    def _gradient_line(self, target: int) -> EquationLine:
        step = self._derived.of[target]
        shape = self._equations[target].shape
        letters = ["0" if size == 1 else letter for size, letter in zip(shape, self._start(target), strict=True)]
        left = self._indexed(self._style.gradient(self._styled(target)), letters)
        if step.node is None:
            return EquationLine(left, "0", self._shape(target), sp.Integer(0))
        return self._of(left, step.node, target, letters)

    def share(self, share: GradientShare) -> EquationLine:
        """What one equation hands to one tensor that it reads."""
        letters = self._start(share.target)
        left = self._indexed(self._style.gradient(self._styled(share.target)), letters)
        if share.node is None:
            return EquationLine(left, "0", self._shape(share.target), sp.Integer(0))
        return self._of(left, share.node, share.target, letters)

    def _of(self, left: str, node: int, target: int, letters: list[str]) -> EquationLine:
        """The equation of a gradient; one that has a name already stands by that."""
        alias = self._names.gradients.get(node)
        if alias is not None and alias != target:
            return EquationLine(left, self._reference(alias, letters), self._shape(target), sp.Integer(0))
        if self._names.has(node):
            return EquationLine(left, self._name(node, letters), self._shape(target), sp.Integer(0))
        return self._equation(left, node, letters)

    def _equation(self, left: str, node: int, letters: list[str]) -> EquationLine:
        written = self._body(node, letters)
        inside = self._inlined(node)
        return EquationLine(left, written.text, self._shape(node), self._derived.flops(inside), self._flops_text(inside))

    def _flops_text(self, inside: Sequence[int]) -> str:
        """Empty where no matmul is inside."""
        nodes = [self._equations[index] for index in inside]
        matmuls = [node for node in nodes if isinstance(node.op, ir.Contract) and len(node.op.operands) > 1]
        if len(matmuls) == 1 and len(ir.sources(matmuls[0].op)) == 2:
            return contraction_flops_text(matmuls[0], self._derived.program)
        return flops_text(self._derived.flops(inside), self._derived.program) if matmuls else ""

    def _shape(self, node: int) -> str:
        return shape_text(self._equations[node].shape, self._derived.program)

    def _inlined(self, node: int) -> list[int]:
        """The node and what stands inside its equation."""
        inlined, waiting = [], [node]
        while waiting:
            index = waiting.pop()
            if index not in inlined:
                inlined.append(index)
                waiting += [s for s in ir.sources(self._equations[index].op) if self._names.is_inside(s)]
        return inlined

    # -- references ---------------------------------------------------------------------------------------------------

    def _styled(self, node: int) -> str:
        return self._style.name(self._names.called(node))

    def _indexed(self, name: str, letters: Sequence[str]) -> str:
        if self._matrix or not letters:
            return name
        self._page.letters.update(letters)
        return f"{name}[{','.join(letters)}]"

    def _name(self, node: int, letters: Sequence[str]) -> str:
        return self._indexed(self._styled(node), letters)

    def _reference(self, target: int, letters: Sequence[str]) -> str:
        return self._indexed(self._style.gradient(self._styled(target)), self._names.seen(target, letters))

    def _tensor(self, node: int, letters: Sequence[str]) -> Written:
        """A tensor where another equation reads it."""
        if node in self._names.gradients and not self._forward:
            return Written(self._reference(self._names.gradients[node], letters), _SINGLE_FACTOR)
        if self._names.has(node):
            op = self._equations[node].op
            if isinstance(op, ir.Leaf) and op.role == "random":
                self._page.notes.setdefault(NOISE)
            return Written(self._name(node, letters))
        if self._names.is_view(node):
            source = self._names.plain(Operand(node, tuple(range(len(letters)))))
            self._page.needs_indices |= source.at != tuple(range(len(letters)))
            return self._tensor(source.node, [letters[label] for label in source.at])
        return self._body(node, list(letters))

    # -- primitives ---------------------------------------------------------------------------------------------------

    def _body(self, index: int, letters: Sequence[str]) -> Written:
        node = self._equations[index]
        before = len(self._taken)
        self._taken += letters
        inner = self._more(node.inner, letters)
        self._taken += inner
        written = self._primitive(index, node, [*letters, *inner])
        del self._taken[before:]
        return written

    def _more(self, sizes: Sequence[sp.Expr], used: Sequence[str]) -> list[str]:
        return self._letters.more(sizes, [*used, *self._taken])

    def _start(self, node: int) -> list[str]:
        return self._letters.start(self._equations[node].shape)

    def _primitive(self, index: int, node: ir.Node, every: list[str]) -> Written:
        self._page.needs_indices |= not isinstance(node.op, _WITHOUT_INDICES)
        self._page.letters.update(every)
        match node.op:
            case ir.Contract(operands):
                return self._contract(node, operands, every)
            case ir.Map(expr, operands):
                return self._map(node, expr, operands, every)
            case ir.Reduce(kind, operand):
                return self._reduce(node, kind, operand, every)
            case ir.Gather():
                return self._gather(node, node.op, every)
            case ir.Scatter(updates, coordinates):
                return self._scatter(node, updates, coordinates, every)
            case ir.Split(source, axis, count):
                self._explain(MERGED)
                return self._tensor(source, [*every[:axis], f"({' '.join(every[axis : axis + count])})", *every[axis + count :]])
            case ir.Merge(source, axis, count):
                return self._merge(source, axis, count, every)
            case ir.Concatenate(parts, axis):
                return self._concatenate(parts, axis, every)
            case ir.Cumulate(source, axis, reverse):
                run = self._more((node.shape[axis],), every)[0]
                relation = self._style.at_least if reverse else self._style.at_most
                self._explain(RUNNING)
                self._page.letters.add(run)
                inner = self._tensor(source, [*every[:axis], run, *every[axis + 1 :]])
                return Written(f"{self._style.sum([f'{run}{relation}{every[axis]}'])} {inner.within(_SUM)}", _SUM + 10)
            case ir.Iota():
                return Written(every[0] if every else "0")
            case ir.Delta(operand):
                self._explain(INDICATOR)
                return Written(f"[{every[-1]} = {self._operand(operand, every).text}]")
            case ir.Best(kind, operand):
                run_over = [every[i] for i in range(len(node.shape), len(every))]
                return Written(f"{self._style.word(f'arg{kind}')}_{','.join(run_over)} {self._operand(operand, every).within(_PRODUCT)}")
            case ir.Order(source, axis, descending):
                keys = -argument(0) if descending else argument(0)
                written = self._style.scalar(keys, {argument(0): self._tensor(source, every).bound(_SUM + 5)}, False)[0]
                return Written(f"{self._style.word('argsort')}_{every[axis]}({written.text})")
            case ir.Hold(source, _):
                return self._tensor(source, every)
            case ir.Leaf() | ir.Literal():
                return Written(self._name(index, every))
        return Written("?")

    def _operand(self, operand: Operand, letters: Sequence[str]) -> Written:
        return self._tensor(operand.node, [letters[label] for label in operand.at])

    def _contract(self, node: ir.Node, operands: Sequence[Operand], letters: Sequence[str]) -> Written:
        product = self._matrices(node, operands, letters)
        if product is not None:
            return product
        self._page.needs_indices = True
        factors = self._style.times(" ").join(self._operand(o, letters).within(_PRODUCT) for o in operands)
        inner = letters[len(node.shape) :]
        return Written(f"{self._style.sum(inner)} {factors}", _SUM + 10) if inner else Written(factors, _SINGLE_FACTOR)

    def _matrices(self, node: ir.Node, operands: Sequence[Operand], letters: Sequence[str]) -> Written | None:
        """A contraction in matrix notation; within an equation that has indices as an element of it: (A B)[j,m]."""
        plain = [self._names.plain(o) for o in operands]
        if not (self._matrix or self._products) or len(plain) != 2:
            return None
        product = matrix_product(plain[0].at, plain[1].at, len(node.shape))
        if product is None or self._matrix:
            return None if product is None else self._product(product, plain, letters)
        if product.batch or any(self._names.is_inside(o.node) for o in plain):
            return None
        self._matrix = True
        written = self._product(product, plain, letters).text
        self._matrix = False
        return Written(self._indexed(f"({written})", letters[: len(node.shape)]))

    def _product(self, product: MatrixProduct, operands: Sequence[Operand], letters: Sequence[str]) -> Written:
        """A product of two matrices; of each batch, where both operands have axes that are not summed over."""
        if product.batch:
            batch = [letters[label] for label in product.batch]
            self._page.batch.update(batch)
            self._explain(f"a matrix product is batched over {listed(batch)}, which both factors and the result have")
        factors = [
            self._transposed(self._operand(operands[i], letters)) if transposed else self._operand(operands[i], letters).within(_PRODUCT)
            for i, transposed in zip((product.left, product.right), product.transposed, strict=True)
        ]
        return Written(self._style.times(" ").join(factors), _SINGLE_FACTOR)

    def _transposed(self, factor: Written) -> str:
        """The transpose of a factor: (∂ℒ/∂Y)ᵀ in brackets, as ∂ℒ/∂Yᵀ would be the derivative by Yᵀ."""
        return self._style.transposed(factor.text, factor.binds <= _SINGLE_FACTOR)

    def _map(self, node: ir.Node, expr: sp.Expr, operands: Sequence[Operand], letters: Sequence[str]) -> Written:
        self._page.needs_indices |= not all(_is_trailing(self._names.plain(o).at, len(node.shape)) for o in operands)
        written = [self._operand(operand, letters) for operand in operands]
        tight = {argument(i) for i, w in enumerate(written) if w.binds == _SINGLE_FACTOR} & raised(expr)
        parts = {argument(i): w.bound(_SINGLE_FACTOR if argument(i) in tight else _SUM + 5) for i, w in enumerate(written)}
        sizes = expr.free_symbols - parts.keys() - {INFINITY}
        expr = expr.xreplace({s: in_dimensions(s, self._derived.program) for s in sizes})
        scalar, notes = self._style.scalar(folded(expr, self._derived.program), parts, self._matrix)
        self._page.notes |= dict.fromkeys(notes)
        return scalar

    def _reduce(self, node: ir.Node, kind: str, operand: Operand, letters: Sequence[str]) -> Written:
        self._page.needs_indices |= bool(node.shape)  # of which axis it is
        if kind == "sum":
            return self._sum(node, operand, letters)
        inner, body = letters[len(node.shape) :], self._operand(operand, letters)
        return Written(f"{self._style.over(kind, inner)}({body.text})")

    def _sum(self, node: ir.Node, operand: Operand, letters: Sequence[str]) -> Written:
        """The sum over the inner axes; an axis of size 1 has the index 0 and is not summed over."""
        inner = ["0" if size == 1 else letter for size, letter in zip(node.inner, letters[len(node.shape) :], strict=True)]
        body = self._operand(operand, [*letters[: len(node.shape)], *inner])
        if self._counts_ties_of_pool(operand.node):
            self._page.notes.setdefault(TIES)
        summed = [letter for letter in inner if letter != "0"]
        return Written(f"{self._style.sum(summed)} {body.within(_SUM + 11)}", _SUM + 10) if summed else body

    def _counts_ties_of_pool(self, index: int) -> bool:
        """Whether a node is 1 where an element of a max-pool's window is the maximum, else 0."""
        op = self._equations[index].op
        if not isinstance(op, ir.Map) or not op.expr.has(sp.Eq):
            return False
        maxima = [self._equations[o.node] for o in op.operands]
        return any(isinstance(each.op, ir.Reduce) and each.op.kind == "max" and "max_pool" in each.operator for each in maxima)

    def _gather(self, node: ir.Node, op: ir.Gather, letters: Sequence[str]) -> Written:
        """An element of the source; with a fill, that where the element would be outside."""
        coordinates = [self._coordinate(c, letters) for c in op.coordinates]
        element = self._tensor(op.source, coordinates)
        limits = [] if op.fill is None else list(bounds(op.coordinates, self._equations[op.source].shape, node.shape))
        if not limits:
            return element
        if op.fill == 0:
            self._explain(OUTSIDE)
            return element
        conditions = [(coordinates[i], relation, self._size(number)) for i, relation, number in limits]
        return Written(self._style.cases(element.text, conditions, self._style.scalar(op.fill, {}, False)[0].text))

    def _coordinate(self, coordinate: ir.Index | ir.Pick, letters: Sequence[str]) -> str:
        if isinstance(coordinate, ir.Pick):
            return self._operand(coordinate.operand, letters).text
        symbols = {place(i): sp.Symbol(letter) for i, letter in enumerate(letters)}
        indices = [term for term in sp.Add.make_args(coordinate.expr) if term.has(*symbols)]
        sizes = {s: in_dimensions(s, self._derived.program) for term in indices for s in term.free_symbols if s not in symbols}
        rest = in_dimensions(coordinate.expr - sp.Add(*indices), self._derived.program)
        return IndexText().after(sp.Add(*indices).xreplace(symbols | sizes), rest)

    def _size(self, size: sp.Expr) -> str:
        return IndexText().write(in_dimensions(size, self._derived.program))

    def _explain(self, notation: str) -> None:
        self._page.legend.setdefault(notation)

    def _scatter(self, node: ir.Node, updates: int, coordinates: Sequence[ir.Index | ir.Pick], letters: Sequence[str]) -> Written:
        """Σ of the updates whose place this is."""
        shape = self._equations[updates].shape
        own: dict[int, str] = {}
        for letter, coordinate in zip(letters, coordinates, strict=False):
            for i in range(len(shape)):
                if coordinate == ir.Index(place(i)):
                    own.setdefault(i, letter)
                elif (
                    isinstance(coordinate, ir.Index)
                    and coordinate.expr.is_Add
                    and sp.expand(coordinate.expr - place(i)).is_constant(place(i))
                ):
                    shift = sp.expand(coordinate.expr - place(i))
                    if not any(shift.has(place(j)) for j in range(len(shape))):
                        own.setdefault(i, IndexText().after(sp.Symbol(letter), in_dimensions(-shift, self._derived.program)))
                        self._explain(OUTSIDE)
        missing = [i for i in range(len(shape)) if i not in own]
        names = self._more([shape[i] for i in missing], [*letters, *own.values()])
        every = [own[i] if i in own else names[missing.index(i)] for i in range(len(shape))]
        marks = [
            f"[{letter} = {self._coordinate(c, every)}]"
            for letter, c, size in zip(letters, coordinates, node.shape, strict=True)
            if size != 1 and (isinstance(c, ir.Pick) or (any(c.expr.has(place(i)) for i in missing) or not c.expr.free_symbols))
        ]
        self._page.letters.update(names)
        written = self._tensor(updates, every)
        if marks:
            self._explain(INDICATOR)
            written = Written(" ".join([*marks, written.within(_PRODUCT)]), _SINGLE_FACTOR)
        return Written(f"{self._style.sum(names)} {written.within(_PRODUCT)}", _SUM + 10) if names else written

    def _merge(self, source: int, axis: int, count: int, letters: Sequence[str]) -> Written:
        """An axis that is several of the source's: its letter stands for all of them."""
        sizes = self._equations[source].shape[axis : axis + count]
        inner = self._more(sizes, letters)
        written = self._tensor(source, [*letters[:axis], *inner, *letters[axis + 1 :]])
        self._explain(MERGED)
        return Written(f"{written.within(_PRODUCT)} {self._style.where(f'{letters[axis]} = ({chr(32).join(inner)})')}", _SUM)

    def _concatenate(self, parts: Sequence[int], axis: int, letters: Sequence[str]) -> Written:
        self._explain(CONCATENATED)
        tensors = []
        for part in parts:
            length = self._equations[part].shape[axis]
            own = "" if not letters else self._letters.more((length,), [*letters[:axis], *letters[axis + 1 :]])[0]
            tensors.append(self._tensor(part, [*letters[:axis], own, *letters[axis + 1 :]]).text)
        return Written(f"[{'; '.join(tensors)}]")


def _is_trailing(at: Sequence[int], rank: int) -> bool:
    """Whether a tensor with these labels has the last axes of ``rank``, in order, as broadcasting aligns them."""
    return tuple(at) == tuple(range(rank - len(at), rank))
