"""Builds the real ``torch.optim`` optimizer of a traced step, with its class's defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import optim

from calc.errors import BadInputError, SpecError
from calc.options import Options
from calc.spec import Spec

_LEARNING_RATE = 1e-3
_CLASSES: dict[str, tuple[type[optim.Optimizer], dict[str, Any]]] = {
    "sgd": (optim.SGD, {}),
    "momentum": (optim.SGD, {"momentum": 0.9}),
    "nesterov": (optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "adagrad": (optim.Adagrad, {}),
    "rmsprop": (optim.RMSprop, {}),
    "rmsprop-momentum": (optim.RMSprop, {"momentum": 0.9}),
    "rmsprop-centered": (optim.RMSprop, {"centered": True}),
    "adam": (optim.Adam, {}),
    "adamw": (optim.AdamW, {}),
    "amsgrad": (optim.AdamW, {"amsgrad": True}),
    "adamax": (optim.Adamax, {}),
    "nadam": (optim.NAdam, {}),
    "radam": (optim.RAdam, {}),
    "adadelta": (optim.Adadelta, {}),
    "asgd": (optim.ASGD, {}),
    "rprop": (optim.Rprop, {}),
    "adafactor": (optim.Adafactor, {}),
}
_IMPLEMENTED: dict[str, dict[str, Any]] = {"loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}


def build(options: Options, spec: Spec, module: torch.nn.Module, parameters: list[torch.nn.Parameter]) -> optim.Optimizer:
    """The optimizer of the options over ``parameters``, those of ``module`` or copies of them; ``"spec"`` is the spec's own."""
    if not parameters:
        raise SpecError(f"{spec.name}: the module has no parameter, so there is nothing to train; derive it in mode eval or infer")
    if options.optimizer == "spec":
        if spec.optimizer is None:
            raise BadInputError(f"{spec.name} brings no optimizer of its own: choose one of {', '.join(_CLASSES)}")
        made: optim.Optimizer = spec.optimizer(parameters)
        return made
    if options.optimizer not in _CLASSES:
        raise BadInputError(f"optimizer {options.optimizer} is not built yet: use {', '.join(_CLASSES)}")
    kind, given = _CLASSES[options.optimizer]
    implementation: Callable[..., optim.Optimizer] = kind
    try:
        return implementation(parameters, lr=_LEARNING_RATE, **given, **_IMPLEMENTED[options.implementation])
    except TypeError:
        raise BadInputError(f"torch has no {options.implementation} implementation of {kind.__name__}: use loop") from None
