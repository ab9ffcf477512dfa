"""A sequence that is made when it is first read: most answers show only a part of what could be derived."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TypeVar, overload

T = TypeVar("T")


class OnDemand(Sequence[T]):
    """The entries that ``make`` gives, made once. Equal to any sequence of equal entries."""

    def __init__(self, make: Callable[[], tuple[T, ...]]) -> None:
        self._make = make

    @cached_property
    def _entries(self) -> tuple[T, ...]:
        return self._make()

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...

    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        return self._entries[index]

    def __len__(self) -> int:
        return len(self._entries)

    def __eq__(self, other: object) -> bool:
        return self._entries == tuple(other) if isinstance(other, Sequence) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._entries)

    def __repr__(self) -> str:
        return repr(self._entries)
