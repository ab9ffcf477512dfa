"""Networks as people build them, as small as they can be made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from calc.dimensions import Dim
from tests.zoo.exhibit import network

# -- multilayer perceptrons ---------------------------------------------------------------------------------------------------

SMOOTH = (
    nn.GELU(),
    nn.GELU(approximate="tanh"),
    nn.SiLU(),
    nn.Tanh(),
    nn.Sigmoid(),
    nn.Softplus(),
    nn.Mish(),
    nn.LogSigmoid(),
    nn.Softsign(),
)
KINKED = (
    nn.ReLU(),
    nn.LeakyReLU(),
    nn.ELU(),
    nn.CELU(),
    nn.SELU(),
    nn.ReLU6(),
    nn.Hardswish(),
    nn.Hardsigmoid(),
    nn.Hardtanh(),
    nn.Tanhshrink(),
)
TABLE = {"B": 3, "n": 5, "m": 7}


def perceptron(n: Any, activations: Sequence[nn.Module]) -> nn.Module:
    """A linear layer before each activation, and one at the end."""
    layers = [layer for activation in activations for layer in (nn.Linear(n.n, n.n), activation)]
    return nn.Sequential(*layers, nn.Linear(n.n, n.m))


def rows(n: Any) -> tuple[Tensor, ...]:
    return (torch.rand(n.B, n.n),)


network("smooth activations", TABLE, lambda n: perceptron(n, SMOOTH), rows, {"B": 11, "n": 13, "m": 2})
network("kinked activations", TABLE, lambda n: perceptron(n, KINKED), rows, {"B": 11, "n": 13, "m": 2})
network("gated", TABLE, lambda n: nn.Sequential(nn.Linear(n.n, 2 * n.m), nn.GLU()), rows, {"B": 11, "n": 13, "m": 2})
network(
    "dropped",
    TABLE,
    lambda n: nn.Sequential(nn.Linear(n.n, n.m), nn.Dropout(0.25), nn.AlphaDropout(0.25)),
    rows,
    {"B": 11, "n": 13, "m": 2},
)

# -- normalization ------------------------------------------------------------------------------------------------------------


def normalized(*norms: Any) -> Any:
    """A linear layer before each normalization, so that each has an input gradient."""
    return lambda n: nn.Sequential(*(layer for norm in norms for layer in (nn.Linear(n.n, n.n), norm(n))))


class Settled(nn.BatchNorm2d):
    """Uses its running statistics in training too, as a network does that is trained further with few examples."""

    def train(self, mode: bool = True) -> nn.Module:
        return super().train(False)


ROWS = {"B": 3, "n": 5}
network(
    "layer norms",
    ROWS,
    normalized(lambda n: nn.LayerNorm(n.n), lambda n: nn.LayerNorm(n.n, bias=False), lambda n: nn.LayerNorm(n.n, elementwise_affine=False)),
    rows,
    {"B": 11, "n": 13},
)
network(
    "rms norms", ROWS, normalized(lambda n: nn.RMSNorm(n.n), lambda n: nn.RMSNorm(n.n, elementwise_affine=False)), rows, {"B": 11, "n": 13}
)
network(
    "batch norm",
    ROWS,
    normalized(lambda n: nn.BatchNorm1d(n.n)),
    rows,
    {"B": 11, "n": 13},
)

# -- images, signals and volumes ------------------------------------------------------------------------------------------------

IMAGE = {"B": 3, "H": 13, "W": 17}


def image(channels: int) -> Any:
    return lambda n: (torch.rand(n.B, channels, n.H, n.W),)


network(
    "grouped convolution",
    {**IMAGE, "c": 5},
    lambda n: nn.Sequential(
        nn.Conv2d(4, 2 * n.c, (3, 5), padding=(1, 2), groups=2), nn.BatchNorm2d(2 * n.c), nn.ReLU(), nn.Conv2d(2 * n.c, 7, 2, stride=2)
    ),
    image(4),
    {"B": 2, "H": 11, "W": 19, "c": 3},
)
network(
    "batch norms of images",
    {**IMAGE, "c": 5},
    lambda n: nn.Sequential(
        nn.Conv2d(2, n.c, 1),
        nn.BatchNorm2d(n.c),
        nn.BatchNorm2d(n.c, affine=False),
        nn.BatchNorm2d(n.c, track_running_stats=False),
        Settled(n.c),
    ),
    image(2),
    {"B": 2, "H": 11, "W": 19, "c": 3},
)
network(
    "pooling",
    {**IMAGE, "c": 5},
    lambda n: nn.Sequential(nn.Conv2d(2, n.c, 1), nn.MaxPool2d((2, 3)), nn.AvgPool2d(2, ceil_mode=False), nn.AdaptiveAvgPool2d(1)),
    image(2),
    {"B": 2, "H": 11, "W": 19, "c": 3},
)
network(
    "depthwise signal",
    {"B": 3, "c": 5, "T": 11},
    lambda n: nn.Sequential(
        nn.Conv1d(2, 2 * n.c, 3, padding=2), nn.Conv1d(2 * n.c, 2 * n.c, 3, groups=2 * n.c), nn.GroupNorm(2, 2 * n.c), nn.AvgPool1d(3)
    ),
    lambda n: (torch.rand(n.B, 2, n.T),),
    {"B": 2, "c": 7, "T": 19},
)
network(
    "transposed convolution",
    {**IMAGE, "c": 5},
    lambda n: nn.Sequential(
        nn.ConvTranspose2d(2, n.c, 3, stride=2), nn.GroupNorm(1, n.c, affine=False), nn.InstanceNorm2d(n.c, affine=True)
    ),
    image(2),
    {"B": 2, "H": 11, "W": 19, "c": 3},
)
network(
    "volume",
    {"B": 3, "c": 5, "D": 7, "H": 11, "W": 13},
    lambda n: nn.Sequential(nn.Conv3d(2, n.c, (2, 3, 5)), nn.ReLU(), nn.Conv3d(n.c, 3, 2)),
    lambda n: (torch.rand(n.B, 2, n.D, n.H, n.W),),
    {"B": 2, "c": 3, "D": 5, "H": 13, "W": 17},
)

# -- attention ------------------------------------------------------------------------------------------------------------------

HEADS = {"B": 3, "T": 7, "d": Dim(10, multiple_of="h"), "h": 2, "k": Dim("d/h", tied=True)}
GROUPED = {"B": 3, "T": 7, "d": Dim(30, multiple_of="h"), "h": Dim(6, multiple_of="g"), "g": 2, "k": Dim("d/h", tied=True)}
OTHER_GROUPED = {"B": 2, "T": 5, "d": 63, "h": 9, "g": 3}
OTHER_HEADS = {"B": 2, "T": 11, "d": 21, "h": 3}


class Attention(nn.Module):
    """Self-attention, with fewer heads for keys than for queries if ``g`` is given, and a mask of some kind."""

    def __init__(self, n: Any, *, g: Any = None, causal: bool = False, mask: str = "", dropout: float = 0.0) -> None:
        super().__init__()
        self.k, self.causal, self.mask, self.dropout, self.shares = n.k, causal, mask, dropout, g is not None
        keys = n.d if g is None else g * n.k
        self.q, self.kv, self.out = nn.Linear(n.d, n.d, bias=False), nn.Linear(n.d, 2 * keys), nn.Linear(n.d, n.d)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        q, k, v = (t.unflatten(-1, (-1, self.k)).transpose(1, 2) for t in (self.q(x), *self.kv(x).chunk(2, -1)))
        mask = None
        if self.mask:
            mask = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
            if self.mask == "float":
                mask = torch.zeros(length, length, device=x.device).masked_fill(~mask, float("-inf"))
        options = {"attn_mask": mask, "is_causal": self.causal, "dropout_p": self.dropout, "enable_gqa": self.shares}
        y = F.scaled_dot_product_attention(q, k, v, **options)
        return self.out(y.transpose(1, 2).flatten(2))


def tokens(n: Any) -> tuple[Tensor, ...]:
    return (torch.rand(n.B, n.T, n.d),)


for backend in ("fused", "math"):
    network(f"attention, {backend}", HEADS, lambda n: Attention(n), tokens, OTHER_HEADS, attention=backend)
    network(f"causal attention, {backend}", HEADS, lambda n: Attention(n, causal=True), tokens, OTHER_HEADS, attention=backend)
    for kind in ("bool", "float"):
        network(
            f"attention with a {kind} mask, {backend}",
            HEADS,
            lambda n, m=kind: Attention(n, mask=m),
            tokens,
            OTHER_HEADS,
            attention=backend,
        )
    network(
        f"grouped-query attention, {backend}", GROUPED, lambda n: Attention(n, g=n.g, causal=True), tokens, OTHER_GROUPED, attention=backend
    )
network("grouped-query attention, no mask", GROUPED, lambda n: Attention(n, g=n.g), tokens, OTHER_GROUPED)
network("attention with dropout", HEADS, lambda n: Attention(n, dropout=0.25), tokens, OTHER_HEADS)


class Crossed(nn.Module):
    """Attention of T queries to S keys."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.q, self.kv = nn.Linear(n.d, n.d), nn.Linear(n.d, 2 * n.d)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        k, v = self.kv(y).chunk(2, -1)
        return F.scaled_dot_product_attention(self.q(x), k, v)


network(
    "cross attention",
    {"B": 3, "T": 7, "S": 11, "d": 5},
    Crossed,
    lambda n: (torch.rand(n.B, n.T, n.d), torch.rand(n.B, n.S, n.d)),
    {"B": 2, "T": 13, "S": 3, "d": 7},
)


class Written(nn.Module):
    """Attention written out, with a causal mask and a softmax of its own."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.qkv = nn.Linear(n.d, 3 * n.d)
        self.h = n.h

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (self.h, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        scores = q @ k.transpose(-1, -2) * k.shape[-1] ** -0.5
        keep = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).tril()
        return (scores.masked_fill(~keep, float("-inf")).softmax(-1) @ v).transpose(1, 2).flatten(2)


network("attention written out", HEADS, Written, tokens, OTHER_HEADS)
