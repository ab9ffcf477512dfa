"""Operators on images, signals and volumes, each in a training step of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from calc.dimensions import Dim
from tests.zoo.exhibit import network

LENGTHS = {1: {"W": 13}, 2: {"H": 11, "W": 13}, 3: {"D": 7, "H": 11, "W": 13}}
OTHER_LENGTHS = {1: {"W": 23}, 2: {"H": 17, "W": 7}, 3: {"D": 11, "H": 5, "W": 7}}

Layer = Callable[[Any], nn.Module]


class Apart(nn.Module):
    """One convolution of points, so that there is an input gradient, and each of the layers applied to what it gives."""

    def __init__(self, n: Any, axes: int, layers: list[Layer], channels: int) -> None:
        super().__init__()
        convolution = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[axes - 1]
        self.first = convolution(2, channels * n.c, 1)
        self.layers = nn.ModuleList(layer(n) for layer in layers)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        total = y.sum()
        for layer in self.layers:
            total = total + layer(y).sum()
        return total


class Does(nn.Module):
    """A function as a layer."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def does(*functions: Callable[[Tensor], Tensor]) -> list[Layer]:
    return [lambda n, f=f: Does(f) for f in functions]


def images(
    name: str,
    axes: int,
    layers: list[Layer],
    channels: int = 1,
    sizes: Mapping[str, Any] | None = None,
    other: Mapping[str, int] | None = None,
) -> None:
    """A model of ``layers``, each applied to the same ``channels * c`` channels of an image of as many axes."""
    lengths = {"B": 3, "c": 5, **LENGTHS[axes], **(sizes or {})}
    network(
        name,
        lengths,
        lambda n: Apart(n, axes, layers, channels),
        lambda n: (torch.rand(n.B, 2, *(getattr(n, length) for length in LENGTHS[axes])),),
        {"B": 2, "c": 3, **OTHER_LENGTHS[axes], **(other or {})},
    )


CONVOLUTIONS = {1: (nn.Conv1d, nn.ConvTranspose1d), 2: (nn.Conv2d, nn.ConvTranspose2d), 3: (nn.Conv3d, nn.ConvTranspose3d)}
for n, (convolution, transposed) in CONVOLUTIONS.items():
    images(
        f"convolutions, {n}d",
        n,
        [
            lambda s, C=convolution: C(2 * s.c, 3, 3, padding=1, bias=False),
            lambda s, C=convolution: C(2 * s.c, 4, 2, groups=2, stride=2, padding=1, dilation=2),
            lambda s, C=convolution: C(2 * s.c, 4 * s.c, 3, groups=2 * s.c),
            lambda s, C=convolution: C(2 * s.c, 3, 3, padding="same"),
            lambda s, C=transposed: C(2 * s.c, 4, 3, groups=2, stride=2, output_padding=1),
            lambda s, C=transposed: C(2 * s.c, 2 * s.c, 2, groups=2 * s.c, bias=False),
        ],
        channels=2,
    )
    if n < 3:
        images(
            f"padded convolutions, {n}d",
            n,
            [lambda s, C=convolution, m=m: C(s.c, 3, 3, padding=1, padding_mode=m) for m in ("reflect", "replicate", "circular")],
        )
    pools = [getattr(nn, f"{kind}Pool{n}d") for kind in ("Max", "Avg")]
    images(
        f"pooling, {n}d",
        n,
        [
            lambda s, P=pools[0]: P(2),
            lambda s, P=pools[0]: P(3, 2, 1),
            lambda s, P=pools[1]: P(2),
            lambda s, P=pools[1]: P(3, 1, 1, count_include_pad=False),
        ],
    )
    adaptive = [getattr(nn, f"Adaptive{kind}Pool{n}d") for kind in ("Max", "Avg")]
    if n > 1:
        images(f"fractional pooling, {n}d", n, [lambda s, n=n: getattr(nn, f"FractionalMaxPool{n}d")(2, output_size=3)])
    images(f"adaptive pooling, {n}d", n, [lambda s, P=P, m=m: P(m) for P in adaptive for m in (1, 3)])
    images(
        f"interpolation to nearest, {n}d",
        n,
        does(*(lambda x, m=m: F.interpolate(x, scale_factor=2, mode=m) for m in ("nearest", "nearest-exact"))),
    )
    linear = ("linear", "bilinear", "trilinear")[n - 1]
    images(
        f"linear interpolation, {n}d",
        n,
        does(
            lambda x, m=linear: F.interpolate(x, scale_factor=2, mode=m),
            lambda x, m=linear: F.interpolate(x, scale_factor=2, mode=m, align_corners=True),
        ),
    )
    images(
        f"padding, {n}d",
        n,
        does(*(lambda x, m=m, n=n: F.pad(x, (1, 2) * n, mode=m) for m in ("constant", "reflect", "replicate", "circular"))),
    )
    norms = [getattr(nn, f"{kind}Norm{n}d") for kind in ("Batch", "Instance")]
    images(
        f"norms, {n}d",
        n,
        [
            lambda s, N=norms[0]: N(2 * s.c),
            lambda s, N=norms[1]: N(2 * s.c),
            lambda s, N=norms[1]: N(2 * s.c, affine=True, track_running_stats=True),
            lambda s: nn.GroupNorm(2, 2 * s.c),
            lambda s: nn.LocalResponseNorm(3),
            lambda s, D=(nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)[n - 1]: D(0.25),
        ],
        channels=2,
    )

