"""Builds the real ``torch.optim`` optimizer of a traced step, with its class's defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import optim

from calc.errors import BadInputError, SpecError
from calc.options import Options
from calc.spec import Spec

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
_EMBEDDINGS = (torch.nn.Embedding, torch.nn.EmbeddingBag)


class Several(optim.Optimizer):
    """Optimizers that share out a model's parameters and step one after another."""

    def __init__(self, parts: list[optim.Optimizer]) -> None:
        # Nothing of torch's own: the parts have parameters and state, this has none.
        self.parts = parts
        self.defaults: dict[str, Any] = {}

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]  # a list that belongs to the parts
        return [group for part in self.parts for group in part.param_groups]

    @property
    def state(self) -> dict[Any, Any]:  # type: ignore[override]  # as above
        return {parameter: kept for part in self.parts for parameter, kept in part.state.items()}

    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # torch's returns the closure's loss
        for part in self.parts:
            part.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        for part in self.parts:
            part.zero_grad(set_to_none)


def build(options: Options, spec: Spec, module: torch.nn.Module, parameters: list[torch.nn.Parameter]) -> optim.Optimizer:
    """The optimizer of the options over ``parameters``, those of ``module`` or copies of them; ``"spec"`` is the spec's own."""
    if not parameters:
        raise SpecError(f"{spec.name}: the module has no parameter, so there is nothing to train; derive it in mode eval or infer")
    if options.optimizer == "spec":
        return _own(spec, parameters)
    if options.optimizer == "muon":
        return _muon(options, module, parameters)
    kind, given = _CLASSES[options.optimizer]
    implementation: Callable[..., optim.Optimizer] = kind
    try:
        return implementation(parameters, **given, **_IMPLEMENTED[options.implementation])
    except TypeError:
        raise BadInputError(f"torch has no {options.implementation} implementation of {kind.__name__}: use loop") from None


def _own(spec: Spec, parameters: list[torch.nn.Parameter]) -> optim.Optimizer:
    if spec.optimizer is None:
        raise BadInputError(f"{spec.name} brings no optimizer of its own: choose one of {', '.join(_CLASSES)}, muon")
    made = spec.optimizer(parameters)
    if not isinstance(made, optim.Optimizer):
        raise SpecError(f"{spec.name}: optimizer must return a torch.optim.Optimizer, not {type(made).__name__}")
    return made


def _muon(options: Options, module: torch.nn.Module, parameters: list[torch.nn.Parameter]) -> optim.Optimizer:
    if options.implementation != "loop":
        raise BadInputError(f"torch has no {options.implementation} implementation of Muon: use loop")
    hidden = [is_hidden for _, is_hidden in _hidden_matrices(module)]
    matrices = [p for p, is_hidden in zip(parameters, hidden, strict=True) if is_hidden]
    rest = [p for p, is_hidden in zip(parameters, hidden, strict=True) if not is_hidden]
    parts: list[optim.Optimizer] = [optim.Muon(matrices)] if matrices else []
    return Several([*parts, optim.AdamW(rest, foreach=False)] if rest else parts)


def _hidden_matrices(module: torch.nn.Module) -> list[tuple[str, bool]]:
    """Each parameter's name, and whether it is a matrix inside the model: neither an embedding, nor tied to one, nor the output layer's."""
    linear = [m for m in module.modules() if isinstance(m, torch.nn.Linear)]
    outside = {id(m.weight) for m in (*(m for m in module.modules() if isinstance(m, _EMBEDDINGS)), *linear[-1:])}
    return [(name, p.dim() == 2 and id(p) not in outside) for name, p in module.named_parameters()]
