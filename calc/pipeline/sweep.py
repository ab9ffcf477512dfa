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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from calc import dimensions as dims
from calc.errors import BadInputError, DimensionError, NapkinError, NegativeCountError, UnknownQuantityError
from calc.options import Options
from calc.pipeline.precomputed import Stored, StoredQuantity, form_of, forms_elsewhere
from calc.pipeline.sweep_grid import MOST, Gap, SweepGrid, all_sizes, axes_of, require_equal_lengths, require_few
from calc.pipeline.sweep_values import evaluated, unmet
from calc.platform.tables import text_table
from calc.symbolic.arrays import Array, evaluate

if TYPE_CHECKING:
    from calc.derive.result import Derivation

# Limit on the special cases that one sweep traces, half a minute each for a large model.
CASES = 12
# Limit on the points at which a quantity without a closed form is traced, a second or more each.
TRACED = 1000
_SHOWN = 20  # points that Python shows of a result

Trace = Callable[[Mapping[str, int]], Stored]
Count = Callable[[str, Mapping[str, int]], int]


@dataclass(frozen=True, slots=True)
class SweptSizes:
    """The given sizes of each dimension: they span a grid, or are combined point by point if ``listed``. More than ``most`` points are
    refused."""

    sizes: Mapping[str, Sequence[int]]
    listed: bool = False
    most: int = MOST


@dataclass(frozen=True, slots=True)
class FurtherTraces:
    """``form`` returns the form that holds at sizes where another does not, and runs at most ``cases`` times; without it such points have
    no value. ``count`` returns the value of a quantity without a closed form at given sizes; without it such a quantity is refused."""

    form: Trace | None = None
    cases: int = CASES
    count: Count | None = None


_NONE = FurtherTraces()


@dataclass(frozen=True, slots=True, repr=False)
class Sweep:
    """Quantities at many sizes. ``axes`` are the given sizes: they span a grid, or form a list of points (``listed``).

    ``values`` are arrays in the grid's shape, of 64-bit integers, or of Python integers if those overflow; ``units`` has the unit of each.
    ``valid`` says where they are defined; ``None``: everywhere. ``gaps`` says why they are not elsewhere.
    """

    axes: Mapping[str, Array]
    listed: bool
    values: Mapping[str, Array]
    units: Mapping[str, str]
    valid: Array | None
    gaps: tuple[Gap, ...]

    def __repr__(self) -> str:
        """The first points with their values."""
        head = (*self.axes, *(f"{name} ({self.units[name]})" for name in self.values))
        rows = [tuple("–" if n is None else f"{n:,}" for n in (*sizes, *values)) for sizes, values in itertools.islice(self.rows(), _SHOWN)]
        title = f"{self.points:,} points" + (f", the first {_SHOWN} of them" if self.points > _SHOWN else "")
        return text_table(title, [head, *rows], frozenset(range(len(head))))

    @property
    def points(self) -> int:
        """The number of points, those without a value included."""
        return next(iter(self.values.values())).size

    def rows(self) -> Iterator[tuple[tuple[int, ...], tuple[int | None, ...]]]:
        """Each point: its sizes, and its values in the order of ``values``; ``None`` for a missing one."""
        columns = [np.ravel(array) for array in self.values.values()]
        valid = None if self.valid is None else np.ravel(self.valid)
        lists = [axis.tolist() for axis in self.axes.values()]
        for i, sizes in enumerate(zip(*lists, strict=True) if self.listed else itertools.product(*lists)):
            is_valid = valid is None or valid[i]
            yield sizes, tuple(int(column[i]) if is_valid else None for column in columns)


def of_model(
    name: str,
    given: SweptSizes,
    quantities: Sequence[str],
    options: Options,
    *,
    cases: int = CASES,
    cache: bool = True,
    progress: Callable[[str], None] = lambda _: None,
) -> Sweep:
    """The quantities of a model, as ``calc.load`` names it, at every point. Special cases are traced. Raises as ``sweep`` does."""
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

    return sweep(form, given, quantities, FurtherTraces(trace, cases, count))


