"""The model in a report: the forward as equations with shapes, then the gradients from the loss back, as ``napkin gradients`` has them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import sympy as sp

from calc.mathematics.autodiff import ir
from calc.mathematics.autodiff.derived import Derived
from calc.mathematics.autodiff.inputs import lookups
from calc.mathematics.autodiff.names import LOSS, readers_of
from calc.mathematics.autodiff.numeric import needed
from calc.mathematics.autodiff.sizes import in_dimensions
from calc.mathematics.autodiff.summing import SHIFT
from calc.options import TRAIN
from reports.page.gradients import (
    FORWARD,
    NO_NOTATION,
    PARAMETER,
    EquationEntry,
    EquationGroup,
    Notation,
    entries,
    groups,
    in_place_of,
    together,
)
from reports.page.parts import several
from reports.page.static_sizes import NO_STATIC_SIZES, StaticSizeTable
from reports.typeset.letters import flops_text, shape_text
from reports.typeset.numbers import NBSP


@dataclass(frozen=True, slots=True)
class EquationRow:
    """An equation of the model as text. ``parameter``: the gradient of a parameter. ``notes``: what it alone needs to be read. ``because``:
    why a gradient is 0."""

    equation: str
    shape: str
    flops: str
    parameter: bool
    notes: tuple[str, ...] = ()
    notation: Notation = NO_NOTATION
    because: str = ""


_GRADIENTS = "Gradients, from the loss back"


@dataclass(frozen=True, slots=True)
class EquationTable:
    """The equations of a ``layer``, which are those of the layers ``alike`` and of those in ``equal``. ``pattern``: what all layers in
    ``alike`` match, where every layer that matches it has these equations. ``others``: layers that have them with other sizes. ``beside``:
    where those of no layer are listed: ``before h.*``. ``replaced``: tensors outside ``layer``, each with the one in its place in the last
    of ``alike``: its input, whose name nothing else would define."""

    direction: str
    layer: str
    pattern: str
    rows: tuple[EquationRow, ...]
    equal: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    alike: tuple[str, ...] = ()
    beside: str = ""
    replaced: tuple[tuple[str, str], ...] = ()

    @property
    def title(self) -> str:
        layer = f": {self.layer}" if self.layer else ""
        same = [*([self._alike] if self._alike else []), *self.equal]
        equal = f", as in {', '.join(same)}" if same else ""
        others = f"; with other sizes: {', '.join(self.others)}" if self.others else ""
        beside = f", {self.beside}" if self.beside else ""
        return f"{self.direction}{layer}{beside}{equal}{others}{self._inputs}"

    @property
    def layers(self) -> str:
        """All layers of the table, or its direction where it is of no layer."""
        return f"{self.layer} and {self._alike}" if self._alike else self.layer or self.direction

    @property
    def _inputs(self) -> str:
        """What the last of the layers alike reads in place of tensors outside the one that is shown."""
        return f"; {in_place_of(self.alike[-1], self.replaced)}" if self.replaced else ""

    @property
    def _alike(self) -> str:
        """The layers beside ``layer``, in words: ``every h.*``, ``layer1.2``, ``layer3.2 to layer3.5``."""
        if self.pattern:
            return f"every {self.pattern}"
        return f"{self.alike[0]} to {self.alike[-1]}" if _is_range(self.alike) else ", ".join(self.alike)


def _is_range(layers: Sequence[str]) -> bool:
    """Whether three layers or more are numbered one after another, up or down."""
    numbers = [int(layer.rpartition(".")[2]) for layer in layers if layer.rpartition(".")[2].isdigit()]
    steps = {after - before for before, after in itertools.pairwise(numbers)}
    return len(numbers) == len(layers) > 2 and (steps == {1} or steps == {-1})


@dataclass(frozen=True, slots=True)
class ModelSection:
    """The forward and the gradients as equations. ``why``: why there are none. ``numbers``: sizes that are no symbols. ``model``: what a
    command calls the model."""

    tables: tuple[EquationTable, ...]
    notes: tuple[str, ...]
    why: str
    numbers: StaticSizeTable = NO_STATIC_SIZES
    model: str = ""

    @property
    def title(self) -> str:
        """The heading of the section."""
        return "Model and gradients" if self.gradients or not self.tables else "Model"

    @property
    def gradients(self) -> str:
        """What a sentence on the equations adds of gradients; empty where the step has none."""
        has_some = any(table.direction == _GRADIENTS for table in self.tables)
        return ", and the gradients of the loss by the chain rule" if has_some else ""

    @property
    def notation(self) -> str:
        """What the notation of the equations means, as a sentence; empty where it needs none."""
        rows = [row for table in self.tables for row in table.rows]
        page = together(row.notation for row in rows)
        return replace(page, legend=(*page.legend, *dict.fromkeys(note for row in rows for note in row.notes))).sentence


MOST = 1000  # equations of a report; of a longer model, the command is named instead

NO_EQUATIONS = ModelSection((), (), "they were not derived")


def model_section(
    derived: Derived | None, why: str = "", mode: str = TRAIN, numbers: StaticSizeTable = NO_STATIC_SIZES, model: str = ""
) -> ModelSection:
    """The equations of a model, which a command calls ``model``. Without them, ``why`` says why."""
    if derived is None:
        return ModelSection((), (), why, numbers)
    tables = tuple(_tables(derived, mode))
    count = sum(len(table.rows) for table in tables)
    if count > MOST:
        why = f"there are {several(count, 'equation')}: napkin gradients {model} prints them"
        return ModelSection((), (), why, numbers, model)
    return ModelSection(tables, tuple(_notes(derived, mode, numbers)), "", numbers, model)


def one_of_each_kind(section: ModelSection) -> ModelSection:
    """The section with the first of the tables whose equations are the same but for the layers in their names. Its title names the others,
    and says which have other sizes."""
    kinds: dict[tuple[str, ...], list[EquationTable]] = {}
    for table in section.tables:
        kinds.setdefault(tuple(_LAYER.sub("#", row.equation) for row in table.rows), []).append(table)
    return replace(section, tables=tuple(_for_all(first, others) for first, *others in kinds.values()))


def _for_all(first: EquationTable, others: Sequence[EquationTable]) -> EquationTable:
    """The first of tables with the same equations, which names the others."""
    equal = [table for table in others if _sizes(table) == _sizes(first)]
    rest = [table for table in others if table not in equal]
    return replace(first, equal=tuple(table.layers for table in equal), others=tuple(table.layers for table in rest))


def _sizes(table: EquationTable) -> list[tuple[str, str]]:
    return [(row.shape, row.flops) for row in table.rows]


_LAYER = re.compile(r"(?<=[A-Za-z_.])\d+(?=\.)")  # in a module path: layer3.0.


def matmuls_only(section: ModelSection, others: str) -> ModelSection:
    """The section with the matmuls and the gradients of parameters. ``others``: where the other equations are."""
    tables = tuple(replace(table, rows=tuple(row for row in table.rows if row.flops or row.parameter)) for table in section.tables)
    if tables == section.tables:
        return section
    note = f"Only matmuls and gradients of parameters are shown: {others}."
    return replace(section, tables=tuple(table for table in tables if table.rows), notes=(*section.notes, note))


def elsewhere(section: ModelSection) -> ModelSection:
    """The section of a page that has no room for the equations: it says where they are."""
    count = sum(len(table.rows) for table in section.tables)
    why = f"the {several(count, 'equation')} are in the Markdown report, or on a terminal: napkin gradients {section.model}"
    return replace(section, tables=(), notes=(), why=why)


def _tables(derived: Derived, mode: str) -> Iterator[EquationTable]:
    parts = entries(derived, forward_only=mode != TRAIN), entries(derived, matrix=True, forward_only=mode != TRAIN)
    matrix = {id(entry): of for entry, of in zip(*parts, strict=True)}
    every = groups(parts[0])
    for i, group in enumerate(every):
        shown = [matrix[id(entry)] if entry.equation.flops != 0 else entry for entry in group.entries]
        yield replace(_table(group, every, tuple(_row(entry) for entry in shown)), beside="" if group.layers else _beside(i, every))


def _beside(i: int, every: Sequence[EquationGroup]) -> str:
    """Between which layers the equations of no layer are listed, as there may be several groups of them; empty for a group alone."""
    direction = _is_forward(every[i])
    near = (every[:i][-1:], every[i + 1 :][:1])
    before, after = ("".join(g.title for g in each if g.layers and _is_forward(g) == direction) for each in near)
    if before and after:
        return f"between {before} and {after}"
    return f"after {before}" if before else f"before {after}" if after else ""


def _table(group: EquationGroup, every: Sequence[EquationGroup], rows: tuple[EquationRow, ...]) -> EquationTable:
    """Of equal layers, the one whose equations follow is named: they read the layer before it, or the gradient of the layer after it.
    ``every``: the groups of both directions, among which may be more layers of the same pattern."""
    direction = "Forward" if _is_forward(group) else _GRADIENTS
    if len(group.layers) < 2:
        return EquationTable(direction, group.title, "", rows)
    matching = {layer for each in every if _is_forward(each) == _is_forward(group) for layer in each.layers if _matches(layer, group.title)}
    pattern = group.title if matching <= set(group.layers) else ""
    return EquationTable(direction, group.layers[0], pattern, rows, alike=group.layers[1:], replaced=group.replaced)


def _is_forward(group: EquationGroup) -> bool:
    return group.entries[0].kind == FORWARD


def _matches(layer: str, pattern: str) -> bool:
    """Whether a layer is one of ``h.*``."""
    parent, _, number = layer.rpartition(".")
    return number.isdigit() and f"{parent}.*" == pattern


def _row(entry: EquationEntry) -> EquationRow:
    line = entry.equation
    because = SHIFT if SHIFT in entry.because else "; ".join(entry.because) if entry.zero else ""
    return EquationRow(str(line), line.shape, line.flops_text, entry.kind == PARAMETER, entry.notes, entry.notation, because)


def _notes(derived: Derived, mode: str, numbers: StaticSizeTable) -> Iterator[str]:
    if fixed := derived.program.fixed:
        listed = " and ".join(f"{name}{NBSP}={NBSP}{value}" for name, value in fixed.items())
        yield f"{listed} in these equations only" + ("." if numbers.rows else "; all other sizes are symbols.")
    leaves = [node for node in derived.equations.nodes if isinstance(node.op, ir.Leaf) and node.op.role == "input"]
    if inputs := [_input(derived, node) for node in leaves if node.index in derived.names.of]:
        yield f"Inputs: {', '.join(inputs)}."
    if mode != TRAIN:
        return
    not_computed = _inputs(derived)
    saved = sp.expand(derived.backward_flops_with_inputs - derived.backward_flops)
    if not_computed and saved != 0:
        listed = " and ".join(f"∂{LOSS}/∂{name}" for name in not_computed)
        sentence = f"{listed} {'is' if len(not_computed) == 1 else 'are'} not computed: inputs need no gradient"
        yield f"{sentence}. That saves {flops_text(saved, derived.program)} FLOP."


def _input(derived: Derived, node: ir.Node) -> str:
    """An input with its shape; ids that index a table with a row for each word of the vocabulary are of tokens."""
    equations = derived.equations
    tables = (equations[lookup.source].shape for lookup in lookups(equations, readers_of(equations, derived.forward), node.index))
    tokens = any(str(in_dimensions(shape[0], derived.program)) == _VOCABULARY for shape in tables)
    return f"{derived.names.of[node.index]} {shape_text(node.shape, derived.program)}{' of tokens' if tokens else ''}"


_VOCABULARY = "V"  # in calc.dimensions


def _inputs(derived: Derived) -> Sequence[str]:
    """The floating-point inputs that a matmul reads before any parameter: as they are, scaled, or in a view, as a convolution reads
    patches."""
    nodes = derived.equations.nodes[: derived.forward]
    constant = _without_parameters(derived)
    matmuls = [node for node in nodes if isinstance(node.op, ir.Contract) and len(node.op.operands) > 1]
    read = needed(derived.equations, [source for node in matmuls for source in ir.sources(node.op) if source in constant])
    leaves = [nodes[index] for index in read if isinstance(nodes[index].op, ir.Leaf)]
    return [derived.names.of[n.index] for n in leaves if isinstance(n.op, ir.Leaf) and n.op.role == "input" and not n.integral]


def _without_parameters(derived: Derived) -> Collection[int]:
    """The tensors of the forward that depend on no parameter that is trained."""
    trained = set(derived.parameters.values())
    for node in derived.equations.nodes[: derived.forward]:
        if not trained.isdisjoint(ir.sources(node.op)):
            trained.add(node.index)
    return set(range(derived.forward)) - trained


def equations_document(section: ModelSection) -> list[dict[str, object]]:
    """The equations as plain data."""
    rows = ((table.title, row) for table in section.tables for row in table.rows)
    return [_plain(title, row) for title, row in rows]


def _plain(title: str, row: EquationRow) -> dict[str, object]:
    because = {"because": row.because} if row.because else {}
    return {"of": title, "equation": row.equation, "shape": row.shape, "flops": row.flops, **because}
