"""Images, signals and volumes at other sizes or places: interpolation, sampling on a grid, padding, patches.

A neighbor's index and weight depend on the position alone, so all channels share them: they are index arithmetic.
"""

from __future__ import annotations

from calc.rules.registry import Cost, Operator, Term, free, rule, term
from calc.rules.shapes import each, whole

MOVES = "takes elements from other positions: no arithmetic"
ADDS = "the transpose of a gather: one addition per source element"
SHARED = "weights of neighbors, shared by all channels, are index arithmetic: 0"

free(
    *(f"aten.{kind}{n}d.default" for kind in ("upsample_nearest", "_upsample_nearest_exact") for n in (1, 2, 3)),
    because="each result is the nearest element: no arithmetic",
    moves=True,
)
free(*(f"aten.{kind}_pad{n}d.default" for kind in ("reflection", "replication") for n in (1, 2, 3)), because=MOVES, moves=True)
free("aten.im2col.default", because="copies every patch into a column: no arithmetic", moves=True)
free(
    "aten.pixel_shuffle.default",
    "aten.pixel_unshuffle.default",
    "aten.channel_shuffle.default",
    because="copies elements to other positions: no arithmetic",
    moves=True,
)


@rule(
    *(f"aten.{kind}{n}d_backward.default" for kind in ("upsample_nearest", "_upsample_nearest_exact") for n in (1, 2, 3)),
    statement="dx[nearest(i)] += dy[i]",
    source=ADDS,
    shapes="dy (batch, channels, *t) → dx (batch, channels, *s).",
)
def nearest_backward(op: Operator) -> Cost:
    return Cost(elementwise=(each("dx[nearest] += dy", op.shape("grad_output")),))


@rule(
    *(f"aten.{kind}_pad{n}d_backward.default" for kind in ("reflection", "replication") for n in (1, 2, 3)),
    statement="dx[source(i)] += dy[i]",
    source=ADDS,
    convention="the input is not read",
    shapes="dy (batch, channels, *t) → dx (batch, channels, *s).",
)
def pad_backward(op: Operator) -> Cost:
    dy = op.tensor("grad_output")
    return Cost(elementwise=(each("dx[source] += dy", dy.shape),), reads=whole(dy))


@rule(
    "aten.col2im.default",
    statement="x[position of i] += column[i]",
    source=ADDS,
    shapes="columns (batch, channels · kernel, positions) → x (batch, channels, height, width).",
)
def fold(op: Operator) -> Cost:
    return Cost(elementwise=(each("x[position] += column", op.shape("self")),))


LINEAR = {"upsample_linear1d": 1, "upsample_bilinear2d": 2, "upsample_trilinear3d": 3}


@rule(
    *(f"aten.{name}.default" for name in LINEAR),
    statement="y = a + w (b − a) between neighbors along one axis after another",
    source="2ⁿ − 1 linear interpolations of 3 operations, in n dimensions: torch._decomp.decompositions._upsample_linear",
    convention=SHARED,
    shapes="x (batch, channels, *s) → y (batch, channels, *t).",
)
def linear_interpolation(op: Operator) -> Cost:
    interpolations = 2 ** LINEAR[op.name.split(".")[1]] - 1
    names = ("b − a", "w (b − a)", "a + w (b − a)")
    return Cost(elementwise=tuple(term(name, interpolations, *op.out.shape) for name in names))


@rule(
    *(f"aten.{name}_backward.default" for name in LINEAR),
    statement="dx[neighbor] += w dy, for each of the 2ⁿ neighbors",
    source="the transpose of the interpolation: a product and an addition for each neighbor",
    convention=SHARED,
    shapes="dy (batch, channels, *t) → dx (batch, channels, *s).",
)
def linear_interpolation_backward(op: Operator) -> Cost:
    neighbors = 2 ** LINEAR[op.name.split(".")[1].removesuffix("_backward")]
    return Cost(elementwise=_spread(neighbors, op.shape("grad_output")))


def _spread(neighbors: int, shape: tuple[object, ...]) -> tuple[Term, ...]:
    return term("w dy", neighbors, *shape), term("dx[neighbor] += w dy", neighbors, *shape)


def _cubic(shape: tuple[object, ...]) -> tuple[Term, ...]:
    return term("products with 4 + 16 weights", 20, *shape), term("sums of 4", 15, *shape)


