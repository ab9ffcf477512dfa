"""Number formats of a traced step: casts of the whole model, autocast, loss scaling, fp32 copies that the optimizer steps."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

_AUTOCAST = {"bf16-autocast": torch.bfloat16, "fp16-autocast": torch.float16}
_LOW = ("bf16", "bf16-master")
# The smallest scale: whether a gradient overflows is data, and the step is recorded as one in which none does.
_SCALE = 1.0


def lowered(module: torch.nn.Module, inputs: tuple[Any, ...], precision: str) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    """The module and its floating inputs in bf16, where the recipe keeps nothing else."""
    if precision not in _LOW:
        return module, inputs
    low = (t.to(torch.bfloat16) if isinstance(t, torch.Tensor) and t.is_floating_point() else t for t in inputs)
    return module.to(torch.bfloat16), tuple(low)


def autocast(precision: str) -> Any:
    """Context of the forward."""
    dtype = _AUTOCAST.get(precision)
    return contextlib.nullcontext() if dtype is None else torch.autocast("cpu", dtype)


def scaler(precision: str) -> torch.amp.GradScaler | None:
    """What scales the loss, so that small gradients do not vanish in fp16."""
    return torch.amp.GradScaler("cpu", init_scale=_SCALE) if precision == "fp16-autocast" else None


class Masters:
    """The parameters as the optimizer sees them: themselves, or their copies in fp32."""

    def __init__(self, module: torch.nn.Module, precision: str) -> None:
        self._pairs = [(name, p, p) for name, p in module.named_parameters()]
        self.copied = precision == "bf16-master"
        if self.copied:
            self._pairs = [(name, p, _copy(p)) for name, p, _ in self._pairs]

    @property
    def stepped(self) -> list[torch.nn.Parameter]:
        """What the optimizer is built over."""
        return [master for _, _, master in self._pairs]

    def named(self) -> list[tuple[str, torch.nn.Parameter]]:
        """Each with the name of its parameter."""
        return [(name, master) for name, _, master in self._pairs]

    def take_gradients(self) -> None:
        """Each gradient goes to its copy in fp32, and the model's own is released before the next is taken."""
        for _, parameter, master in self._pairs if self.copied else ():
            if parameter.grad is not None:
                master.grad = parameter.grad.to(torch.float32)
                parameter.grad = None

    def copy_back(self) -> None:
        """The stepped copies become the model's weights."""
        with torch.no_grad():
            for _, parameter, master in self._pairs if self.copied else ():
                parameter.copy_(master)


def _copy(parameter: torch.nn.Parameter) -> torch.nn.Parameter:
    return torch.nn.Parameter(parameter.detach().to(torch.float32), requires_grad=parameter.requires_grad)
