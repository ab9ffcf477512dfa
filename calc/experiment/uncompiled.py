"""Leaves torch.compile out of a model: what a compiler fuses, saves and recomputes has no closed form, so both routes run the step operator
by operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

KEY = "compile"  # in calc.graph.exchanges


@contextmanager
def uncompiled(exchanged: Callable[[str], None] = lambda key: None) -> Iterator[None]:
    """Context for building a model, in which torch.compile returns what it is given; ``exchanged(KEY)`` notes each call."""
    originals = {(torch, "compile"): torch.compile, (nn.Module, "compile"): nn.Module.compile}

    def returned(model: Any = None, **options: Any) -> Any:
        exchanged(KEY)
        return (lambda decorated: decorated) if model is None else model

    def left_as_it_is(module: nn.Module, *args: Any, **options: Any) -> None:
        exchanged(KEY)

    for (owner, name), replacement in zip(originals, (returned, left_as_it_is), strict=True):
        setattr(owner, name, replacement)
    try:
        yield
    finally:
        for (owner, name), original in originals.items():
            setattr(owner, name, original)
