"""Torch's optimizers by name, with their classes' defaults and the per-tensor implementation."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch.nn import Parameter

from calc.errors import SpecError
from calc.spec import Spec

# foreach=False is what the default resolves to on CPU; stated, so that another device runs the same implementation.
_BY_NAME: dict[str, Callable[[list[Parameter]], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=1e-3, foreach=False),
    "momentum": lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9, foreach=False),
    "adagrad": lambda p: torch.optim.Adagrad(p, foreach=False),
    "rmsprop": lambda p: torch.optim.RMSprop(p, foreach=False),
    "adam": lambda p: torch.optim.Adam(p, foreach=False),
    "adamw": lambda p: torch.optim.AdamW(p, foreach=False),
}


def build_optimizer(name: str, spec: Spec, parameters: Iterable[Parameter]) -> torch.optim.Optimizer:
    """The optimizer called ``name`` over ``parameters``; ``"spec"`` is the one that the model brings itself."""
    if name != "spec":
        return _BY_NAME[name](list(parameters))
    if spec.optimizer is None:
        raise SpecError(f"spec {spec.name!r} brings no optimizer: give it optimizer=… or choose one of {', '.join(_BY_NAME)}")
    optimizer = spec.optimizer(list(parameters))
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise SpecError(f"spec {spec.name!r}: optimizer must return a torch.optim.Optimizer, not {type(optimizer).__name__}")
    return optimizer
