"""Every tensor that the operators of a real forward return: its layout, and the bytes of its storage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from calc.measure.composite import decomposed, is_composite
from calc.measure.kinds import tensors_in
from calc.measure.training import training
from calc.options import Options
from calc.platform.torch_private import TorchDispatchMode
from calc.spec import Spec


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
