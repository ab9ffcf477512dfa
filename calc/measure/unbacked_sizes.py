"""Data-dependent (unbacked) sizes of a real run: how many elements each mask selected, by the lines of the model that used it."""

from __future__ import annotations

import sys
import sysconfig
from types import FrameType
from typing import Any

import torch

_STANDARD = sysconfig.get_path("stdlib")
_OWN = ("/calc/measure/", "site-packages/torch/", "site-packages/sympy/")
_BY_VALUE = ("aten::nonzero", "aten::masked_select")
_DIFFERENT = {"aten::_unique2": torch.unique, "aten::unique_consecutive": torch.unique_consecutive}
_INDEXING = ("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_", "aten::_unsafe_index_put")


def unbacked_size(func: Any, args: tuple[Any, ...]) -> tuple[str, int] | None:
    """(place in the model's code, size) of an operator with a data-dependent size; ``None`` for others or without a line of the model."""
    name = func._schema.name
    if name in _BY_VALUE:
        count = int(args[-1].count_nonzero())
    elif name in _DIFFERENT:
        count = int(_DIFFERENT[name](args[0]).numel())
    elif name in _INDEXING and (masks := [i for i in args[1] if i is not None and i.dtype in (torch.bool, torch.uint8)]):
        count = int(masks[0].count_nonzero())
    else:
        return None
    place = _place()
    return (place, count) if place else None


def _place() -> str:
    callers = []
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and not frame.f_code.co_filename.endswith("/calc/measure/training.py"):
        if not _skipped(frame.f_code.co_filename):
            line, _, column, _ = list(frame.f_code.co_positions())[frame.f_lasti // 2]
            callers.append(f"{frame.f_code.co_filename.rsplit('/', 1)[-1]}:{line}:{column}")
        frame = frame.f_back
    return " < ".join(callers)


def _skipped(file: str) -> bool:
    """Whether a file is Python's, torch's or the instrument's own."""
    if file.startswith("<") or any(part in file for part in _OWN):
        return True
    return file.startswith(_STANDARD) and "site-packages" not in file
