"""Gathers and scatters: elements read from and written to positions in index tensors.

A gather reads one source element per result element. An in-place scatter writes one element per source element, and reads it first if it
adds; an out-of-place scatter reads and writes the whole result. Adding is one operation per source element.
"""

from __future__ import annotations

import math

from calc.rules.registry import Cost, Factor, Operator, Term, View, free, rule
from calc.rules.shapes import broadcast, each, given_number, indices_of, is_mask, split, whole

MOVES = "moves elements: no arithmetic"
ADDS = "one addition per source element"
TAKES = "reads one source element per result element, and the indices"
TOUCHES = "touches one element per source element"

free(
    "aten.index_copy.default",
    "aten.index_fill.int_Scalar",
    "aten.scatter.src",
    "aten.scatter.value",
    because="puts elements into a copy of the tensor: no arithmetic",
    moves=True,
)


free("aten.nonzero.default", because="finds the indices of nonzero elements: no arithmetic", moves=True)
free("aten.masked_select.default", because="selects the elements of a mask: no arithmetic", moves=True)


def _taken(op: Operator, *indices: View | None) -> Cost:
    return Cost(reads=((op.out.numel, op.tensor("self").dtype), *whole(*indices)))


@rule(
    "aten.index.Tensor",
    "aten._unsafe_index.Tensor",
    statement="y = x[i, j, …]",
    source=MOVES,
    convention=TAKES,
    shapes="x (*), integer indices that broadcast to (n) → y (n, * the axes not indexed).",
)
def index(op: Operator) -> Cost:
    return _taken(op, *indices_of(op))


@rule(
    "aten.index_select.default",
    "aten.gather.default",
    statement="y[i] = x[index[i]] along dim",
    source=MOVES,
    convention=TAKES,
    shapes="x (*), index → y, with the axis dim of the index's size.",
)
def select(op: Operator) -> Cost:
    return _taken(op, op.tensor("index"))


def _put_shape(op: Operator) -> tuple[Factor, ...]:
    """Shape of ``self[indices]``: the indices' common shape, and the axes that are not indexed. A mask indexes as many axes as it has, and
    counts as the positions that it selects."""
    indices = indices_of(op)
    shapes = [(op.value("chosen"),) if is_mask(i) else i.shape for i in indices if i is not None]
    axes = [i for i in indices for _ in range(len(i.shape) if i is not None and is_mask(i) else 1)]
    trailing = [s for i, s in enumerate(op.shape("self")) if i >= len(axes) or axes[i] is None]
    return (*broadcast(*shapes), *trailing)


def _added(op: Operator, shape: tuple[Factor, ...]) -> tuple[Term, ...]:
    scaled = (each("alpha · source", shape),) if given_number(op, "alpha") else ()
    return (*scaled, each("x[index] += source", shape))


MASKS = "a mask of truth values stands for the positions that it selects"
FILLS = "one number at one mask: the mask is read whole, x read and written, as masked_fill_ does"


def _fills(op: Operator) -> bool:
    """Whether torch runs it as ``masked_fill_``: its cost does not depend on how many elements the mask selects."""
    indices = [i for i in indices_of(op) if i is not None]
    return not op.value("accumulate", False) and not op.shape("values") and len(indices) == 1 and is_mask(indices[0])


@rule(
    "aten.index_put.default",
    "aten._unsafe_index_put.default",
    statement="y = x, then y[i, j, …] = v, or += v",
    source=ADDS,
    convention=MASKS,
    shapes="x (*), integer indices that broadcast to (n), v broadcast to (n, * the axes not indexed) → y (*).",
)
def index_put(op: Operator) -> Cost:
    return Cost(elementwise=_added(op, _put_shape(op)) if op.value("accumulate", False) else ())


@rule(
    "aten.index_put_.default",
    statement="x[i, j, …] = v, or += v",
    source=ADDS,
    convention=f"{TOUCHES}; {MASKS}; {FILLS}",
    shapes="x (*), integer indices that broadcast to (n), v broadcast to (n, * the axes not indexed).",
)
def index_put_(op: Operator) -> Cost:
    accumulate = bool(op.value("accumulate", False))
    if _fills(op):
        return Cost()
    shape = _put_shape(op)
    touched = ((math.prod(shape), op.tensor("self").dtype),)
    return Cost(
        elementwise=_added(op, shape) if accumulate else (),
        reads=(*whole(*op.value("indices"), op.tensor("values")), *(touched if accumulate else ())),
        writes=touched,
    )


@rule(
    "aten.index_add.default",
    statement="y = x, then y[index[i]] += alpha source[i] along dim",
    source=ADDS,
    shapes="x (*), index (n), source like x with n along dim → y (*).",
)
def index_add(op: Operator) -> Cost:
    return Cost(elementwise=_added(op, op.shape("source")))


@rule(
    "aten.index_add_.default",
    statement="x[index[i]] += alpha source[i] along dim",
    source=ADDS,
    convention=TOUCHES,
    shapes="x (*), index (n), source like x with n along dim.",
)
def index_add_(op: Operator) -> Cost:
    source, touched = op.tensor("source"), ((op.tensor("source").numel, op.tensor("self").dtype),)
    return Cost(elementwise=_added(op, source.shape), reads=(*whole(op.tensor("index"), source), *touched), writes=touched)


