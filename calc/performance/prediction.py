"""Predicts the time of a training step: the sum of its operators' times according to a calibration. Torch-free.

time of an operator = overhead of the program
+ the longest of: its matmuls at the rate of the nearest calibrated shapes, its bytes at the bandwidth for their number, a launch
+ extra time of uncached bytes: of tensors that the phase touches for the first time, if these exceed a cache
+ first touch of results so large that each gets new memory from the system

A CUDA device runs asynchronously, so the program and the device each have a time for every operator: the program runs ahead, and a phase
takes the device's time for its operators, or the program's for all of them (views included) where the device has to wait for it.

Rates are interpolated in the logarithms of the sizes (weights: the inverse fourth power of the distance, of the eight nearest points);
times of memory-bound operators linearly in the logarithms of bytes and time. Nothing is fitted on a model.

The band: each operator's error combines the leave-one-out error of its calibrated neighbors with the spread of their repetitions; errors of
operators timed as one primitive add, those of different primitives are independent. It does not cover what is not modeled: Python between
operators, caches left warm by the previous operator, other programs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from calc.derive.accumulate import PHASES
from calc.derive.operators import Work
from calc.errors import BadInputError
from calc.hardware.calibration import (
    BACKWARD,
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
from calc.performance.benchmark_proxy import Stand, as_product, base, by_bytes
from calc.units import item_size

_NEAREST = 8
_POWER = 4
_FLOAT = "float32"
_READ = "aten._local_scalar_dense"  # of an optimizer's step count, which lies in the program's memory: no kernel runs
_SMALLEST = 1e-12  # of a squared distance: a point at exactly these sizes then has all the weight


@dataclass(frozen=True, slots=True)
class PredictedOperator:
    """One operator, or ``times`` identical ones, with the time of one. ``error`` is a share of it.

    ``like`` is its benchmark proxy; ``exact`` is false if the proxy matches only in bytes or FLOPs.
    """

    phase: str
    module_path: str
    name: str
    times: int
    like: str
    exact: bool
    seconds: float
    error: float

    @property
    def total(self) -> float:
        return self.times * self.seconds


@dataclass(frozen=True)
class Prediction:
    """A step's operators with their predicted times, in seconds."""

    rows: tuple[PredictedOperator, ...]
    product_flops: int
    model_flops: int
    product_dtype: str

    @property
    def seconds(self) -> float:
        return sum(row.total for row in self.rows)

    @cached_property
    def phases(self) -> Mapping[str, float]:
        """Seconds of each phase of the step."""
        totals = {phase: sum(row.total for row in self.rows if row.phase == phase) for phase in PHASES}
        return {phase: seconds for phase, seconds in totals.items() if seconds}

    @cached_property
    def error(self) -> float:
        """Half of the band, in seconds."""
        together: dict[str, float] = {}
        for row in self.rows:
            together[row.like] = together.get(row.like, 0.0) + row.error * row.total
        return math.sqrt(sum(error**2 for error in together.values()))

    @property
    def band(self) -> tuple[float, float]:
        """The lowest and the highest time within the calibration's errors, in seconds."""
        return max(0.0, self.seconds - self.error), self.seconds + self.error

    @cached_property
    def inexact_proxies(self) -> Mapping[str, float]:
        """Operators without an exact benchmark proxy, with their share of the time, the largest first."""
        shares: dict[str, float] = {}
        for row in self.rows:
            if not row.exact:
                shares[row.name] = shares.get(row.name, 0.0) + row.total / self.seconds
        return dict(sorted(shares.items(), key=lambda pair: -pair[1]))


def predict(works: Sequence[Work], calibration: Calibration) -> Prediction:
    """Predicted times of operators at sizes (``StepOperators.works``)."""
    tables = Tables(calibration)
    recorded = any(work.phase == "backward" for work in works)
    cold = {phase for phase in PHASES if sum(w.times * w.cold for w in works if w.phase == phase) > tables.cache}
    timed = [_timed(work, tables, recorded, work.cold if work.phase in cold else 0) for work in works]
    rows = tuple(_ahead(timed) if calibration.device == "cuda" else (both.added for both in timed))
    products = [work for work in works if work.matmul]
    executed = sum(work.times * work.matmul for work in works)
    model = sum(work.times * (work.matmul - work.recompute) for work in works if work.phase != "optimizer")
    return Prediction(rows, executed, model, _most_flops(products))


