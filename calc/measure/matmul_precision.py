"""The number format of matmuls: that of the tensors, except that CUDA may round fp32 to tf32.

By default torch uses fp32 for fp32 matmuls but tf32 for convolutions, so no single peak applies. A measurement therefore sets both to
the same format, reports it, and restores the settings.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from calc.errors import BadInputError


@contextmanager
def single_precision(tf32: bool, device: str) -> Iterator[None]:
    """Context in which fp32 matmuls and convolutions both use tf32, or both fp32. Raises ``BadInputError`` for tf32 without CUDA."""
    if tf32 and not device.startswith("cuda"):
        raise BadInputError(f"tf32 is a format of CUDA devices, and not of {device}: leave it out")
    products, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(products)
        torch.backends.cudnn.allow_tf32 = convolutions


def matmul_dtype(precision: str, tf32: bool) -> str:
    """The format of a precision recipe's matmuls: ``bf16`` for ``bf16-autocast``, ``tf32`` for ``fp32`` with tf32 on."""
    name = precision.partition("-")[0]
    return "tf32" if name == "fp32" and tf32 else name
