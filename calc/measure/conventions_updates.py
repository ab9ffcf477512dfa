"""Elementwise FLOPs of operators that update whole lists of tensors.

- ``_foreach_add_`` and its variants count as the operator in their name, once per tensor of the list;
- fused optimizers: per element of each parameter, the operations of the update rule in torch's documentation, without products by
  a setting that is 0; step counts and scalars derived from them are 0. A gradient scale, if given, adds one division.
"""

from __future__ import annotations

from typing import Any

import torch

from calc.measure.kinds import Args, Count
from calc.platform.torch_private import OpOverload

# The name that the single-tensor operator gives to a list operator's scalar argument.
_SCALARS = {
    "add": "other",
    "sub": "other",
    "mul": "other",
    "div": "other",
    "pow": "exponent",
    "lerp": "weight",
    "clamp_min": "min",
    "clamp_max": "max",
}
# List operators whose single-tensor operator has another name.
_SINGLE = {"_foreach_norm": "linalg_vector_norm"}
_OF_LISTS = {"tensors1": "end", "tensor1": "tensor1", "tensor2": "tensor2"}


def repeated(func: OpOverload, args: Args) -> tuple[OpOverload, list[tuple[list[Any], dict[str, Any]]]] | None:
    """The operator that a list operator repeats, and its (args, kwargs) for every tensor of the list; ``None`` for other operators."""
    name = func._schema.name.split("::")[1]
    if not name.startswith("_foreach_"):
        return None
    single = _SINGLE.get(name, name.removeprefix("_foreach_"))
    lists = [{called: _item(value, i) for called, value in args.items()} for i in range(len(args["self"]))]
    calls = [{_renamed(single.rstrip("_"), called): value for called, value in arguments.items()} for arguments in lists]
    overload = _overload(single, calls[0])
    return overload, [_placed(overload, arguments) for arguments in calls]


def _placed(func: OpOverload, arguments: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    places = [a.name for a in func._schema.arguments if not a.kwarg_only and a.name in arguments]
    return [arguments[name] for name in places], {name: value for name, value in arguments.items() if name not in places}


def _item(value: Any, i: int) -> Any:
    if isinstance(value, torch.Tensor) and value.dim() == 1:
        return value[i]
    return value[i] if isinstance(value, list | tuple) else value


def _renamed(operator: str, argument: str) -> str:
    if argument in ("scalar", "scalars") or (argument == "other" and operator in ("clamp_min", "clamp_max")):
        return _SCALARS.get(operator, "value")
    if argument == "exponents":
        return "exponent"
    return _OF_LISTS.get(argument, "weight" if argument == "weights" else argument)


def _overload(single: str, arguments: dict[str, Any]) -> OpOverload:
    """The overload of ``single`` that takes these arguments."""
    in_place = getattr(torch.ops.aten, single, None)
    packet = in_place or getattr(torch.ops.aten, single.rstrip("_"))
    if len(arguments) == 1:
        alone: OpOverload = packet.default
        return alone
    number = not any(isinstance(v, torch.Tensor) for n, v in arguments.items() if n != "self")
    names = packet.overloads()
    for overload_name in ("Tensor_Scalar" if number else "Tensor_Tensor", "Scalar" if number else "Tensor", "default", "Tensor"):
        if overload_name in names:
            overload: OpOverload = getattr(packet, overload_name)
            return overload
    raise AssertionError(f"{single} has no overload for {sorted(arguments)}")


def _elements(args: Args) -> int:
    return sum(int(t.numel()) for t in args["self"])


def _decay(args: Args) -> int:
    """FLOPs per element of g + decay · x."""
    return 2 if args["weight_decay"] else 0


def _unscaled(args: Args) -> int:
    """FLOPs per element of dividing a gradient by its scale, if one is given."""
    return 0 if args.get("grad_scale") is None else 1


def _adam(args: Args, outputs: Any) -> int:
    # m + (1 - b1)(g - m); b2 v + (1 - b2) g g; √v / c₂ + ε; x - step m / denominator
    return _elements(args) * (_unscaled(args) + _decay(args) + 3 + 4 + 3 + 3)


def _adamw(args: Args, outputs: Any) -> int:
    # Weight decay multiplies x by one number.
    return _elements(args) * (_unscaled(args) + (1 if args["weight_decay"] else 0) + 3 + 4 + 3 + 3)


def _sgd(args: Args, outputs: Any) -> int:
    momentum = 0
    if args["momentum"]:
        # The first step copies the gradient; later ones: momentum · buffer + (1 - dampening) g
        momentum = 0 if args["is_first_step"] else 3
        momentum += 2 if args["nesterov"] else 0
    return _elements(args) * (_unscaled(args) + _decay(args) + momentum + 2)


def _adagrad(args: Args, outputs: Any) -> int:
    # sum + g g; √sum + ε; x - rate g / denominator
    return _elements(args) * (_unscaled(args) + _decay(args) + 2 + 2 + 3)


def _unscale(args: Args, outputs: Any) -> int:
    # g times one number
    return _elements(args)


def _grow(args: Args, outputs: Any) -> int:
    # the count of steps without overflow, plus one
    return 1


UPDATES: dict[str, Count] = {
    "_amp_foreach_non_finite_check_and_unscale": _unscale,
    "_amp_update_scale": _grow,
    "_fused_adam": _adam,
    "_fused_adamw": _adamw,
    "_fused_sgd": _sgd,
    "_fused_adagrad": _adagrad,
}
