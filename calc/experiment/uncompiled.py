"""Leaves torch.compile out of a model: what a compiler fuses, saves and recomputes has no closed form, so both routes run the step operator
by operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from calc.platform.replaced import replaced

_KEY = "compile"  # in calc.graph.exchanges


@contextmanager
def uncompiled(exchanged: Callable[[str], None] = lambda key: None) -> Iterator[None]:
    """Context for building a model, in which torch.compile returns what it is given and nn.Module.compile does nothing; each call is noted
    as ``exchanged``, with its key there."""

    def returned(model: Any = None, **options: Any) -> Any:
        exchanged(_KEY)
        return (lambda decorated: decorated) if model is None else model

    def left_as_it_is(module: nn.Module, *args: Any, **options: Any) -> None:
        exchanged(_KEY)

    with replaced(torch, compile=returned), replaced(nn.Module, compile=left_as_it_is):
        yield
