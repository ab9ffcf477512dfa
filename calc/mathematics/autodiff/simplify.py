"""Gradients in textbook form: fused element by element, with sums simplified by the forward's definitions.

The chain rule gives an equation for every step of a definition. Here the steps between two contractions, gathers or residual sums become
one expression, its sums get a normal form, and a named tensor of the forward replaces the expression that defines it (P for E/Z, n for x
r). Anything that is not a scalar expression stays an equation. A vanishing gradient simplifies to zero.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import sympy as sp

from calc.mathematics.autodiff import ir
from calc.mathematics.autodiff.ir import Equations, Operand, argument
from calc.mathematics.autodiff.naming import relations
from calc.mathematics.autodiff.reverse import Gradients
from calc.mathematics.autodiff.slices import adjacent_slices, slice_of
from calc.mathematics.autodiff.summing import Summing
from calc.mathematics.autodiff.terms import Element, Poly, Symbols, TooLarge, Total, expand, spelled, together
from calc.mathematics.autodiff.zero_sums import sums_to_zero

_SUMS = ("sum", "mean")


@dataclass(frozen=True, slots=True)
class Simplified:
    """The gradient of ``target``: ``raw`` from the chain rule, ``node`` after simplification (None: zero), and the reasons."""

    target: int
    raw: int
    node: int | None
    because: tuple[tuple[str, int], ...]


def simplify(equations: Equations, forward: int, gradients: Gradients, targets: Collection[int]) -> list[Simplified]:
    """The gradients of the wanted leaves and of every tensor at which the forward is cut, from the loss back."""
    work = _Work(equations, forward, gradients, targets)
    results = []
    for target in sorted((t for t in gradients.reached if t in work.cuts), reverse=True):
        if target not in gradients.of:
            results.append(Simplified(target, -1, None, ()))
            continue
        work.summing.facts.clear()
        equations.module_path, equations.operator = equations[target].module_path, equations[target].operator
        node = work.simplified(gradients.of[target])
        if node is None:
            work.summing.invariant(0)
        results.append(Simplified(target, gradients.of[target], node, tuple(dict.fromkeys(work.summing.facts))))
    return results


def cut(equations: Equations, forward: int, targets: Collection[int]) -> set[int]:
    """The tensors whose gradients a reader would name: operands and results of contractions and gathers, residual sums, leaves, and tensors
    passed between modules."""
    indices = set(targets)
    for node in equations.nodes[:forward]:
        if not node.integral:
            indices.update(s for s in ir.sources(node.op) if equations[s].module_path != node.module_path)
        if isinstance(node.op, ir.Map | ir.Reduce | ir.Delta | ir.Hold):
            if isinstance(node.op, ir.Map) and _is_plain_sum(node.op):
                indices.add(node.index)
        else:
            indices.add(node.index)
            indices.update(ir.sources(node.op))
    return {index for index in indices if index < forward}


def _is_plain_sum(op: ir.Map) -> bool:
    return len(op.operands) > 1 and op.expr == sp.Add(*(argument(i) for i in range(len(op.operands))))


class _Work:
    def __init__(self, equations: Equations, forward: int, gradients: Gradients, targets: Collection[int]) -> None:
        self.equations = equations
        self.forward = forward
        self.cuts = cut(equations, forward, targets)
        self.symbols = Symbols()
        self.summing = Summing(equations, forward, self.symbols, self._sums_to_zero)
        self._stops = {gradients.of[t] for t in self.cuts if t in gradients.of}
        self._memo: dict[int, int | None] = {}
        self._inner: dict[int, sp.Expr] = {}
        self._relations = relations(equations, forward)

    def _sums_to_zero(self, index: int, axes: Collection[int]) -> bool:
        return sums_to_zero(self.equations, self.summing, index, axes)

    def simplified(self, raw: int) -> int | None:
        """The node that replaces ``raw``; None if it is zero."""
        if raw < self.forward:
            return raw
        if raw not in self._memo:
            op = self.equations[raw].op
            short = self._beside_one_another(raw)
            if short is None and isinstance(op, ir.Map | ir.Reduce) and (isinstance(op, ir.Map) or op.kind in _SUMS):
                try:
                    short = self._scalar(raw)
                except TooLarge:
                    short = self._rebuilt(raw)
            elif short is None:
                short = self._rebuilt(raw)
            self._memo[raw] = short
            if short is not None:
                self._memo[short] = short
        return self._memo[raw]

    # -- scalar expressions -------------------------------------------------------------------------------------------

    def _scalar(self, raw: int) -> int | None:
        node = self.equations[raw]
        poly = self.summing.normal(self._inlined(raw))
        poly = self._in_names(poly)
        if not poly:
            return None
        built = self._built(poly, dict(enumerate(node.shape)), node.shape)
        self.summing.written.setdefault(built, self.summing.expr(poly))
        return built

    def _inlined(self, raw: int) -> sp.Expr:
        """The expression of a Map or a sum over labels 0, 1, …, with intermediate steps substituted."""
        if raw not in self._inner:
            node = self.equations[raw]
            op = node.op
            if isinstance(op, ir.Map):
                parts = {argument(i): self._operand(o) for i, o in enumerate(op.operands)}
                self._inner[raw] = self.summing.expr(self.summing.normal(op.expr.xreplace(parts)))
            else:
                assert isinstance(op, ir.Reduce)
                rank = len(node.shape)
                bound = {rank + i: size for i, size in enumerate(node.inner)}
                poly = self.summing.total(self.summing.normal(self._operand(op.operand)), bound)
                expr = self.summing.expr(poly)
                self._inner[raw] = expr / sp.Mul(*node.inner) if op.kind == "mean" else expr
        return self._inner[raw]

    def _operand(self, operand: Operand) -> sp.Expr:
        index = operand.node
        node = self.equations[index]
        if isinstance(node.op, ir.Map) and not node.op.operands:
            return node.op.expr
        inner = isinstance(node.op, ir.Map) or (isinstance(node.op, ir.Reduce) and node.op.kind in _SUMS)
        if index >= self.forward and inner and index not in self._stops and index not in self._memo:
            return self.symbols.renamed(self._inlined(index), dict(enumerate(operand.at)))
        short = self.simplified(index)
        return sp.Integer(0) if short is None else self.symbols.element(short, operand.at)

    # -- names of the forward in place of what they are made of -------------------------------------------------------

    def _in_names(self, poly: Poly) -> Poly:
        for _ in range(6):
            best = min(self._candidates(poly), key=lambda each: self._weight(each[0]), default=None)
            if best is None or self._weight(best[0]) >= self._weight(poly):
                return poly
            poly = best[0]
            self.summing.facts.append(("shorter in terms of", best[1]))
        return poly

    def _candidates(self, poly: Poly) -> list[tuple[Poly, int]]:
        """The polynomial with one tensor expressed by another that the forward computes from it."""
        present = self.symbols.nodes(self.summing.expr(poly))
        rewrites = []
        for relation in self._relations:
            if relation.gone in present and relation.partners <= present:
                try:
                    rewrites.append((self._substituted(poly, relation.gone, relation.at, relation.result, relation.expr), relation.result))
                except TooLarge:
                    continue
        return rewrites

    def _substituted(self, poly: Poly, gone: int, at: Sequence[int], result: int, expr: sp.Expr) -> Poly:
        """``gone`` replaced by ``expr`` of the result (``argument(0)``) and the other operands; ``at``: see ``naming``."""
        full = self.summing.expr(poly)
        changed: dict[sp.Symbol, sp.Expr] = {}
        for s in full.free_symbols:
            meaning = self.symbols.meaning.get(s)
            if isinstance(meaning, Element) and meaning.node == gone:
                labels = [meaning.labels[list(at).index(label)] for label in range(len(at))]
                changed[s] = self._as_relation(result, labels, gone, expr)
            elif isinstance(meaning, Total) and gone in self.symbols.nodes(meaning.inner):
                inner = self._substituted(self.summing.normal(meaning.inner), gone, at, result, expr)
                total = self.summing.total(inner, dict(zip(meaning.bound, meaning.sizes, strict=True)))
                changed[s] = self.summing.expr(total)
        return self.summing.normal(full.xreplace(changed))

    def _as_relation(self, result: int, labels: Sequence[int], gone: int, expr: sp.Expr) -> sp.Expr:
        op = self.equations[result].op
        assert isinstance(op, ir.Map)
        parts = {argument(0): self.symbols.element(result, labels)}
        for i, operand in enumerate(op.operands):
            if operand.node != gone:
                parts[argument(i + 1)] = self.symbols.element(operand.node, (labels[label] for label in operand.at))
        return expr.xreplace(parts)

    def _weight(self, poly: Poly) -> tuple[int, int]:
        """Number of divisions by tensors, then number of factors."""
        divisions = length = 0
        for monomial in poly:
            for factor, power in monomial:
                meaning = self.symbols.meaning.get(factor)
                if isinstance(meaning, Total):
                    inner = self._weight(expand(meaning.inner))
                    divisions, length = divisions + inner[0], length + inner[1] + 1
                elif meaning is None and not factor.has(*self.symbols.meaning):
                    continue
                divisions += int(bool(power < 0) and (isinstance(meaning, Element) or meaning is None))
                length += max(1, int(sp.ceiling(abs(power)))) if meaning is not None else int(sp.count_ops(factor)) + 1
        return divisions, length

    # -- back to equations --------------------------------------------------------------------------------------------

    def _built(self, poly: Poly, sizes: Mapping[int, sp.Expr], shape: ir.Shape) -> int:
        """The polynomial as a Map over the labels of ``shape``; sums become reductions of their own."""
        expr = together(poly)
        parts: dict[sp.Symbol, sp.Expr] = {}
        operands: list[Operand] = []
        means: dict[sp.Symbol, sp.Expr] = {}
        for s in sorted(expr.free_symbols, key=self._order):
            meaning = self.symbols.meaning.get(s)
            if meaning is None:
                continue
            if isinstance(meaning, Total):
                kind = "mean" if _is_mean(poly, s, meaning) else "sum"
                if kind == "mean":
                    means[s] = sp.Mul(*meaning.sizes)
                operands.append(self._reduced(meaning, sizes, kind))
            else:
                operands.append(Operand(meaning.node, meaning.labels))
            parts[s] = argument(len(operands) - 1)
        if means:  # a sum is its mean as often as it has addends
            expr = together(expand(expr.xreplace({s: s * count for s, count in means.items()})))
        return self.equations.map(spelled(expr.xreplace(parts)), tuple(operands), shape)

    def _order(self, s: sp.Symbol) -> tuple[int, ...]:
        """Sort key: tensors in the order of computation, then sums, so that identical layers read alike."""
        meaning = self.symbols.meaning.get(s)
        if isinstance(meaning, Element):
            return (0, meaning.node, *meaning.labels)
        return (1, *sorted(self.symbols.nodes(meaning.inner))) if meaning is not None else (2,)

    def _reduced(self, total: Total, sizes: Mapping[int, sp.Expr], kind: str) -> Operand:
        """A sum as a node, with the labels it leaves."""
        free = sorted(self.symbols.labels(total.inner) - set(total.bound))
        order = {label: i for i, label in enumerate((*free, *total.bound))}
        every = {**{order[label]: sizes[label] for label in free}, **{order[b]: n for b, n in zip(total.bound, total.sizes, strict=True)}}
        inner = self.symbols.renamed(total.inner, order)
        lead = tuple(every[i] for i in range(len(free)))
        all_labels = tuple(every[i] for i in range(len(order)))
        single = self.symbols.meaning.get(inner)
        if isinstance(single, Element):
            operand = Operand(single.node, single.labels)
        else:
            operand = self.equations.same(self._built(expand(inner), every, all_labels))
        return Operand(self.equations.total(operand, lead, total.sizes, kind), tuple(free))

    # -- other equations ----------------------------------------------------------------------------------------------

    def _rebuilt(self, raw: int) -> int | None:
        """The same equation over simplified sources."""
        node = self.equations[raw]
        op = node.op
        match op:
            case ir.Contract(operands):
                sources = [self.simplified(o.node) for o in operands]
                if any(m is None for m in sources):
                    return None
                operands_ = tuple(Operand(m, o.at) for m, o in zip(sources, operands, strict=True) if m is not None)
                return self.equations.add(ir.Contract(operands_), node.shape, node.inner)
            case ir.Map(expr, operands):
                sources = [self.simplified(o.node) for o in operands]
                expr = expr.xreplace({argument(i): sp.Integer(0) for i, m in enumerate(sources) if m is None})
                operands_ = tuple(Operand(raw if m is None else m, o.at) for m, o in zip(sources, operands, strict=True))
                return None if expr == 0 else self.equations.map(expr, operands_, node.shape)
            case ir.Reduce(kind, operand):
                source = self.simplified(operand.node)
                return None if source is None else self.equations.total(Operand(source, operand.at), node.shape, node.inner, kind)
            case ir.Gather(source, coordinates, fill):
                made_one = self.simplified(source)
                return None if made_one is None else self.equations.add(ir.Gather(made_one, coordinates, fill), node.shape)
            case ir.Scatter(updates, coordinates):
                made_one = self.simplified(updates)
                return None if made_one is None else self.equations.add(ir.Scatter(made_one, coordinates), node.shape)
            case ir.Split(source, axis, count) | ir.Merge(source, axis, count):
                made_one = self.simplified(source)
                return None if made_one is None else self._regrouped(type(op), made_one, axis, count, node.shape)
            case ir.Cumulate(source, axis, reverse):
                made_one = self.simplified(source)
                return None if made_one is None else self.equations.add(ir.Cumulate(made_one, axis, reverse), node.shape)
            case ir.Concatenate(parts, axis):
                return self._joined([(self.simplified(p), self.equations[p].shape) for p in parts], axis, node.shape)
        return raw

    def _regrouped(self, kind: type[ir.Split] | type[ir.Merge], source: int, axis: int, count: int, shape: ir.Shape) -> int:
        """A split of what was just merged is what there was before."""
        op = self.equations[source].op
        if isinstance(op, ir.Split | ir.Merge) and type(op) is not kind and (op.axis, op.count) == (axis, count):
            before = self.equations[op.source]
            if before.shape == shape:
                return op.source
        return self.equations.add(kind(source, axis, count), shape)

    def _joined(self, parts: Sequence[tuple[int | None, ir.Shape]], axis: int, shape: ir.Shape) -> int | None:
        if all(source is None for source, _ in parts):
            return None
        sources = tuple(self.equations.map(sp.Integer(0), (), part) if source is None else source for source, part in parts)
        return self.equations.add(ir.Concatenate(sources, axis), shape)

    def _beside_one_another(self, raw: int) -> int | None:
        """Parts that were cut off one tensor lie beside one another again; a sum over other axes is taken part by part."""
        node = self.equations[raw]
        op = node.op
        if isinstance(op, ir.Map) and _is_plain_sum(op):
            slices = [slice_of(self.equations, o, node.shape) for o in op.operands]
            joined = adjacent_slices(self.equations, [s for s in slices if s is not None], node.shape) if None not in slices else None
            if joined is not None:
                axis, sources = joined
                return self._joined([(self.simplified(s), self.equations[s].shape) for s in sources], axis, node.shape)
        if isinstance(op, ir.Reduce) and op.kind in _SUMS and op.operand.node >= self.forward:
            source = self.simplified(op.operand.node)
            inner = None if source is None else self.equations[source].op
            if isinstance(inner, ir.Concatenate) and op.operand.at[inner.axis] < len(node.shape):
                return self._part_by_part(node, op, inner)
        return None

    def _part_by_part(self, node: ir.Node, op: ir.Reduce, inner: ir.Concatenate) -> int | None:
        axis = op.operand.at[inner.axis]
        pieces: list[tuple[int | None, ir.Shape]] = []
        for part in inner.parts:
            shape = tuple(self.equations[part].shape[inner.axis] if i == axis else s for i, s in enumerate(node.shape))
            summed = self.equations.add(ir.Reduce(op.kind, Operand(part, op.operand.at)), shape, node.inner)
            before = len(self.summing.facts)
            pieces.append((self.simplified(summed), shape))
            if pieces[-1][0] is None:
                self.summing.invariant(before)
        return self._joined(pieces, axis, node.shape)


def _is_mean(poly: Poly, s: sp.Symbol, total: Total) -> bool:
    """Whether a sum is only ever divided by its number of addends. A sum that divides is none: g/Σ ties is shorter than g/(9·mean ties)."""
    if all(size == 1 for size in total.sizes) or any(dict(m).get(s, 0) < 0 for m in poly):
        return False
    ((sizes, _),) = expand(sp.Mul(*total.sizes)).items()
    return all(dict(m).get(s, 0) == 0 or all(dict(m).get(f, 0) <= -p for f, p in sizes) for m in poly)
