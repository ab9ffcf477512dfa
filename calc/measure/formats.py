"""Number formats of a real training step: what is cast, what runs under autocast, and fp32 copies of bf16 weights."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import Module, Parameter

INITIAL_SCALE = 1.0


@dataclass(frozen=True, slots=True)
class Copies:
    """fp32 copies of a model's parameters, in their order. ``of`` are the parameters themselves."""

    of: tuple[Parameter, ...]
    copies: tuple[Parameter, ...]

    def receive(self) -> None:
        """Cast each gradient into its copy's and release it, one parameter at a time."""
        for low, high in zip(self.of, self.copies, strict=True):
            if low.grad is None:
                continue
            high.grad = low.grad.to(torch.float32)
            low.grad = None

    @torch.no_grad()
    def give_back(self) -> None:
        """Round the copies into the model."""
        for low, high in zip(self.of, self.copies, strict=True):
            low.copy_(high)


def copies_of(module: Module) -> Copies:
    """One copy of each parameter; a shared parameter has one."""
    own = tuple(module.parameters())
    return Copies(own, tuple(Parameter(p.detach().to(torch.float32), requires_grad=p.requires_grad) for p in own))


def cast(module: Module, inputs: Sequence[Tensor], precision: str) -> tuple[Module, tuple[Tensor, ...]]:
    """Module and floating inputs in the format of their own, where the recipe gives them one."""
    if not precision.startswith("bf16") or precision.endswith("autocast"):
        return module, tuple(inputs)
    return module.to(torch.bfloat16), tuple(x.to(torch.bfloat16) if x.is_floating_point() else x for x in inputs)


def casting(precision: str, device: str) -> AbstractContextManager[object]:
    """Context of a forward: autocast where the recipe has it."""
    if not precision.endswith("-autocast"):
        return nullcontext()
    return torch.autocast(device.partition(":")[0], {"bf16": torch.bfloat16, "fp16": torch.float16}[precision.partition("-")[0]])


def gradient_scaler(precision: str, device: str) -> torch.amp.GradScaler | None:
    """A scaler of the loss, for fp16."""
    return torch.amp.GradScaler(device.partition(":")[0], init_scale=INITIAL_SCALE) if precision == "fp16-autocast" else None
