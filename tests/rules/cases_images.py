"""Real calls of operators on images, signals and volumes."""

from __future__ import annotations

from typing import Any

import torch

from tests.rules.calls import add, call, r
from tests.rules.operators import Case

aten = torch.ops.aten

# -- pooling ----------

add("max_pool3d_with_indices.default avg_pool3d.default", lambda: call(r(2, 3, 6, 8, 10), [2, 3, 2]), lambda: call(r(2, 3, 6, 8, 10), [2]))


def _max_pool_backward() -> Case:
    x = r(2, 3, 6, 8, 10)
    y, positions = aten.max_pool3d_with_indices(x, [2, 3, 2])
    return call(torch.rand_like(y), x, [2, 3, 2], [2, 3, 2], [0, 0, 0], [1, 1, 1], False, positions)


add("max_pool3d_with_indices_backward.default", _max_pool_backward)
add("avg_pool3d_backward.default", lambda: call(r(2, 3, 3, 2, 5), r(2, 3, 6, 8, 10), [2, 3, 2], [2, 3, 2], [0, 0, 0], False, True, None))
add("_adaptive_avg_pool2d.default adaptive_max_pool2d.default", lambda: call(r(2, 3, 7, 11), [3, 5]), lambda: call(r(3, 8, 12), [4, 6]))
add("_adaptive_avg_pool3d.default adaptive_max_pool3d.default", lambda: call(r(2, 3, 7, 11, 13), [3, 5, 2]))
add("_adaptive_avg_pool2d_backward.default", lambda: call(r(2, 3, 3, 5), r(2, 3, 7, 11)))
add("_adaptive_avg_pool3d_backward.default", lambda: call(r(2, 3, 3, 5, 2), r(2, 3, 7, 11, 13)))


def _adaptive_max_backward(*small: int) -> Case:
    x = r(2, 3, 7, 11, 13)[(..., *[0] * (3 - len(small)))].contiguous()
    pool = aten.adaptive_max_pool2d if len(small) == 2 else aten.adaptive_max_pool3d
    y, positions = pool(x, list(small))
    return call(torch.rand_like(y), x, positions)


def _fractional(*space: int) -> Case:
    return call(r(2, 3, *space), [2] * len(space), [3] * len(space), torch.rand(2, 3, len(space)))


def _fractional_backward(*space: int) -> Case:
    given = _fractional(*space)
    y, positions = getattr(aten, f"fractional_max_pool{len(space)}d")(*given.args)
    return call(torch.rand_like(y), given.args[0], [2] * len(space), [3] * len(space), positions)


add("fractional_max_pool2d.default", lambda: _fractional(7, 11))
add("fractional_max_pool3d.default", lambda: _fractional(7, 11, 5))
add("fractional_max_pool2d_backward.default", lambda: _fractional_backward(7, 11))
add("fractional_max_pool3d_backward.default", lambda: _fractional_backward(7, 11, 5))
add("adaptive_max_pool2d_backward.default", lambda: _adaptive_max_backward(3, 5))
add("adaptive_max_pool3d_backward.default", lambda: _adaptive_max_backward(3, 5, 2))
add("max_unpool2d.default", lambda: call(r(2, 3, 4, 5), torch.arange(20).expand(2, 3, 20).reshape(2, 3, 4, 5), [7, 11]))
add(
    "max_unpool3d.default",
    lambda: call(r(1, 3, 2, 4, 5), torch.arange(40).expand(3, 40).reshape(1, 3, 2, 4, 5), [4, 7, 11], [2, 2, 2], [0, 0, 0]),
)

# -- other sizes ----------

SIZES = (13, 5, 17)


def _interpolated(axes: int, *more: Any) -> Case:
    return call(r(2, 3, *(7, 11, 3)[:axes]), list(SIZES[:axes]), *more)


def _interpolation_backward(axes: int, *more: Any) -> Case:
    return call(r(2, 3, *SIZES[:axes]), list(SIZES[:axes]), [2, 3, *(7, 11, 3)[:axes]], *more)


for _n in (1, 2, 3):
    for _kind in ("upsample_nearest", "_upsample_nearest_exact"):
        add(f"{_kind}{_n}d.default", lambda n=_n: _interpolated(n))
        add(f"{_kind}{_n}d_backward.default", lambda n=_n: _interpolation_backward(n))
for _n, _kind in enumerate(("linear1d", "bilinear2d", "trilinear3d"), 1):
    add(f"upsample_{_kind}.default", lambda n=_n: _interpolated(n, False), lambda n=_n: _interpolated(n, True))
    add(f"upsample_{_kind}_backward.default", lambda n=_n: _interpolation_backward(n, False))
add("upsample_bicubic2d.default", lambda: _interpolated(2, False))
add("upsample_bicubic2d_backward.default", lambda: _interpolation_backward(2, False))
for _n in (1, 2, 3):
    for _kind in ("reflection", "replication"):
        add(f"{_kind}_pad{_n}d.default", lambda n=_n: call(r(2, 3, *(7, 11, 5)[:n]), [1, 2] * n))
        add(
            f"{_kind}_pad{_n}d_backward.default",
            lambda n=_n: call(r(2, 3, *(10, 14, 8)[:n]), r(2, 3, *(7, 11, 5)[:n]), [1, 2] * n),
        )

# -- places ----------


def _points(axes: int, mode: int, mask: list[bool] | None = None) -> Case:
    """Points of a (5, 7, 2) grid in a (11, 13, 3) image, forward, or backward if a mask of gradients is given."""
    image, grid = r(2, 3, *(11, 13, 3)[:axes]), r(2, *(5, 7, 2)[:axes], axes) - 1
    if mask is None:
        return call(image, grid, mode, 0, False)
    return call(r(2, 3, *(5, 7, 2)[:axes]), image, grid, mode, 0, False, mask)


BOTH, OF_GRID = [True, True], [False, True]
add("grid_sampler_2d.default", *(lambda m=m: _points(2, m) for m in (0, 1, 2)))
add("grid_sampler_2d_backward.default", *(lambda m=m, k=k: _points(2, m, k) for m in (0, 1, 2) for k in (BOTH, OF_GRID)))
add("grid_sampler_3d.default", *(lambda m=m: _points(3, m) for m in (0, 1)))
add("grid_sampler_3d_backward.default", *(lambda m=m, k=k: _points(3, m, k) for m in (0, 1) for k in (BOTH, OF_GRID)))
add(
    "affine_grid_generator.default",
    lambda: call(r(2, 2, 3), [2, 3, 5, 7], False),
    lambda: call(r(2, 3, 4), [2, 3, 5, 7, 11], False),
)
add("im2col.default", lambda: call(r(2, 3, 7, 11), [3, 2], [1, 1], [0, 0], [1, 1]))
add("col2im.default", lambda: call(r(2, 3 * 6, 5 * 10), [7, 11], [3, 2], [1, 1], [0, 0], [1, 1]))
add("pixel_shuffle.default", lambda: call(r(2, 12, 5, 7), 2))
add("pixel_unshuffle.default", lambda: call(r(2, 3, 10, 14), 2))
add("channel_shuffle.default", lambda: call(r(2, 6, 5, 7), 3))
