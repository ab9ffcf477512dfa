"""Steps that autograd does not write by itself: recomputed layers, hand-written functions, frozen weights, adapters, hooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from tests.zoo.exhibit import network

DIMS, OTHER = {"B": 3, "d": 5, "f": 7}, {"B": 11, "d": 2, "f": 3}


def _batch(n: Any) -> tuple[Tensor]:
    return (torch.randn(n.B, n.d),)


def _layers(n: Any) -> nn.Sequential:
    return nn.Sequential(nn.Linear(n.d, n.f), nn.GELU(), nn.Linear(n.f, n.d), nn.Tanh(), nn.Linear(n.d, n.f))


class Checkpointed(nn.Module):
    """The middle of a network is recomputed in the backward pass."""

    def __init__(self, n: Any, reentrant: bool) -> None:
        super().__init__()
        self.first, self.middle, self.reentrant = nn.Linear(n.d, n.d), _layers(n), reentrant

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = checkpoint(self.middle, self.first(x), use_reentrant=self.reentrant)
        return y


class Swish(torch.autograd.Function):
    """x sigmoid(x): keeps its argument and the sigmoid."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        gate = torch.sigmoid(x)
        ctx.save_for_backward(x, gate)
        return x * gate

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        x, gate = ctx.saved_tensors
        return gradients[0] * (gate + x * gate * (1 - gate))


class Clipped(torch.autograd.Function):
    """Two results of which one has no gradient, and an attribute in place of a saved tensor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, most: float) -> tuple[Tensor, Tensor]:
        inside = x < most
        ctx.kept = {"inside": [inside]}
        ctx.mark_non_differentiable(inside)
        return x.clamp(max=most), inside

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] * ctx.kept["inside"][0], None


class Recomputing(torch.autograd.Function):
    """Keeps its argument alone and differentiates the forward once more."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.exp().sin()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        with torch.enable_grad():
            x = ctx.saved_tensors[0].detach().requires_grad_()
            y = x.exp().sin()
        return torch.autograd.grad(y, x, gradients[0])[0]


class Own(nn.Module):
    """A layer and then hand-written functions."""

    def __init__(self, n: Any, then: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.then = nn.Linear(n.d, n.f), then

    def forward(self, x: Tensor) -> Tensor:
        return self.then(self.layer(x))


def _clipped(x: Tensor) -> Tensor:
    y, inside = Clipped.apply(x, 0.5)
    return y * inside


class Adapted(nn.Module):
    """A frozen layer with a trained detour of rank r (LoRA, arXiv:2106.09685)."""

    def __init__(self, wide: Any, out: Any, rank: Any) -> None:
        super().__init__()
        self.base = nn.Linear(wide, out).requires_grad_(False)
        self.down, self.up = nn.Linear(wide, rank, bias=False), nn.Linear(rank, out, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.base(x) + self.up(self.down(x)) * 0.25
        return y


def _frozen(n: Any, *which: int) -> nn.Module:
    layers = _layers(n)
    for i in which:
        layers[i].requires_grad_(False)
    return layers


def _hooked(n: Any) -> nn.Module:
    layers = _layers(n)
    layers[0].register_forward_hook(lambda module, inputs, output: output * 2)
    layers[2].register_forward_pre_hook(lambda module, inputs: (inputs[0] + 1,))
    layers[2].register_full_backward_hook(lambda module, of_inputs, of_outputs: tuple(g * 2 for g in of_inputs))
    layers[4].weight.register_hook(lambda gradient: gradient * 0.5)
    return layers


def _doubled(module: nn.Module, x: Tensor) -> Tensor:
    weights = {name: p * 2 for name, p in module.named_parameters()}
    result: Tensor = functional_call(module, weights, (x,))
    return result.sum()


def _weights_only(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD([p for p in parameters if p.dim() > 1], lr=0.1, momentum=0.9)


def _in_groups(parameters: Any) -> torch.optim.Optimizer:
    all_ = list(parameters)
    groups = [{"params": [p for p in all_ if p.dim() > 1], "weight_decay": 0.1}, {"params": [p for p in all_ if p.dim() == 1], "lr": 1e-4}]
    return torch.optim.AdamW(groups, weight_decay=0.0)


network("recomputed layers, reentrant", DIMS, lambda n: Checkpointed(n, True), _batch, OTHER)
network("recomputed layers", DIMS, lambda n: Checkpointed(n, False), _batch, OTHER)
network("a hand-written function", DIMS, lambda n: Own(n, Swish.apply), _batch, OTHER)
network("a hand-written function of two results", DIMS, lambda n: Own(n, _clipped), _batch, OTHER)
network("a hand-written function that recomputes its forward", DIMS, lambda n: Own(n, Recomputing.apply), _batch, OTHER)
network("first layer frozen", DIMS, lambda n: _frozen(n, 0), _batch, OTHER, optimizer="adamw")
network("middle layer frozen", DIMS, lambda n: _frozen(n, 2), _batch, OTHER, optimizer="adamw")
network(
    "adapters",
    {**DIMS, "r": 2},
    lambda n: nn.Sequential(Adapted(n.d, n.f, n.r), nn.GELU(), Adapted(n.f, n.d, n.r)),
    _batch,
    {"B": 11, "d": 13, "f": 3, "r": 5},
    optimizer="adamw",
)
network("hooks of a user", DIMS, _hooked, _batch, OTHER)
network("called with other weights", DIMS, _layers, _batch, OTHER, loss=_doubled)
network("an optimizer of some parameters", DIMS, _layers, _batch, OTHER, optimizer=_weights_only)
network("an optimizer of two groups", DIMS, _layers, _batch, OTHER, optimizer=_in_groups)
