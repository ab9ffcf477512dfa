"""Building models for tests of them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from calc.models.load import load
from calc.spec import Sizes, Spec


def build(spec: Spec, **sizes: int) -> tuple[nn.Module, tuple[Tensor, ...], Sizes]:
    """The module and its inputs at ``sizes``."""
    n = Sizes(**spec.sizes(sizes))
    module = spec.build(n)
    assert isinstance(module, nn.Module)
    return module, spec.inputs(n), n


def parameters(name: str, **sizes: int) -> int:
    """Parameters, counted once each, of a model built without memory."""
    with torch.device("meta"):
        module, _, _ = build(load(name), **sizes)
    return sum(p.numel() for p in module.parameters())
