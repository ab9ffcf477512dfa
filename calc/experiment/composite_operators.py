"""Composite operators, which are implemented by other operators, for every dispatch mode that watches a step.

Two kinds reach a dispatch mode whole. In inference mode, those that torch otherwise decomposes before a dispatch mode sees them. In every
mode, those that a user wrote in Python (``torch.library.custom_op``). A dispatch mode decomposes both itself, and sees what they run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any

import torch

from calc.experiment.stated import STATED
from calc.platform.torch_private import DispatchKey, TorchDispatchMode, custom_operators, exclude_key, has_kernel, outside_dispatch

_COMPOSITE = DispatchKey.CompositeImplicitAutograd
_AUTOCAST = {"cpu": DispatchKey.AutocastCPU, "cuda": DispatchKey.AutocastCUDA}
_of_one_that_casts = ContextVar("_of_one_that_casts", default=False)
_in_python = ContextVar("_in_python", default=False)  # inside an operator written in Python, where autograd decomposes nothing


def is_composite(func: Any) -> bool:
    """Whether ``func`` reached a dispatch mode undecomposed although it is composite."""
    whole = torch.is_inference_mode_enabled() or _in_python.get()
    return (whole and _has_kernel(func, _COMPOSITE)) or bool(python_name(func))


def python_name(func: Any) -> str:
    """The name of an operator implemented in Python by other operators, else an empty string. One whose cost a rule states is an operator
    of its own."""
    name = str(func) if func.namespace != "aten" and func.name() in custom_operators else ""
    return "" if name in STATED else name


@functools.cache
def _has_kernel(func: Any, key: Any) -> bool:
    return bool(has_kernel(func.name(), key))


def decomposed(mode: TorchDispatchMode, func: Any, args: Any, kwargs: Any) -> Any:
    """The result of ``func``, decomposed under ``mode``, which sees the operators that it runs, with the casts of autocast."""
    if not python_name(func):
        with mode, _autocast_inside(func):
            return func._op_dk(_COMPOSITE, *args, **(kwargs or {}))
    before = _in_python.set(True)
    try:
        with mode, _autocast_inside(func):
            return _implementation(func, args)(*args, **(kwargs or {}))
    finally:
        _in_python.reset(before)


def _implementation(func: Any, args: Any) -> Callable[..., Any]:
    """The function that implements ``func`` on the device of its arguments."""
    definition = custom_operators[func.name()]
    device = next((x.device.type for x in args if isinstance(x, torch.Tensor)), None)
    by_device: dict[str | None, Callable[..., Any]] = {None: definition._init_fn, **definition._backend_fns}
    return by_device.get(device, by_device[None])


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
