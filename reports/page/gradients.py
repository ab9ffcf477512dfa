"""The equations that ``napkin gradients`` prints: forward, then gradients from the loss backwards; equal layers once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from calc.mathematics.autodiff import ir
from calc.mathematics.autodiff.derived import Derived
from calc.mathematics.autodiff.names import layer_of
from calc.mathematics.autodiff.numeric import needed
from reports.typeset.equations import EquationLine, Writer
from reports.typeset.tensor_names import TensorNames, relative

FORWARD, GRADIENT, PARAMETER = "forward", "gradient", "parameter gradient"


@dataclass(frozen=True, slots=True)
class Notation:
    """What the notation of equations means, and the ``indices`` that are not the initial of their size, each with a size that it is of.
    ``has_others``: whether there are indices that are of no one size."""

    legend: tuple[str, ...] = ()
    indices: tuple[tuple[str, str], ...] = ()
    has_others: bool = False

    @property
    def sentence(self) -> str:
        """Everything as one sentence; empty where nothing needs it."""
        sizes: dict[str, list[str]] = {}
        for letter, size in self.indices:
            sizes.setdefault(letter, []).append(size)
        indices = [f"{letter} {'of' if i else 'is an index of'} {' or '.join(of)}" for i, (letter, of) in enumerate(sizes.items())]
        parts = [*([", ".join(indices)] if indices else []), *([OTHER_INDICES] if self.has_others else []), *self.legend]
        return f"In these equations: {'; '.join(parts)}." if parts else ""


NO_NOTATION = Notation()
OTHER_INDICES = "every other index runs over the axis at its position in the shape"


def together(notations: Iterable[Notation]) -> Notation:
    """The notation of several equations."""
    every = list(notations)
    legend = dict.fromkeys(words for notation in every for words in notation.legend)
    indices = dict.fromkeys(index for notation in every for index in notation.indices)
    return Notation(tuple(legend), tuple(indices), any(notation.has_others for notation in every))


@dataclass(frozen=True, slots=True)
class EquationEntry:
    """One equation. ``of``: the full name of its tensor. ``group``: its layer, or empty. ``notes``: what it alone needs to be read.
    ``notation``: what a legend says. To compare layers: ``unnamed`` is the equation as text without the names of tensors of other layers,
    which ``outside`` lists in order."""

    kind: str
    of: str
    group: str
    equation: EquationLine
    because: tuple[str, ...] = ()
    zero: bool = False
    notes: tuple[str, ...] = ()
    notation: Notation = NO_NOTATION
    unnamed: str = ""
    outside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EquationGroup:
    """Equations of one layer, or of several equal layers; ``title`` is then their pattern, ``h.*``, and the equations are those of the
    first. ``replaced``: each tensor outside the first layer that has another one in its place in the last, and that one."""

    title: str
    layers: tuple[str, ...]
    entries: tuple[EquationEntry, ...]
    replaced: tuple[tuple[str, str], ...] = ()

    @property
    def outside(self) -> tuple[str, ...]:
        """The tensors of other layers in the equations, in order of appearance, one for each place."""
        return tuple(name for entry in self.entries for name in entry.outside)


def in_place_of(layer: str, replaced: Sequence[tuple[str, str]]) -> str:
    """What ``layer`` reads in place of tensors outside the layer whose equations are shown; empty where it reads the same."""
    return f"{layer} has {' and '.join(f'{new} in place of {old}' for old, new in replaced)}" if replaced else ""


def entries(
    derived: Derived, matrix: bool = False, latex: bool = False, only: str | None = None, forward_only: bool = False
) -> list[EquationEntry]:
    """Every equation: forward, then gradients from the loss backwards. With ``only``: the gradients that this parameter's gradient uses."""
    targets = None if only is None else _resting(derived, only)
    steps = () if forward_only else derived.steps
    collected = [] if only is not None else _forward(derived, [step.node for step in steps if step.node is not None], matrix, latex)
    place, leaves = _Places(derived), set(derived.parameters.values())
    for step in sorted(steps, key=lambda s: place.order(s.target), reverse=True):
        target = step.target
        if target not in derived.names.of or (targets is not None and target not in targets):
            continue
        node = derived.equations[target]
        if isinstance(node.op, ir.Leaf) and target not in leaves:
            continue
        group = layer_of(place.module_path_of_reader(target))
        writer = Writer(TensorNames(derived, group), latex, matrix)
        equation = writer.gradient(target)
        kind = PARAMETER if target in leaves else GRADIENT
        name = node.op.name if isinstance(node.op, ir.Leaf) else derived.names.of[target]
        because = _because(derived, step.because, group)
        compared = _compared(derived, matrix, group, Writer.gradient, target)
        collected.append(EquationEntry(kind, name, group, equation, because, step.node is None, writer.notes, _notation(writer), *compared))
    return collected


def _forward(derived: Derived, gradients: Sequence[int], matrix: bool, latex: bool) -> list[EquationEntry]:
    """The equations of the forward that the loss is made of, or that the ``gradients`` are written in: P of a cross-entropy."""
    rows, place = [], _Places(derived)
    shown = (index for index in needed(derived.equations, [derived.loss, *gradients]) if index < derived.forward)
    for index in sorted(shown, key=place.order):
        node = derived.equations[index]
        if index in derived.names.of and not isinstance(node.op, ir.Leaf | ir.Literal):
            group = layer_of(place.module_path(index))
            writer = Writer(TensorNames(derived, group), latex, matrix)
            compared = _compared(derived, matrix, group, Writer.forward, index)
            equation = writer.forward(index)
            about = writer.notes, _notation(writer), *compared
            rows.append(EquationEntry(FORWARD, derived.names.of[index], group, equation, (), False, *about))
    return rows


