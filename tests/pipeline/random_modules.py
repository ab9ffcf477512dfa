"""Random small modules: chains of layers from every family of operators, on sequences or on images.

A layer keeps the kind of thing that it is given: a sequence stays one of B x T x d, an image one of B x c channels (its height and
width may change). So any chain of layers is a module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import Tensor, nn

from calc import Spec

Make = Callable[[Any], nn.Module]


class Does(nn.Module):
    """A function as a layer."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Added(nn.Module):
    """A layer beside which its input goes on."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layer(x)


class Turned(nn.Module):
    """A layer of channels before positions, on a sequence."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.transpose(1, 2)).transpose(1, 2)


class Attends(nn.Module):
    """Attention with one head."""

    def __init__(self, n: Any, causal: bool) -> None:
        super().__init__()
        self.qkv, self.causal = nn.Linear(n.d, 3 * n.d), causal

    def forward(self, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(*self.qkv(x).chunk(3, -1), is_causal=self.causal)


class Weighs(nn.Module):
    """Values at each position from those that score best."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.scores = nn.Linear(n.d, n.d)

    def forward(self, x: Tensor) -> Tensor:
        best, which = self.scores(x).topk(2, -1)
        return x * torch.zeros_like(x).scatter(-1, which, best.softmax(-1))


class Positions(nn.Module):
    """A learned vector for every position."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.table = nn.Embedding(n.T, n.d)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.table(torch.arange(x.shape[1]))


def does(function: Callable[[Tensor], Tensor]) -> Make:
    return lambda n: Does(function)


POINTWISE: dict[str, Make] = {
    "gelu": lambda n: nn.GELU(),
    "silu": lambda n: nn.SiLU(),
    "mish": lambda n: nn.Mish(),
    "relu": lambda n: nn.ReLU(),
    "elu": lambda n: nn.ELU(),
    "softplus": lambda n: nn.Softplus(),
    "hardswish": lambda n: nn.Hardswish(),
    "softshrink": lambda n: nn.Softshrink(),
    "prelu": lambda n: nn.PReLU(),
    "dropout": lambda n: nn.Dropout(0.25),
    "arithmetic": does(lambda x: (x * x + 1).sqrt() / (x.abs() + 2) - x.exp().log1p()),
    "choice": does(lambda x: torch.where(x > 0.1, x.clamp(max=2.0), -x)),
}
SEQUENCES: dict[str, Make] = POINTWISE | {
    "linear": lambda n: nn.Linear(n.d, n.d),
    "feed-forward": lambda n: nn.Sequential(nn.Linear(n.d, n.f), nn.ReLU(), nn.Linear(n.f, n.d, bias=False)),
    "gated": lambda n: nn.Sequential(nn.Linear(n.d, 2 * n.d), nn.GLU()),
    "layer norm": lambda n: nn.LayerNorm(n.d),
    "rms norm": lambda n: nn.RMSNorm(n.d),
    "batch norm": lambda n: Turned(nn.BatchNorm1d(n.d)),
    "weight norm": lambda n: nn.utils.parametrizations.weight_norm(nn.Linear(n.d, n.d)),
    "attention": lambda n: Attends(n, causal=False),
    "causal attention": lambda n: Attends(n, causal=True),
    "convolution": lambda n: Turned(nn.Conv1d(n.d, n.d, 3, padding=1)),
    "depthwise convolution": lambda n: Turned(nn.Conv1d(n.d, n.d, 3, padding=1, groups=n.d)),
    "softmax": does(lambda x: x.softmax(-1)),
    "scan": does(lambda x: x.cumsum(1)),
    "log scan": does(lambda x: x.logcumsumexp(1)),
    "shift": does(lambda x: F.pad(x, (0, 0, 1, 0))[:, :-1]),
    "order": does(lambda x: x.flip(1).roll(1, 2).sort(-1)[0]),
    "standardised": does(lambda x: (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True) + 1)),
    "products": does(lambda x: torch.einsum("bsd,btd,bte->bse", x, x, x)),
    "routing": Weighs,
    "positions": Positions,
}
IMAGES: dict[str, Make] = POINTWISE | {
    "convolution": lambda n: nn.Conv2d(n.c, n.c, 3, padding=1),
    "depthwise convolution": lambda n: nn.Conv2d(n.c, n.c, 3, padding=1, groups=n.c, bias=False),
    "dilated convolution": lambda n: nn.Conv2d(n.c, n.c, 3, padding=2, dilation=2, padding_mode="circular"),
    "transposed convolution": lambda n: nn.ConvTranspose2d(n.c, n.c, 2, stride=2),
    "batch norm": lambda n: nn.BatchNorm2d(n.c),
    "group norm": lambda n: nn.GroupNorm(1, n.c),
    "instance norm": lambda n: nn.InstanceNorm2d(n.c, affine=True),
    "response norm": lambda n: nn.LocalResponseNorm(3),
    "largest": lambda n: nn.MaxPool2d(3, 2, 1),
    "average": lambda n: nn.AvgPool2d(3, 1, 1),
    "adaptive": lambda n: nn.AdaptiveAvgPool2d((5, 7)),
    "nearest": lambda n: nn.Upsample(scale_factor=2),
    "bilinear": does(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear")),
    "mirrored": lambda n: nn.ReflectionPad2d(1),
    "patches": does(lambda x: F.fold(F.unfold(x, 3, padding=1), x.shape[-2:], 3, padding=1)),
}

# Losses of a tensor of any shape against a target of the same one.
LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "squares": F.mse_loss,
    "smooth": F.smooth_l1_loss,
    "huber": F.huber_loss,
    "logits": F.binary_cross_entropy_with_logits,
    "margin": lambda p, y: F.soft_margin_loss(p, 2 * y - 1),
    "poisson": lambda p, y: F.poisson_nll_loss(p.tanh(), y),
    "classes": lambda p, y: F.cross_entropy(p.flatten(0, -2), y.flatten(0, -2).argmax(-1)),
}
OPTIMIZERS = ("sgd", "momentum", "adamw", "rmsprop")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a random module is made of, and the sizes at which it is run."""

    layers: tuple[str, ...]
    added: tuple[bool, ...]
    loss: str
    optimizer: str
    sizes: Mapping[str, int]

    def spec(self) -> Spec:
        """The module with its inputs: a batch of sequences, or of images if it has a width."""
        return image_spec(self) if "W" in self.sizes else sequence_spec(self)


def _module(plan: Plan, table: Mapping[str, Make], n: Any) -> nn.Module:
    made = [table[name](n) for name in plan.layers]
    return nn.Sequential(*(Added(layer) if plus else layer for layer, plus in zip(made, plan.added, strict=True)))


def _loss(plan: Plan) -> Callable[..., Tensor]:
    def loss(module: nn.Module, x: Tensor) -> Tensor:
        prediction = module(x)
        return LOSSES[plan.loss](prediction, torch.rand_like(prediction))

    return loss


def sequence_spec(plan: Plan) -> Spec:
    def build(n: Any) -> nn.Module:
        return nn.Sequential(nn.Linear(n.d, n.d), _module(plan, SEQUENCES, n))

    return Spec("random sequence", {"B": 3, "T": 5, "d": 7, "f": 11}, build, lambda n: (torch.rand(n.B, n.T, n.d),), _loss(plan))


def image_spec(plan: Plan) -> Spec:
    def build(n: Any) -> nn.Module:
        return nn.Sequential(nn.Conv2d(n.c, n.c, 1), _module(plan, IMAGES, n))

    dims = {"B": 3, "c": 5, "H": 17, "W": 19}
    return Spec("random image", dims, build, lambda n: (torch.rand(n.B, n.c, n.H, n.W),), _loss(plan))


# -- drawing ---------------------------------------------------------------------------------------------------------------------

# Layers of images that change height and width cannot have their input added.
SAME_SIZE = set(IMAGES) - {"transposed convolution", "largest", "adaptive", "nearest", "bilinear", "mirrored"}


def _distinct(names: Sequence[str], choices: Sequence[int]) -> st.SearchStrategy[dict[str, int]]:
    return st.permutations(choices).map(lambda drawn: dict(zip(names, drawn, strict=False)))


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    images = draw(st.booleans())
    table = IMAGES if images else SEQUENCES
    layers = tuple(draw(st.lists(st.sampled_from(sorted(table)), min_size=1, max_size=5)))
    added = tuple(draw(st.booleans()) and (not images or name in SAME_SIZE) for name in layers)
    if images:
        sizes = draw(_distinct("Bc", (2, 3, 5, 7))) | draw(_distinct("HW", (11, 13, 17, 23)))
    else:
        sizes = draw(_distinct("BTdf", (2, 3, 5, 7, 11, 13)))
    return Plan(layers, added, draw(st.sampled_from(sorted(LOSSES))), draw(st.sampled_from(OPTIMIZERS)), sizes)