@rule(
    "aten.scatter_add.default",
    statement="y = x, then y[index[i]] += source[i] along dim",
    source=ADDS,
    shapes="x (*), index (n), source at least (n) → y (*).",
)
def scatter_add(op: Operator) -> Cost:
    return Cost(elementwise=_added(op, op.shape("index")))


@rule(
    "aten.scatter_add_.default",
    statement="x[index[i]] += source[i] along dim",
    source=ADDS,
    convention=TOUCHES,
    shapes="x (*), index (n), source at least (n).",
)
def scatter_add_(op: Operator) -> Cost:
    index_, touched = op.tensor("index"), ((op.tensor("index").numel, op.tensor("self").dtype),)
    source = ((index_.numel, op.tensor("src").dtype),)
    return Cost(elementwise=_added(op, index_.shape), reads=(*whole(index_), *source, *touched), writes=touched)


@rule(
    "aten.scatter_.src",
    "aten.scatter_.value",
    statement="x[index[i]] = source[i] along dim",
    source=MOVES,
    convention=TOUCHES,
    shapes="x (*), index (n), source at least (n) or one number.",
)
def scatter_(op: Operator) -> Cost:
    index_ = op.tensor("index")
    source = ((index_.numel, op.tensor("src").dtype),) if op.has("src") else ()
    return Cost(reads=(*whole(index_), *source), writes=((index_.numel, op.tensor("self").dtype),))


@rule(
    "aten.index_copy_.default",
    statement="x[index[i]] = source[i] along dim",
    source=MOVES,
    convention=TOUCHES,
    shapes="x (*), index (n), source like x with n along dim.",
)
def index_copy_(op: Operator) -> Cost:
    source = op.tensor("source")
    return Cost(reads=whole(op.tensor("index"), source), writes=((source.numel, op.tensor("self").dtype),))


@rule(
    "aten.index_fill_.int_Scalar",
    "aten.index_fill_.int_Tensor",
    statement="x[index[i]] = value along dim",
    source=MOVES,
    convention=TOUCHES,
    shapes="x (*), index (n), value one number.",
)
def index_fill_(op: Operator) -> Cost:
    remaining, _ = split(op.shape("self"), op.value("dim"))
    index_ = op.tensor("index")
    value = whole(op.tensor("value")) if op.has("value") else ()
    return Cost(reads=(*whole(index_), *value), writes=((math.prod(remaining) * index_.numel, op.tensor("self").dtype),))


free(
    "aten.index_fill.int_Tensor",
    "aten.masked_scatter.default",
    "aten.masked_scatter_backward.default",
    because="puts elements into a copy of the tensor: no arithmetic",
    moves=True,
)


@rule(
    "aten.take.default",
    statement="y[i] = x[index[i]], x as one line",
    source=MOVES,
    convention=TAKES,
    shapes="x (*), index (n) → y (n).",
)
def take(op: Operator) -> Cost:
    return _taken(op, op.tensor("index"))


@rule(
    "aten.put.default",
    statement="y = x, then y[index[i]] = source[i], or +=, x as one line",
    source=ADDS,
    shapes="x (*), index (n), source (n) → y (*).",
)
def put(op: Operator) -> Cost:
    return Cost(elementwise=(each("x[index] += source", op.shape("index")),) if op.value("accumulate", False) else ())


ACCUMULATES = "one operation per source element; a mean counts them too and divides every result"


@rule(
    "aten.scatter_reduce.two",
    "aten.scatter.reduce",
    "aten.scatter.value_reduce",
    statement="y = x, then y[index[i]] = y[index[i]] + source[i] along dim; or their product, largest, least or mean",
    source=ACCUMULATES,
    shapes="x (*), index (n), source at least (n) or one number → y (*).",
)
def scatter_reduce(op: Operator) -> Cost:
    shape = op.shape("index")
    if op.value("reduce") != "mean":
        return Cost(elementwise=(each("x[index] ∘ source", shape),))
    return Cost(elementwise=(each("x[index] += source", shape), each("count[index] += 1", shape), each("/ count", op.out.shape)))


@rule(
    "aten.scatter_reduce_.two",
    "aten.scatter_.reduce",
    "aten.scatter_.value_reduce",
    statement="x[index[i]] = x[index[i]] + source[i] along dim; or their product, largest, least or mean",
    source=ACCUMULATES,
    convention=TOUCHES,
    shapes="x (*), index (n), source at least (n) or one number.",
)
def scatter_reduce_(op: Operator) -> Cost:
    index_, touched = op.tensor("index"), ((op.tensor("index").numel, op.tensor("self").dtype),)
    source = ((index_.numel, op.tensor("src").dtype),) if op.has("src") else ()
    return Cost(elementwise=scatter_reduce(op).elementwise, reads=(*whole(index_), *source, *touched), writes=touched)