def sweep(form: Stored, given: SweptSizes, quantities: Sequence[str] = ("memory.peak",), further: FurtherTraces = _NONE) -> Sweep:
    """The quantities of a form at every point. Sizes not given are the model's defaults, or follow from those given. Raises
    ``BadInputError`` if there are no quantities, too many points, or a size that the model does not have."""
    count, listed = further.count, given.listed
    wanted = {name: form.quantity(name) for name in dict.fromkeys(quantities)}
    if not wanted:
        raise BadInputError("nothing to sweep: name a quantity, e.g. memory.peak")
    axes = axes_of(form, given.sizes, listed)
    shape = (next(iter(axes.values())).size,) if listed and axes else tuple(axis.size for axis in axes.values())
    require_few(shape, given.most)
    grid = SweepGrid(axes, shape, listed)
    mesh, impossible = all_sizes(form, grid.spread)
    possible, gaps = grid.gaps(impossible)
    with_forms = {name: quantity for name, quantity in wanted.items() if count is None or not quantity.unknown}
    valid, otherwise = grid.gaps(unmet(form, mesh) if with_forms else [], possible)
    values = {name: evaluated(_require_known(quantity), mesh, shape, valid) for name, quantity in with_forms.items()}
    if further.form is not None and otherwise:
        assert valid is not None  # at some points the form does not hold
        left = np.broadcast_to(True if possible is None else possible, shape) & ~valid
        otherwise = _by_cases(grid, values, valid, left, further)
    for name in [name for name in wanted if name not in with_forms]:
        assert count is not None  # without it, all quantities were checked to be known
        values[name], valid, failed = _counted(grid, name, np.ones(shape, dtype=bool) if valid is None else valid, count)
        otherwise += failed
    units = {name: str(q.definition.unit) for name, q in wanted.items()}
    return Sweep(axes, listed, {name: values[name] for name in wanted}, units, valid, (*gaps, *otherwise))


def _counted(grid: SweepGrid, name: str, where: Array, count: Count) -> tuple[Array, Array, tuple[Gap, ...]]:
    """The values of a quantity without a closed form at the points ``where``, a mask of those that have one, and the gaps."""
    counted = where.copy()
    points = int(np.count_nonzero(counted))
    if points > TRACED:
        raise BadInputError(f"{name} has no closed form, so each of {points:,} points would be traced: give at most {TRACED:,}")
    values, failed = np.zeros(grid.shape, dtype=object), dict[str, Gap]()
    for index in map(tuple, np.argwhere(counted)):
        try:
            values[index] = count(name, grid.sizes(index))
        except (UnknownQuantityError, NegativeCountError):
            raise  # every size fails: no rule counts it, or Napkin has a bug
        except NapkinError as error:
            why, counted[index] = str(error), False
            before = failed.get(why, Gap(0, grid.sizes(index), why, possible=True))
            failed[why] = replace(before, points=before.points + 1)
    return values, counted, tuple(failed.values())


def _by_cases(grid: SweepGrid, values: dict[str, Array], valid: Array, left: Array, further: FurtherTraces) -> tuple[Gap, ...]:
    """Fills in ``values`` and ``valid`` at the points ``left``: takes the form at the first of these, evaluates it everywhere it holds, and
    repeats until none is left or as many forms were made as may be. Remaining points have no value."""
    gaps: list[Gap] = []
    assert further.form is not None  # without it, no case is traced
    for _ in range(further.cases):
        if not np.any(left):
            return tuple(gaps)
        first = np.unravel_index(int(np.argmax(left)), grid.shape)
        try:
            form = further.form(grid.sizes(first))
            mesh, trouble = all_sizes(form, grid.spread)
            troublefree, others = grid.gaps([*trouble, *unmet(form, mesh)], left)
            covered = left if troublefree is None else troublefree
            if not covered[first]:
                raise DimensionError(next(gap.because for gap in others if gap.first == grid.sizes(first)))
            counted, arrays = covered, {}
            for name in values:
                quantity = form.quantity(name)
                if further.count is not None and quantity.unknown:
                    arrays[name], counted, failed = _counted(grid, name, counted, further.count)
                    gaps += failed
                else:
                    arrays[name] = evaluated(_require_known(quantity), mesh, grid.shape, covered)
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
        most = f"{further.cases} at most: give fewer sizes, or --cases {2 * further.cases}"
        why = f"the step runs other operators there than in the traced cases, {most}"
        gaps.append(Gap(points, grid.sizes(first), why, possible=True))
    return tuple(gaps)


def sweep_expression(text: str, given: SweptSizes) -> Sweep:
    """An expression of sizes at every point, e.g. ``"12*L*d**2"``. Raises ``BadInputError`` where ``sweep`` does."""
    axes = {name: np.asarray([dims.check_size(name, size) for size in sizes], dtype=np.int64) for name, sizes in given.sizes.items()}
    if not axes or not all(axis.size for axis in axes.values()):
        raise BadInputError("no sizes: give each variable of the expression sizes, e.g. -d L=12 -d d=768,1024")
    lengths = [axis.size for axis in axes.values()]
    require_equal_lengths(axes, given.listed)
    shape = tuple(lengths[:1] if given.listed else lengths)
    require_few(shape, given.most)
    array = evaluate(text, SweepGrid(axes, shape, given.listed).spread)
    return Sweep(axes, given.listed, {text: np.broadcast_to(array, shape)}, {text: ""}, None, ())


def _require_known(quantity: StoredQuantity) -> StoredQuantity:
    if quantity.unknown:
        raise UnknownQuantityError(f"{quantity.name} is unknown: {quantity.unknown}")
    return quantity
