"""Modules that exist before a step is built, because ``build`` returns one of its caller's, or puts one into another (a teacher). A step
gets a copy: it trains its module."""

from __future__ import annotations

import copy
from collections.abc import Callable
from weakref import WeakSet

import torch
from torch import nn

from calc.platform.replaced import replaced
from calc.platform.torch_private import FakeTensor

_BUILT_BEFORE: WeakSet[nn.Module] = WeakSet()


def own_module(module: nn.Module) -> nn.Module:
    """``module``, with copies in place of the parts that were built before: their parameters are real tensors where those made now are fake
    ones."""
    if isinstance(torch.empty(()), FakeTensor):
        _BUILT_BEFORE.update(part for part in module.modules() if _is_real(part))
        return _with_copies(module, _faked, {})
    return _with_copies(module, copy.deepcopy, {})


def _is_real(module: nn.Module) -> bool:
    parameters = [*module.parameters()]
    return bool(parameters) and not any(isinstance(p, FakeTensor) for p in parameters)


def _with_copies(module: nn.Module, copied: Callable[[nn.Module], nn.Module], copies: dict[int, nn.Module]) -> nn.Module:
    if id(module) not in copies:
        before = module in _BUILT_BEFORE
        copies[id(module)] = copied(module) if before else module
        for name, part in () if before else [*module._modules.items()]:
            if part is not None:
                module._modules[name] = _with_copies(part, copied, copies)
    return copies[id(module)]


def _faked(module: nn.Module) -> nn.Module:
    """A copy with fake parameters and buffers. Other tensors are constants of the step."""
    made: dict[int, torch.Tensor] = {id(p): nn.Parameter(torch.empty_like(p), p.requires_grad) for p in module.parameters()}
    with replaced(torch.Tensor, __deepcopy__=lambda tensor, _: tensor):
        return copy.deepcopy(module, made | {id(b): b.clone() for b in module.buffers()})
