"""The points of a sweep: the sizes that are given, those that follow from them, and where one of them is invalid."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from calc import dimensions as dims
from calc.dimensions import LARGEST, Dim, check_size, number_in, ordered_names, size_of
from calc.errors import BadInputError
from calc.graph.folds import Basis
from calc.graph.guards import dimensions
from calc.pipeline.precomputed import Stored
from calc.platform.arguments import given as as_given
from calc.symbolic.arrays import Array, UnevenError, evaluate
from calc.symbolic.assignments import assignment
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


# -- parsing ----------------------------------------------------------------------------------------------------------
# Parses the sizes of a sweep: lists, ranges, columns of a table. Counts the points before any is created.


MOST = 20_000_000  # default limit on the number of points
_MOST_OF_ONE = 10_000_000
_FORMS = "write 1,2,4 or 1024:8192:1024 (both ends, and the step) or 1Ki..16Ki×2 (both ends, and the factor)"


def parsed(text: str) -> tuple[str, list[int]]:
    """``"T=1024:4096:1024"`` → ``("T", [1024, 2048, 3072, 4096])``."""
    name, values = assignment(text, "a dimension and its sizes as NAME=SIZES, e.g. B=1,2,4")
    return name, sizes(name, values)


def sizes(name: str, text: str) -> list[int]:
    """The sizes of one dimension, in the order in which they are written."""
    listed: list[int] = []
    for part in text.split(","):
        listed += _part(name, part.strip(), text)
        if len(listed) > _MOST_OF_ONE:
            raise BadInputError(f"{name[:40]} has more than {_MOST_OF_ONE:,} sizes: give fewer")
    return listed


def _part(name: str, part: str, text: str) -> list[int]:
    if ".." in part:
        ends, _, factor = part.replace("x", "×").replace("*", "×").partition("×")
        first, _, last = ends.partition("..")
        return _geometric(name, _size(name, first), _size(name, last), _number(name, factor, part))
    ends_ = part.split(":")
    if len(ends_) in (2, 3):
        first_, last_, step = _size(name, ends_[0]), _size(name, ends_[1]), _size(name, ends_[2]) if len(ends_) == 3 else 1
        _in_order(name, first_, last_, part)
        many = (last_ - first_) // step + 1
        if many > _MOST_OF_ONE:
            raise BadInputError(f"{name[:40]} = {part[:60]} are {many:,} sizes, more than {_MOST_OF_ONE:,}: give a larger step")
        return list(range(first_, last_ + 1, step))
    if len(ends_) > 3 or not part:
        raise BadInputError(f"cannot read {text[:60]!r} as sizes of {name[:40]}: {_FORMS}")
    return [_size(name, part)]


def _geometric(name: str, first: int, last: int, factor: Fraction) -> list[int]:
    _in_order(name, first, last, f"{first}..{last}")
    if factor.denominator != 1 or factor < 2:
        raise BadInputError(f"{name[:40]}: a factor is an integer from 2 on, not {factor}: write 1Ki..16Ki×2")
    powers = [first]
    while powers[-1] * int(factor) <= last:
        powers.append(powers[-1] * int(factor))
    return powers


def _in_order(name: str, first: int, last: int, part: str) -> None:
    if last < first:
        raise BadInputError(f"{name[:40]} = {part[:60]} ends before it begins: give the smaller end first")


def _size(name: str, text: str) -> int:
    return size_of(name[:40], _number(name, text, text), text)


def _number(name: str, text: str, whole: str) -> Fraction:
    number = number_in(text)
    if number is None:
        raise BadInputError(f"cannot read {whole[:60]!r} as sizes of {name[:40]}: {_FORMS}")
    return number


def require_few(counts: Iterable[int], most: int) -> int:
    """The number of points of a grid; more than ``most`` are refused."""
    total = 1
    for count in counts:
        total *= count
    if total > most:
        raise BadInputError(f"{total:,} points, more than --most {most:,}: give fewer sizes, or --most {total}")
    return total


def read(lines: Iterable[str], where: str, most: int) -> dict[str, list[int]]:
    """Columns of sizes of a CSV file: a line of names, then lines of integers."""
    rows = csv.reader(lines, strict=True)
    try:
        names = _names(next(rows, []), where)
        columns: list[list[int]] = [[] for _ in names]
        for number, row in enumerate(rows, 2):
            if row:
                _add(columns, names, row, f"{where} line {number}")
                require_few([len(columns[0])], most)
    except csv.Error as error:
        raise BadInputError(f"{where} is not CSV: {error}") from None
    if not columns[0]:
        raise BadInputError(f"{where} has names and no sizes: give a line of integers for each point")
    return dict(zip(names, columns, strict=True))


def _names(row: Sequence[str], where: str) -> list[str]:
    names = [cell.strip() for cell in row]
    for i, name in enumerate(names):
        if not name.isidentifier() or not name.isascii():
            raise BadInputError(f"{where} line 1: {name[:40]!r} cannot name a dimension: begin with a line of names such as B,T")
        if name in names[:i]:
            raise BadInputError(f"{where} line 1: {name[:40]} appears twice: give each dimension one column")
    if not names:
        raise BadInputError(f"{where} is empty: give a line of names such as B,T, then lines of integers")
    return names


def _add(columns: Sequence[list[int]], names: Sequence[str], row: Sequence[str], where: str) -> None:
    if len(row) != len(names):
        raise BadInputError(f"{where} has {len(row)} cells, and there are {len(names)} names: give one integer for each")
    for column, name, cell in zip(columns, names, row, strict=True):
        text = cell.strip()
        if not text.isdecimal() or len(text) > len(str(LARGEST)):
            raise BadInputError(f"{where}: {name} = {text[:40]!r} is not a size: sizes are integers from 1 to 2**63 - 1")
        column.append(check_size(f"{where}: {name}", int(text)))
