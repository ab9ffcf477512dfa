"""Where the numbers in the closed forms come from: sizes that are numbers of the model, each with the tensor or operator that it is of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calc.graph.forward import Program
from calc.graph.static_sizes import Shape, StaticSize, static_sizes
from calc.graph.step import bare_name
from calc.mathematics.autodiff.sizes import size
from reports.page.parts import several
from reports.typeset.letters import size_text
from reports.typeset.numbers import integer

MOST = 40  # rows of the table; of a model with more (channels of each stage), the first


@dataclass(frozen=True, slots=True)
class StaticSizeRow:
    """A number, the tensors or operators it comes from, and their shapes as text."""

    number: str
    origins: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class StaticSizeTable:
    rows: tuple[StaticSizeRow, ...]
    more: str = ""


NO_STATIC_SIZES = StaticSizeTable(())


def static_size_table(program: Program) -> StaticSizeTable:
    """The static sizes of a forward: those of inputs and parameters, then those that an operator computes, in the order of the forward."""
    in_order = sorted(static_sizes(program), key=lambda s: s.computed_by.index if s.computed_by is not None else -1)
    rows = tuple(StaticSizeRow(integer(each.number), tuple(_origins(each, program))) for each in in_order[:MOST])
    left_out = len(in_order) - len(rows)
    return StaticSizeTable(rows, f"and {several(left_out, 'more number')}" if left_out else "")


def _origins(static: StaticSize, program: Program) -> list[tuple[str, str]]:
    origins = []
    if static.computed_by is not None:
        name = bare_name(static.computed_by.name)
        sources = ", ".join(_shape(shape, program) for shape in static.sources)
        origins.append((f"{name} at {static.computed_by.module_path}", f"{sources} → {_shape(static.result, program)}"))
    origins.extend((f"{leaf.role} {leaf.name}", _shape(shape, program)) for leaf, shape in static.leaves)
    return origins


def _shape(shape: Shape, program: Program) -> str:
    """``(B, 197, d)``."""
    written = [size_text(size(each), program) for each in shape]
    return f"({', '.join(written)}{',' if len(written) == 1 else ''})"


def static_sizes_document(table: StaticSizeTable) -> Sequence[dict[str, object]]:
    """The table as plain data."""
    return [{"number": row.number, "origins": [{"of": of, "shapes": shapes} for of, shapes in row.origins]} for row in table.rows]
