"""Hides tracing from the model, so that a traced step takes the branches of a real one.

While a step is traced, initializers do nothing (they read sizes as numbers, and their results are not used), a library that checks whether
it is being traced gets False, and calls with a causal mask are noted before torch decomposes them. Everything is restored afterwards.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from calc.graph.step import Call
from calc.platform.model_files import replaced_by_name
from calc.platform.replaced import replaced
from calc.platform.torch_private import FakeTensor, core, foreach_utils, subclasses, tree_map


class _NeverFake:
    """Stands for ``torch._subclasses.FakeTensor`` where a library looks it up to see whether it is traced."""


_INIT_FUNCTIONS = tuple(n for n in dir(nn.init) if n.endswith("_") and not n.startswith("_"))


@contextlib.contextmanager
def building() -> Iterator[None]:
    """Context for building a module from symbolic sizes: no initialization."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced(nn.init, **dict.fromkeys(_INIT_FUNCTIONS, _leave_as_it_is)))
        stack.enter_context(replaced(nn.init, _calculate_fan_in_and_fan_out=lambda tensor: (1, 1)))
        stack.enter_context(replaced(FakeTensor, __deepcopy__=_copied))
        for functions in _kept_by_libraries():
            stack.enter_context(_emptied(functions))
        for kind in _initialized_at_the_end():
            stack.enter_context(replaced(kind, initialize_weights=_leave_as_it_is))
        yield


def _initialized_at_the_end() -> list[type]:
    """The classes of a library whose modules initialize all their weights once more when they are built: tables made by numpy, for one,
    which cannot calculate with symbols."""
    module = sys.modules.get("transformers.modeling_utils")
    return [] if module is None else [module.PreTrainedModel]


def _kept_by_libraries() -> list[dict[str, Any]]:
    """Tables in which a library stores the initializers that it imported."""
    module = sys.modules.get("transformers.initialization")
    return [] if module is None else [module.TORCH_INIT_FUNCTIONS]


@contextlib.contextmanager
def _emptied(functions: dict[str, Any]) -> Iterator[None]:
    old = dict(functions)
    functions.update(dict.fromkeys(old, _leave_as_it_is))
    try:
        yield
    finally:
        functions.update(old)


def _copied(tensor: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
    """A deep copy, as ``nn.TransformerEncoder`` makes of its layer. Torch's own reads the address of a leaf's storage."""
    if id(tensor) not in memo:
        copy = tensor.detach().clone()
        is_parameter = isinstance(tensor, nn.Parameter)
        memo[id(tensor)] = nn.Parameter(copy, tensor.requires_grad) if is_parameter else copy.requires_grad_(tensor.requires_grad)
    copied: torch.Tensor = memo[id(tensor)]
    return copied


def _converted(module: nn.Module, change: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> nn.Module:
    """``module.to(torch.bfloat16)`` and the like, as torch converts real parameters: the same objects, with new data. For fake parameters
    torch would swap the objects, which the references in the trace do not allow."""
    for part in module.children() if recurse else ():
        part._apply(change)  # type: ignore[no-untyped-call]  # untyped in torch
    for parameter in module._parameters.values():
        if parameter is None:
            continue
        with torch.no_grad():
            parameter.data = change(parameter)
            if parameter.grad is not None:
                parameter.grad.data = change(parameter.grad)
    module._buffers.update({name: buffer if buffer is None else change(buffer) for name, buffer in module._buffers.items()})
    return module


def _leave_as_it_is(tensor: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    return tensor


@contextlib.contextmanager
def unrecognised() -> Iterator[None]:
    """Context in which a library's ``isinstance(x, torch._subclasses.FakeTensor)`` is false, gradient clipping uses foreach operators, and
    ``module.to`` converts parameters in place, as for real tensors."""
    kinds = [torch.Tensor, subclasses.FakeTensor]
    with (
        replaced(subclasses, FakeTensor=_NeverFake),
        replaced(foreach_utils, _foreach_supported_types=kinds),
        replaced(nn.Module, _apply=_converted),
    ):
        yield


@contextlib.contextmanager
def any_kernel(aside: Callable[[], Any]) -> Iterator[None]:
    """Context in which the guards of torch's choice of a convolution kernel are evaluated ``aside``: the choice changes neither the
    operator nor the layout of its result."""
    select = core._select_conv_backend

    def chosen(*args: Any, **kwargs: Any) -> Any:
        with aside():
            return select(*args, **kwargs)

    with replaced(core, _select_conv_backend=chosen):
        yield


@contextlib.contextmanager
def calls_noted(note: Callable[[Call], Any], size: Callable[[Any], int | str]) -> Iterator[None]:
    """Context in which each ``scaled_dot_product_attention`` call is reported to ``note`` before it is decomposed. A comparison of sizes
    (``is_causal=T > 1``) becomes a truth value first, as torch takes no other."""
    original = nn.functional.scaled_dot_product_attention

    def attention(query: torch.Tensor, key: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = tree_map(lambda value: bool(value) if isinstance(value, torch.SymBool) else value, (args, kwargs))
        causal = bool(kwargs.get("is_causal", args[3] if len(args) > 3 else False))
        with note(Call("scaled_dot_product_attention", causal, size(query.shape[-2]), size(key.shape[-2]))):
            return original(query, key, *args, **kwargs)

    with replaced_attention(attention):
        yield


@contextlib.contextmanager
def replaced_attention(attention: Callable[..., Any]) -> Iterator[None]:
    """Context in which ``attention`` is torch's ``scaled_dot_product_attention``."""
    with replaced_by_name(nn.functional, scaled_dot_product_attention=attention):
        yield
