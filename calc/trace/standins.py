"""Torch functions that take plain numbers where a model may give a size: recorded as themselves, with the size symbolic."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from calc.trace.disguise import replaced


@contextlib.contextmanager
def standing_in(called: Callable[[str, dict[str, Any]], Any]) -> Iterator[None]:
    """Context in which ``torch.histc`` counts into a symbolic number of bins. ``called(name, arguments)`` is a context in which
    the next operator is recorded under another name."""
    original = torch.histc

    def histc(input: torch.Tensor, bins: Any = 100, min: float = 0, max: float = 0, *, out: Any = None) -> torch.Tensor:
        if not isinstance(bins, torch.SymInt):
            return original(input, bins, min, max, out=out)
        with called("aten.histc.default", {"self": input, "bins": bins, "min": min, "max": max}):
            return torch.empty((bins,), dtype=input.dtype, device=input.device)

    with replaced(torch, histc=histc), replaced(torch.Tensor, histc=histc):
        yield
