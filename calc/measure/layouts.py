"""Operations on a real tensor: shape, strides and offset of each result, and whether it shares its operand's storage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from calc.errors import MeasurementError
from calc.experiment.composite_operators import decomposed, is_composite
from calc.measure.kinds import tensors_in
from calc.measure.training import training
from calc.options import Options
from calc.platform.torch_private import TorchDispatchMode
from calc.spec import Spec

_LARGEST = 2**28


@dataclass(frozen=True, slots=True)
class TorchLayout:
    """The layout of a tensor. ``shared``: it shares its operand's storage; ``refused``: torch's error if the operation failed."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: str
    nbytes: int
    shared: bool
    refused: str = ""


def run(shape: Sequence[int], dtype: str, calls: Sequence[tuple[str, tuple[Any, ...]]]) -> list[TorchLayout]:
    """Layouts of a new tensor and of each call's result, applied in order until one fails; ``[]`` takes indices, ``to`` a dtype's name."""
    count = 1
    for size in shape:
        count *= size
    if count > _LARGEST:
        raise MeasurementError(f"a tensor of {count:,} elements is too large for a quick run: check at smaller sizes")
    x = torch.zeros(tuple(shape), dtype=getattr(torch, dtype))
    layouts = [_real(x, x)]
    for name, arguments in calls:
        try:
            result = _made(x, name, arguments)
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            layouts.append(TorchLayout((), (), 0, "", 0, False, str(error).splitlines()[0]))
            break
        if result.numel() > _LARGEST and result.untyped_storage().nbytes() > _LARGEST:
            raise MeasurementError(f"a tensor of {result.numel():,} elements is too large for a quick run: check at smaller sizes")
        layouts.append(_real(result, x))
        x = result
    return layouts


def _made(x: Tensor, name: str, arguments: tuple[Any, ...]) -> Tensor:
    if name == "[]":
        return x[arguments]
    if name == "to":
        return x.to(getattr(torch, arguments[0]))
    result: Tensor = getattr(x, name)(*arguments)
    return result


def _real(result: Tensor, of: Tensor) -> TorchLayout:
    storage = result.untyped_storage()
    shared = storage.data_ptr() == of.untyped_storage().data_ptr()
    dtype = str(result.dtype).removeprefix("torch.")
    return TorchLayout(tuple(result.shape), tuple(result.stride()), int(result.storage_offset()), dtype, storage.nbytes(), shared)


# -- results of a forward ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ForwardResult:
    """One result of an operator. ``nbytes`` are its storage's; ``fresh``: the storage is not an argument's."""

    operator: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: str
    nbytes: int
    fresh: bool


# Aliases that autograd and Python create: the same tensor under another name.
_SAME = ("aten.detach.default", "aten.detach_.default", "aten.alias.default", "aten.lift_fresh.default")


class _ResultWatch(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's modes are untyped
        self.layouts: list[ForwardResult] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if is_composite(func):
            return decomposed(self, func, args, kwargs)
        if str(func) in _SAME:
            return func(*args, **(kwargs or {}))
        before = {t.untyped_storage().data_ptr() for t in tensors_in((args, kwargs or {}))}
        out = func(*args, **(kwargs or {}))
        for t in tensors_in(out):
            memory = t.untyped_storage()
            dtype = str(t.dtype).removeprefix("torch.")
            fresh = memory.data_ptr() not in before
            self.layouts.append(
                ForwardResult(str(func), tuple(t.shape), tuple(t.stride()), int(t.storage_offset()), dtype, memory.nbytes(), fresh)
            )
        return out


def forward_results(spec: Spec, sizes: Mapping[str, int], options: Options) -> list[ForwardResult]:
    """The results of the first step's forward, in order."""
    watch = _ResultWatch()

    @contextmanager
    def around(phase: str) -> Iterator[None]:
        if phase != "forward":
            yield
            return
        with watch:
            yield

    with training(spec, sizes, options, "cpu") as run:
        run.step(around)
    return watch.layouts
