"""Sizes that data decide: how many elements a mask chooses, how many tokens a router sends somewhere.

Each is a dimension of its own, known by the lines that lead to it. A run that meets one without a dimension stops there and
says what the size is at most and what is expected of it; the recording starts anew with the dimension declared.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from types import FrameType
from typing import Any

import torch

from calc.errors import DataDependentError, UndecidedSizeError
from calc.trace.lines import is_foreign, user_line
from calc.trace.values import NEVER, OneIn, known_of

aten = torch.ops.aten
_ASKS = (aten._local_scalar_dense.default, aten.is_nonzero.default)
_PUTS = (aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default, aten._unsafe_index_put.default)


class Choices:
    """The sizes that data decide in one run. ``sizes`` has that of each known place, symbolic or a number."""

    def __init__(self, sizes: Mapping[str, Any], write: Callable[[Any], int | str], storage: Callable[[torch.Tensor], int]) -> None:
        self._sizes = sizes
        self._write = write
        self._storage = storage
        self._of_mask: dict[tuple[int, int, tuple[int | str, ...]], Any] = {}
        self._only_picking = False

    @contextlib.contextmanager
    def picking(self) -> Iterator[None]:
        """Context in which a value read from data only picks one of several alike, or is only checked: any will do."""
        before, self._only_picking = self._only_picking, True
        try:
            yield
        finally:
            self._only_picking = before

    def answer(self, func: Any, args: tuple[Any, ...]) -> tuple[bool, Any]:
        """``(True, value)`` where ``func`` asks for a value that needs no data to be known."""
        if func not in _ASKS or hasattr(args[0], "napkin_shadow"):
            return False, None
        if known_of(args[0]) == NEVER:
            return True, False
        return (True, 0) if self._only_picking and not args[0].dtype.is_floating_point else (False, None)

    def run(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[bool, Any]:
        """``(True, result)`` of an operator whose result has a size that data decide; ``(False, None)`` of others."""
        make = _RESULTS.get(func)
        if make is None or (func is aten.index.Tensor and not _masks(args[1])):
            return False, None
        return True, make(self, *args, **kwargs)

    def chosen(self, func: Any, args: tuple[Any, ...]) -> Any:
        """How many elements the masks of an ``index_put`` choose, or nothing where there is no mask."""
        masks = _masks(args[1]) if func in _PUTS else []
        return self.count(masks[0]) if masks else None

    def count(self, mask: torch.Tensor) -> Any:
        """How many elements of ``mask`` are true. The same values have the same count."""
        key = (self._storage(mask), 0 if mask.is_inference() else mask._version, tuple(self._write(s) for s in mask.shape))
        if key not in self._of_mask:
            self._of_mask[key] = self._count(mask)
        return self._of_mask[key]

    def _count(self, mask: torch.Tensor) -> Any:
        place = user_place()
        if not place:
            raise DataDependentError(
                f"a size is taken from the data in a tensor in {user_line()}: no line of the model's decides it, so it has no name;"
                " choose by position, or multiply by the mask"
            )
        if place not in self._sizes:
            raise UndecidedSizeError(place, user_line(), tuple(self._write(s) for s in mask.shape), *self._expected(mask))
        return self._sizes[place]

    def _expected(self, mask: torch.Tensor) -> tuple[tuple[int | str, ...], Fraction]:
        """Of how many elements one is expected to be chosen, and the share where it is no such fraction; 0 where nothing is known."""
        known = known_of(mask)
        if not isinstance(known, OneIn):
            return (), Fraction(0)
        return tuple(self._write(way) for way in known.ways), known.share


def _masks(indices: Any) -> list[torch.Tensor]:
    return [i for i in indices if isinstance(i, torch.Tensor) and i.dtype in (torch.bool, torch.uint8)]


def _nonzero(choices: Choices, mask: torch.Tensor) -> torch.Tensor:
    return mask.new_empty((mask.dim(), choices.count(mask)), dtype=torch.int64).t()


def _masked_select(choices: Choices, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return x.new_empty((choices.count(mask),))


def _index(choices: Choices, x: torch.Tensor, indices: Any) -> Any:
    """A mask stands for the positions that it chooses."""
    positions: list[Any] = []
    for index in indices:
        if isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8):
            chosen = choices.count(index)
            positions += [index.new_empty((chosen,), dtype=torch.int64) for _ in range(index.dim())]
        else:
            positions.append(index)
    return aten.index.Tensor(x, positions)


_RESULTS: dict[Any, Callable[..., Any]] = {
    aten.nonzero.default: _nonzero,
    aten.masked_select.default: _masked_select,
    aten.index.Tensor: _index,
}


def user_place() -> str:
    """The lines and columns of the model's own code that are running, innermost first; nothing where none is."""
    places: list[str] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not frame.f_code.co_filename.endswith("/calc/trace/step.py"):
        if not is_foreign(frame.f_code.co_filename):
            places.append(_place(frame))
        frame = frame.f_back
    return " < ".join(places)


def _place(frame: FrameType) -> str:
    positions = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    return f"{frame.f_code.co_filename.rpartition('/')[2]}:{positions[0]}:{positions[2]}"
