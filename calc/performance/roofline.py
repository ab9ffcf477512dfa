"""Time at the peak of a device, operator by operator: what bounds each, and what dominates the step. Torch-free.

An operator takes at least as long as its matmuls at the device's dense rate in their number format, its other arithmetic at the fp32 rate
of the vector units, its bytes at the memory bandwidth, and its launch. The longest of these is its time and names its bound (Williams et
al. 2009, "Roofline", CACM 52(4)). The result is a lower bound, not a forecast.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from calc.derive.accumulate import PHASES
from calc.derive.operators import Work
from calc.errors import BadInputError
from calc.graph.step import OPTIMIZER
from calc.hardware.accelerators import Accelerator
from calc.rules.registry import Operator

COMPUTE, MEMORY, LAUNCH = "compute", "memory", "launch"
BOUNDS = (COMPUTE, MEMORY, LAUNCH)  # of two equal times the first names the bound: at the ridge an operator counts as compute
LAUNCH_SECONDS = Fraction(5, 10**6)
LAUNCH_SOURCE = "ASSUMPTION: 5 µs from one kernel to the next in eager PyTorch; measure it with napkin calibrate"

RATES = {
    "float64": "fp64",
    "float32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
    "complex64": "fp32",
    "complex128": "fp64",
}
_VECTOR = "fp32"


@dataclass(frozen=True, slots=True)
class RooflineCeiling:
    """The peak rates of a device: FLOP/s of matmuls by format and of other arithmetic, bytes/s, seconds per launch.

    ``vector`` is ``None`` if no rate is published: arithmetic other than matmuls then takes no time. ``override`` is the format at whose
    rate all matmuls run, e.g. tf32 for float32 tensors.
    """

    device: Accelerator
    launch: Fraction = LAUNCH_SECONDS
    override: str | None = None

    @property
    def vector(self) -> Fraction | None:
        peak = self.device.peaks.get(_VECTOR)
        return None if peak is None else peak.dense

    def format_of(self, operator: Operator) -> str:
        """The name of the rate at which an operator's matmuls run."""
        if self.override is not None:
            return self.override
        dtype = product_dtype(operator)
        if dtype not in RATES:
            raise BadInputError(f"no rate is known for matmuls of {dtype or 'no'} tensors ({operator.name}): name one with --dtype")
        return RATES[dtype]

    def products(self, operator: Operator) -> Fraction:
        """FLOP/s of an operator's matmuls, dense."""
        return self.device.peak(self.format_of(operator))

    def ridge(self, dtype: str) -> Fraction:
        """FLOP per byte above which matmuls in ``dtype`` are compute-bound."""
        return self.device.peak(dtype) / self.device.bandwidth


@dataclass(frozen=True, slots=True)
class RooflineRow:
    """One operator of the step, or ``times`` identical ones. ``seconds`` is the time of one.

    ``bytes``, ``launches`` and what follows from them refer to eager execution or to the fused model, as the roofline does.
    """

    phase: str
    module_path: str
    name: str
    times: int
    flops: int
    bytes: int
    launches: int
    bound: str
    seconds: Fraction

    @property
    def total(self) -> Fraction:
        """Seconds of all rows."""
        return self.times * self.seconds

    @property
    def intensity(self) -> Fraction | None:
        """FLOP per byte moved; None if no byte is moved."""
        return Fraction(self.flops, self.bytes) if self.bytes else None


@dataclass(frozen=True, slots=True)
class Sums:
    """The sums of rows. ``bounds`` are the seconds of the operators under each bound."""

    flops: int
    bytes: int
    launches: int
    seconds: Fraction
    bounds: Mapping[str, Fraction]

    @property
    def dominant(self) -> str:
        """The bound under which most of the time is spent."""
        return max(BOUNDS, key=lambda bound: self.bounds[bound])


@dataclass(frozen=True, slots=True)
class Roofline:
    """All rows under one ceiling; ``fused`` says which traffic."""

    ceiling: RooflineCeiling
    rows: tuple[RooflineRow, ...]
    fused: bool

    def phase(self, name: str) -> Sums:
        return sums(row for row in self.rows if row.phase == name)

    @property
    def phases(self) -> tuple[str, ...]:
        """The phases that the step has."""
        return tuple(name for name in PHASES if any(row.phase == name for row in self.rows))

    @property
    def total(self) -> Sums:
        return sums(self.rows)

    def by_module(self) -> tuple[tuple[str, Sums], ...]:
        """Forward and backward of each module path together, and the optimizer as one; the longest first."""
        rows_of: dict[str, list[RooflineRow]] = {}
        for row in self.rows:
            rows_of.setdefault(OPTIMIZER if row.phase == "optimizer" else row.module_path or "(top level)", []).append(row)
        return tuple(sorted(((module_path, sums(rows)) for module_path, rows in rows_of.items()), key=lambda pair: -pair[1].seconds))


def roofline(works: Sequence[Work], ceiling: RooflineCeiling, *, fused: bool = False) -> Roofline:
    """Rows for operators at sizes (``Operators.at``), in the order of the step."""
    return Roofline(ceiling, tuple(_row(work, ceiling, fused) for work in works if work.launches), fused)


def _row(work: Work, ceiling: RooflineCeiling, fused: bool) -> RooflineRow:
    nbytes, launches = (work.fused, work.fused_launches) if fused else (work.moved, work.launches)
    times = {
        COMPUTE: max(_products(work, ceiling), Fraction(work.elementwise) / ceiling.vector if ceiling.vector else Fraction(0)),
        MEMORY: Fraction(nbytes, ceiling.device.bandwidth),
        LAUNCH: launches * ceiling.launch,
    }
    bound = max(BOUNDS, key=lambda name: times[name])
    flops = work.matmul + work.elementwise
    return RooflineRow(work.phase, work.module_path, work.name, work.times, flops, nbytes, launches, bound, times[bound])


def _products(work: Work, ceiling: RooflineCeiling) -> Fraction:
    return Fraction(work.matmul) / ceiling.products(work.operator) if work.matmul else Fraction(0)


def product_dtype(operator: Operator) -> str:
    """The dtype of the tensors that an operator multiplies: of its first argument that is not an integer."""
    return next((view.dtype for _, view in operator.tensors() if "int" not in view.dtype and view.dtype != "bool"), "")


def sums(rows: Iterable[RooflineRow]) -> Sums:
    """The sums of rows, each weighted by its count."""
    flops, nbytes, launches, seconds = 0, 0, 0, Fraction(0)
    bounds = dict.fromkeys(BOUNDS, Fraction(0))
    for row in rows:
        flops += row.times * row.flops
        nbytes += row.times * row.bytes
        launches += row.times * row.launches
        seconds += row.total
        bounds[row.bound] += row.total
    return Sums(flops, nbytes, launches, seconds, bounds)
