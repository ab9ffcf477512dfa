"""Modules that exist before a step is built, because ``build`` returns one of its caller's. A step gets a copy: it trains its module."""

from __future__ import annotations

import copy
from weakref import WeakSet

import torch
from torch import nn

from calc.platform.replaced import replaced
from calc.platform.torch_private import FakeTensor

_BUILT_BEFORE: WeakSet[nn.Module] = WeakSet()


def own_module(module: nn.Module) -> nn.Module:
    """``module``, or a copy if it was built before: one whose parameters are real tensors where those made now are fake ones."""
    if isinstance(torch.empty(()), FakeTensor):
        return _faked(module)
    return copy.deepcopy(module) if module in _BUILT_BEFORE else module


def _faked(module: nn.Module) -> nn.Module:
    parameters = [*module.parameters()]
    if not parameters or any(isinstance(p, FakeTensor) for p in parameters):
        return module
    _BUILT_BEFORE.add(module)
    made: dict[int, torch.Tensor] = {id(p): nn.Parameter(torch.empty_like(p), p.requires_grad) for p in parameters}
    with replaced(torch.Tensor, __deepcopy__=lambda tensor, _: tensor):  # others are constants of the step
        return copy.deepcopy(module, made | {id(b): b.clone() for b in module.buffers()})
