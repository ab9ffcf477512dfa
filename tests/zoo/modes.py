"""Models that are used, not trained: in evaluation and in inference mode, some by operators that training never runs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from calc import Dim
from calc.spec import Spec
from tests.zoo.exhibit import show

HEADS = {"B": 3, "T": 7, "h": Dim(2, multiple_of=2), "k": 5, "d": Dim("h*k", tied=True), "f": 17}
OTHER = {"B": 5, "T": 2, "h": 4, "k": 3, "f": 13}


def _mean_square(module: nn.Module, *inputs: Tensor) -> Tensor:
    result: Tensor = module(*inputs)
    return result.square().mean()


def _predicted(module: nn.Module, *inputs: Tensor) -> Any:
    return module(*inputs)


def used(name: str, mode: str, dims: Any, build: Any, inputs: Any, other: dict[str, int], **more: Any) -> None:
    """A model in ``mode``: its loss in evaluation, what it predicts in inference."""
    show(
        f"{name}, {mode}",
        lambda: Spec(f"{name}, {mode}", dims, build, inputs, _mean_square, predict=_predicted),
        other,
        mode=mode,
        **more,
    )


def _encoder(n: Any, norm_first: bool, activation: str) -> nn.Module:
    layer = nn.TransformerEncoderLayer(n.d, n.h, n.f, activation=activation, batch_first=True, norm_first=norm_first)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def _sequences(n: Any) -> tuple[Tensor]:
    return (torch.randn(n.B, n.T, n.d),)


class SelfAttention(nn.Module):
    """Attention of a sequence to itself, and the weights it did so with."""

    def __init__(self, n: Any, averaged: bool) -> None:
        super().__init__()
        self.attention, self.averaged = nn.MultiheadAttention(n.d, n.h, batch_first=True), averaged

    def forward(self, x: Tensor) -> Tensor:
        y, weights = self.attention(x, x, x, average_attn_weights=self.averaged)
        return torch.cat([y.flatten(), weights.flatten()])


for mode in ("eval", "infer"):
    used("encoder of relu, norm last", mode, HEADS, lambda n: _encoder(n, False, "relu"), _sequences, OTHER)
    used("encoder of gelu, norm first", mode, HEADS, lambda n: _encoder(n, True, "gelu"), _sequences, OTHER)
    used(
        "convolution with normalization and dropout",
        mode,
        {"B": 3, "c": 5, "s": 11},
        lambda n: nn.Sequential(nn.Conv2d(n.c, 2 * n.c, 3, padding=1), nn.BatchNorm2d(2 * n.c), nn.ReLU(), nn.Dropout(0.1)),
        lambda n: (torch.randn(n.B, n.c, n.s, n.s),),
        {"B": 2, "c": 3, "s": 7},
    )
    used("nothing to train", mode, {"B": 3, "d": 5}, lambda n: nn.Softmax(-1), lambda n: (torch.randn(n.B, n.d),), {"B": 7, "d": 2})

HEADS_ALONE = {name: size for name, size in HEADS.items() if name != "f"}
for averaged in (True, False):
    used(
        f"attention with {'averaged' if averaged else 'all'} weights",
        "eval",
        HEADS_ALONE,
        lambda n, averaged=averaged: SelfAttention(n, averaged),
        _sequences,
        {name: size for name, size in OTHER.items() if name != "f"},
    )


class Written(nn.Module):
    """Columns named by a list in the code, which becomes a tensor at each call."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(n.d, n.f)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear(x).index_select(1, torch.tensor([0, 2]))
        return y


used("a list in the code", "infer", {"B": 3, "d": 5, "f": 7}, Written, lambda n: (torch.randn(n.B, n.d),), {"B": 2, "d": 3, "f": 11})
