"""Replaces functions of a library for a while."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def replaced(owner: Any, **attributes: Any) -> Iterator[None]:
    """Context in which attributes of ``owner`` are replaced. A partial function takes the name of the function that it replaces: libraries
    read it.

    Afterwards, attributes that ``owner`` inherited are inherited again.
    """
    own = {name: vars(owner)[name] for name in attributes if name in vars(owner)}
    for name, value in attributes.items():
        if isinstance(value, functools.partial):
            functools.update_wrapper(value, getattr(owner, name))
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name in attributes:
            if name in own:
                setattr(owner, name, own[name])
            else:
                delattr(owner, name)
