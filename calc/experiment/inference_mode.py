"""Composite operators, which torch implements by other operators, in inference mode.

Outside inference mode torch decomposes them before a dispatch mode sees them. Inference mode skips that step, so a dispatch mode decomposes
them itself and sees the same operators in both cases.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any

import torch

from calc.platform.torch_private import DispatchKey, TorchDispatchMode, exclude_key, has_kernel, outside_dispatch

_COMPOSITE = DispatchKey.CompositeImplicitAutograd
_AUTOCAST = {"cpu": DispatchKey.AutocastCPU, "cuda": DispatchKey.AutocastCUDA}
_of_one_that_casts = ContextVar("_of_one_that_casts", default=False)


def is_composite(func: Any) -> bool:
    """Whether ``func`` reached a dispatch mode undecomposed although it is composite; only in inference mode."""
    return torch.is_inference_mode_enabled() and _has_kernel(func, _COMPOSITE)


@functools.cache
def _has_kernel(func: Any, key: Any) -> bool:
    return bool(has_kernel(func.name(), key))


def decomposed(mode: TorchDispatchMode, func: Any, args: Any, kwargs: Any) -> Any:
    """The result of ``func``, decomposed under ``mode``, which sees the operators that it runs, with the casts of autocast."""
    with mode, _autocast_inside(func):
        return func._op_dk(_COMPOSITE, *args, **(kwargs or {}))


@contextmanager
def _autocast_inside(func: Any) -> Iterator[None]:
    """Context in which autocast casts what ``func`` runs, as without a dispatch mode, which leaves the key of autocast out. An operator of
    autocast's own lists has cast its arguments already, and nothing inside it is cast again."""
    with outside_dispatch():
        casting = [key for device, key in _AUTOCAST.items() if torch.is_autocast_enabled(device)]
    lists_it = any(_has_kernel(func, key) for key in casting)
    before = _of_one_that_casts.set(_of_one_that_casts.get() or lists_it)
    try:
        with ExitStack() as stack:
            for key in [] if _of_one_that_casts.get() else casting:
                stack.enter_context(exclude_key(key, False))
            yield
    finally:
        _of_one_that_casts.reset(before)
