"""Any quantity over many sizes at once: the exact integer at every point of a grid, or of a list of points, or why there is none.

    sweep = calc.sweep("llama3-8b", {"B": range(1, 9), "T": range(1024, 8193, 1024)}, ["memory.peak"])
    sweep.values["memory.peak"]      # an array of (8, 8) integers
    sweep.gaps                       # invalid sizes, counted, with the reason

The closed forms are those of ``calc.pipeline.precomputed``, or are derived first. Points at which they do not hold (a batch of one) are
evaluated case by case: the step is traced at one of them, the new closed forms are evaluated wherever they hold, and so on. A quantity
without a closed form is counted in a trace at each point.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from calc import dimensions as dims
from calc.derive.quantities import require_count
from calc.dimensions import LARGEST, Dim, ordered_names
from calc.errors import BadInputError, DimensionError, NapkinError, NegativeCountError, UnknownQuantityError
from calc.graph.folds import Basis
from calc.graph.guards import Guard, dimensions
from calc.options import Options
from calc.pipeline.grid import MOST, require_few
from calc.pipeline.precomputed import Stored, StoredQuantity, form_of, forms_elsewhere
from calc.platform.arguments import given as as_given
from calc.symbolic.arrays import Array, Mesh, UnevenError, evaluate, holds, side
from calc.symbolic.expression import Quotient
from calc.symbolic.parser import parse

if TYPE_CHECKING:
    from calc.derive.result import Derivation

# Points evaluated together: enough to amortize Python's overhead, few enough to stay in the processor's cache.
CHUNK = 1 << 17
_OF_LISTS = 1 << 15
# Limit on the special cases that one sweep traces, half a minute each for a large model.
CASES = 12
# Limit on the points at which a quantity without a closed form is traced, a second or more each.
TRACED = 1000

Trace = Callable[[Mapping[str, int]], Stored]
Count = Callable[[str, Mapping[str, int]], int]


@dataclass(frozen=True, slots=True)
class Gap:
    """Points without a value: how many, the first of them, and why. ``possible``: the sizes are valid for the model."""

    points: int
    first: Mapping[str, int]
    because: str
    possible: bool = False


@dataclass(frozen=True, slots=True)
class Sweep:
    """``axes`` are the given sizes: they span a grid, or form a list of points (``listed``).

    ``values`` are arrays in the grid's shape, of 64-bit integers, or of Python integers if those overflow. ``valid`` says where they are
    defined; ``None``: everywhere.
    """

    axes: Mapping[str, Array]
    listed: bool
    values: Mapping[str, Array]
    units: Mapping[str, str]
    valid: Array | None
    gaps: tuple[Gap, ...]

    @property
    def points(self) -> int:
        return next(iter(self.values.values())).size

    def rows(self) -> Iterator[tuple[tuple[int, ...], tuple[int | None, ...]]]:
        """Each point: its sizes, and its values in the order of ``values``; ``None`` for a missing one."""
        columns = [np.ravel(array) for array in self.values.values()]
        valid = None if self.valid is None else np.ravel(self.valid)
        lists = [axis.tolist() for axis in self.axes.values()]
        for i, sizes in enumerate(zip(*lists, strict=True) if self.listed else itertools.product(*lists)):
            there = valid is None or valid[i]
            yield sizes, tuple(int(column[i]) if there else None for column in columns)


def of_model(
    name: str,
    given: Mapping[str, Sequence[int]],
    quantities: Sequence[str],
    options: Options,
    *,
    listed: bool = False,
    most: int = MOST,
    cases: int = CASES,
    cache: bool = True,
    progress: Callable[[str], None] = lambda _: None,
) -> Sweep:
    """The quantities of a model, as ``calc.load`` names it, at every point. Special cases are traced."""
    form = form_of(name, options.to_json(), cache=cache, progress=progress)
    elsewhere = functools.cache(lambda: forms_elsewhere(form, cache=cache, progress=progress))

    def trace(sizes: Mapping[str, int]) -> Stored:
        progress(f"the step runs other operators at {', '.join(f'{n} = {size}' for n, size in sizes.items())}: tracing it there")
        return elsewhere()(sizes)

    @functools.cache
    def derivation() -> Derivation:
        from calc.models.load import load
        from calc.pipeline.pipeline import derive

        return derive(load(name), options=options, cache=cache, progress=progress)

    def count(quantity: str, sizes: Mapping[str, int]) -> int:
        quantity_at = derivation()[quantity]
        progress(f"{quantity} has no closed form: tracing the step at {', '.join(f'{n} = {size}' for n, size in sizes.items())}")
        return quantity_at.at(**sizes)

    return sweep(form, given, quantities, listed=listed, most=most, trace=trace, cases=cases, count=count)


def sweep(
    form: Stored,
    given: Mapping[str, Sequence[int]],
    quantities: Sequence[str] = ("memory.peak",),
    *,
    listed: bool = False,
    most: int = MOST,
    trace: Trace | None = None,
    cases: int = CASES,
    count: Count | None = None,
) -> Sweep:
    """The quantities of a form at every point. ``given`` sizes span a grid, or are combined point by point if ``listed``.

    Sizes not given are the model's defaults, or follow from those given. More than ``most`` points are refused. ``trace`` returns the form
    that holds at sizes where ``form`` does not, and runs at most ``cases`` times; without it such points have no value. ``count`` returns
    the value of a quantity without a closed form at given sizes; without it such a quantity is refused.
    """
    wanted = {name: form.quantity(name) for name in dict.fromkeys(quantities)}
    if not wanted:
        raise BadInputError("nothing to sweep: name a quantity, e.g. memory.peak")
    axes = _axes(form, given, listed)
    shape = (next(iter(axes.values())).size,) if listed and axes else tuple(axis.size for axis in axes.values())
    require_few(shape, most)
    grid = _Grid(axes, shape, listed)
    mesh, impossible = _all_sizes(form, grid.spread)
    possible, gaps = grid.gaps(impossible)
    with_forms = {name: quantity for name, quantity in wanted.items() if count is None or not quantity.unknown}
    valid, otherwise = grid.gaps(_unmet(form, mesh) if with_forms else [], possible)
    values = {name: _evaluated(_require_known(quantity), mesh, shape, valid) for name, quantity in with_forms.items()}
    if trace is not None and otherwise:
        assert valid is not None  # at some points the form does not hold
        left = np.broadcast_to(True if possible is None else possible, shape) & ~valid
        otherwise = _by_cases(grid, values, valid, left, trace, cases, count)
    for name in [name for name in wanted if name not in with_forms]:
        assert count is not None  # without it, all quantities were checked to be known
        values[name], valid, failed = _counted(grid, name, np.ones(shape, dtype=bool) if valid is None else valid, count)
        otherwise += failed
    units = {name: str(q.definition.unit) for name, q in wanted.items()}
    return Sweep(axes, listed, {name: values[name] for name in wanted}, units, valid, (*gaps, *otherwise))


def _counted(grid: _Grid, name: str, where: Array, count: Count) -> tuple[Array, Array, tuple[Gap, ...]]:
    """The values of a quantity without a closed form at the points ``where``, a mask of those that have one, and the gaps."""
    there = where.copy()
    points = int(np.count_nonzero(there))
    if points > TRACED:
        raise BadInputError(f"{name} has no closed form, so each of {points:,} points would be traced: give at most {TRACED:,}")
    values, failed = np.zeros(grid.shape, dtype=object), dict[str, Gap]()
    for index in map(tuple, np.argwhere(there)):
        try:
            values[index] = count(name, grid.sizes(index))
        except (UnknownQuantityError, NegativeCountError):
            raise  # every size fails: no rule counts it, or Napkin has a bug
        except NapkinError as error:
            why, there[index] = str(error), False
            before = failed.get(why, Gap(0, grid.sizes(index), why, possible=True))
            failed[why] = replace(before, points=before.points + 1)
    return values, there, tuple(failed.values())


def _by_cases(
    grid: _Grid, values: dict[str, Array], valid: Array, left: Array, trace: Trace, most: int, count: Count | None
) -> tuple[Gap, ...]:
    """Fills in ``values`` and ``valid`` at the points ``left``: takes the form at the first of these, evaluates it everywhere it holds, and
    repeats until none is left or ``most`` forms were made. Remaining points have no value."""
    gaps: list[Gap] = []
    for _ in range(most):
        if not np.any(left):
            return tuple(gaps)
        first = np.unravel_index(int(np.argmax(left)), grid.shape)
        try:
            form = trace(grid.sizes(first))
            mesh, trouble = _all_sizes(form, grid.spread)
            here, others = grid.gaps([*trouble, *_unmet(form, mesh)], left)
            covered = left if here is None else here
            if not covered[first]:
                raise DimensionError(next(gap.because for gap in others if gap.first == grid.sizes(first)))
            counted, arrays = covered, {}
            for name in values:
                quantity = form.quantity(name)
                if count is not None and quantity.unknown:
                    arrays[name], counted, failed = _counted(grid, name, counted, count)
                    gaps += failed
                else:
                    arrays[name] = _evaluated(_require_known(quantity), mesh, grid.shape, covered)
        except NegativeCountError:
            raise  # a bug of Napkin, not a gap
        except NapkinError as error:
            gaps.append(Gap(1, grid.sizes(first), str(error), possible=True))
            left = left.copy()
            left[first] = False
            continue
        for name, array in arrays.items():
            values[name] = np.where(covered, array, values[name])
        valid |= counted
        left = left & ~covered
    points = int(np.count_nonzero(left))
    if points:
        first = np.unravel_index(int(np.argmax(left)), grid.shape)
        why = f"the step runs other operators there than in the traced cases, {most} at most: give fewer sizes, or --cases {2 * most}"
        gaps.append(Gap(points, grid.sizes(first), why, possible=True))
    return tuple(gaps)


def sweep_expression(text: str, given: Mapping[str, Sequence[int]], *, listed: bool = False, most: int = MOST) -> Sweep:
    """An expression of sizes at every point, e.g. ``"12*L*d**2"``."""
    axes = {name: np.asarray([dims.check_size(name, size) for size in sizes], dtype=np.int64) for name, sizes in given.items()}
    if not axes or not all(axis.size for axis in axes.values()):
        raise BadInputError("no sizes: give each variable of the expression sizes, e.g. -d L=12 -d d=768,1024")
    lengths = [axis.size for axis in axes.values()]
    _require_equal_lengths(axes, listed)
    shape = tuple(lengths[:1] if listed else lengths)
    require_few(shape, most)
    array = evaluate(text, _Grid(axes, shape, listed).spread)
    return Sweep(axes, listed, {text: np.broadcast_to(array, shape)}, {text: ""}, None, ())


# -- sizes ------------------------------------------------------------------------------------------------------------


def _require_known(quantity: StoredQuantity) -> StoredQuantity:
    if quantity.unknown:
        raise UnknownQuantityError(f"{quantity.name} is unknown: {quantity.unknown}")
    return quantity


def _axes(form: Stored, given: Mapping[str, Sequence[int]], listed: bool) -> dict[str, Array]:
    table = dimensions(form)
    for name in given:
        if name not in table or table[name].tied:
            dims.resolve(table, {name: 1})  # it explains the error
    axes = {name: _axis(name, sizes) for name, sizes in given.items()}
    _require_equal_lengths(axes, listed)
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


def _require_equal_lengths(axes: Mapping[str, Array], listed: bool) -> None:
    if listed and len({axis.size for axis in axes.values()}) > 1:
        raise BadInputError("sizes that are combined point by point must be equally many: give each dimension the same number")


@dataclass(frozen=True, slots=True)
class _Grid:
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
        for here, why in trouble:
            if not np.any(here):
                continue
            bad = np.zeros(self.shape, dtype=bool) if bad is None else bad
            new = np.broadcast_to(here, self.shape) & ~bad
            if np.any(new):
                first = np.unravel_index(int(np.argmax(new)), self.shape)
                gaps.append(Gap(int(np.count_nonzero(new)), self.sizes(first), why))
                bad |= new
        return None if bad is None else ~bad, tuple(gaps)


Trouble = list[tuple[Array, str]]


def _all_sizes(form: Stored, given: Mapping[str, Array]) -> tuple[dict[str, Array], Trouble]:
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


def _symbols(basis: Basis, mesh: Mapping[str, Array]) -> dict[str, Array]:
    """The basis symbols on the mesh: quotients beside dimensions, also as closed forms write them (``S / P``). Where a size does not divide
    is a gap."""
    arrays = {name: mesh[name] for name in basis.symbols if name in mesh}
    for fold in basis.folds:
        part = fold.part if isinstance(fold.part, int) else mesh[fold.part]
        arrays[fold.quotient] = np.maximum((mesh[fold.whole] - fold.plus) // part, 1)
    written = {of: arrays[name] for name, of in basis.hidden.items()}
    return {name: arrays[name] for name in basis.symbols} | written


# -- where the closed forms hold --------------------------------------------------------------------------------------------


def _unmet(form: Stored, mesh: Mapping[str, Array]) -> Trouble:
    """Where the step may run other operators than traced. In a special case, its own guards count."""
    there: Array = np.zeros((), dtype=bool)
    trouble = Trouble()
    for case in form.cases:
        applies = _applies(case.equal, mesh) & ~there
        trouble += [(bad & applies, why) for bad, why in _unmet(case.form, mesh) if np.any(applies)]
        there = there | applies
    return trouble + [(bad & ~there, why) for bad, why in _changed(form, mesh)]


def _applies(equal: Mapping[str, str], mesh: Mapping[str, Array]) -> Array:
    mask: Array = np.ones((), dtype=bool)
    for name, to in equal.items():
        mask = mask & (mesh[name] == evaluate(to, mesh))
    return mask


def _changed(form: Stored, mesh: Mapping[str, Array]) -> Iterator[tuple[Array, str]]:
    for name, (value, _) in form.specialized.items():
        yield mesh[name] != value, f"the closed forms hold only for {name} = {value}"
    symbols = _symbols(form.basis, mesh)
    for condition in form.guards:
        bad = holds(condition.expr, symbols) != condition.outcome
        if np.any(bad):
            bad = bad & ~_certified(condition, form.certified, symbols)
        traced = f"the step was traced where {condition.expr} is {condition.outcome}"
        yield bad, f"{traced}; elsewhere it may run other operators"


def _certified(condition: Guard, certified: Sequence[Mapping[str, int]], symbols: Mapping[str, Array]) -> Array:
    """Where a certificate determines the path although the guard's outcome differs from the traced one."""
    mask: Array = np.zeros((), dtype=bool)
    if condition.opaque:
        names = ordered_names(condition.expr)
        for at in certified:
            mask = mask | functools.reduce(operator.and_, [symbols[name] == at[name] for name in names])
        return mask
    here = side(condition.expr, symbols)
    for at in certified:
        if not condition.holds_at(at):
            there = None if here is None else side(condition.expr, {name: np.asarray(size) for name, size in at.items()})
            mask = mask | (np.ones((), dtype=bool) if here is None else (here == 0) | (here == there))
    return mask


