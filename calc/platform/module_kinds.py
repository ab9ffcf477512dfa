"""Which modules are alike: they have the same submodules, shapes and settings."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any


def kind_of(layer: Any) -> Hashable:
    """What a module is: the types of its submodules, shapes of parameters, and settings, but for the layer's own number."""
    if layer is None:  # a list may leave the place of a layer empty
        return None
    shapes = tuple((name, tuple(p.shape)) for name, p in layer.named_parameters())
    switches = tuple(
        (name, attribute, value)
        for name, part in layer.named_modules()
        for attribute, value in sorted(vars(part).items())
        if isinstance(value, str | bool | int | None) and not attribute.endswith(("idx", "index", "layer_id", "layer_num", "layer_number"))
    )
    return (tuple(type(part).__name__ for part in layer.modules()), shapes, switches)