def _most_flops(products: Sequence[Work]) -> str:
    """The dtype with the most matmul FLOPs; empty if there are none."""
    flops: dict[str, int] = {}
    for work in products:
        dtype = as_product(work.operator, work.matmul).dtype
        flops[dtype] = flops.get(dtype, 0) + work.times * work.matmul
    return max(flops, key=lambda dtype: flops[dtype], default="")


@dataclass(frozen=True, slots=True)
class _Both:
    """An operator's time on the device, and the program's time to issue it; ``extra`` is the program's time beyond that of its proxy."""

    row: PredictedOperator
    program: float
    extra: float

    @property
    def added(self) -> PredictedOperator:
        """The sum of both, as on a CPU, where the program itself computes."""
        return replace(self.row, seconds=self.row.seconds + self.extra)


def _ahead(timed: Sequence[_Both]) -> Iterator[PredictedOperator]:
    """The rows of each phase with device times, or with program times where the device waits for the program.

    The program begins a phase as soon as it has issued the one before, while the device still works on that: the time by which it is ahead
    then does not count.
    """
    ahead = 0.0
    for phase in dict.fromkeys(both.row.phase for both in timed):
        mine = [both for both in timed if both.row.phase == phase]
        on_device, program = sum(both.row.total for both in mine), sum(both.row.times * both.program for both in mine)
        if on_device >= program - ahead:
            yield from (both.row for both in mine)
        else:
            share = 1 - ahead / program
            yield from (replace(b.row, like=b.row.like if b.row.like == VIEW else LAUNCH, seconds=share * b.program) for b in mine)
        ahead = max(0.0, ahead + on_device - program)


def _timed(work: Work, tables: Tables, recorded: bool, cold: int) -> _Both:
    extra = tables.recording(work.phase) if recorded else 0.0
    if not work.launches or base(work.operator.name) == _READ:
        view = tables.once(VIEW)
        return _Both(_row(work, VIEW, True, 0.0, tables.error_of(VIEW, {})), view + extra, view + extra)
    if work.matmul:
        stand = as_product(work.operator, work.matmul)
        rate, error = tables.rate(stand)
        seconds = max(work.matmul / rate, tables.streamed(work.moved), tables.kernel) + tables.uncached(cold)
    else:
        stand = by_bytes(work.operator, work.moved, tables.calibrated)
        seconds, error = tables.seconds(stand, cold / work.moved)
    row = _row(work, stand.primitive, stand.exact, seconds + tables.first_touch(work), error)
    return _Both(row, tables.issuing(stand) + extra, extra)


def _row(work: Work, like: str, exact: bool, seconds: float, error: float) -> PredictedOperator:
    return PredictedOperator(work.phase, work.module_path, work.name, work.times, like, exact, seconds, error)


