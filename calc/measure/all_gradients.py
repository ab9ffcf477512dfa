"""Computes every gradient that fused attention computes.

Its backward computes the gradients of queries, keys and values together, even if some are not required (frozen keys, an input that is
data). When the same matmuls run one by one instead, autograd would skip the gradients that are not required.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from calc.platform.torch_private import fused_attention_choice

_BACKENDS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH]


class AllGradients(TorchFunctionMode):
    """Mode in which queries, keys and values of attention that torch would fuse all require a gradient if one of them does. All
    attention runs on the math backend, even if the module chooses a kernel (``torch.backends.cuda.sdp_kernel``)."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention and torch.is_grad_enabled() and _fused(args, kwargs):
            arguments = dict(zip(("query", "key", "value"), args, strict=False)) | kwargs
            if any(arguments[name].requires_grad for name in ("query", "key", "value")):
                args = (*(_with_gradient(arguments[name]) for name in ("query", "key", "value")), *args[3:])
                kwargs = {name: value for name, value in kwargs.items() if name not in ("query", "key", "value")}
        with sdpa_kernel(SDPBackend.MATH) if func is F.scaled_dot_product_attention else nullcontext():
            return func(*args, **kwargs)


def _fused(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether torch by default runs this call as one fused operator. Under autocast, floating-point tensors are cast to its dtype first."""
    device = next(value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)).device.type
    form = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None

    def cast(value: Any) -> Any:
        floating = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.detach().to(form) if floating and form is not None else value

    with sdpa_kernel(_BACKENDS):
        choice = fused_attention_choice(*map(cast, args), **{name: cast(value) for name, value in kwargs.items()})
    return int(choice) != SDPBackend.MATH.value


def _with_gradient(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.requires_grad else tensor.detach().requires_grad_()
