"""The time of a training step before it runs: every operator of its graph timed as a calibration says, added up. Torch-free.

    time of an operator = the program's own time for it + the longer of
        its products at the rate of the nearest calibrated shapes, and its bytes at the bandwidth of its working set
        + the first touch of results so large that memory is fetched from the system for each of them

Rates are interpolated in the logarithms of the sizes (weights: the inverse fourth power of the distance, of the eight nearest points);
times of what memory bounds by straight lines in the logarithms of bytes and time. Nothing is fitted on a model.

The band: each operator's error is the one with which its calibrated neighbours are told by the others (the upper quartile of leaving
one out) and the spread of their repetitions; operators timed as one primitive err together, different primitives independently.
It does not cover what is not modelled: Python between operators, caches left warm by the operator before, other programs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from calc.calibration import BACKWARD, FORWARD, FRESH, LAUNCH, PRODUCT, TOUCHED, VIEW, Calibration, Point
from calc.derive.fold import PHASES
from calc.derive.operators import Work
from calc.dtypes import item_size
from calc.errors import BadInputError
from calc.timed_as import Stand, as_product, by_bytes

_NEAREST = 8
_POWER = 4
_FLOAT = "float32"
_SMALLEST = 1e-12  # of a squared distance: a point at the very sizes then has all the weight


@dataclass(frozen=True, slots=True)
class Timed:
    """One operator, or ``times`` alike ones, with the time of one. ``error`` is a share of it.

    ``like`` is the primitive that stands for it; ``exact`` is false where that one only moves or multiplies as much.
    """

    phase: str
    site: str
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

    rows: tuple[Timed, ...]
    product_flops: int
    model_flops: int
    product_dtype: str

    @property
    def seconds(self) -> float:
        return sum(row.total for row in self.rows)

    @cached_property
    def phases(self) -> Mapping[str, float]:
        """Seconds of each phase that the step has."""
        found = {phase: sum(row.total for row in self.rows if row.phase == phase) for phase in PHASES}
        return {phase: seconds for phase, seconds in found.items() if seconds}

    @cached_property
    def error(self) -> float:
        """Half of the band, in seconds."""
        together: dict[str, float] = {}
        for row in self.rows:
            together[row.like] = together.get(row.like, 0.0) + row.error * row.total
        return math.sqrt(sum(error**2 for error in together.values()))

    @property
    def band(self) -> tuple[float, float]:
        """The lowest and the highest time that the calibration's own errors leave."""
        return max(0.0, self.seconds - self.error), self.seconds + self.error

    @cached_property
    def stand_ins(self) -> Mapping[str, float]:
        """Operators that no primitive stands for exactly, with their share of the time, the largest first."""
        found: dict[str, float] = {}
        for row in self.rows:
            if not row.exact:
                found[row.name] = found.get(row.name, 0.0) + row.total / self.seconds
        return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def predict(works: Sequence[Work], calibration: Calibration) -> Prediction:
    """Predicted times of operators at sizes (``StepWork.works``)."""
    tables = Tables(calibration)
    records = any(work.phase == "backward" for work in works)
    rows = tuple(_timed(work, tables, records) for work in works)
    products = [work for work in works if work.matmul]
    executed = sum(work.times * work.matmul for work in works)
    model = sum(work.times * (work.matmul - work.recompute) for work in works if work.phase != "optimizer")
    return Prediction(rows, executed, model, _most_flops(products))


def _most_flops(products: Sequence[Work]) -> str:
    """The dtype in which most FLOPs of products are done; empty where there are none."""
    found: dict[str, int] = {}
    for work in products:
        dtype = as_product(work.operator, work.matmul).dtype
        found[dtype] = found.get(dtype, 0) + work.times * work.matmul
    return max(found, key=lambda dtype: found[dtype], default="")


def _timed(work: Work, tables: Tables, records: bool) -> Timed:
    extra = tables.recording(work.phase) if records else 0.0
    if not work.launches:
        return _row(work, VIEW, True, tables.once(VIEW) + extra, tables.error_of(VIEW, {}))
    if work.matmul:
        stand = as_product(work.operator, work.matmul)
        rate, error = tables.rate(stand)
        seconds = max(work.matmul / rate, tables.streamed(work.moved), tables.once(LAUNCH))
    else:
        stand = by_bytes(work.operator, work.moved, tables.known)
        seconds, error = tables.seconds(stand)
    return _row(work, stand.what, stand.exact, seconds + tables.first_touch(work) + extra, error)


def _row(work: Work, like: str, exact: bool, seconds: float, error: float) -> Timed:
    return Timed(work.phase, work.site, work.name, work.times, like, exact, seconds, error)


