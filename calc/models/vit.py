"""Vision Transformer as a short ordinary module: an image cut into patches, a class token, pre-norm encoder blocks.

Sizes by letter: B batch, S side of the image and P of a patch in pixels, p = S/P patches along a side, d width, h heads,
k = d/h, f feed-forward width, L blocks, K classes. With the class token the sequence has N = p^2 + 1 positions.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from calc.dimensions import Dim
from calc.spec import Spec

CHANNELS = 3
EPSILON = 1e-6


class Attention(nn.Module):
    """Self-attention of every position to every position."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.h, self.k = n.h, n.k
        self.in_proj = nn.Linear(n.d, 3 * n.d)
        self.out_proj = nn.Linear(n.d, n.d)

    def forward(self, x: Tensor) -> Tensor:
        B, N, d = x.shape
        q, k, v = self.in_proj(x).view(B, N, 3, self.h, self.k).permute(2, 0, 3, 1, 4).unbind()  # each (B, h, N, k)
        y = F.scaled_dot_product_attention(q, k, v)  # (B, h, N, k)
        projected: Tensor = self.out_proj(y.transpose(1, 2).reshape(B, N, d))
        return projected


class Block(nn.Module):
    """Attention and feed-forward, each on a normalized copy and added to the residual stream."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm((n.d,), eps=EPSILON)
        self.self_attention = Attention(n)
        self.ln_2 = nn.LayerNorm((n.d,), eps=EPSILON)
        self.mlp = nn.Sequential(
            nn.Linear(n.d, n.f),  # (B, N, d) -> (B, N, f)
            nn.GELU(),
            nn.Linear(n.f, n.d),  # (B, N, f) -> (B, N, d)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attention(self.ln_1(x))
        y: Tensor = x + self.mlp(self.ln_2(x))
        return y


class VisionTransformer(nn.Module):
    """Images (B, 3, S, S) to logits (B, K)."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.conv_proj = nn.Conv2d(CHANNELS, n.d, kernel_size=n.P, stride=n.P)
        self.class_token = nn.Parameter(torch.zeros(1, 1, n.d))
        self.pos_embedding = nn.Parameter(torch.empty(1, n.p**2 + 1, n.d))
        self.layers = nn.ModuleList([Block(n) for _ in range(n.L)])
        self.ln = nn.LayerNorm((n.d,), eps=EPSILON)
        self.head = nn.Linear(n.d, n.K)
        nn.init.normal_(self.pos_embedding, std=0.02)

    def forward(self, images: Tensor) -> Tensor:
        patches = self.conv_proj(images)  # (B, d, p, p)
        x = patches.flatten(2).transpose(1, 2)  # (B, N - 1, d)
        x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], dim=1)  # (B, N, d)
        x = x + self.pos_embedding
        for layer in self.layers:
            x = layer(x)
        logits: Tensor = self.head(self.ln(x)[:, 0])  # (B, K), from the class token
        return logits


def images(n: Any) -> tuple[Tensor, ...]:
    """Random images (B, 3, S, S) and their classes (B,)."""
    return torch.randn(n.B, CHANNELS, n.S, n.S), torch.randint(n.K, (n.B,))


def class_loss(model: nn.Module, x: Tensor, classes: Tensor) -> Tensor:
    """Cross-entropy over classes."""
    return F.cross_entropy(model(x), classes)


SPEC = Spec(
    name="vit-b",
    dims={
        "B": 32,
        "S": Dim(224, "side of the image", multiple_of="P", because="the image is cut into whole patches"),
        "P": Dim(16, "side of a patch"),
        "p": Dim("S/P", "patches along a side", tied=True),
        "d": Dim(768, multiple_of="h", because="each head takes an equal part of the width"),
        "h": 12,
        "k": Dim("d/h", tied=True),
        "f": "4*d",
        "L": 12,
        "K": Dim(1000, "classes"),
    },
    build=VisionTransformer,
    inputs=images,
    loss=class_loss,
    predict=lambda model, x: model(x),
    check_at={"B": 2, "S": 32, "P": 8, "d": 48, "h": 3, "f": 101, "L": 3, "K": 11},
    source="built-in",
    trip_counts=("L",),
)
