"""A dispatch mode that collects the operators that a run executes, and its data-dependent sizes."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterable
from types import FrameType
from typing import Any

import torch

from calc.experiment.composite_operators import decomposed, is_composite
from calc.measure.kinds import tensors_in
from calc.platform.torch_private import TorchDispatchMode

# Operators that torch's FLOP counter does not know on CPU, and whose backward recomputes the product of queries and keys.
_FUSED_ATTENTION = ("scaled_dot_product_flash", "scaled_dot_product_efficient")
# Torch's fast path for encoder layers in evaluation, which the FLOP counter does not know either.
_FAST_PATH = ("_native_multi_head_attention", "_transformer_encoder_layer_fwd")


class Observer(TorchDispatchMode):
    """``names`` are the operators executed under it, e.g. ``aten.mm.default``; ``unbacked_sizes`` the data-dependent sizes by place."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves its modes untyped
        self.names: set[str] = set()
        self.unbacked_sizes: dict[str, list[int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if is_composite(func):
            return decomposed(self, func, args, kwargs)
        size = unbacked_size(func, args)
        if size is not None:
            self.unbacked_sizes.setdefault(size[0], []).append(size[1])
        outputs = func(*args, **(kwargs or {}))
        # Profiler operators only mark spans of time; operators without any tensor only handle dtypes.
        if getattr(func, "namespace", "") != "profiler" and any(True for _ in tensors_in([*args, *(kwargs or {}).values(), outputs])):
            self.names.add(str(func))
        return outputs


def fused_attention(operators: Iterable[str]) -> list[str]:
    """The fused attention kernels among ``operators``, and the fast-path operators, which contain one; sorted."""
    return sorted(name for name in operators if any(fused in name for fused in (*_FUSED_ATTENTION, *_FAST_PATH)))


def fast_path(operators: Iterable[str]) -> bool:
    """Whether torch's fast path for encoder layers is among ``operators``."""
    return any(part in name for name in operators for part in _FAST_PATH)


# -- data-dependent sizes: how many elements each mask selected, by the lines of the model that used it ---------------


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
