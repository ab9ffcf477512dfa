"""The points of a sweep: the sizes that are given, those that follow from them, and where one of them is invalid."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calc import dimensions as dims
from calc.dimensions import LARGEST, Dim, ordered_names
from calc.errors import BadInputError
from calc.graph.folds import Basis
from calc.graph.guards import dimensions
from calc.pipeline.grid import MOST
from calc.pipeline.precomputed import Stored
from calc.platform.arguments import given as as_given
from calc.symbolic.arrays import Array, UnevenError, evaluate
from calc.symbolic.expression import Quotient
from calc.symbolic.parser import parse

Trouble = list[tuple[Array, str]]


@dataclass(frozen=True, slots=True)
class Gap:
    """Points without a value: how many, the first of them, and why. ``possible``: the sizes are valid for the model."""

    points: int
    first: Mapping[str, int]
    because: str
    possible: bool = False


def axes_of(form: Stored, given: Mapping[str, Sequence[int]], listed: bool) -> dict[str, Array]:
    """The axis of each dimension in ``given``. Raises ``DimensionError`` for one that cannot be set."""
    table = dimensions(form)
    for name in given:
        if name not in table or table[name].tied:
            dims.resolve(table, {name: 1})  # it explains the error
    axes = {name: _axis(name, sizes) for name, sizes in given.items()}
    require_equal_lengths(axes, listed)
    return axes


def _axis(name: str, sizes: Sequence[int]) -> Array:
    if not isinstance(sizes, Sequence | np.ndarray) or isinstance(sizes, str):
        raise BadInputError(f"{as_given(name[:40], sizes)}: give a list of its sizes, e.g. [1, 2, 4]")
    if not sizes if isinstance(sizes, range) else not len(sizes):
        raise BadInputError(f"{name} has no sizes: give at least one")
    if isinstance(sizes, range) and not sizes[: MOST + 1][-1] == sizes[-1]:  # there may be more than len() can return
        raise BadInputError(f"{name[:40]} has more than {MOST:,} sizes: give fewer")
    axis = np.asarray(sizes)
    if axis.ndim != 1 or axis.dtype.kind not in "iu":  # one by one, to avoid millions of Python integers
        return np.asarray([dims.check_size(name, size) for size in sizes], dtype=np.int64)
    for size in (axis.min(), axis.max()):
        dims.check_size(name, int(size))
    return axis.astype(np.int64)


def require_equal_lengths(axes: Mapping[str, Array], listed: bool) -> None:
    """Raises ``BadInputError`` if axes that are combined point by point differ in length."""
    if listed and len({axis.size for axis in axes.values()}) > 1:
        raise BadInputError("sizes that are combined point by point must be equally many: give each dimension the same number")


@dataclass(frozen=True, slots=True)
class SweepGrid:
    """The points of a sweep: its axes, and the shape of an array with a value for each."""

    axes: Mapping[str, Array]
    shape: tuple[int, ...]
    listed: bool

    @property
    def spread(self) -> dict[str, Array]:
        """Each axis as an array that broadcasts with the others."""
        if self.listed:
            return dict(self.axes)
        directions = range(len(self.axes))
        return {name: axis.reshape([-1 if i == j else 1 for j in directions]) for i, (name, axis) in enumerate(self.axes.items())}

    def sizes(self, index: tuple[Any, ...]) -> dict[str, int]:
        """The sizes at a point."""
        return {name: int(axis[index[0] if self.listed else index[i]]) for i, (name, axis) in enumerate(self.axes.items())}

    def gaps(self, trouble: Trouble, among: Array | None = None) -> tuple[Array | None, tuple[Gap, ...]]:
        """The mask of the points ``among`` (default: all) without trouble, or ``None`` if that is every point of the grid; and the gaps at
        the others: of several reasons at a point, the first."""
        bad, gaps = None if among is None else ~among, []
        for mask, why in trouble:
            if not np.any(mask):
                continue
            bad = np.zeros(self.shape, dtype=bool) if bad is None else bad
            new = np.broadcast_to(mask, self.shape) & ~bad
            if np.any(new):
                first = np.unravel_index(int(np.argmax(new)), self.shape)
                gaps.append(Gap(int(np.count_nonzero(new)), self.sizes(first), why))
                bad |= new
        return None if bad is None else ~bad, tuple(gaps)


def all_sizes(form: Stored, given: Mapping[str, Array]) -> tuple[dict[str, Array], Trouble]:
    """All dimensions on the mesh, and the points where one of them is invalid (its value is 1 there), with the reason."""
    table, trouble = dimensions(form), Trouble()
    arrays: dict[str, Array] = {}
    while len(arrays) < len(table):
        for name, dim in table.items():
            needed = ordered_names(dim.default) if isinstance(dim.default, str) and name not in given else []
            if name not in arrays and all(dependency in arrays for dependency in needed):
                arrays[name] = given[name] if name in given else _default(name, dim, arrays, trouble)
    for name, dim in table.items():
        trouble += _invalid_at(name, dim, arrays)
    return arrays, trouble


def _default(name: str, dim: Dim, columns: Mapping[str, Array], trouble: Trouble) -> Array:
    if not isinstance(dim.default, str):
        return np.asarray(dim.default, dtype=np.int64)
    match parse(dim.default):
        case Quotient(over, under):
            top, bottom = (evaluate(part, columns) for part in (over, under))
            value: Array = -(-top // np.maximum(bottom, 1))
            if not dim.unbacked_at:
                trouble.append((top % np.maximum(bottom, 1) != 0, f"{name} = {dim.default} is not an integer"))
        case _:
            try:
                value = evaluate(dim.default, columns)
            except UnevenError:
                value = _one_by_one(name, dim.default, columns, trouble)
    trouble.append(((value < 1) | (value > LARGEST), f"{name} = {dim.default} is not from 1 to 2**63 - 1"))
    return np.maximum(np.minimum(value, LARGEST), 1).astype(np.int64)


def _one_by_one(name: str, default: str, columns: Mapping[str, Array], trouble: Trouble) -> Array:
    """A default with a quotient inside, which is whole at some of the points alone."""
    names = ordered_names(default)
    meshes = np.broadcast_arrays(*(columns[n] for n in names))
    points = zip(*(map(int, mesh.flat) for mesh in meshes), strict=True)
    values = [dims.evaluate(default, dict(zip(names, point, strict=True))) for point in points]
    trouble.append((np.reshape([v.denominator != 1 for v in values], meshes[0].shape), f"{name} = {default} is not an integer"))
    return np.reshape(np.asarray([math.ceil(v) for v in values], dtype=object), meshes[0].shape)


def _invalid_at(name: str, dim: Dim, columns: Mapping[str, Array]) -> Iterator[tuple[Array, str]]:
    match dim.multiple_of:
        case int() as divisor if dim.plus:
            several = f"a multiple of {divisor} and {dim.plus} more" if divisor > 1 else f"more than {dim.plus}"
            yield (columns[name] <= dim.plus) | ((columns[name] - dim.plus) % divisor != 0), f"{name} has to be {several}"
        case int() as divisor:
            yield columns[name] % divisor != 0, f"{name} is not divisible by {divisor}"
        case str() as part:
            yield columns[name] % columns[part] != 0, f"{name} is not divisible by {part}"
    if dim.at_most is not None:
        yield columns[name] > evaluate(dim.at_most, columns), f"{name} is more than {dim.at_most}"


def basis_arrays(basis: Basis, mesh: Mapping[str, Array]) -> dict[str, Array]:
    """The basis symbols on the mesh: quotients beside dimensions, also as closed forms write them (``S / P``). Where a size does not divide
    is a gap."""
    arrays = {name: mesh[name] for name in basis.symbols if name in mesh}
    for fold in basis.folds:
        part = fold.part if isinstance(fold.part, int) else mesh[fold.part]
        arrays[fold.quotient] = np.maximum((mesh[fold.whole] - fold.plus) // part, 1)
    written = {of: arrays[name] for name, of in basis.hidden.items()}
    return {name: arrays[name] for name in basis.symbols} | written