@rule(
    "aten.upsample_bicubic2d.default",
    statement="y = Σ w x over 4 rows of 4 neighbors",
    source="5 sums of 4 products: torch._decomp.decompositions.upsample_bicubic2d_default",
    convention=SHARED,
    shapes="x (batch, channels, height, width) → y (batch, channels, height', width').",
)
def bicubic(op: Operator) -> Cost:
    return Cost(elementwise=_cubic(op.out.shape))


@rule(
    "aten.upsample_bicubic2d_backward.default",
    statement="dx[neighbor] += w dy, for each of the 16 neighbors",
    source="the transpose of the interpolation: a product and an addition for each neighbor",
    convention=SHARED,
    shapes="dy (batch, channels, height', width') → dx (batch, channels, height, width).",
)
def bicubic_backward(op: Operator) -> Cost:
    return Cost(elementwise=_spread(16, op.shape("grad_output")))


# -- sampling on a grid ------------------------------------------------------------------------------------------------------

NEIGHBORS_OF_POINT = "positions and weights of neighbors differ from point to point, so they are counted"
BILINEAR, NEAREST, BICUBIC = 0, 1, 2


def _mode(op: Operator) -> int:
    return int(op.value("interpolation_mode"))


def _axes(op: Operator) -> int:
    return 3 if "3d" in op.name else 2


def _positions(op: Operator) -> tuple[Term, ...]:
    """Positions of the points in the image, and the weights of their neighbors."""
    points, n = op.shape("grid")[:-1], _axes(op)
    place = term("position = (g + 1) · size/2 − …", 2 * n, *points)
    match _mode(op):
        case 0:
            return (
                place,
                term("position − corner", n, *points),
                term("weights = products of the differences", (n - 1) * 2**n, *points),
            )
        case 2:
            return place, term("cubic weights", 16 * n, *points)
    return (place,)


@rule(
    "aten.grid_sampler_2d.default",
    "aten.grid_sampler_3d.default",
    statement="y[p] = Σ w x over the neighbors of the point g[p]",
    source="weights per point, then a product and an addition per neighbor and channel",
    convention=NEIGHBORS_OF_POINT,
    shapes="x (batch, channels, *s), g (batch, *t, n) → y (batch, channels, *t).",
)
def grid_sample(op: Operator) -> Cost:
    neighbors = 2 ** _axes(op)
    sums: tuple[Term, ...] = ()
    match _mode(op):
        case 0:
            sums = (term("w x", neighbors, *op.out.shape), term("Σ w x", neighbors - 1, *op.out.shape))
        case 2:
            sums = _cubic(op.out.shape)
    return Cost(elementwise=(*_positions(op), *sums))


@rule(
    "aten.grid_sampler_2d_backward.default",
    "aten.grid_sampler_3d_backward.default",
    statement="dx[neighbor] += w dy; dg = Σ dy x ∂w/∂g",
    source="per neighbor and channel a product and an addition for x; two products and an addition for each axis of g",
    convention=NEIGHBORS_OF_POINT + "; every argument is read",
    shapes="dy (batch, channels, *t), x (batch, channels, *s), g (batch, *t, n) → dx, dg as output_mask requests.",
)
def grid_sample_backward(op: Operator) -> Cost:
    shape, n, mode = op.shape("grad_output"), _axes(op), _mode(op)
    of_input, of_grid = op.value("output_mask")
    neighbors = {BILINEAR: 2**n, BICUBIC: 4**n}.get(mode, 1)
    if mode == NEAREST:
        return Cost(elementwise=(*_positions(op), *((each("dx[nearest] += dy", shape),) if of_input else ())))
    image = _spread(neighbors, shape) if of_input else ()
    names = ("dy x", "dy x ∂w", "Σ dy x ∂w")
    grid = (*(term(name, n, neighbors, *shape) for name in names), term("dg = … · size/2", n, *op.shape("grid")[:-1]))
    return Cost(elementwise=(*_positions(op), *image, *(grid if of_grid else ())))


@rule(
    "aten.affine_grid_generator.default",
    statement="g[p] = θ (p, 1) for every point p",
    reference="torch._decomp.decompositions.affine_grid_generator",
    source="products and their sums, and the points themselves",
    shapes="θ (batch, n, n+1) → g (batch, *t, n).",
)
def affine_grid(op: Operator) -> Cost:
    batch, n, homogeneous = op.shape("theta")
    points = op.out.shape[1:-1]
    return Cost(
        elementwise=(
            *(term("p as a sum of its coordinates", *points[i:], homogeneous) for i in range(len(points) - 2, -1, -1)),
            term("p + 1", *points, homogeneous),
            term("θ p", batch, *points, homogeneous, n),
            term("Σ θ p", batch, *points, n, homogeneous - 1),
        )
    )
