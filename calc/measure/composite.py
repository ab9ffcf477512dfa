"""Composite operators, which torch implements by other operators.

Outside inference mode torch decomposes them before a dispatch mode sees them. Inference mode skips that step, so the dispatch mode
decomposes them itself and sees the same operators in both cases.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from calc.platform.torch_private import DispatchKey, TorchDispatchMode, has_kernel

_KEY = DispatchKey.CompositeImplicitAutograd


def is_composite(func: Any) -> bool:
    """Whether ``func`` reached a dispatch mode undecomposed although it is composite; only in inference mode."""
    return torch.is_inference_mode_enabled() and _has_no_kernel(func)


@functools.cache
def _has_no_kernel(func: Any) -> bool:
    return bool(has_kernel(func.name(), _KEY))


def decomposed(mode: TorchDispatchMode, func: Any, args: Any, kwargs: Any) -> Any:
    """The result of ``func``, decomposed under ``mode``, which sees the operators that it runs."""
    with mode:
        return func._op_dk(_KEY, *args, **(kwargs or {}))