images(
    "cubic interpolation",
    2,
    does(lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"), lambda x: F.interpolate(x, size=(7, 5), mode="bicubic")),
)
images("other scales", 2, does(lambda x: F.interpolate(x, scale_factor=(1.5, 0.5)), lambda x: F.interpolate(x, size=x.shape[-1:] * 2)))


class Unpooled(nn.Module):
    """Pools and puts the largest elements back."""

    def __init__(self, pool: nn.Module, unpool: nn.Module) -> None:
        super().__init__()
        self.pool, self.unpool = pool, unpool

    def forward(self, x: Tensor) -> Tensor:
        y, places = self.pool(x)
        return self.unpool(y, places)


# Even sizes: unpooling to less than there was loses places.
EVEN = {"D": Dim(6, multiple_of=2), "H": Dim(14, multiple_of=2), "W": Dim(10, multiple_of=2)}
OTHER_EVEN = {"D": 4, "H": 26, "W": 22}
for n in (1, 2, 3):
    pools = [getattr(nn, f"Max{kind}{n}d") for kind in ("Pool", "Unpool")]
    images(
        f"unpooling, {n}d",
        n,
        [lambda s, P=pools: Unpooled(P[0](2, return_indices=True), P[1](2))],
        sizes={length: EVEN[length] for length in LENGTHS[n]},
        other={length: OTHER_EVEN[length] for length in LENGTHS[n]},
    )

images(
    "shuffles",
    2,
    [*does(lambda x: F.pixel_shuffle(x, 2), lambda x: F.pixel_unshuffle(x, 2), lambda x: F.channel_shuffle(x, 2))],
    channels=4,
    sizes={length: EVEN[length] for length in LENGTHS[2]},
    other={"H": 26, "W": 22},
)


def patches(x: Tensor) -> Tensor:
    return F.fold(F.unfold(x, 3), x.shape[-2:], 3)


images("patches of images", 2, does(patches, lambda x: F.unfold(x, (2, 3), stride=2, padding=1)))


class Sampled(nn.Module):
    """An image looked at where a grid says, and the grid too is learned."""

    def __init__(self, n: Any, mode: str, axes: int = 2) -> None:
        super().__init__()
        self.first = (nn.Conv2d, nn.Conv3d)[axes - 2](2, n.c, 1)
        self.scale = nn.Parameter(torch.ones(axes))
        self.mode = mode

    def forward(self, x: Tensor, grid: Tensor) -> Tensor:
        return F.grid_sample(self.first(x), grid * self.scale, mode=self.mode, align_corners=False)


GRID = {"B": 3, "c": 5, "H": 11, "W": 13, "h": 7, "w": 17}
OTHER_GRID = {"B": 2, "c": 7, "H": 5, "W": 3, "h": 19, "w": 11}
for mode in ("bilinear", "nearest", "bicubic"):
    network(
        f"sampling on a grid, {mode}",
        GRID,
        lambda n, m=mode: Sampled(n, m),
        lambda n: (torch.rand(n.B, 2, n.H, n.W), torch.rand(n.B, n.h, n.w, 2)),
        OTHER_GRID,
    )
for mode in ("bilinear", "nearest"):
    network(
        f"sampling a volume on a grid, {mode}",
        GRID,
        lambda n, m=mode: Sampled(n, m, 3),
        lambda n: (torch.rand(n.B, 2, n.c, n.H, n.W), torch.rand(n.B, n.h, n.w, 2, 3)),
        OTHER_GRID,
    )


class Turned(nn.Module):
    """An image turned as a given matrix of each example says."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.first = nn.Conv2d(n.c, n.c, 1)

    def forward(self, x: Tensor, theta: Tensor) -> Tensor:
        y = F.grid_sample(self.first(x), F.affine_grid(theta, x.shape, align_corners=False), align_corners=False)
        still = torch.eye(2, 3).expand(x.shape[0], 2, 3)
        return F.grid_sample(y, F.affine_grid(still, x.shape, align_corners=False), align_corners=False)


SPACE = {"B": 3, "c": 5, "H": 11, "W": 13}
network("turned images", SPACE, Turned, lambda n: (torch.rand(n.B, n.c, n.H, n.W), torch.rand(n.B, 2, 3)), {"B": 2, "c": 7, "H": 5, "W": 3})
