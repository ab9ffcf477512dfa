"""Times one matmul in a number format that the device supports.

Operands are normal random numbers from a fixed seed: their values affect the power that a matmul draws, and so the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from calc.errors import BadInputError, MeasurementError
from calc.hardware.times import Repeat
from calc.measure.free_memory import available_bytes
from calc.measure.timing import Timings, time_of, watch_of
from calc.measure.training import SEED

DTYPES = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp8": torch.float8_e4m3fn,
}
_FP8_SINCE = (8, 9)  # compute capability: Ada and Hopper


@dataclass(frozen=True, slots=True)
class Shape:
    """A (m, k) times B (k, n)."""

    m: int
    k: int
    n: int

    @property
    def flops(self) -> int:
        """FLOPs: 2 per multiply-add."""
        return 2 * self.m * self.k * self.n

    def nbytes(self, item: int, result: int) -> int:
        """Bytes of both operands (``item`` per element) and of the result (``result`` per element)."""
        return item * (self.m * self.k + self.k * self.n) + result * self.m * self.n


def time_of_matmul(shape: Shape, dtype: str, device: str, repeat: Repeat) -> Timings:
    """Times of the matmul on ``device``. Raises ``MeasurementError`` with the reason if it cannot run there."""
    _require_dtype(dtype, device)
    _require_room(shape, dtype, device)
    with single_precision(dtype == "tf32", device):
        try:
            return time_of(_matmul(shape, dtype, device), watch_of(device), repeat)
        except RuntimeError as error:  # no kernel, or not enough memory
            raise MeasurementError(f"the matmul in {dtype} raised {type(error).__name__}: {' '.join(str(error).split())[:200]}") from None


def _matmul(shape: Shape, dtype: str, device: str) -> Callable[[], Tensor]:
    """The matmul as a function. Its output is preallocated, so repetitions allocate nothing, except in fp8."""
    a, b = _operands(shape, DTYPES[dtype], device)
    if dtype == "fp8":  # one scale per matrix; the result is bf16, since fp8 is too coarse for sums
        from calc.platform.torch_private import scaled_mm

        scale = torch.ones((), device=device)
        column_major = b.t().contiguous().t()
        return lambda: scaled_mm(a, column_major, scale, scale, out_dtype=torch.bfloat16)
    out = torch.empty((shape.m, shape.n), dtype=DTYPES[dtype], device=device)
    return lambda: torch.mm(a, b, out=out)


def _operands(shape: Shape, dtype: torch.dtype, device: str) -> tuple[Tensor, Tensor]:
    generator = torch.Generator(device).manual_seed(SEED)
    drawn = torch.float32 if dtype.itemsize == 4 else torch.float16
    sizes = (shape.m, shape.k), (shape.k, shape.n)
    a, b = (torch.randn(size, generator=generator, device=device, dtype=drawn).to(dtype) for size in sizes)
    return a, b


def _require_dtype(dtype: str, device: str) -> None:
    if dtype not in ("tf32", "fp8"):
        return
    if not device.startswith("cuda"):
        raise MeasurementError(f"{dtype} needs tensor cores, which {device} lacks")
    if dtype == "fp8" and torch.cuda.get_device_capability(device) < _FP8_SINCE:
        raise MeasurementError("fp8 matmuls need compute capability 8.9 or higher")


def _require_room(shape: Shape, dtype: str, device: str) -> None:
    """Raises ``MeasurementError`` if memory is short. A 1-byte dtype needs 3 bytes per element: operands are cast from 2-byte ones."""
    item = DTYPES[dtype].itemsize
    required = shape.nbytes(item if item > 1 else 3, max(item, 2))
    free = torch.cuda.mem_get_info(device)[0] if device.startswith("cuda") else available_bytes()
    if required > free:
        raise MeasurementError(f"the matmul in {dtype} needs {required:,} bytes and {free:,} are free: give a smaller m, k or n")


# -- the number format of matmuls -------------------------------------------------------------------------------------
# The number format of matmuls: that of the tensors, except that CUDA may round fp32 to tf32.
#
# By default torch uses fp32 for fp32 matmuls but tf32 for convolutions, so no single peak applies. A measurement therefore sets both to the
# same format, reports it, and restores the settings.


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
