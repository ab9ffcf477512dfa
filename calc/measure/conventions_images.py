"""Elementwise FLOPs of operators on images, signals and volumes, counted as a whole.

- pooling: each window is a reduction of the whole kernel (padding included), and the average one division per result
  element; backward one division per source element and one addition for each element of its window;
- adaptive pooling: along an axis of n elements and m windows, the windows have n + m - 1 elements together, as if adjacent
  windows always overlapped by one (they do unless one size divides the other); otherwise as pooling;
- the gradient of a maximum, of padding by copies, of nearest-neighbor upsampling and of ``unfold``: one addition per source element;
- interpolation between 2ⁿ neighbors in n dimensions: 2ⁿ - 1 linear ones of 3 operations per result element; bicubic from 16: 5 sums
  of 4 products. Backward: a product and an addition per neighbor. Computing neighbors and their weights, which all channels share,
  is index arithmetic: 0;
- sampling on a grid of points in n dimensions: 2 operations per point and axis for its position; between neighbors n differences and
  2ⁿ products of weights; then a sum of 2ⁿ products per result element. Backward: a product and an addition per neighbor for the
  image, and for the grid two products and an addition per neighbor and axis, then one scaling per point and axis.
"""

from __future__ import annotations

import math
from typing import Any

from calc.measure.kinds import Args, Count, results


def _window(axes: int) -> Count:
    """Counts the elements of one pooling window; the kernel size may be one number for all axes."""

    def window(args: Args, outputs: Any) -> int:
        kernel = args["kernel_size"]
        return int(math.prod(kernel)) if len(kernel) > 1 else int(kernel[0]) ** axes

    return window


def _max_pool(axes: int) -> Count:
    return lambda args, outputs: results(outputs) * (_window(axes)(args, outputs) - 1)


def _average_pool(axes: int) -> Count:
    return lambda args, outputs: results(outputs) * _window(axes)(args, outputs)


def _average_pool_backward(axes: int) -> Count:
    return lambda args, outputs: _sources(args, outputs) * (1 + _window(axes)(args, outputs))


def _sources(args: Args, outputs: Any) -> int:
    """One addition per element of the incoming gradient."""
    return int(args["grad_output"].numel())


def _in_windows(shape: Any, small: Any, axes: int) -> int:
    """Total number of elements of all adaptive windows, with overlaps counted in each window."""
    lengths = zip(shape[-axes:], small[-axes:], strict=True)
    return int(math.prod(shape[:-axes]) * math.prod(n + m - 1 if n and m else 0 for n, m in lengths))


def _adaptive_max(axes: int) -> Count:
    def count(args: Args, outputs: Any) -> int:
        return _in_windows(args["self"].shape, outputs[0].shape, axes) - results(outputs)

    return count


def _adaptive_average(axes: int) -> Count:
    def count(args: Args, outputs: Any) -> int:
        return _in_windows(args["self"].shape, outputs.shape, axes)

    return count


def _adaptive_average_backward(axes: int) -> Count:
    def count(args: Args, outputs: Any) -> int:
        source = args["grad_output"]
        return int(source.numel()) + _in_windows(args["self"].shape, source.shape, axes)

    return count


def _interpolation(per_result: int) -> Count:
    return lambda args, outputs: per_result * results(outputs)


def _interpolation_backward(neighbors: int) -> Count:
    return lambda args, outputs: 2 * neighbors * _sources(args, outputs)


_BILINEAR, _NEAREST, _BICUBIC = 0, 1, 2


def _neighbors(args: Args, axes: int) -> int:
    return int({_BILINEAR: 2**axes, _NEAREST: 1, _BICUBIC: 4**axes}[args["interpolation_mode"]])


def _points(args: Args) -> int:
    grid = args["grid"]
    return int(grid.numel()) // int(grid.shape[-1])


def _weights(args: Args, axes: int) -> int:
    """FLOPs of the positions of all points and of their neighbors' weights."""
    of_neighbors = {_BILINEAR: axes + (axes - 1) * 2**axes, _NEAREST: 0, _BICUBIC: 16 * axes}[args["interpolation_mode"]]
    return int(_points(args) * (2 * axes + of_neighbors))


def _grid_sample(axes: int) -> Count:
    def count(args: Args, outputs: Any) -> int:
        per_result = {1: 0, 4**axes: 35}.get(_neighbors(args, axes), 2 ** (axes + 1) - 1)
        return _weights(args, axes) + results(outputs) * int(per_result)

    return count


def _grid_sample_backward(axes: int) -> Count:
    def count(args: Args, outputs: Any) -> int:
        source, neighbors = _sources(args, outputs), _neighbors(args, axes)
        of_input, of_grid = args["output_mask"]
        image = source * (1 if neighbors == 1 else 2 * neighbors) if of_input else 0
        grid = 0 if neighbors == 1 or not of_grid else 3 * axes * neighbors * source + axes * _points(args)
        return int(_weights(args, axes) + image + grid)

    return count


IMAGES: dict[str, Count] = {
    **{f"max_pool{n}d_with_indices": _max_pool(n) for n in (2, 3)},
    **{f"max_pool{n}d_with_indices_backward": _sources for n in (2, 3)},
    **{f"fractional_max_pool{n}d": _max_pool(n) for n in (2, 3)},
    **{f"fractional_max_pool{n}d_backward": _sources for n in (2, 3)},
    **{f"avg_pool{n}d": _average_pool(n) for n in (2, 3)},
    **{f"avg_pool{n}d_backward": _average_pool_backward(n) for n in (2, 3)},
    **{f"_adaptive_avg_pool{n}d": _adaptive_average(n) for n in (2, 3)},
    **{f"_adaptive_avg_pool{n}d_backward": _adaptive_average_backward(n) for n in (2, 3)},
    **{f"adaptive_max_pool{n}d": _adaptive_max(n) for n in (2, 3)},
    **{f"adaptive_max_pool{n}d_backward": _sources for n in (2, 3)},
    **{f"{kind}_pad{n}d_backward": _sources for kind in ("reflection", "replication") for n in (1, 2, 3)},
    **{f"{kind}{n}d_backward": _sources for kind in ("upsample_nearest", "_upsample_nearest_exact") for n in (1, 2, 3)},
    **{f"upsample_{kind}": _interpolation(3 * (2**n - 1)) for n, kind in enumerate(("linear1d", "bilinear2d", "trilinear3d"), 1)},
    **{f"upsample_{kind}_backward": _interpolation_backward(2**n) for n, kind in enumerate(("linear1d", "bilinear2d", "trilinear3d"), 1)},
    "upsample_bicubic2d": _interpolation(35),
    "upsample_bicubic2d_backward": _interpolation_backward(16),
    **{f"grid_sampler_{n}d": _grid_sample(n) for n in (2, 3)},
    **{f"grid_sampler_{n}d_backward": _grid_sample_backward(n) for n in (2, 3)},
    "col2im": lambda args, outputs: int(args["self"].numel()),
}
