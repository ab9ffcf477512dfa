"""Builds the real ``torch.optim`` optimizer of a traced step, with its class's defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from calc.errors import BadInputError, SpecError
from calc.spec import Spec

_LEARNING_RATE = 1e-3

_BY_NAME: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=_LEARNING_RATE),
    "momentum": lambda p: torch.optim.SGD(p, lr=_LEARNING_RATE, momentum=0.9),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=_LEARNING_RATE),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=_LEARNING_RATE),
    "adam": lambda p: torch.optim.Adam(p, lr=_LEARNING_RATE),
    "adamw": lambda p: torch.optim.AdamW(p, lr=_LEARNING_RATE),
}


def build(name: str, spec: Spec, module: torch.nn.Module) -> torch.optim.Optimizer:
    """The optimizer called ``name`` over the module's parameters; ``"spec"`` is the spec's own."""
    parameters = list(module.parameters())
    if not parameters:
        raise SpecError(f"{spec.name}: the module has no parameter, so there is nothing to train; derive it in mode eval or infer")
    if name == "spec":
        if spec.optimizer is None:
            raise BadInputError(f"{spec.name} brings no optimizer of its own: choose one of {', '.join(_BY_NAME)}")
        made: torch.optim.Optimizer = spec.optimizer(parameters)
        return made
    return _BY_NAME[name](parameters)
