"""Matmul FLOPs of fused attention on a CPU: each call's matmuls, run one by one on the call's own tensors.

Torch's counter does not see inside the kernel. The math backend runs the same matmuls as operators that the counter sees: two in a forward,
and four in a backward, since the kernel computes the gradients of queries, keys and values together, even if some are not required. The
kernel's backward also recomputes queries times keys, which no operator shows: that is counted from the sizes of its arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from calc.measure.counter import flop_counter
from calc.platform.torch_private import DispatchKey, exclude_key, fused_attention_choice, no_modes

FORWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


class AttentionMatmuls:
    """FLOP formulas of the fused kernels for torch's counter (``mapping``), which run the matmuls of each call.

    ``names``: the kernels. ``recomputed``: FLOPs of queries times keys inside the backwards, which the counter's total lacks.
    """

    def __init__(self) -> None:
        self.recomputed = 0
        self.names = frozenset(f"{kernel}.default" for kernel in (FORWARD, BACKWARD))
        self.mapping: Mapping[Any, Callable[..., int]] = {FORWARD: _takes_tensors(self._forward), BACKWARD: _takes_tensors(self._backward)}

    def _forward(self, q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0, causal: bool = False, **how: Any) -> int:
        with _as_outside(), torch.no_grad(), flop_counter({}) as counter:
            _attended(q, k, v, causal, how)
        return int(counter.get_total_flops())

    def _backward(
        self, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, sums: Tensor, dropout: float, causal: bool, **how: Any
    ) -> int:
        self.recomputed += 2 * q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2] * k.shape[3]
        with _as_outside(), torch.enable_grad():
            q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
            attended = _attended(q, k, v, causal, how)
            with flop_counter({}) as counter:
                torch.autograd.grad(attended, (q, k, v), grad)
        return int(counter.get_total_flops())


def _takes_tensors(formula: Callable[..., int]) -> Callable[..., int]:
    """The formula, marked so that torch's counter calls it with tensors and not with their shapes."""

    def raw(*args: Any, out_val: Any = None, **kwargs: Any) -> int:
        return formula(*args, **kwargs)

    raw._get_raw = True  # type: ignore[attr-defined]  # torch's own mark
    return raw


def _attended(q: Tensor, k: Tensor, v: Tensor, causal: bool, how: Mapping[str, Any]) -> Tensor:
    """Attention on the math backend, without dropout, which multiplies no matrices."""
    mask, grouped = how.get("attn_mask"), q.shape[1] != k.shape[1]
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, k, v, mask, 0.0, causal, scale=how.get("scale"), enable_gqa=grouped)


@contextmanager
def _as_outside() -> Iterator[None]:
    """Context inside a dispatch mode in which operators run as they do outside of it: seen by no mode, with autograd."""
    with no_modes(), exclude_key(DispatchKey.AutogradFunctionality, False), exclude_key(DispatchKey.ADInplaceOrView, False):
        yield


# -- every gradient that it computes ----------------------------------------------------------------------------------
# Computes every gradient that fused attention computes.
#
# Its backward computes the gradients of queries, keys and values together, even if some are not required (frozen keys, an input that is
# data). When the same matmuls run one by one instead, autograd would skip the gradients that are not required.


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