class Tables:
    """A calibration, read at sizes between its points."""

    def __init__(self, calibration: Calibration) -> None:
        self._points = calibration.by_what
        self.known = frozenset(what for what, _ in self._points)
        self._bandwidth = float(calibration.bandwidth())
        self._errors: dict[tuple[str, str], list[float]] = {}

    # -- what the program takes ---------------------------------------------------------------------------------------

    def once(self, what: str) -> float:
        """Seconds of an overhead."""
        return float(self._of(what, _FLOAT)[0].seconds)

    def recording(self, phase: str) -> float:
        """What autograd adds to an operator: recording it in the forward, finding it in the backward."""
        if phase == "forward":
            return max(0.0, self.once(FORWARD) - self.once(LAUNCH))
        return self.once(BACKWARD) if phase == "backward" else 0.0

    # -- memory -------------------------------------------------------------------------------------------------------

    def streamed(self, nbytes: int) -> float:
        """Seconds to read and write so many bytes: at the speed of a copy of as many."""
        return self._by_size(self._of("aten.copy_", _FLOAT), nbytes)

    def seconds(self, stand: Stand) -> tuple[float, float]:
        """Seconds of an operator by its bytes, with their error."""
        points = self._of(stand.what, stand.dtype)
        return self._by_size(points, stand.sizes["bytes"]), self.error_of(stand.what, stand.sizes)

    @cached_property
    def fetched(self) -> tuple[float, float]:
        """From how many bytes on memory is fetched anew for each result, and the seconds that each byte takes more then."""
        more = [(f.bytes, max(0.0, float(f.seconds - t.seconds)) / f.bytes) for f, t in self._pairs()]
        most = max((seconds for _, seconds in more), default=0.0)
        above = [nbytes for nbytes, seconds in more if seconds > most / 2]
        below = [nbytes for nbytes, seconds in more if seconds <= most / 2]
        if not above or not below:
            return (min(above, default=math.inf), most)
        return math.sqrt(max(below) * min(above)), most

    def _pairs(self) -> Iterator[tuple[Point, Point]]:
        touched = {p.bytes: p for p in self._points.get((TOUCHED, _FLOAT), ())}
        yield from ((p, touched[p.bytes]) for p in self._points.get((FRESH, _FLOAT), ()) if p.bytes in touched)

    def first_touch(self, work: Work) -> float:
        """Seconds that fetching memory for large new results takes."""
        if work.operator.mutates:
            return 0.0
        least, each = self.fetched
        sizes = [item_size(view.dtype) * int(view.distinct) for view in work.operator.outputs]
        return each * sum(nbytes for nbytes in sizes if nbytes >= least)

    def _by_size(self, points: Sequence[Point], nbytes: int) -> float:
        """Straight lines in logarithms; below the first point its time, above the last its bandwidth."""
        ordered = sorted(points, key=lambda p: p.bytes)
        if nbytes <= ordered[0].bytes:
            return float(ordered[0].seconds)
        for low, high in itertools.pairwise(ordered):
            if nbytes <= high.bytes:
                share = math.log(nbytes / low.bytes) / math.log(high.bytes / low.bytes)
                return float(low.seconds) ** (1 - share) * float(high.seconds) ** share
        return nbytes / float(ordered[-1].bandwidth)

    # -- products -----------------------------------------------------------------------------------------------------

    def rate(self, stand: Stand) -> tuple[float, float]:
        """FLOP/s of a product, with their error. What is not calibrated in a dtype goes by float32's rate."""
        points = self._of(stand.what if stand.what in self.known else PRODUCT, stand.dtype)
        return self._interpolated(points, stand.sizes), self.error_of(points[0].what, stand.sizes, points)

    def _interpolated(self, points: Sequence[Point], sizes: Mapping[str, int]) -> float:
        total = weighted = 0.0
        for i, distance in _nearest(points, sizes):
            weight = max(distance, _SMALLEST) ** (-_POWER / 2)
            total += weight
            weighted += weight * math.log(float(points[i].rate))
        return math.exp(weighted / total)

    # -- errors -------------------------------------------------------------------------------------------------------

    def error_of(self, what: str, sizes: Mapping[str, int], points: Sequence[Point] = ()) -> float:
        """How far off what is read between the points near ``sizes`` may be, as a share."""
        points = points or self._of(what, _FLOAT)
        key = (points[0].what, points[0].dtype)
        if key not in self._errors:
            self._errors[key] = self._left_out(points)
        near = [i for i, _ in _nearest(points, sizes)]
        missed, spread = (_upper_quartile(v) for v in ([self._errors[key][i] for i in near], [float(points[i].spread) for i in near]))
        return math.hypot(missed, spread)

    def _left_out(self, points: Sequence[Point]) -> list[float]:
        """By how much each point is missed by what the others say of its sizes, as a share.

        The smallest and the largest of what goes by bytes are never read from others, and a single point has none.
        """
        if len(points) == 1:
            return [0.0]
        ends = () if points[0].flops else {min(p.bytes for p in points), max(p.bytes for p in points)}
        read = self._interpolated if points[0].flops else self._by_bytes
        found = []
        for i, point in enumerate(points):
            others = [p for j, p in enumerate(points) if j != i]
            true = float(point.rate if point.flops else point.seconds)
            found.append(0.0 if point.bytes in ends else abs(read(others, point.sizes) / true - 1))
        return found

    def _by_bytes(self, points: Sequence[Point], sizes: Mapping[str, int]) -> float:
        return self._by_size(points, sizes["bytes"])

    def _of(self, what: str, dtype: str) -> Sequence[Point]:
        found = self._points.get((what, dtype)) or self._points.get((what, _FLOAT))
        if not found:
            raise BadInputError(f"the calibration has no {what}, which this step needs: calibrate the machine again")
        return found


def _nearest(points: Sequence[Point], sizes: Mapping[str, int]) -> list[tuple[int, float]]:
    """The places of the eight points nearest to ``sizes``, each with the square of its distance in logarithms to the base 2."""
    away = ((sum(math.log2(p.sizes[n] / size) ** 2 for n, size in sizes.items() if n in p.sizes), i) for i, p in enumerate(points))
    return [(i, distance) for distance, i in sorted(away)[:_NEAREST]]


def _upper_quartile(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[(3 * len(ordered)) // 4 if len(ordered) > 1 else 0] if ordered else 0.0
