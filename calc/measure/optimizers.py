"""Torch's optimizers by name, with their classes' defaults, in the implementation that the options name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.nn import Parameter

from calc.errors import BadInputError, SpecError
from calc.options import Options
from calc.spec import Spec

# The class's name in torch.optim, and what is given beside the parameters.
_BY_NAME: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("SGD", {}),
    "momentum": ("SGD", {"momentum": 0.9}),
    "nesterov": ("SGD", {"momentum": 0.9, "nesterov": True}),
    "adagrad": ("Adagrad", {}),
    "rmsprop": ("RMSprop", {}),
    "rmsprop-momentum": ("RMSprop", {"momentum": 0.9}),
    "rmsprop-centered": ("RMSprop", {"centered": True}),
    "adam": ("Adam", {}),
    "adamw": ("AdamW", {}),
    "amsgrad": ("AdamW", {"amsgrad": True}),
    "adamax": ("Adamax", {}),
    "nadam": ("NAdam", {}),
    "radam": ("RAdam", {}),
    "adadelta": ("Adadelta", {}),
    "asgd": ("ASGD", {}),
    "rprop": ("Rprop", {}),
    "adafactor": ("Adafactor", {}),
}


def build_optimizer(options: Options, spec: Spec, parameters: Iterable[Parameter]) -> torch.optim.Optimizer:
    """The optimizer of the options over ``parameters``; ``"spec"`` is the one that the model brings itself."""
    if options.optimizer != "spec":
        return _named(options, list(parameters))
    if spec.optimizer is None:
        raise SpecError(f"spec {spec.name!r} brings no optimizer: give it optimizer=… or choose one of {', '.join(_BY_NAME)}")
    optimizer = spec.optimizer(list(parameters))
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise SpecError(f"spec {spec.name!r}: optimizer must return a torch.optim.Optimizer, not {type(optimizer).__name__}")
    return optimizer


def _named(options: Options, parameters: list[Parameter]) -> torch.optim.Optimizer:
    if options.optimizer not in _BY_NAME:
        raise BadInputError(f"optimizer {options.optimizer} is not built yet: use {', '.join(_BY_NAME)}")
    name, given = _BY_NAME[options.optimizer]
    # Said for "loop" too: it is what the default resolves to on CPU, and another device is to run the same.
    way = {"fused": True} if options.implementation == "fused" else {"foreach": options.implementation == "foreach"}
    try:
        made: torch.optim.Optimizer = getattr(torch.optim, name)(parameters, lr=1e-3, **given, **way)
    except TypeError:
        raise BadInputError(f"torch has no {options.implementation} implementation of {name}: use loop") from None
    return made
