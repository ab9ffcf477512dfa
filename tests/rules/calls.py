"""How a case is written: a real call of an operator, under the operator's name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.rules.operators import Case

CASES: dict[str, list[Callable[[], Case]]] = {}


def add(ops: str, *makes: Callable[[], Case]) -> None:
    """Calls shared by several overloads, written without "aten."."""
    for op in ops.split():
        CASES.setdefault(f"aten.{op}", []).extend(makes)


def call(*args: Any, **kwargs: Any) -> Case:
    return Case(args, kwargs)


def r(*shape: int, **options: Any) -> torch.Tensor:
    return torch.rand(shape, **options) + 0.5


def on_meta(*shape: int) -> torch.Tensor:
    return r(*shape, device="meta")


def ints(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(high, shape)


def bits(*shape: int) -> torch.Tensor:
    return torch.rand(shape) < 0.5


def spread(*shape: int) -> torch.Tensor:
    """A tensor whose leading dimension of 2 has stride 0: half of its elements are distinct."""
    return r(1, *shape).expand(2, *shape)
