"""Which operators of a model's forward return views and which allocate, from the traced forward."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from calc.errors import BadInputError
from calc.graph.basis import basis_of
from calc.graph.forward import Instruction, Program, Ref, Value
from calc.graph.step import Size
from calc.mathematics.autodiff.sizes import in_dimensions
from calc.mathematics.autodiff.sizes import size as expression
from calc.options import Options
from calc.spec import Spec
from calc.symbolic.exact import evaluate_text

# The same tensor under another name: bookkeeping of autograd and Python, not an operation of the model.
SAME = ("aten.detach.default", "aten.detach_.default", "aten.alias.default", "aten.lift_fresh.default")
VIEW, ALLOCATES, IN_PLACE = "view", "allocates", "in place"


@dataclass(frozen=True, slots=True)
class StrideRow:
    """One result tensor of an operator. Shape, strides and offset are in elements, as expressions of the model's dimensions.

    ``allocated`` are bytes of new memory at the requested sizes, 0 for a view; ``at`` has the values of the other expressions.
    """

    operator: str
    module_path: str
    kind: str
    dtype: str
    shape: tuple[str, ...]
    strides: tuple[str, ...]
    offset: str
    allocated: int
    at: tuple[tuple[int, ...], tuple[int, ...], int]


@dataclass(frozen=True, slots=True)
class OperatorSummary:
    """All results of one operator: how many are views, how many allocate, and how many bytes."""

    operator: str
    views: int
    in_place: int
    allocations: int
    allocated: int


@dataclass(frozen=True, slots=True)
class ModelStrides:
    """The forward of a model at ``sizes``, every result in order."""

    model: str
    sizes: Mapping[str, int]
    rows: tuple[StrideRow, ...]

    @property
    def kinds(self) -> tuple[OperatorSummary, ...]:
        """By operator, in the order in which they first run."""
        rows_by_operator: dict[str, list[StrideRow]] = {}
        for row in self.rows:
            rows_by_operator.setdefault(row.operator, []).append(row)
        return tuple(_kind(name, rows) for name, rows in rows_by_operator.items())

    @property
    def grouped(self) -> tuple[tuple[StrideRow, int], ...]:
        """Rows that differ only in a layer's index, with their number."""
        groups: dict[tuple[Any, ...], tuple[StrideRow, int]] = {}
        for row in self.rows:
            key = (row.operator, pattern(row.module_path), row.kind, row.shape, row.strides, row.offset)
            first, count = groups.get(key, (row, 0))
            groups[key] = (first, count + 1)
        return tuple(groups.values())


def pattern(module_path: str) -> str:
    """A module path with * for the index of a layer."""
    return re.sub(r"(?<![^.])\d+(?![^.])", "*", module_path)


def _kind(name: str, rows: Sequence[StrideRow]) -> OperatorSummary:
    counts = {kind: sum(row.kind == kind for row in rows) for kind in (VIEW, IN_PLACE, ALLOCATES)}
    return OperatorSummary(name, counts[VIEW], counts[IN_PLACE], counts[ALLOCATES], sum(row.allocated for row in rows))


def storage(spec: Spec, sizes: Mapping[str, int] | None = None, options: Options | None = None) -> ModelStrides:
    """The forward of ``spec`` in fp32 at ``sizes``. Raises ``TraceError`` if it cannot be traced."""
    from calc.trace.forward import trace_program  # needs torch

    options = options or Options()
    if options.precision != "fp32":
        raise BadInputError(f"storage is shown of a forward in fp32, not in {options.precision}: leave --precision out")
    values = spec.sizes(dict(sizes or {}))
    symbol_values = basis_of(spec.dimensions).values(values)
    program = trace_program(spec, values, options, doubles=False)
    return ModelStrides(spec.name, values, tuple(_rows(program, symbol_values)))


def _rows(program: Program, symbol_values: Mapping[str, int]) -> Iterator[StrideRow]:
    @cache
    def written(size: Size) -> str:
        return str(in_dimensions(expression(size), program))

    @cache
    def number(size: Size) -> int:
        return size if isinstance(size, int) else int(evaluate_text(size, symbol_values))

    storages = {program.values[leaf.value].storage for leaf in program.leaves}
    for instruction in program.instructions:
        if instruction.name in SAME:
            continue
        for output in instruction.outputs:
            value = program.values[output]
            kind = _of(instruction, value, program, storages)
            storages.add(value.storage)
            shape, strides, offset = tuple(map(number, value.shape)), tuple(map(number, value.stride)), number(value.offset)
            yield StrideRow(
                instruction.name,
                instruction.module_path,
                kind,
                value.dtype,
                tuple(map(written, value.shape)),
                tuple(map(written, value.stride)),
                written(value.offset),
                number(program.nbytes[value.storage]) if kind == ALLOCATES else 0,
                (shape, strides, offset),
            )


def _of(instruction: Instruction, value: Value, program: Program, storages: set[int]) -> str:
    if value.storage not in storages:
        return ALLOCATES
    arguments = {program.values[ref.value].storage for _, argument in instruction.args for ref in _refs(argument)}
    return IN_PLACE if instruction.mutates and value.storage in arguments else VIEW


def _refs(argument: Any) -> Iterator[Ref]:
    if isinstance(argument, Ref):
        yield argument
    elif isinstance(argument, tuple):
        for part in argument:
            yield from _refs(part)
