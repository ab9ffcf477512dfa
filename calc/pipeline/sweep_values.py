"""The values of closed forms on a mesh of sizes, and where they hold."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from calc.derive.quantities import require_count
from calc.dimensions import ordered_names
from calc.errors import NapkinError
from calc.graph.guards import Guard
from calc.pipeline.precomputed import Stored, StoredQuantity
from calc.pipeline.sweep_grid import Trouble, basis_arrays
from calc.symbolic.arrays import Array, Mesh, evaluate, holds, side

# Points evaluated together: enough to amortize Python's overhead, few enough to stay in the processor's cache.
CHUNK = 1 << 17
_OF_LISTS = 1 << 15


def unmet(form: Stored, mesh: Mapping[str, Array]) -> Trouble:
    """Where the step may run other operators than traced. In a special case, its own guards count."""
    special: Array = np.zeros((), dtype=bool)
    trouble = Trouble()
    for case in form.cases:
        applies = _applies(case.equal, mesh) & ~special
        trouble += [(bad & applies, why) for bad, why in unmet(case.form, mesh) if np.any(applies)]
        special = special | applies
    return trouble + [(bad & ~special, why) for bad, why in _changed(form, mesh)]


def _applies(equal: Mapping[str, str], mesh: Mapping[str, Array]) -> Array:
    mask: Array = np.ones((), dtype=bool)
    for name, to in equal.items():
        mask = mask & (mesh[name] == evaluate(to, mesh))
    return mask


def _changed(form: Stored, mesh: Mapping[str, Array]) -> Iterator[tuple[Array, str]]:
    for name, (value, _) in form.specialized.items():
        yield mesh[name] != value, f"the closed forms hold only for {name} = {value}"
    symbols = basis_arrays(form.basis, mesh)
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
    side_of_points = side(condition.expr, symbols)
    for at in certified:
        if not condition.holds_at(at):
            if side_of_points is None:
                return np.ones((), dtype=bool)
            certificate = {name: np.asarray(size) for name, size in at.items()}
            mask = mask | (side_of_points == 0) | (side_of_points == side(condition.expr, certificate))
    return mask


def evaluated(quantity: StoredQuantity, mesh: Mapping[str, Array], shape: tuple[int, ...], valid: Array | None) -> Array:
    """The values of a quantity at every point of the mesh, as int64, or as Python integers where they are larger."""
    results = np.empty(shape, dtype=np.int64)
    for block in _blocks(shape):
        if valid is not None and not np.any(valid[block]):
            continue
        sizes_in_block = {name: _cut(array, block, len(shape)) for name, array in mesh.items()}
        part = _at(quantity, sizes_in_block, True if valid is None else valid[block])
        _require_counts(quantity.name, part, sizes_in_block, True if valid is None else valid[block])
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
    points = Mesh(quantity.form.table, {**basis_arrays(quantity.form.basis, mesh), **mesh})
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
