"""Asking for every gradient that fused attention gives.

Its backward works out those of queries, keys and values together, whether all are asked for or not (keys without an adapter, an input
that is data). Where the same products are run one by one in its place, autograd would leave out what nobody asks for.
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
    """Attention that torch would fuse has queries, keys and values that all want a gradient, if any of them does. All attention runs its
    products one by one, also where the module chooses a kernel (``torch.backends.cuda.sdp_kernel``)."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention and torch.is_grad_enabled() and _fused(args, kwargs):
            given = dict(zip(("query", "key", "value"), args, strict=False)) | kwargs
            if any(given[name].requires_grad for name in ("query", "key", "value")):
                args = (*(_asked(given[name]) for name in ("query", "key", "value")), *args[3:])
                kwargs = {name: value for name, value in kwargs.items() if name not in ("query", "key", "value")}
        with sdpa_kernel(SDPBackend.MATH) if func is F.scaled_dot_product_attention else nullcontext():
            return func(*args, **kwargs)


def _fused(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether torch, left to itself, has one operator for this call. Autocast gives that its own format of all floating tensors."""
    device = next(value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)).device.type
    form = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None

    def cast(value: Any) -> Any:
        floating = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.detach().to(form) if floating and form is not None else value

    with sdpa_kernel(_BACKENDS):
        choice = fused_attention_choice(*map(cast, args), **{name: cast(value) for name, value in kwargs.items()})
    return int(choice) != SDPBackend.MATH.value


def _asked(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.requires_grad else tensor.detach().requires_grad_()
