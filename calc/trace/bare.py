"""A spec's module built without memory: its shapes and names, and no numbers."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from calc.spec import Sizes, Spec


def bare(spec: Spec, sizes: Mapping[str, int]) -> nn.Module:
    """The module at all sizes, on torch's meta device."""
    with torch.device("meta"):
        module: nn.Module = spec.build(Sizes(**sizes))
    return module
