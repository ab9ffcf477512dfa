"""Torch's optimizers by name, with their classes' defaults, in the implementation that the options name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import torch
from torch import nn
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
    "muon": ("Muon", {}),
}


def build_optimizer(options: Options, spec: Spec, module: nn.Module, stepped: Iterable[Parameter]) -> torch.optim.Optimizer:
    """The optimizer of the options over ``stepped``, the parameters of ``module`` in their order or copies of them; ``"spec"`` is the
    one that the model brings itself."""
    if options.optimizer != "spec":
        return _named(options, module, list(stepped))
    if spec.optimizer is None:
        raise SpecError(f"spec {spec.name!r} brings no optimizer: give it optimizer=… or choose one of {', '.join(_BY_NAME)}")
    optimizer = spec.optimizer(list(stepped))
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise SpecError(f"spec {spec.name!r}: optimizer must return a torch.optim.Optimizer, not {type(optimizer).__name__}")
    return optimizer


def _named(options: Options, module: nn.Module, parameters: list[Parameter]) -> torch.optim.Optimizer:
    name, given = _BY_NAME[options.optimizer]
    if name == "Muon" and options.implementation == "loop":
        return MuonAndAdamW(module, parameters)
    # Said for "loop" too: it is what the default resolves to on CPU, and another device is to run the same.
    way = {"fused": True} if options.implementation == "fused" else {"foreach": options.implementation == "foreach"}
    try:
        made: torch.optim.Optimizer = getattr(torch.optim, name)(parameters, **given, **way)
    except TypeError:
        raise BadInputError(f"torch has no {options.implementation} implementation of {name}: use loop") from None
    return made


class MuonAndAdamW(torch.optim.Optimizer):
    """Muon on a model's inner matrices, AdamW on everything else."""

    def __init__(self, module: nn.Module, parameters: list[Parameter]) -> None:
        inner = set(_inner_matrices(module))
        by_muon = [p for at, p in enumerate(parameters) if at in inner]
        by_adamw = [p for at, p in enumerate(parameters) if at not in inner]
        self._muon = torch.optim.Muon(by_muon) if by_muon else None
        self._adamw = torch.optim.AdamW(by_adamw, foreach=False) if by_adamw else None
        self.defaults: dict[str, Any] = {}

    def _both(self) -> Iterator[torch.optim.Optimizer]:
        return (o for o in (self._muon, self._adamw) if o is not None)

    @property
    def state(self) -> Mapping[Any, Any]:  # type: ignore[override]  # of both, which have it
        return dict(chain.from_iterable(o.state.items() for o in self._both()))

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]  # as above
        return list(chain.from_iterable(o.param_groups for o in self._both()))

    def state_dict(self) -> dict[str, Any]:
        return {type(o).__name__: o.state_dict() for o in self._both()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for optimizer in self._both():
            optimizer.load_state_dict(state_dict[type(optimizer).__name__])

    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # it takes no closure
        for optimizer in self._both():
            optimizer.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        for optimizer in self._both():
            optimizer.zero_grad(set_to_none=set_to_none)


def _inner_matrices(module: nn.Module) -> Iterator[int]:
    """Places, among the module's parameters, of the 2-D weights that belong to no embedding and not to the last linear layer."""
    last: Any = None
    embedded: list[torch.Tensor] = []
    for part in module.modules():
        if isinstance(part, nn.Embedding | nn.EmbeddingBag):
            embedded.append(part.weight)
        elif isinstance(part, nn.Linear):
            last = part.weight
    for at, parameter in enumerate(module.parameters()):
        if parameter.ndim == 2 and parameter is not last and not any(parameter is e for e in embedded):
            yield at