class Tables:
    """A calibration, interpolated between the sizes of its points."""

    def __init__(self, calibration: Calibration) -> None:
        self._points = calibration.by_what
        self.calibrated = frozenset(primitive for primitive, _ in self._points)
        self._bandwidth = float(calibration.bandwidth())
        self._errors: dict[tuple[str, str], list[tuple[float, float]]] = {}
        self._issuing: dict[tuple[str, str], float] = {}

    # -- what the program takes ---------------------------------------------------------------------------------------

    def once(self, primitive: str) -> float:
        """Seconds of one overhead of the program."""
        return float(self._of(primitive, _FLOAT)[0].issued)

    @property
    def kernel(self) -> float:
        """Seconds of the smallest kernel; where the program itself computes, with its launch."""
        return float(self._of(LAUNCH, _FLOAT)[0].seconds)

    def issuing(self, stand: Stand) -> float:
        """Seconds of the program to issue an operator, which hardly depend on its size: the median of its proxy's points."""
        key = (stand.primitive, stand.dtype)
        if key not in self._issuing:
            issued = sorted(point.issued for point in self._measured(*key) if point.program)
            self._issuing[key] = float(issued[len(issued) // 2]) if issued else self.once(LAUNCH)
        return self._issuing[key]

    def recording(self, phase: str) -> float:
        """Seconds that the program adds to an operator: a module's call and its autograd record in the forward, a node's execution in the
        backward, the loop over parameters in the optimizer."""
        if phase == "backward":
            return self.once(BACKWARD)
        return max(0.0, self.once(FORWARD if phase == "forward" else OPTIMIZER) - self.once(LAUNCH))

    # -- memory -------------------------------------------------------------------------------------------------------

    def streamed(self, nbytes: int) -> float:
        """Seconds to read and write ``nbytes``, at the speed of a copy of that size."""
        return self._by_size(self._of(COPY, _FLOAT), nbytes)

    def seconds(self, stand: Stand, cold: float) -> tuple[float, float]:
        """Seconds of an operator by its bytes, of which a share is ``cold``, with their relative error.

        Cold bytes use the operator's bandwidth at its largest size, the others that at their own size.
        """
        points, nbytes = self._of(stand.primitive, stand.dtype), stand.sizes["bytes"]
        largest = max(points, key=lambda p: p.bytes)
        warm = self._by_size(points, nbytes)
        return warm + cold * max(0.0, nbytes / float(largest.bandwidth) - warm), self.error_of(stand.primitive, stand.sizes, points)

    def uncached(self, nbytes: int) -> float:
        """Extra seconds for the bytes of a matmul outside any cache; 0 for sizes that exceed a cache anyway."""
        return max(0.0, nbytes / self._bandwidth - self.streamed(nbytes))

    @cached_property
    def cache(self) -> float:
        """Bytes that a cache holds: the geometric mean of the largest copy that is at least twice as fast as the largest of all, and the
        next one; 0 if there is none."""
        copies = sorted(self._of(COPY, _FLOAT), key=lambda p: p.bytes)
        slow = 2 * copies[-1].bandwidth
        last = max((i for i, p in enumerate(copies) if p.bandwidth >= slow), default=None)
        return 0.0 if last is None else math.sqrt(copies[last].bytes * copies[last + 1].bytes)

    @cached_property
    def fetched(self) -> tuple[float, float]:
        """The size in bytes from which each result gets new memory from the system, and the extra seconds per byte."""
        extra = [(f.bytes, max(0.0, float(f.seconds - t.seconds)) / f.bytes) for f, t in self._pairs()]
        most = max((seconds for _, seconds in extra), default=0.0)
        above = [nbytes for nbytes, seconds in extra if seconds > most / 2]
        below = [nbytes for nbytes, seconds in extra if seconds <= most / 2]
        if not above or not below:
            return (min(above, default=math.inf), most)
        return math.sqrt(max(below) * min(above)), most

    def _pairs(self) -> Iterator[tuple[CalibrationPoint, CalibrationPoint]]:
        touched = {p.bytes: p for p in self._points.get((TOUCHED, _FLOAT), ())}
        yield from ((p, touched[p.bytes]) for p in self._points.get((FRESH, _FLOAT), ()) if p.bytes in touched)

    def first_touch(self, work: Work) -> float:
        """Seconds to get new memory for large results."""
        if work.operator.mutates:
            return 0.0
        least, each = self.fetched
        sizes = [item_size(view.dtype) * int(view.distinct) for view in work.operator.outputs]
        return each * sum(nbytes for nbytes in sizes if nbytes >= least)

    def _by_size(self, points: Sequence[CalibrationPoint], nbytes: int) -> float:
        """Seconds, linear in logarithms; below the first point its time, above the last its bandwidth."""
        ordered = sorted(points, key=lambda p: p.bytes)
        if nbytes <= ordered[0].bytes:
            return float(ordered[0].seconds)
        for low, high in itertools.pairwise(ordered):
            if nbytes <= high.bytes:
                share = math.log(nbytes / low.bytes) / math.log(high.bytes / low.bytes)
                return math.exp((1 - share) * math.log(low.seconds) + share * math.log(high.seconds))
        return nbytes / float(ordered[-1].bandwidth)

    # -- products -----------------------------------------------------------------------------------------------------

    def rate(self, stand: Stand) -> tuple[float, float]:
        """FLOP/s of a matmul, with the relative error. A dtype without calibration uses float32's rate."""
        points = self._of(stand.primitive if stand.primitive in self.calibrated else PRODUCT, stand.dtype)
        return self._interpolated(points, stand.sizes), self.error_of(points[0].primitive, stand.sizes, points)

    def _interpolated(self, points: Sequence[CalibrationPoint], sizes: Mapping[str, int]) -> float:
        total = weighted = 0.0
        for i, distance in _nearest(points, sizes):
            weight = _weight(distance)
            total += weight
            weighted += weight * math.log(float(points[i].rate))
        return math.exp(weighted / total)

    # -- errors -------------------------------------------------------------------------------------------------------

    def error_of(self, primitive: str, sizes: Mapping[str, int], points: Sequence[CalibrationPoint] = ()) -> float:
        """The relative error of an interpolation at ``sizes``: the leave-one-out errors of the nearest points, reduced for a point closer
        than they are to each other, combined with the spread of their repetitions."""
        points = points or self._of(primitive, _FLOAT)
        key = (points[0].primitive, points[0].dtype)
        if key not in self._errors:
            self._errors[key] = self._left_out(points)
        total = missed = spread = 0.0
        for i, distance in _nearest(points, sizes):
            weight = _weight(distance)
            error, apart = self._errors[key][i]
            total += weight
            missed += weight * error * min(1.0, math.sqrt(distance / max(apart, _SMALLEST)))
            spread += weight * float(points[i].spread)
        return math.hypot(missed / total, spread / total)

    def _left_out(self, points: Sequence[CalibrationPoint]) -> list[tuple[float, float]]:
        """For each point its relative leave-one-out error, and the squared distance of its nearest neighbor.

        The smallest and largest point by bytes have no error, since they are never interpolated, nor has a single point.
        """
        if len(points) == 1:
            return [(0.0, 0.0)]
        ends = () if points[0].flops else {min(p.bytes for p in points), max(p.bytes for p in points)}
        read = self._interpolated if points[0].flops else self._by_bytes
        misses = []
        for i, point in enumerate(points):
            neighbors = [p for j, p in enumerate(points) if j != i]
            true = float(point.rate if point.flops else point.seconds)
            error = 0.0 if point.bytes in ends else abs(read(neighbors, point.sizes) / true - 1)
            misses.append((error, _nearest(neighbors, point.sizes)[0][1]))
        return misses

    def _by_bytes(self, points: Sequence[CalibrationPoint], sizes: Mapping[str, int]) -> float:
        return self._by_size(points, sizes["bytes"])

    def _measured(self, primitive: str, dtype: str) -> Sequence[CalibrationPoint]:
        """The points of a primitive in a dtype, else in float32; none if it is not calibrated."""
        return self._points.get((primitive, dtype)) or self._points.get((primitive, _FLOAT), ())

    def _of(self, primitive: str, dtype: str) -> Sequence[CalibrationPoint]:
        points = self._measured(primitive, dtype)
        if not points:
            raise BadInputError(f"the calibration has no {primitive}, which this step needs: calibrate the machine again")
        return points


def _nearest(points: Sequence[CalibrationPoint], sizes: Mapping[str, int]) -> list[tuple[int, float]]:
    """The indices of the eight points nearest to ``sizes``, each with its squared distance in base-2 logarithms."""
    away = ((sum(math.log2(p.sizes[n] / size) ** 2 for n, size in sizes.items() if n in p.sizes), i) for i, p in enumerate(points))
    return [(i, distance) for distance, i in sorted(away)[:_NEAREST]]


def _weight(distance: float) -> float:
    """The weight of a point by its squared distance: the inverse fourth power of the distance."""
    return max(distance, _SMALLEST) ** -(_POWER // 2)
