"""Replaces kernels of torch's operators temporarily."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch


@contextlib.contextmanager
def replaced(kernels: Mapping[Any, Callable[..., Any]], key: str, with_keyset: bool = False) -> Iterator[None]:
    """Context in which operators run ``kernels`` at the dispatch key ``key``; ``with_keyset`` passes them the remaining dispatch keys."""
    library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]  # untyped in torch
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that its own kernels are overridden
        for operator, kernel in kernels.items():
            library.impl(operator, kernel, key, with_keyset=with_keyset)  # type: ignore[no-untyped-call]  # as above
    try:
        yield
    finally:
        library._destroy()  # type: ignore[no-untyped-call]  # as above
