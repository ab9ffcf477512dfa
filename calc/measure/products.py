"""The number format in which a device multiplies matrices: that of the tensors, but for fp32 on CUDA, which may be rounded to tf32.

Torch multiplies fp32 matrices exactly by default and convolves in tf32, which no peak describes. A measurement therefore sets both
alike, says which, and puts them back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from calc.errors import BadInputError


@contextmanager
def single_precision(tf32: bool, device: str) -> Iterator[None]:
    """fp32 products and convolutions inside are in tf32, or all of them in fp32."""
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


def product_format(precision: str, tf32: bool) -> str:
    """The format of the products of a recipe: ``bf16`` of ``bf16-autocast``; of ``fp32`` with tf32 on, ``tf32``."""
    name = precision.partition("-")[0]
    return "tf32" if name == "fp32" and tf32 else name
