"""Real tensors in a trace, such as those that a model's file makes when it is imported: each has one fake tensor, and one storage."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.weak import WeakTensorKeyDictionary

from calc.platform.replaced import replaced
from calc.platform.torch_private import FakeTensor, FakeTensorMode


@contextlib.contextmanager
def of_one_storage(mode: FakeTensorMode, same: Callable[[torch.Tensor, torch.Tensor], bool]) -> Iterator[None]:
    """Context in which ``same(real, fake)`` is called with each real tensor that an operator takes, and a fake tensor that stands for it;
    if it returns True, that one does so as long as the real one exists. By itself, torch makes another one, in another storage, once
    nothing refers to the first."""
    converter = mode.fake_tensor_converter
    original, fakes = converter.from_real_tensor, WeakTensorKeyDictionary()

    def converted(to: FakeTensorMode, real: torch.Tensor, make_constant: bool = False, *args: Any, **kwargs: Any) -> FakeTensor:
        fake: FakeTensor = original(to, real, make_constant, *args, **kwargs)
        if not make_constant and real not in fakes and same(real, fake):
            fakes[real] = fake
        return fake

    with replaced(converter, from_real_tensor=converted):
        yield


def replace_real_tensors(module: nn.Module) -> None:
    """Put a fake tensor in the place of each real parameter and buffer."""
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None and not isinstance(parameter, FakeTensor):
                part._parameters[name] = nn.Parameter(torch.empty_like(parameter), parameter.requires_grad)
        for name, buffer in part._buffers.items():
            if buffer is not None and not isinstance(buffer, FakeTensor):
                part._buffers[name] = buffer.detach()