def _compared(
    derived: Derived, matrix: bool, group: str, write: Callable[[Writer, int], EquationLine], node: int
) -> tuple[str, tuple[str, ...]]:
    """An equation of a layer as text in which tensors of other layers have no name, and those names."""
    if not group:
        return "", ()
    names = TensorNames(derived, group, unnamed=True)
    return str(write(Writer(names, matrix=matrix), node)), tuple(names.outside)


def _notation(writer: Writer) -> Notation:
    return Notation(writer.legend, writer.indices, writer.has_other_indices)


class _Places:
    """Where an equation is listed: what no operator of the model computes (a parameter, and a 1×1 kernel as a matrix) beside its first
    reader."""

    def __init__(self, derived: Derived) -> None:
        self._equations = derived.equations
        self._readers: dict[int, int] = {}
        for node in derived.equations.nodes[: derived.forward]:
            for source in ir.sources(node.op):
                self._readers.setdefault(source, node.index)

    def order(self, index: int) -> tuple[int, int]:
        """Key of the order of the forward: before the first reader, and a parameter before its matrix."""
        reader = self._reader(index)
        return reader, 0 if reader == index else index - len(self._equations.nodes)

    def module_path(self, index: int) -> str:
        return self._equations[self._reader(index)].module_path

    def module_path_of_reader(self, index: int) -> str:
        """A gradient is listed with the layer that it comes from."""
        return self.module_path(self._readers.get(index, index))

    def _reader(self, index: int) -> int:
        while not self._equations[index].operator and index in self._readers:
            index = self._readers[index]
        return index


def _resting(derived: Derived, name: str) -> set[int]:
    """Indices of the tensors whose gradients a parameter's gradient uses."""
    step = derived.parameter(name)
    if step is None:
        return set()
    if step.node is None:
        return {step.target}
    nodes = set(needed(derived.equations, [step.node]))
    return {s.target for s in derived.steps if s.node in nodes and s.target not in derived.parameters.values()} | {step.target}


def _because(derived: Derived, reasons: Sequence[tuple[str, int]], layer: str) -> tuple[str, ...]:
    """The reasons of a simplification, with tensors by name."""
    names = derived.names.of
    texts = []
    for text, node in reasons:
        if node in names:
            texts.append(f"{text} {relative(names[node], layer)}")
        elif node < 0:
            texts.append(text)
    return tuple(dict.fromkeys(texts))


@dataclass(frozen=True, slots=True)
class ChainRuleTerm:
    """One term of the chain rule: the part of the gradient of ``of`` that comes through ``through``, and the rule of the primitive."""

    of: str
    through: str
    primitive: str
    rule: str
    equation: EquationLine


def chain(derived: Derived, latex: bool = False, only: str | None = None) -> list[ChainRuleTerm]:
    """The terms of the chain rule before simplification, from the loss backwards."""
    writer, names = Writer(TensorNames(derived, raw=True), latex), derived.names_of_every_step
    targets = None if only is None else _chained(derived, only)
    terms = []
    for share in derived.gradients.shares:
        if targets is None or share.target in targets:
            through = derived.equations[share.through]
            called = [names.of.get(n, "") for n in (share.target, share.through)]
            if all(called):
                terms.append(ChainRuleTerm(called[0], called[1], type(through.op).__name__.lower(), share.because, writer.share(share)))
    return terms


def _chained(derived: Derived, name: str) -> set[int]:
    """Indices of a parameter and of all tensors that depend on it."""
    derived.parameter(name)
    indices = {derived.parameters[name]}
    for node in derived.equations.nodes[: derived.forward]:
        if any(source in indices for source in ir.sources(node.op)):
            indices.add(node.index)
    return indices


# -- layers ----------------------------------------------------------------------------------------------------------------


def groups(equations: Sequence[EquationEntry]) -> list[EquationGroup]:
    """The equations by layer, in order; layers with equal equations are one group."""
    by_kind: dict[str, list[EquationGroup]] = {}
    for forward in (True, False):
        grouped: list[EquationGroup] = []
        for entry in equations:
            if (entry.kind == FORWARD) != forward:
                continue
            if grouped and grouped[-1].title == entry.group:
                grouped[-1] = replace(grouped[-1], entries=(*grouped[-1].entries, entry))
            else:
                grouped.append(EquationGroup(entry.group, (entry.group,) if entry.group else (), (entry,)))
        by_kind[str(forward)] = _alike(grouped)
    return [*by_kind["True"], *by_kind["False"]]


def _alike(unmerged: Sequence[EquationGroup]) -> list[EquationGroup]:
    merged: list[EquationGroup] = []
    for group in unmerged:
        if merged and _is_alike(group, merged[-1]):
            first = merged[-1]
            pairs = dict.fromkeys(pair for pair in zip(first.outside, group.outside, strict=True) if pair[0] != pair[1])
            layers = (*first.layers, *group.layers)
            merged[-1] = replace(first, title=_pattern(group.layers[0]), layers=layers, replaced=tuple(pairs))
        else:
            merged.append(group)
    return merged


def _is_alike(group: EquationGroup, before: EquationGroup) -> bool:
    both = group.layers and before.layers
    return bool(both) and _pattern(group.layers[0]) == _pattern(before.layers[0]) and _reading(group) == _reading(before)


def _pattern(layer: str) -> str:
    return re.sub(r"\d+$", "*", layer)


def _reading(group: EquationGroup) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The equations of a group as text, and the tensors of other layers in them, numbered in order of appearance."""
    numbers = {name: i for i, name in enumerate(dict.fromkeys(group.outside))}
    return tuple(e.unnamed for e in group.entries), tuple(numbers[name] for name in group.outside)
