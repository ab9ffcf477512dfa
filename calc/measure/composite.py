"""Operators that torch runs by other operators.

Outside inference mode they are taken apart before a dispatch mode sees them. Inference mode leaves that dispatch out, so
a mode takes them apart itself: what is looked at is then what the kernels do, the same as outside.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from calc.platform.torch_private import DispatchKey, TorchDispatchMode, has_kernel

_KEY = DispatchKey.CompositeImplicitAutograd


def is_composite(func: Any) -> bool:
    """Whether ``func`` has come to a dispatch mode whole, though it has no kernel of its own."""
    return torch.is_inference_mode_enabled() and _has_no_kernel(func)


@functools.cache
def _has_no_kernel(func: Any) -> bool:
    return bool(has_kernel(func.name(), _KEY))


def taken_apart(mode: TorchDispatchMode, func: Any, args: Any, kwargs: Any) -> Any:
    """The result of ``func``, with the operators that it runs seen by ``mode``."""
    with mode:
        return func._op_dk(_KEY, *args, **(kwargs or {}))
