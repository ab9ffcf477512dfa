"""The optimizer of a training step: a class of ``torch.optim`` with its defaults, or the spec's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.nn import Parameter

from calc.errors import BadInputError, SpecError
from calc.options import NAMED_OPTIMIZERS, Options
from calc.spec import Spec

_EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)


def build(options: Options, spec: Spec, module: nn.Module, stepped: Sequence[Parameter]) -> torch.optim.Optimizer:
    """The optimizer over ``stepped``: the parameters of ``module``, or copies of them, in the module's order.

    Raises ``SpecError`` if there is no parameter or the spec's ``optimizer`` does not return a ``torch.optim.Optimizer``, and
    ``BadInputError`` if torch lacks the implementation or the spec has no optimizer.
    """
    if not stepped:
        raise SpecError(f"{spec.name}: the module has no parameter, so there is nothing to train; derive it in mode eval or infer")
    if options.optimizer == "spec":
        return _of_spec(spec, stepped)
    row = NAMED_OPTIMIZERS[options.optimizer]
    if options.implementation not in ("loop", *row.ways):
        raise BadInputError(f"torch has no {options.implementation} implementation of {row.kind}: use loop")
    if row.kind == "Muon":
        return MuonAndAdamW(module, stepped)
    # foreach=False is passed for "loop" too: it is torch's default only on CPU, and other devices must run the same.
    implementation = {"fused": True} if options.implementation == "fused" else {"foreach": options.implementation == "foreach"}
    optimizer: torch.optim.Optimizer = getattr(torch.optim, row.kind)(stepped, **row.overrides, **implementation)
    return optimizer


def _of_spec(spec: Spec, stepped: Sequence[Parameter]) -> torch.optim.Optimizer:
    if spec.optimizer is None:
        named = ", ".join(NAMED_OPTIMIZERS)
        raise BadInputError(f"{spec.name} brings no optimizer of its own: give its spec optimizer=… or choose one of {named}")
    optimizer = spec.optimizer([*stepped])
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise SpecError(f"{spec.name}: optimizer must return a torch.optim.Optimizer, not {type(optimizer).__name__}")
    return optimizer


class MuonAndAdamW(torch.optim.Optimizer):
    """Muon on a model's hidden matrices, AdamW on everything else (Jordan et al., "Muon", 2024)."""

    def __init__(self, module: nn.Module, stepped: Sequence[Parameter]) -> None:
        # Skips torch's constructor: the parameters and the state belong to the two parts.
        hidden = hidden_matrices(module)
        matrices = [p for p, is_hidden in zip(stepped, hidden, strict=True) if is_hidden]
        remaining = [p for p, is_hidden in zip(stepped, hidden, strict=True) if not is_hidden]
        muon = [torch.optim.Muon(matrices)] if matrices else []
        adamw = [torch.optim.AdamW(remaining, foreach=False)] if remaining else []
        self._parts: tuple[torch.optim.Optimizer, ...] = (*muon, *adamw)
        self.defaults: dict[str, Any] = {}

    @property
    def state(self) -> Mapping[Any, Any]:  # type: ignore[override]  # of both, which have it
        return dict(chain.from_iterable(part.state.items() for part in self._parts))

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]  # as above
        return [group for part in self._parts for group in part.param_groups]

    def state_dict(self) -> dict[str, Any]:
        return {type(part).__name__: part.state_dict() for part in self._parts}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for part in self._parts:
            part.load_state_dict(state_dict[type(part).__name__])

    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # it takes no closure
        for part in self._parts:
            part.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        for part in self._parts:
            part.zero_grad(set_to_none=set_to_none)


def hidden_matrices(module: nn.Module) -> list[bool]:
    """For each parameter, whether it is a hidden matrix: 2-D, neither an embedding nor tied to one, not the last linear layer's weight."""
    linears = [part.weight for part in module.modules() if isinstance(part, nn.Linear)]
    embeddings = [part.weight for part in module.modules() if isinstance(part, _EMBEDDINGS)]
    excluded = {id(weight) for weight in (*embeddings, *linears[-1:])}
    return [parameter.dim() == 2 and id(parameter) not in excluded for parameter in module.parameters()]
