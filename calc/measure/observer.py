"""A dispatch mode that collects the operators that a run executes, and its data-dependent sizes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from calc.measure.composite import decomposed, is_composite
from calc.measure.kinds import tensors_in
from calc.measure.unbacked_sizes import unbacked_size
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
