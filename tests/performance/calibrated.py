"""A synthetic machine whose times follow from four numbers, so that what is predicted for it can be written down by hand."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from calc.hardware.calibration import (
    ATTENTION,
    ATTENTION_BACKWARD,
    BACKWARD,
    CAUSAL,
    COPY,
    FORWARD,
    FRESH,
    LAUNCH,
    OPTIMIZER,
    PRODUCT,
    TOUCHED,
    VIEW,
    Calibration,
    CalibrationPoint,
)

GIGA = 10**9
RATE = 100  # GFLOP/s of every product
BANDWIDTH = 10  # GB/s of everything else
OVERHEAD = {LAUNCH: 1000, VIEW: 500, FORWARD: 3000, BACKWARD: 2000, OPTIMIZER: 1500}  # ns
FETCHED = 2**25  # bytes from which on memory is fetched, at a further second a gigabyte
BY_BYTES = (COPY, "aten.add", "aten.mul_", "aten.sum", "aten.gelu", TOUCHED)
MACHINE: dict[str, Any] = {
    "date": "2026-01-02T03:04:05+00:00",
    "device": {"kind": "cpu", "name": "Toy", "threads": 1},
    "versions": {"torch": "2"},
}


def made(points: Iterator[CalibrationPoint] | None = None) -> Calibration:
    """The machine, or one with other points."""
    return Calibration(MACHINE, "a synthetic clock", tuple(_points() if points is None else points))


def added() -> dict[str, int]:
    """What the program adds to an operator of each phase, in nanoseconds."""
    return {
        "forward": OVERHEAD[FORWARD] - OVERHEAD[LAUNCH],
        "backward": OVERHEAD[BACKWARD],
        "optimizer": OVERHEAD[OPTIMIZER] - OVERHEAD[LAUNCH],
    }


def product(what: str, flops: int, nanoseconds: tuple[int, ...] | None = None, dtype: str = "float32", **sizes: int) -> CalibrationPoint:
    return CalibrationPoint(what, dtype, sizes, flops, 0, 1, nanoseconds or (flops // RATE,) * 3)


def by_bytes(what: str, nbytes: int, nanoseconds: tuple[int, ...] | None = None) -> CalibrationPoint:
    return CalibrationPoint(what, "float32", {"bytes": nbytes}, 0, nbytes, 1, nanoseconds or (nbytes // BANDWIDTH,) * 3)


def _points() -> Iterator[CalibrationPoint]:
    for what, nanoseconds in OVERHEAD.items():
        yield CalibrationPoint(what, "float32", {}, 0, 0, 1, (nanoseconds,) * 3)
    for m, k, n in itertools.product((10, 100, 1000), repeat=3):
        yield product(PRODUCT, 2 * m * k * n, m=m, k=k, n=n)
    for what, mask in itertools.product((ATTENTION, ATTENTION_BACKWARD), ("", CAUSAL)):
        yield product(what + mask, 4 * 8 * 64 * 64 * 50, b=8, m=64, k=50, n=64)
    for what, nbytes in itertools.product(BY_BYTES, (10**4, 10**6, 2**24, 2**26)):
        yield by_bytes(what, nbytes)
    for nbytes in (10**6, 2**24, 2**26):
        yield by_bytes(FRESH, nbytes, (nbytes // BANDWIDTH + (nbytes if nbytes > FETCHED else 0),) * 3)
