"""Networks for images, whole: residual, convolutional with transformer habits, encoder and decoder, adversarial, detecting."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from calc.dimensions import Dim
from tests.zoo.exhibit import network


def pictures(n: Any) -> tuple[Tensor, ...]:
    return torch.rand(n.B, 3, n.S, n.S), torch.randint(n.K, (n.B,))


def classified(module: nn.Module, x: Tensor, classes: Tensor) -> Tensor:
    return F.cross_entropy(module(x), classes)


# -- ResNet-18 ------------------------------------------------------------------------------------------------------------------


class Basic(nn.Module):
    """Two 3 x 3 convolutions, added to the input."""

    def __init__(self, inner: Any, w: Any, stride: int, *, changes: bool) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inner, w, 3, stride, 1, bias=False), nn.BatchNorm2d(w)
        self.conv2, self.bn2 = nn.Conv2d(w, w, 3, 1, 1, bias=False), nn.BatchNorm2d(w)
        self.shortcut = nn.Sequential(nn.Conv2d(inner, w, 1, stride, bias=False), nn.BatchNorm2d(w)) if changes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


def resnet18(n: Any) -> nn.Module:
    """Four stages of two blocks; the side of the image is halved five times."""
    w = n.w
    return nn.Sequential(
        nn.Conv2d(3, w, 7, 2, 3, bias=False),
        nn.BatchNorm2d(w),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
        *(Basic(w, w, 1, changes=False), Basic(w, w, 1, changes=False)),
        *(Basic(w, 2 * w, 2, changes=True), Basic(2 * w, 2 * w, 1, changes=False)),
        *(Basic(2 * w, 4 * w, 2, changes=True), Basic(4 * w, 4 * w, 1, changes=False)),
        *(Basic(4 * w, 8 * w, 2, changes=True), Basic(8 * w, 8 * w, 1, changes=False)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8 * w, n.K),
    )


network(
    "resnet-18",
    {"B": 2, "S": Dim(64, multiple_of=32), "w": 3, "K": 5},
    resnet18,
    pictures,
    {"B": 5, "S": 96, "w": 2, "K": 7},
    classified,
    slow=True,
)

# -- ConvNeXt -------------------------------------------------------------------------------------------------------------------


class ConvNeXtBlock(nn.Module):
    """A depthwise 7 x 7 convolution, then a feed-forward over channels, scaled and added."""

    def __init__(self, d: Any) -> None:
        super().__init__()
        self.around = nn.Conv2d(d, d, 7, padding=3, groups=d)
        self.norm, self.up, self.down = nn.LayerNorm(d, eps=1e-6), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        self.scale = nn.Parameter(torch.ones(d))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.around(x).permute(0, 2, 3, 1))  # (B, s, s, d)
        y = self.scale * self.down(F.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    """A stem of 4 x 4 patches, a block, a halving, a block."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.stem, self.first = nn.Conv2d(3, n.d, 4, 4), ConvNeXtBlock(n.d)
        self.norm, self.halve = nn.LayerNorm(n.d, eps=1e-6), nn.Conv2d(n.d, 2 * n.d, 2, 2)
        self.second, self.head = ConvNeXtBlock(2 * n.d), nn.Linear(2 * n.d, n.K)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(self.stem(x))
        x = self.second(self.halve(self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)))
        return self.head(x.mean((-2, -1)))


network(
    "convnext",
    {"B": 3, "S": Dim(64, multiple_of=8), "d": 5, "K": 7},
    ConvNeXt,
    pictures,
    {"B": 2, "S": 56, "d": 3, "K": 11},
    classified,
    optimizer="adamw",
)

# -- U-Net ----------------------------------------------------------------------------------------------------------------------


def twice(inner: Any, outer: Any) -> nn.Module:
    return nn.Sequential(nn.Conv2d(inner, outer, 3, padding=1), nn.ReLU(), nn.Conv2d(outer, outer, 3, padding=1), nn.ReLU())


