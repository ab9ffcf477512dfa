"""Precision recipes: the dtype of the model and its inputs, autocast, loss scaling, fp32 master weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch.nn import Module, Parameter

from calc.experiment.inputs import mapped
from calc.options import MASTER

_AUTOCAST = {"bf16-autocast": torch.bfloat16, "fp16-autocast": torch.float16}
_BF16 = ("bf16", MASTER)
# A scale of 1: whether a gradient overflows depends on the data, and the step assumes that none does.
_INITIAL_SCALE = 1.0


def cast(module: Module, inputs: Sequence[Any], precision: str) -> tuple[Module, tuple[Any, ...]]:
    """The module and its inputs; under the recipes with bf16 weights, parameters and floating-point inputs are cast to bf16."""
    if precision not in _BF16:
        return module, tuple(inputs)
    return module.to(torch.bfloat16), mapped(lambda x: x.to(torch.bfloat16) if x.is_floating_point() else x, tuple(inputs))


def autocast(precision: str, device: str = "cpu") -> AbstractContextManager[object]:
    """Context for a forward: autocast if the recipe uses it, else nothing."""
    dtype = _AUTOCAST.get(precision)
    return nullcontext() if dtype is None else torch.autocast(_kind(device), dtype)


@contextmanager
def double_by_default() -> Iterator[None]:
    """Context in which torch's default dtype is float64, e.g. for constants such as ε and for scalars that a class stores."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(default)


def gradient_scaler(precision: str, device: str = "cpu") -> torch.amp.GradScaler | None:
    """The loss scaler under fp16 autocast, where small gradients would underflow; ``None`` under other recipes."""
    return torch.amp.GradScaler(_kind(device), init_scale=_INITIAL_SCALE) if precision == "fp16-autocast" else None


def _kind(device: str) -> str:
    """The device type: ``cuda`` for ``cuda:1``."""
    return device.partition(":")[0]


class MasterWeights:
    """The parameters that the optimizer updates: the module's own or, if ``copied``, fp32 copies of them."""

    def __init__(self, module: Module, precision: str) -> None:
        self.copied = precision == MASTER
        self._pairs = [(name, p, _fp32(p) if self.copied else p) for name, p in module.named_parameters()]

    @property
    def stepped(self) -> list[Parameter]:
        """The parameters that the optimizer updates, in the module's order."""
        return [master for _, _, master in self._pairs]

    def named(self) -> list[tuple[str, Parameter]]:
        """Pairs of a parameter's name and the parameter that the optimizer updates."""
        return [(name, master) for name, _, master in self._pairs]

    def take_gradients(self) -> None:
        """Cast each gradient to its fp32 copy's, and free the model's gradient before the next cast."""
        for _, parameter, master in self._pairs if self.copied else ():
            if parameter.grad is not None:
                master.grad = parameter.grad.to(torch.float32)
                parameter.grad = None

    @torch.no_grad()
    def copy_back(self) -> None:
        """Copy the updated fp32 copies into the model, rounded to its dtype."""
        for _, parameter, master in self._pairs if self.copied else ():
            parameter.copy_(master)


def _fp32(parameter: Parameter) -> Parameter:
    return Parameter(parameter.detach().to(torch.float32), requires_grad=parameter.requires_grad)
