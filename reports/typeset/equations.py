"""Equations written out, in index notation or as matrices, as text or as LaTeX. A tensor of the forward stands by its name; a step of
a gradient that has no name stands inside the equation that reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import sympy as sp

from calc.mathematics.autodiff import ir
from calc.mathematics.autodiff.derived import Derived
from calc.mathematics.autodiff.ir import Operand, argument, place
from calc.mathematics.autodiff.reverse import GradientShare
from calc.mathematics.autodiff.sizes import folded, in_dimensions
from reports.typeset.letters import Letters
from reports.typeset.scalars import Latex, Style, Text

_CLOSE = 90  # binds like one symbol
_PRODUCT, _SUM = 50, 20
OUTSIDE = "an element outside its tensor is 0"
NOISE = "noise is what a dropout or another operator draws at random, anew in each step"


@dataclass(frozen=True, slots=True)
class Written:
    """A piece of an equation and how closely it holds together."""

    text: str
    binds: int = _CLOSE

    def within(self, level: int) -> str:
        """The piece, in brackets where it would fall apart."""
        return self.text if self.binds > level else f"({self.text})"


@dataclass(frozen=True, slots=True)
class EquationLine:
    """One line: what it is of, what that is, its shape, its FLOPs."""

    left: str
    right: str
    shape: str
    flops: sp.Expr

    def __str__(self) -> str:
        return f"{self.left} = {self.right}"


class Writer:
    """Writes the equations of one derivation, names relative to ``layer``; where ``unnamed``, tensors of other layers have no name and are
    listed in ``others``; where ``raw``, as the chain rule gives them."""

    def __init__(
        self, derived: Derived, latex: bool = False, matrix: bool = False, layer: str = "", unnamed: bool = False, raw: bool = False
    ) -> None:
        self._derived = derived
        self._equations = derived.equations
        self._style: Style = Latex() if latex else Text()
        self._matrix = matrix
        self._layer = layer
        self._unnamed = unnamed
        self._names = derived.names_of_every_step if raw else derived.names
        self._letters = Letters(derived.program, frozenset(self._names.of.values()))
        self._gradients = {node: target for target, node in sorted(derived.gradients.of.items())} if raw else _by_node(derived)
        self._forward = False
        self._taken: list[str] = []  # letters of the equations around the one that is being written
        self._sums_without_indices = False
        self.notes: list[str] = []
        self.outside: list[str] = []

    # -- lines --------------------------------------------------------------------------------------------------------

    def forward(self, node: int) -> EquationLine:
        """The equation of a tensor of the forward."""
        return self._readable(lambda: self._forward_line(node))

    def gradient(self, target: int) -> EquationLine:
        """The equation of a tensor's gradient."""
        return self._readable(lambda: self._gradient_line(target))

    def _readable(self, write: Callable[[], EquationLine]) -> EquationLine:
        """An equation as matrices; with indices where a sum in it is no product of two matrices: Σ_j,m,n X W would not say what of X
        is multiplied by what of W."""
        outside, self._sums_without_indices = len(self.outside), False
        line = write()
        if self._matrix and self._sums_without_indices:
            del self.outside[outside:]
            self._matrix = False
            line = write()
            self._matrix = True
        return line

    def _forward_line(self, node: int) -> EquationLine:
        letters = self._letters.start(self._equations[node].shape)
        self._forward = True
        line = self._equation(self._name(node, letters), node, letters)
        self._forward = False
        return line

    def _gradient_line(self, target: int) -> EquationLine:
        step = self._derived.of[target]
        letters = self._letters.start(self._equations[target].shape)
        left = self._indexed(self._style.gradient(self._called(target)), letters)
        if step.node is None:
            return EquationLine(left, "0", self._shape(target), sp.Integer(0))
        return self._of(left, step.node, target, letters)

    def share(self, share: GradientShare) -> EquationLine:
        """What one equation hands to one tensor that it reads."""
        letters = self._letters.start(self._equations[share.target].shape)
        left = self._indexed(self._style.gradient(self._called(share.target)), letters)
        if share.node is None:
            return EquationLine(left, "0", self._shape(share.target), sp.Integer(0))
        return self._of(left, share.node, share.target, letters)

    def _of(self, left: str, node: int, target: int, letters: list[str]) -> EquationLine:
        """The equation of a gradient; one that has a name already stands by that."""
        alias = self._gradients.get(node)
        if alias is not None and alias != target:
            return EquationLine(left, self._reference(alias, letters), self._shape(target), sp.Integer(0))
        if node in self._names.of:
            return EquationLine(left, self._name(node, letters), self._shape(target), sp.Integer(0))
        return self._equation(left, node, letters)

    def _equation(self, left: str, node: int, letters: list[str]) -> EquationLine:
        written = self._body(node, letters)
        inside = list(self._inlined(node))
        return EquationLine(left, written.text, self._shape(node), self._derived.flops(inside))

    def _shape(self, node: int) -> str:
        shape = self._equations[node].shape
        return f"({', '.join(str(in_dimensions(s, self._derived.program)).replace('*', '·') for s in shape)})" if shape else "()"

    def _inlined(self, node: int) -> list[int]:
        """The node and what stands inside its equation."""
        inlined, waiting = [], [node]
        while waiting:
            index = waiting.pop()
            if index not in inlined:
                inlined.append(index)
                waiting += [s for s in ir.sources(self._equations[index].op) if self._is_inside(s)]
        return inlined

    def _is_inside(self, node: int) -> bool:
        names = self._names
        return node not in names.of and node not in names.through and node not in self._gradients

    # -- references ---------------------------------------------------------------------------------------------------

    def _called(self, node: int) -> str:
        names = self._names
        while node in names.through:
            node = ir.sources(self._equations[node].op)[0]
        written = names.of.get(node, f"#{node}")
        shown = relative(written, self._layer)
        if shown in self._derived.program.define:  # W of a layer, where W is the width of the image
            shown = written
        if self._unnamed and shown == written:
            self.outside.append(written)
            return "…"
        return self._style.name(shown)

    def _indexed(self, name: str, letters: Sequence[str]) -> str:
        return name if self._matrix or not letters else f"{name}[{','.join(letters)}]"

    def _name(self, node: int, letters: Sequence[str]) -> str:
        return self._indexed(self._called(node), letters)

    def _reference(self, target: int, letters: Sequence[str]) -> str:
        return self._indexed(self._style.gradient(self._called(target)), self._seen(target, letters))

    def _seen(self, node: int, letters: Sequence[str]) -> list[str]:
        """The letters of what ``node`` is only another view of."""
        while node in self._names.through:
            op = self._equations[node].op
            if isinstance(op, ir.Map):
                letters = [letters[label] for label in op.operands[0].at]
                node = op.operands[0].node
            else:
                node = ir.sources(op)[0]
        return list(letters)

    def _tensor(self, node: int, letters: Sequence[str]) -> Written:
        """A tensor where another equation reads it."""
        names = self._names
        if node in self._gradients and not self._forward:
            return Written(self._reference(self._gradients[node], letters))
        if node in names.of:
            op = self._equations[node].op
            if isinstance(op, ir.Leaf) and op.role == "random":
                self._note(NOISE)
            return Written(self._name(node, letters))
        if node in names.through and node < self._derived.forward:
            op = self._equations[node].op
            source = op.operands[0] if isinstance(op, ir.Map) else Operand(ir.sources(op)[0], tuple(range(len(letters))))
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

    def _primitive(self, index: int, node: ir.Node, every: list[str]) -> Written:
        match node.op:
            case ir.Contract(operands):
                return self._contract(node, operands, every)
            case ir.Map(expr, operands):
                return self._map(expr, operands, every)
            case ir.Reduce(kind, operand):
                return self._reduce(node, kind, operand, every)
            case ir.Gather(source, coordinates, fill):
                if fill == 0:
                    self._note(OUTSIDE)
                return self._at(source, [self._coordinate(c, every) for c in coordinates])
            case ir.Scatter(updates, coordinates):
                return self._scatter(node, updates, coordinates, every)
            case ir.Split(source, axis, count):
                return self._at(source, [*every[:axis], f"({' '.join(every[axis : axis + count])})", *every[axis + count :]])
            case ir.Merge(source, axis, count):
                return self._merge(source, axis, count, every)
            case ir.Concatenate(parts, axis):
                return self._concatenate(parts, axis, every)
            case ir.Cumulate(source, axis, reverse):
                run = self._more((node.shape[axis],), every)[0]
                relation = self._style.at_least if reverse else self._style.at_most
                inner = self._tensor(source, [*every[:axis], run, *every[axis + 1 :]])
                return Written(f"{self._style.sum([f'{run}{relation}{every[axis]}'])} {inner.within(_SUM)}", _SUM + 10)
            case ir.Iota():
                return Written(every[0] if every else "0")
            case ir.Delta(operand):
                return Written(f"[{every[-1]} = {self._operand(operand, every).text}]")
            case ir.Best(kind, operand):
                run_over = [every[i] for i in range(len(node.shape), len(every))]
                return Written(f"{self._style.word(f'arg{kind}')}_{','.join(run_over)} {self._operand(operand, every).within(_PRODUCT)}")
            case ir.Order(source, axis, _):
                return Written(f"{self._style.word('argsort')}_{every[axis]}({self._tensor(source, every).text})")
            case ir.Hold(source, _):
                return self._tensor(source, every)
            case ir.Leaf() | ir.Literal():
                return Written(self._name(index, every))
        return Written("?")

    def _operand(self, operand: Operand, letters: Sequence[str]) -> Written:
        return self._tensor(operand.node, [letters[label] for label in operand.at])

    def _contract(self, node: ir.Node, operands: Sequence[Operand], letters: Sequence[str]) -> Written:
        if self._matrix and len(operands) == 2:
            product = self._matrices(node, operands, letters)
            if product is not None:
                return product
        self._sums_without_indices = True
        factors = self._style.times(" ").join(self._operand(o, letters).within(_PRODUCT) for o in operands)
        inner = letters[len(node.shape) :]
        return Written(f"{self._style.sum(inner)} {factors}", _SUM + 10) if inner else Written(factors, _PRODUCT + 1)

    def _matrices(self, node: ir.Node, operands: Sequence[Operand], letters: Sequence[str]) -> Written | None:
        """A product of two matrices, each turned as it has to be. Labels that both have and keep are for each of them."""
        a, b = operands
        rank = len(node.shape)
        both = set(a.at) & set(b.at)
        summed = list(range(rank, rank + len(node.inner)))
        if any(label not in both for label in summed) or any(label not in {*a.at, *b.at} for label in range(rank)):
            return None
        rows = [label for label in a.at if label not in both]
        columns = [label for label in b.at if label not in both]
        order = [label for label in range(rank) if label not in both]
        if order == [*columns, *rows] and columns and rows:
            a, b, rows, columns = b, a, columns, rows
        elif order != [*rows, *columns]:
            return None
        left, right = self._turned(a, rows, summed, letters), self._turned(b, summed, columns, letters)
        if left is None or right is None:
            return None
        return Written(f"{left}{self._style.times(' ')}{right}", _PRODUCT + 1)

    def _turned(self, operand: Operand, rows: Sequence[int], columns: Sequence[int], letters: Sequence[str]) -> str | None:
        own = [label for label in operand.at if label in rows or label in columns]
        written = self._operand(operand, letters).within(_PRODUCT)
        # A vector stands as a column.
        if own == [*rows, *columns] and not (rows == [] and columns):
            return written
        return f"{written}{self._style.transposed}" if own == [*columns, *rows] else None

    def _map(self, expr: sp.Expr, operands: Sequence[Operand], letters: Sequence[str]) -> Written:
        parts = {argument(i): self._operand(o, letters).within(_SUM + 5) for i, o in enumerate(operands)}
        expr = expr.xreplace({s: in_dimensions(s, self._derived.program) for s in expr.free_symbols if s not in parts})
        text, binds, notes = self._style.scalar(folded(expr, self._derived.program), parts, self._matrix)
        for note in notes:
            self._note(note)
        return Written(text, binds)

    def _reduce(self, node: ir.Node, kind: str, operand: Operand, letters: Sequence[str]) -> Written:
        inner, body = letters[len(node.shape) :], self._operand(operand, letters)
        if kind == "sum":
            return Written(f"{self._style.sum(inner)} {body.within(_SUM + 11)}", _SUM + 10)
        return Written(f"{self._style.over(kind, inner)}({body.text})", _CLOSE)

    def _at(self, source: int, written: list[str]) -> Written:
        return self._tensor(source, written)

    def _coordinate(self, coordinate: ir.Index | ir.Pick, letters: Sequence[str]) -> str:
        if isinstance(coordinate, ir.Pick):
            return self._operand(coordinate.operand, letters).text
        expr = coordinate.expr
        symbols = {place(i): sp.Symbol(letter) for i, letter in enumerate(letters)}
        sizes = {s: self._told_apart(s, letters) for s in expr.free_symbols if s not in symbols}
        return str(expr.xreplace(symbols | sizes)).replace("*", "·").replace(" ", "")

    def _told_apart(self, size: sp.Symbol, letters: Sequence[str]) -> sp.Expr:
        """A size inside a coordinate; |d| where a label there is called d."""
        shown = in_dimensions(size, self._derived.program) if size.name not in self._derived.program.define else size
        for name in sorted(s.name for s in shown.free_symbols if s.name in letters):
            self._note(f"|{name}| is the size, {name} the index")
        return shown.xreplace({s: sp.Symbol(f"|{s.name}|" if s.name in letters else s.name) for s in shown.free_symbols})

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

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
                        back = -shift.xreplace({size: self._told_apart(size, letters) for size in shift.free_symbols})
                        own.setdefault(i, f"{letter}{'' if str(back).startswith('-') else '+'}{back}".replace("*", "·"))
                        self._note(OUTSIDE)
        missing = [i for i in range(len(shape)) if i not in own]
        names = self._more([shape[i] for i in missing], [*letters, *own.values()])
        every = [own[i] if i in own else names[missing.index(i)] for i in range(len(shape))]
        marks = [
            f"[{letter} = {self._coordinate(c, every)}]"
            for letter, c in zip(letters, coordinates, strict=False)
            if isinstance(c, ir.Pick) or (any(c.expr.has(place(i)) for i in missing) or not c.expr.free_symbols)
        ]
        body = " ".join([*marks, self._tensor(updates, every).within(_PRODUCT)])
        self._sums_without_indices |= bool(names)
        return Written(f"{self._style.sum(names)} {body}", _SUM + 10) if names else Written(body, _CLOSE if not marks else _PRODUCT + 1)

    def _merge(self, source: int, axis: int, count: int, letters: Sequence[str]) -> Written:
        """An axis that is several of the source's: its letter stands for all of them."""
        sizes = self._equations[source].shape[axis : axis + count]
        inner = self._more(sizes, letters)
        written = self._tensor(source, [*letters[:axis], *inner, *letters[axis + 1 :]])
        if self._matrix:
            return written
        return Written(f"{written.within(_PRODUCT)} {self._style.where(f'{letters[axis]} = ({chr(32).join(inner)})')}", _SUM)

    def _concatenate(self, parts: Sequence[int], axis: int, letters: Sequence[str]) -> Written:
        tensors = []
        for part in parts:
            length = self._equations[part].shape[axis]
            own = "" if not letters else self._letters.more((length,), [*letters[:axis], *letters[axis + 1 :]])[0]
            tensors.append(self._tensor(part, [*letters[:axis], own, *letters[axis + 1 :]]).text)
        return Written(f"[{'; '.join(tensors)}]", _CLOSE)


def relative(name: str, layer: str) -> str:
    """A name as seen from within a layer."""
    return name.removeprefix(f"{layer}.") if layer else name


def _by_node(derived: Derived) -> Mapping[int, int]:
    """Gradient nodes that have a name: the tensor nearest to the loss whose gradient they are."""
    nearest: dict[int, int] = {}
    for step in derived.steps:  # from the loss back
        if step.node is not None and step.target in derived.names.of:
            nearest.setdefault(step.node, step.target)
    return nearest