class UNet(nn.Module):
    """Two halvings and two doublings of the image; each resolution is handed across."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        c = n.c
        self.down1, self.down2, self.bottom = twice(3, c), twice(c, 2 * c), twice(2 * c, 4 * c)
        self.up2, self.join2 = nn.ConvTranspose2d(4 * c, 2 * c, 2, 2), twice(4 * c, 2 * c)
        self.up1, self.join1 = nn.ConvTranspose2d(2 * c, c, 2, 2), twice(2 * c, c)
        self.head = nn.Conv2d(c, n.K, 1)

    def forward(self, x: Tensor) -> Tensor:
        high = self.down1(x)
        middle = self.down2(F.max_pool2d(high, 2))
        low = self.bottom(F.max_pool2d(middle, 2))
        middle = self.join2(torch.cat([self.up2(low), middle], 1))
        return self.head(self.join1(torch.cat([self.up1(middle), high], 1)))


network(
    "u-net",
    {"B": 2, "S": Dim(28, multiple_of=4), "c": 5, "K": 3},
    UNet,
    lambda n: (torch.rand(n.B, 3, n.S, n.S), torch.randint(n.K, (n.B, n.S, n.S))),
    {"B": 3, "S": 20, "c": 2, "K": 7},
    classified,
)

# -- adversaries ----------------------------------------------------------------------------------------------------------------


class Adversaries(nn.Module):
    """A generator of images from noise and a discriminator of them, in one step: neither learns from the other's mistakes."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.c = n.c
        self.start = nn.Linear(n.z, 16 * n.c)
        self.generator = nn.Sequential(
            nn.BatchNorm2d(n.c), nn.ReLU(), nn.ConvTranspose2d(n.c, n.c, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(n.c, 3, 4, 2, 1), nn.Tanh()
        )
        self.discriminator = nn.Sequential(
            nn.Conv2d(3, n.f, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(n.f, n.f, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
            nn.Linear(16 * n.f, 1),
        )

    def forward(self, noise: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        made = self.generator(self.start(noise).unflatten(1, (self.c, 4, 4)))  # (B, 3, 16, 16)
        judge = self.discriminator
        frozen = {name: p.detach() for name, p in judge.named_parameters()}
        fools = judging(torch.func.functional_call(judge, frozen, (made,)), 1.0)
        return fools, judging(judge(real), 1.0) + judging(judge(made.detach()), 0.0)


def judging(logits: Tensor, label: float) -> Tensor:
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, label))


network(
    "adversaries",
    {"B": 3, "z": 7, "c": 5, "f": 2},
    Adversaries,
    lambda n: (torch.rand(n.B, n.z), torch.rand(n.B, 3, 16, 16)),
    {"B": 2, "z": 5, "c": 3, "f": 7},
    lambda module, noise, real: torch.stack(module(noise, real)).sum(),
    optimizer="adam",
    slow=True,
)

# -- detection ------------------------------------------------------------------------------------------------------------------


class Detector(nn.Module):
    """A convolutional stem, an encoder over its pixels, a decoder of N learned queries, a class and a box for each."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, n.d, 4, 4)
        self.places, self.queries = nn.Parameter(torch.rand((n.S // 4) ** 2, n.d)), nn.Parameter(torch.rand(n.N, n.d))
        self.transformer = nn.Transformer(n.d, n.h, 1, 1, n.f, dropout=0.0, batch_first=True)
        self.classes, self.boxes = nn.Linear(n.d, n.K), nn.Linear(n.d, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        pixels = self.stem(x).flatten(2).transpose(1, 2) + self.places
        decoded = self.transformer(pixels, self.queries.expand(len(x), -1, -1))  # (B, N, d)
        return self.classes(decoded), self.boxes(decoded).sigmoid()


def detected(module: nn.Module, x: Tensor, classes: Tensor, boxes: Tensor) -> Tensor:
    """The first query is held against the first object, and so on: who is matched with whom changes no size."""
    logits, decoded = module(x)
    return F.cross_entropy(logits.flatten(0, 1), classes.flatten()) + F.l1_loss(decoded, boxes)


network(
    "detector",
    {"B": 2, "S": Dim(12, multiple_of=4), "d": Dim(15, multiple_of="h"), "h": 3, "k": Dim("d/h", tied=True), "f": 11, "N": 7, "K": 13},
    Detector,
    lambda n: (torch.rand(n.B, 3, n.S, n.S), torch.randint(n.K, (n.B, n.N)), torch.rand(n.B, n.N, 4)),
    {"B": 3, "S": 20, "d": 14, "h": 2, "f": 13, "N": 5, "K": 17},
    detected,
    slow=True,
)
