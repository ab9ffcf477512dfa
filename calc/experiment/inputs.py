"""The inputs of a step: tensors, also in tuples, lists and dictionaries (a batch as data loaders make it), and numbers beside them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from calc.errors import SpecError
from calc.options import Options
from calc.spec import Sizes, Spec

# Any other object may have tensors in it that neither route would see.
_PLAIN = (int, torch.SymInt, float, torch.SymFloat, complex, str, type(None), torch.dtype, torch.device)
_HOLDS = "tensors and numbers, also in tuples, lists and dictionaries"


def inputs_at(spec: Spec, sizes: Sizes, options: Options | None = None) -> tuple[Any, ...]:
    """The inputs of a step at ``sizes``: in mode ``infer`` those that ``predict`` takes, else all of the spec. Raises ``SpecError`` unless
    they are a tuple of tensors and numbers with at least one tensor."""
    inputs = spec.inputs(sizes)
    tensors: list[Tensor] = []

    def noted(tensor: Tensor) -> Tensor:
        tensors.append(tensor)
        return tensor

    try:
        checked: tuple[Any, ...] = mapped(noted, tuple(inputs)) if isinstance(inputs, tuple | list) else ()
    except TypeError as error:
        raise SpecError(f"spec {spec.name!r}: inputs returned {error}, but may return {_HOLDS}") from None
    if not tensors:
        raise SpecError(f"spec {spec.name!r}: inputs must return a tuple with at least one tensor, not {_named(inputs)}")
    predict = None if options is None else spec.predict_in(options.mode)
    return checked if predict is None else checked[: _taken(predict)]


def _taken(predict: Any) -> int | None:
    """How many inputs ``predict`` has parameters for, after the module; None if it takes any number."""
    try:
        kinds = [parameter.kind for parameter in inspect.signature(predict).parameters.values()]
    except (TypeError, ValueError):  # a callable written in C may have no signature
        return None
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return None
    return max(sum(kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for kind in kinds) - 1, 0)


def mapped(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    """``value`` with ``change`` of each tensor in its tuples, lists and dictionaries. Raises ``TypeError`` for other objects."""
    if isinstance(value, Tensor):
        return change(value)
    if type(value) is dict:
        return {key: mapped(change, each) for key, each in value.items()}
    if type(value) in (tuple, list):
        return type(value)(mapped(change, each) for each in value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):  # a named tuple
        return type(value)(*(mapped(change, each) for each in value))
    if not isinstance(value, _PLAIN):
        raise TypeError(f"an object of {type(value).__qualname__[:60]}")
    return value


def _named(value: object) -> str:
    if isinstance(value, tuple | list):
        return f"{type(value).__name__} of {', '.join(type(x).__name__ for x in value) or 'nothing'}"
    return "a tensor" if isinstance(value, Tensor) else type(value).__name__
