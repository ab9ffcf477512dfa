"""Facts about the values of fake tensors, which hold whatever the data are: the range of integers, how often a mask is true.

They are stored on the tensors, and a write invalidates them. Below are the facts, how they are noted and read, and what says of an operator
which of its arguments it writes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeVar

import sympy as sp
import torch

from calc.platform.torch_private import FakeTensor

WHOLE = (torch.int64, torch.int32, torch.bool)


@dataclass(frozen=True, slots=True)
class Between:
    """Integers from ``low`` to ``high`` - 1, each equally likely. They may be ``chosen`` by scores. They may all ``differ``, in ascending
    order; one of those has its ``place``."""

    low: Any
    high: Any
    chosen: bool = False
    differ: bool = False
    place: int | None = None


@dataclass(frozen=True, slots=True)
class Columns:
    """The last axis holds an index into a tensor: entry j is below ``counts[j]``. One of several rows that differ has its number."""

    counts: tuple[Any, ...]
    row: int | None = None

    def column(self, which: int = 0) -> Between:
        """The values of one entry. Those of a single entry differ from row to row."""
        alone = len(self.counts) == 1
        return Between(0, self.counts[which], differ=alone and self.row is None, place=self.row if alone else None)


@dataclass(frozen=True, slots=True)
class OneIn:
    """A mask (booleans, or 0 and 1) whose expected fraction of true elements is ``share`` and the product of ``times``, divided by that of
    ``ways``; they may be those that were ``chosen`` by scores.

    ``within`` bounds the places along an axis where it may be true, as in one-hot rows that are longer than the classes.
    """

    ways: tuple[Any, ...]
    share: Fraction = Fraction(1)
    within: ZerosBeyond | None = None
    chosen: bool = False
    times: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class ZerosBeyond:
    """All elements are 0 along ``axis`` from index ``below`` on."""

    axis: int
    below: Any


@dataclass(frozen=True, slots=True)
class Even:
    """Numbers uniformly distributed between 0 and 1."""


@dataclass(frozen=True, slots=True)
class IfFinite:
    """A mask that is ``truth`` everywhere if no number of the step is infinite or NaN. Where the model itself writes an infinite number,
    as into scores before a softmax, no tensor has this fact."""

    truth: bool


NEVER = OneIn((), Fraction(0))
ALWAYS = OneIn((), Fraction(1))


def registering(table: dict[str, Callable[..., Any]]) -> Callable[..., Callable[[Callable[..., Any]], Callable[..., Any]]]:
    """A decorator that registers a function in ``table`` under names of operators."""

    def naming(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def put(make: Callable[..., Any]) -> Callable[..., Any]:
            table.update(dict.fromkeys(names, make))
            return make

        return put

    return naming


def fact_of(value: Any, name: str = "napkin_known", writes: int = 0) -> Any:
    """The fact noted under ``name`` about a fake tensor's values, or None: a write through any view invalidates it. ``writes`` returns the
    fact from that many writes ago."""
    fact, of = getattr(value, name, (None, None))
    return fact if fact is not None and of == contents(value, writes) else None


def note(out: Any, fact: Any, name: str = "napkin_known") -> None:
    """Note ``fact`` under ``name`` for ``out``, or for each tensor in it."""
    if fact is None:
        return
    for tensor in out if isinstance(out, list | tuple) else (out,):
        if isinstance(tensor, FakeTensor):
            setattr(tensor, name, (fact, contents(tensor)))  # ours, on torch's tensor


def contents(tensor: torch.Tensor, writes: int = 0) -> tuple[int, int]:
    """A key for the current contents of ``tensor``: it changes when the storage is written or replaced (``.data =``). ``writes`` gives the
    key from that many writes ago."""
    return tensor.untyped_storage()._cdata, writes_to(tensor) - writes


def writes_to(tensor: torch.Tensor) -> int:
    """The number of writes to the storage of ``tensor``. Torch's own version counter does not count in inference mode."""
    return getattr(tensor.untyped_storage(), "napkin_writes", 0)


_T = TypeVar("_T")


def once_per_operator(compute: Callable[[Any], _T]) -> Callable[[Any], _T]:
    """``compute(func)``, computed once for each operator. They live as long as the process, and torch computes their hash in Python."""
    results: dict[int, _T] = {}

    @functools.wraps(compute)
    def computed(func: Any) -> _T:
        key = id(func)
        if key not in results:
            results[key] = compute(func)
        return results[key]

    return computed


@once_per_operator
def written(func: Any) -> tuple[tuple[int, str], ...]:
    """Position and name of each argument that ``func`` mutates."""
    return tuple((i, a.name) for i, a in enumerate(func._schema.arguments) if a.alias_info is not None and a.alias_info.is_write)


def overwritten(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[torch.Tensor]:
    """The tensor arguments that ``func`` mutates."""
    for place, name in written(func):
        value = args[place] if place < len(args) else kwargs.get(name)
        yield from (t for t in (value if isinstance(value, list | tuple) else (value,)) if isinstance(t, torch.Tensor))


@once_per_operator
def name_of(func: Any) -> str:
    """The name of an operator without its namespace."""
    return str(func._schema.name).removeprefix("aten::")


def given_to(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name, without those at their defaults."""
    return {**{a.name: v for a, v in zip(func._schema.arguments, args, strict=False)}, **kwargs}


def within_of(value: Any) -> ZerosBeyond | None:
    """From which index on along an axis a tensor is 0; None where that is unknown."""
    values = fact_of(value)
    return values.within if isinstance(values, OneIn) else values if isinstance(values, ZerosBeyond) else None


def index_bound(fact: Any) -> Any:
    """What all values of a tensor with this fact are below if they are integers from 0 on, as indices are; None where that is unknown."""
    return fact.high if isinstance(fact, Between) and isinstance(fact.low, int) and fact.low == 0 else None


def places_in(value: torch.Tensor) -> tuple[Any, ...]:
    """Along each axis, the number of indices at which elements may be nonzero."""
    within = within_of(value)
    return tuple(within.below if within is not None and i == within.axis else size for i, size in enumerate(value.shape))


def at_least(value: Any, count: Any) -> bool:
    """Whether ``value`` is ``count`` or more at all sizes."""
    if not isinstance(value, int | torch.SymInt):
        return False
    if isinstance(value, int) and isinstance(count, int):
        return value >= count
    left, right = (v.node.expr if isinstance(v, torch.SymInt) else sp.Integer(v) for v in (value, count))
    return bool((left - right).is_Integer and left - right >= 0)
