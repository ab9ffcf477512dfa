"""A calibration of a machine: single operators timed at many sizes, as plain data, to and from JSON. Torch-free.

A calibration times primitive operators only, never a model. Each point has all its repetitions; nothing is fitted.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

from calc.derive.to_json import number
from calc.errors import BadInputError
from calc.hardware.times import Timings
from calc.platform import files
from calc.platform.reading import Read, Wrong, at, each, mapping, one_of, part, short, text, whole, written

KIND = "calibration"
SCHEMA = 1

# Points that are not operators: the program's overhead per operator, and memory that is touched for the first time.
VIEW = "view"
FORWARD = "operator of a module, recorded by autograd"
BACKWARD = "node of autograd, backward"
OPTIMIZER = "operator of an optimizer's loop"
LAUNCH = "launch of a kernel"
FRESH = "fresh memory"
TOUCHED = "touched memory"
OVERHEADS = (LAUNCH, VIEW, FORWARD, BACKWARD, OPTIMIZER)
COPY = "aten.copy_"
PRODUCT = "aten.mm"
ATTENTION, ATTENTION_BACKWARD, CAUSAL = "attention", "attention backward", ", causal"

_MOST = 10**18
_FILE = files.Kind(64 * 2**20, "a calibration from", "make one with napkin calibrate -o FILE")


@dataclass(frozen=True, slots=True)
class CalibrationPoint:
    """One operator at one size. ``sizes`` are those that its time depends on (m, k, n of a matmul; bytes of a copy).

    ``nanoseconds`` are all repetitions in order, each of ``calls`` calls. FLOPs are those of matmuls, bytes those read and written. On a
    device that runs asynchronously, ``nanoseconds`` are the device's, and ``program`` has those that the program took to issue the calls.
    """

    primitive: str
    dtype: str
    sizes: Mapping[str, int]
    flops: int
    bytes: int
    calls: int
    nanoseconds: tuple[int, ...]
    program: tuple[int, ...] = ()

    @property
    def seconds(self) -> Fraction:
        """The median of one call."""
        return Timings(self.nanoseconds, self.calls).seconds

    @property
    def issued(self) -> Fraction:
        """The median seconds that the program takes for one call; where the program itself computes, all of its time."""
        return Timings(self.program or self.nanoseconds, self.calls).seconds

    @property
    def spread(self) -> Fraction:
        """The interquartile range as a share of the median."""
        times = Timings(self.nanoseconds, self.calls)
        low, high = times.quartiles
        return (high - low) / times.median

    @property
    def rate(self) -> Fraction:
        """FLOP/s."""
        return self.flops / self.seconds

    @property
    def bandwidth(self) -> Fraction:
        """Bytes/s."""
        return self.bytes / self.seconds

    def to_json(self) -> dict[str, Any]:
        program = {"program_nanoseconds": list(self.program)} if self.program else {}
        return {
            "what": self.primitive,
            "dtype": self.dtype,
            "sizes": {name: number(size) for name, size in self.sizes.items()},
            "flops": number(self.flops),
            "bytes": number(self.bytes),
            "calls": self.calls,
            "nanoseconds": list(self.nanoseconds),
            **program,
            "seconds": float(self.seconds),
        }


@dataclass(frozen=True)
class Calibration:
    """All points of one machine. ``machine`` describes the machine and the date, ``clock`` the timer."""

    machine: Mapping[str, Any]
    clock: str
    points: tuple[CalibrationPoint, ...]

    @property
    def device(self) -> str:
        """``cpu`` or ``cuda``."""
        return str(self.machine["device"]["kind"])

    @property
    def name(self) -> str:
        return str(self.machine["device"]["name"])

    @cached_property
    def by_what(self) -> Mapping[tuple[str, str], tuple[CalibrationPoint, ...]]:
        """Points of each operator and dtype."""
        points_of: dict[tuple[str, str], list[CalibrationPoint]] = {}
        for point in self.points:
            points_of.setdefault((point.primitive, point.dtype), []).append(point)
        return {key: tuple(points) for key, points in points_of.items()}

    def peaks(self) -> dict[str, Fraction]:
        """The highest measured FLOP/s of any matmul or convolution, by dtype."""
        rates: dict[str, Fraction] = {}
        for point in self.points:
            if point.flops:
                rates[point.dtype] = max(rates.get(point.dtype, Fraction(0)), point.rate)
        return rates

    def bandwidth(self) -> Fraction:
        """Bytes/s of the largest copy, which fits in no cache."""
        return max(self.by_what[COPY, "float32"], key=lambda p: p.bytes).bandwidth

    def launch(self) -> Fraction:
        """Seconds from one small operator to the next: what the program takes to issue one."""
        return self.by_what[LAUNCH, "float32"][0].issued

    def to_json(self) -> dict[str, Any]:
        """Plain data. Values derived from the points are included but not read back."""
        return {
            "schema": SCHEMA,
            "kind": KIND,
            "machine": dict(self.machine),
            "clock": self.clock,
            "measured_peaks": {dtype: float(rate) for dtype, rate in self.peaks().items()},
            "measured_bandwidth": float(self.bandwidth()),
            "measured_launch_seconds": float(self.launch()),
            "points": [point.to_json() for point in self.points],
        }


def read(path: Path) -> Calibration:
    """The calibration in a file. Raises BadInputError if it contains none."""
    try:
        document = json.loads(_FILE.read_text(path))
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"cannot read a calibration from {path}: {error}; make one with napkin calibrate -o FILE") from None
    try:
        return from_json(document)
    except Wrong as wrong:
        raise BadInputError(f"{path} is not a calibration ({wrong}): make one with napkin calibrate -o FILE") from None


def from_json(document: Any) -> Calibration:
    """The calibration from plain data as ``to_json`` writes it. Raises ``Wrong``."""
    part(document, "kind", one_of((KIND,), "the kind"))
    part(document, "schema", one_of((SCHEMA,), "the schema that this reads"))
    calibration = Calibration(part(document, "machine", _machine), part(document, "clock", _SHORT), part(document, "points", each(_point)))
    for (primitive, dtype), points in calibration.by_what.items():
        if primitive not in OVERHEADS:
            _require_readable(f"{primitive} in {dtype}", points)
    for primitive in (PRODUCT, COPY, *OVERHEADS):
        if (primitive, "float32") not in calibration.by_what:
            raise Wrong(f"has no {primitive} in float32")
    return calibration


_SHORT = short(200)


def _machine(value: Any) -> Mapping[str, Any]:
    for key in ("device.kind", "device.name"):
        at(value, key, text)
    _require_plain(value)
    return dict(value)


def _point(value: Any) -> CalibrationPoint:
    return CalibrationPoint(
        part(value, "what", _SHORT),
        part(value, "dtype", _SHORT),
        part(value, "sizes", mapping(_SHORT, _count(1))),
        part(value, "flops", _count(0)),
        part(value, "bytes", _count(0)),
        part(value, "calls", _count(1)),
        part(value, "nanoseconds", each(_count(1), least=1)),
        part(value, "program_nanoseconds", each(_count(1), least=1)) if "program_nanoseconds" in value else (),
    )


def _count(least: int) -> Read[int]:
    return written(whole(least, _MOST + 1))


def _require_plain(value: Any, depth: int = 0) -> None:
    """Machine facts are displayed and rewritten, so they must be plain JSON values."""
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    if depth > 5 or (isinstance(value, float) and not math.isfinite(value)):
        raise Wrong("is not plain data of finite numbers")
    for item in inner:
        _require_plain(item, depth + 1)


def _require_readable(primitive: str, points: Sequence[CalibrationPoint]) -> None:
    """Points of one operator must allow interpolation: matmuls by the same size names, others by distinct numbers of bytes."""
    if all(p.flops for p in points):
        if len({frozenset(p.sizes) for p in points}) != 1 or not points[0].sizes:
            raise Wrong(f"has points of {primitive} with other sizes than each other, or with none")
    elif any(p.flops or not p.bytes or dict(p.sizes) != {"bytes": p.bytes} for p in points) or len({p.bytes for p in points}) < len(points):
        raise Wrong(f"has points of {primitive} with the same bytes: bytes distinguish them, so they must differ")
