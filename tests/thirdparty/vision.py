"""Builds of torchvision that do not fit this torch (CUDA's, beside a CPU build) load without their operators in C++, but for two that
their Python code describes and so must be there."""

from __future__ import annotations

from typing import Any

_MISSING: list[Any] = []  # a library's operators go when it goes


def declare_operators() -> None:
    """Declare ``nms`` and ``qnms`` where torchvision cannot be imported otherwise. None of the modules here runs them."""
    import torch

    try:
        import torchvision  # noqa: F401  # only whether it can be
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _MISSING.append(library)
    except ImportError:
        pass
