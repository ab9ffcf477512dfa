"""Builds a spec's module on the meta device: shapes and names, without memory or values."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from calc.platform.model_files import on_meta_device
from calc.spec import Sizes, Spec


def bare(spec: Spec, sizes: Mapping[str, int]) -> nn.Module:
    """The module at these sizes, on torch's meta device."""
    with on_meta_device():
        module: nn.Module = spec.build(Sizes(**sizes))
    return module
