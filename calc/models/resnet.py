"""ResNet-50 v1.5 as a short ordinary module: four stages of bottleneck blocks over an ever smaller and deeper image.

Version 1.5 has the stride of a stage in its 3 x 3 convolution, where the paper has it in the 1 x 1 before. Module names
are those of the published checkpoints. Sizes by letter: B batch, S side of the image in pixels, w base width, K classes.
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from calc.dimensions import Dim
from calc.models.vit import CHANNELS, class_loss, images
from calc.spec import Spec

BLOCKS = (3, 4, 6, 3)
EXPANSION = 4


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions: (B, inner, s, s) -> (B, 4 w, s/stride, s/stride), added to the input."""

    def __init__(self, inner: Any, w: Any, stride: int = 1, *, changes: bool = False) -> None:
        super().__init__()
        outer = EXPANSION * w
        self.conv1 = nn.Conv2d(inner, w, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(w)
        self.conv2 = nn.Conv2d(w, w, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(w)
        self.conv3 = nn.Conv2d(w, outer, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outer)
        self.downsample = nn.Sequential(nn.Conv2d(inner, outer, 1, stride=stride, bias=False), nn.BatchNorm2d(outer)) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))  # (B, w, s, s)
        y = F.relu(self.bn2(self.conv2(y)))  # (B, w, s/stride, s/stride)
        y = self.bn3(self.conv3(y))  # (B, 4 w, s/stride, s/stride)
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet50(nn.Module):
    """Images (B, 3, S, S) to logits (B, K)."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(CHANNELS, n.w, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(n.w)
        self.layer1 = _stage(n.w, n.w, BLOCKS[0], stride=1)
        self.layer2 = _stage(4 * n.w, 2 * n.w, BLOCKS[1], stride=2)
        self.layer3 = _stage(8 * n.w, 4 * n.w, BLOCKS[2], stride=2)
        self.layer4 = _stage(16 * n.w, 8 * n.w, BLOCKS[3], stride=2)
        self.fc = nn.Linear(32 * n.w, n.K)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))  # (B, w, S/2, S/2)
        x = F.max_pool2d(x, 3, stride=2, padding=1)  # (B, w, S/4, S/4)
        x = self.layer1(x)  # (B, 4 w, S/4, S/4)
        x = self.layer2(x)  # (B, 8 w, S/8, S/8)
        x = self.layer3(x)  # (B, 16 w, S/16, S/16)
        x = self.layer4(x)  # (B, 32 w, S/32, S/32)
        logits: Tensor = self.fc(x.mean((2, 3)))  # (B, K)
        return logits


def _stage(inner: Any, w: Any, blocks: int, stride: int) -> nn.Sequential:
    """Blocks of a stage: the first changes width and resolution, the others preserve them."""
    return nn.Sequential(Bottleneck(inner, w, stride, changes=True), *(Bottleneck(EXPANSION * w, w) for _ in range(blocks - 1)))


SPEC = Spec(
    name="resnet50",
    dims={
        "B": 32,
        "S": Dim(224, "side of the image", multiple_of=32, because="the image is halved five times"),
        "w": Dim(64, "base width"),
        "K": Dim(1000, "classes"),
    },
    build=ResNet50,
    inputs=images,
    loss=class_loss,
    predict=lambda model, x: model(x),
    check_at={"B": 2, "S": 64, "w": 5, "K": 11},
    source="built-in",
    notes=("The side of the image is a multiple of 32, so that each of the five halvings is exact.",),
)
