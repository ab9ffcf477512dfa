"""A matmul in every number format of a device: FLOPs, time, and the share of that format's peak that it reaches.

The lecture's matmul is 16384 × 32768 by 32768 × 8192. Importing this module does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from calc.capacity.utilization import utilization
from calc.derive.to_json import number
from calc.errors import BadInputError, NapkinError, suggestion
from calc.hardware.times import Repeat
from calc.performance.mfu import DensePeak, ceiling_of
from calc.symbolic.worked import WorkedCalculation

if TYPE_CHECKING:
    from calc.measure.matmul import Shape
    from calc.measure.timing import Timings

KIND = "measurement of matrix multiplications"
DTYPES = ("fp32", "tf32", "bf16", "fp16", "fp8")
LECTURE = (16384, 32768, 8192)
SMALLER = 32  # on a CPU, in each direction
_MOST = 2**24  # rows or columns


@dataclass(frozen=True, slots=True)
class MatmulRow:
    """The matmul in one format. If it did not run, or its share of the peak is refused, ``because`` is the reason."""

    dtype: str
    times: Timings | None
    ceiling: DensePeak
    share: WorkedCalculation | None = None
    because: str = ""

    def to_json(self, flops: int) -> dict[str, Any]:
        times = None if self.times is None else {**self.times.to_json(), "flops_per_second": float(flops / self.times.seconds)}
        share = None if self.share is None else float(self.share.value)
        return {"dtype": self.dtype, "times": times, "peak": self.ceiling.to_json(), "share": share, "because": self.because or None}


@dataclass(frozen=True, slots=True)
class Products:
    """One matmul in several formats on one machine."""

    shape: Shape
    machine: Mapping[str, Any]
    clock: str
    rows: tuple[MatmulRow, ...]
    conditions: Mapping[str, Any]
    command: str = ""


def sizes_for(device: str, requested: Mapping[str, int]) -> tuple[int, int, int]:
    """(m, k, n): the ``requested`` ones, else those of the lecture, on a CPU a 32nd of them."""
    scale = 1 if device.startswith("cuda") else SMALLER
    sizes = {name: default // scale for name, default in zip("mkn", LECTURE, strict=True)}
    for name, size in requested.items():
        if name not in sizes:
            raise BadInputError(f"a matmul has no size {name[:40]!r}: it has m, k and n")
        if not 1 <= size <= _MOST:
            raise BadInputError(f"{name} = {size} is not a number of rows or columns: give 1 to {_MOST:,}")
        sizes[name] = size
    return sizes["m"], sizes["k"], sizes["n"]


def products(
    sizes: tuple[int, int, int],
    dtypes: Sequence[str],
    device: str,
    repeat: Repeat,
    *,
    gpu: str | None = None,
    peak: Fraction | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Products:
    """The matmul in each of ``dtypes``, in order. One that cannot run has the reason; the others still run."""
    from calc.measure.machine import conditions, machine
    from calc.measure.matmul import Shape
    from calc.measure.timing import watch_of

    for dtype in dtypes:
        if dtype not in DTYPES:
            raise BadInputError(f"unknown number format {dtype[:40]!r}: {suggestion(dtype, DTYPES)}")
    shape, facts = Shape(*sizes), machine(device)
    rows = []
    for dtype in dict.fromkeys(dtypes):
        progress(f"{shape.m} × {shape.k} × {shape.n} in {dtype}")
        rows.append(_row(shape, dtype, device, repeat, ceiling_of(dtype, facts, gpu=gpu, peak=peak)))
    return Products(shape, facts, watch_of(device).name, tuple(rows), conditions(device))


def _row(shape: Shape, dtype: str, device: str, repeat: Repeat, ceiling: DensePeak) -> MatmulRow:
    from calc.measure.matmul import time_of_matmul

    try:
        times = time_of_matmul(shape, dtype, device, repeat)
    except NapkinError as error:
        return MatmulRow(dtype, None, ceiling, because=str(error))
    return row_of(dtype, times, shape.flops, ceiling)


def row_of(dtype: str, times: Timings, flops: int, ceiling: DensePeak) -> MatmulRow:
    """The row with its share of the peak. A share above 1 is replaced by the error message."""
    if ceiling.rate is None:
        return MatmulRow(dtype, times, ceiling, because=ceiling.because)
    try:
        share = utilization(flops, times.seconds, ceiling.rate, dtype, ceiling.device)
    except BadInputError as error:
        return MatmulRow(dtype, times, ceiling, because=str(error))
    return MatmulRow(dtype, times, ceiling, share)


def document(products: Products) -> dict[str, Any]:
    """The ``"schema": 1`` document of the matmuls, as plain data."""
    shape = products.shape
    return {
        "schema": 1,
        "kind": KIND,
        "command": products.command,
        **products.machine,
        "sizes": {"m": shape.m, "k": shape.k, "n": shape.n},
        "flops": number(shape.flops),
        "clock": products.clock,
        "conditions": {"after": dict(products.conditions)},
        "rows": [row.to_json(shape.flops) for row in products.rows],
    }
