"""Real calls of operators that update lists of tensors."""

from __future__ import annotations

import math
from typing import Any

import torch

from calc.rules.lists import REPEATED
from tests.rules.calls import add, call, r
from tests.rules.operators import Case


def lists() -> list[torch.Tensor]:
    """Two tensors of 2 x 3 and of 5 elements."""
    return [r(2, 3), r(5)]


NUMBERS = [2.0, 3.0]
OTHERS: dict[str, Any] = {
    "List": lambda: (lists(),),
    "Tensor": lambda: (r(),),
    "Scalar": lambda: (2.0,),
    "ScalarList": lambda: (NUMBERS,),
    "default": lambda: (),
}


def _listed(name: str) -> Case:
    packet, overload = name.split(".")
    more = OTHERS[overload]()
    if packet in ("addcdiv", "addcmul"):
        return call(lists(), lists(), lists(), *more)
    if packet == "lerp":
        return call(lists(), lists(), *more)
    return call(lists(), *more)


for _names in REPEATED:
    for _name in _names.split():
        for _way in ("", "_"):
            add(f"_foreach_{_name.split('.')[0]}{_way}.{_name.split('.')[1]}", lambda name=_name: _listed(name))
add("_foreach_add.List _foreach_add_.List _foreach_sub.List _foreach_sub_.List", lambda: call(lists(), lists(), alpha=2))
add("_foreach_copy_.default", lambda: call(lists(), lists()))
add("_foreach_norm.Scalar", lambda: call(lists()), lambda: call(lists(), 1.0), lambda: call(lists(), math.inf))
add("_foreach_zero_.default", lambda: call(lists()))

# -- optimizers ----------

SETTINGS = {"lr": 0.1, "eps": 1e-8, "weight_decay": 0.1, "maximize": False}


def _steps() -> list[torch.Tensor]:
    return [torch.ones(()), torch.ones(())]


def _scaled() -> dict[str, Any]:
    """What a gradient scaler gives: its scale, and whether a gradient was not finite."""
    return {"grad_scale": torch.full((), 2.0), "found_inf": torch.zeros(())}


def _adam(**changes: Any) -> Case:
    settings = {**SETTINGS, "beta1": 0.9, "beta2": 0.99, "amsgrad": False, **changes}
    largest = lists() if settings["amsgrad"] else []
    return Case((lists(), lists(), lists(), lists(), largest, _steps()), settings)


add(
    "_fused_adam_.default _fused_adamw_.default",
    _adam,
    lambda: _adam(weight_decay=0.0),
    lambda: _adam(amsgrad=True),
    lambda: _adam(**_scaled()),
)


def _sgd(**changes: Any) -> Case:
    settings = {**SETTINGS, "momentum": 0.9, "dampening": 0.1, "nesterov": False, "is_first_step": False, **changes}
    del settings["eps"]
    return Case((lists(), lists(), lists() if settings["momentum"] else []), settings)


add(
    "_fused_sgd_.default",
    _sgd,
    lambda: _sgd(momentum=0.0, weight_decay=0.0),
    lambda: _sgd(nesterov=True, is_first_step=True, dampening=0.0),
    lambda: _sgd(**_scaled()),
)
add("_fused_adagrad_.default", lambda: Case((lists(), lists(), lists(), _steps()), {**SETTINGS, "lr_decay": 0.0}))
add("_fused_adagrad_.default", lambda: Case((lists(), lists(), lists(), _steps()), {**SETTINGS, "lr_decay": 0.0, **_scaled()}))
add("_amp_foreach_non_finite_check_and_unscale_.default", lambda: call(lists(), torch.zeros(()), torch.full((), 0.5)))
add("_amp_update_scale_.default", lambda: call(torch.full((), 2.0), torch.zeros((), dtype=torch.int32), torch.zeros(()), 2.0, 0.5, 2000))