# -- values -----------------------------------------------------------------------------------------------------------


def _evaluated(quantity: StoredQuantity, mesh: Mapping[str, Array], shape: tuple[int, ...], valid: Array | None) -> Array:
    results = np.empty(shape, dtype=np.int64)
    for block in _blocks(shape):
        if valid is not None and not np.any(valid[block]):
            continue
        here = {name: _cut(array, block, len(shape)) for name, array in mesh.items()}
        part = _at(quantity, here, True if valid is None else valid[block])
        _require_counts(quantity.name, part, here, True if valid is None else valid[block])
        if part.dtype == object and results.dtype != object:
            results = results.astype(object)
        results[block] = part
    return results


def _require_counts(name: str, values: Array, mesh: Mapping[str, Array], valid: Array | bool) -> None:
    """Refuse a count below 0 at a ``valid`` point."""
    below = (values < 0) & valid
    if np.any(below):
        first = np.unravel_index(int(np.argmax(below)), below.shape)
        sizes = {dim: int(np.broadcast_to(array, below.shape)[first]) for dim, array in mesh.items()}
        require_count(name, int(np.broadcast_to(values, below.shape)[first]), sizes)


def _blocks(shape: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """Blocks of a mesh, each small enough for the processor's cache."""
    most = _OF_LISTS if len(shape) == 1 else CHUNK
    inner, size = len(shape), 1
    while inner and size * shape[inner - 1] <= most:
        inner -= 1
        size *= shape[inner]
    if not inner:
        yield (slice(None),) * len(shape)
        return
    step = max(most // size, 1)
    for outer in itertools.product(*(range(n) for n in shape[: inner - 1])):
        for first in range(0, shape[inner - 1], step):
            yield (*(slice(i, i + 1) for i in outer), slice(first, first + step), *(slice(None) for _ in shape[inner:]))


def _cut(array: Array, block: tuple[slice, ...], directions: int) -> Array:
    """A block of a mesh array; directions in which it is constant stay whole."""
    if array.ndim < directions:
        return array
    return array[tuple(s if n > 1 else slice(None) for s, n in zip(block, array.shape, strict=True))]


def _at(quantity: StoredQuantity, mesh: Mapping[str, Array], valid: Array | bool) -> Array:
    """The quantity on a block of the mesh, by special case where one applies. Points that are not ``valid`` may have any value."""
    form = quantity.form
    special = None
    for case in form.cases:
        if quantity.name in case.differing:
            applies = _applies(case.equal, mesh)
            if np.all(applies):
                return _at(case.form.quantity(quantity.name), mesh, valid)
            if np.any(applies):
                special = (applies, _at(case.form.quantity(quantity.name), mesh, valid & applies))
                valid = valid & ~applies
    general = _in_general(quantity, mesh, valid)
    return general if special is None else np.where(special[0], special[1], general)


def _in_general(quantity: StoredQuantity, mesh: Mapping[str, Array], valid: Array | bool) -> Array:
    points = Mesh(quantity.form.table, {**_symbols(quantity.form.basis, mesh), **mesh})
    largest: Array | None = None
    for polynomial in quantity.polynomials:
        value = points(polynomial)
        if polynomial.over != 1:
            if np.any((value % polynomial.over != 0) & valid):
                text = quantity.form.table.text(polynomial)
                raise NapkinError(f"{quantity.name}: {text[:80]} is not an integer at some of the points: choose sizes that divide")
            value = value // polynomial.over
        largest = value if largest is None else np.maximum(largest, value)
    assert largest is not None  # the quantity is known
    return largest
