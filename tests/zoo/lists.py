"""Operators on lists of tensors, each applied to copies of a weight: what optimizers are made of."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from calc.rules.lists import REPEATED
from tests.zoo.exhibit import Function, operators
from tests.zoo.operators import unlearned

aten = torch.ops.aten


def listed(name: str, in_place: bool) -> Function:
    """The operator applied to two copies of the weight, with what its overload takes beside them."""
    packet, overload = name.split(".")
    operator = getattr(getattr(aten, f"_foreach_{packet}{'_' if in_place else ''}"), overload)

    def function(w: Tensor, v: Tensor) -> Any:
        several = [w.clone(), w[0].clone()]
        others = {"List": ([w, w[0]],), "Tensor": (v[0],), "Scalar": (2.0,), "ScalarList": ([2.0, 3.0],), "default": ()}[overload]
        lists = {"addcdiv": 2, "addcmul": 2, "lerp": 1}.get(packet, 0) * ([w, w[0]],)
        result = operator(several, *lists, *others)
        return several if in_place else result

    return unlearned(function)[0]


def vector(s: Any) -> tuple[Tensor, ...]:
    return (torch.rand(s.n),)


NAMES = [name for names in REPEATED for name in names.split()]
for in_place in (False, True):
    operators(
        f"lists of tensors{', in place' if in_place else ''}",
        *(listed(name, in_place) for name in NAMES),
        inputs=vector,
        dims={"m": 5, "n": 7},
    )


def scaled(w: Tensor, v: Tensor) -> Any:
    """Sums and differences of a list and a multiple of another."""
    several, others = [w.clone(), w[0].clone()], [w, w[0]]
    for name in ("add", "sub"):
        getattr(aten, f"_foreach_{name}_").List(several, others, alpha=2)
        several = getattr(aten, f"_foreach_{name}").List(several, others, alpha=2)
    aten._foreach_copy_(several, others)
    norms = [norm for order in (1, 2, math.inf) for norm in aten._foreach_norm(several, order)]
    aten._foreach_zero_(several)
    return [*several, *norms]


operators("lists of tensors, scaled", *unlearned(scaled), inputs=vector, dims={"m": 5, "n": 7})
operators("tensors of the same size", lambda w, v: w * torch.is_same_size(w[0], v), inputs=vector, dims={"m": 5, "n": 7})
