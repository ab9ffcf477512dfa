"""Evaluates a measured time: throughput, and the shares of the device's peak that the step reached (MFU and HFU).

The FLOPs come from the derivation, the time from a real run, the peak is published or given; each has its source. Only matmuls count, as in
peak rates: model FLOPs are those that forward and backward need, hardware FLOPs all that run, including recomputation and the optimizer
(Chowdhery et al. 2022, arXiv 2204.02311, appendix B). Importing this module does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from calc.capacity.utilization import utilization
from calc.derive.result import Derivation
from calc.derive.to_json import number
from calc.errors import BadInputError, NapkinError
from calc.hardware.accelerators import Accelerator, accelerator, of_device
from calc.options import trains
from calc.symbolic.worked import WorkedCalculation

if TYPE_CHECKING:
    from calc.measure.step_time import StepTime


@dataclass(frozen=True, slots=True)
class MatmulFlops:
    """Matmul FLOPs of one step. If one is unknown, ``because`` is the reason."""

    model: int | None
    hardware: int | None
    because: str = ""


@dataclass(frozen=True, slots=True)
class DensePeak:
    """The dense peak in one format, FLOP/s. If unknown, ``because`` is the reason. ``device`` is the entry that it comes from."""

    dtype: str
    rate: Fraction | None
    source: str = ""
    device: Accelerator | None = None
    because: str = ""

    def to_json(self) -> dict[str, Any]:
        rate = None if self.rate is None else float(self.rate)
        return {"dtype": self.dtype, "flops_per_second": rate, "source": self.source or None, "because": self.because or None}


@dataclass(frozen=True, slots=True)
class Throughput:
    """The number of tokens or samples of one step."""

    amount: int
    unit: str


@dataclass(frozen=True, slots=True)
class TimedStep:
    """A measured step with throughput, MFU and HFU."""

    measured: StepTime
    work: MatmulFlops
    throughput: Throughput
    ceiling: DensePeak
    mfu: WorkedCalculation | None
    hfu: WorkedCalculation | None

    @property
    def seconds(self) -> Fraction:
        """The median of the whole step."""
        return self.measured.times.whole.seconds

    @property
    def per_second(self) -> Fraction:
        return self.throughput.amount / self.seconds

    @property
    def unknown(self) -> str:
        """Why there is no MFU; empty if there is one."""
        if self.mfu is not None:
            return ""
        return self.ceiling.because or self.work.because

    def to_json(self) -> dict[str, Any]:
        work = {"model": number(self.work.model), "hardware": number(self.work.hardware), "because": self.work.because or None}
        shares = {name: None if ratio is None else float(ratio.value) for name, ratio in (("mfu", self.mfu), ("hfu", self.hfu))}
        return {
            "measured": self.measured.to_json(),
            "throughput": {"amount": self.throughput.amount, "unit": self.throughput.unit, "per_second": float(self.per_second)},
            "flops": {**work, "convention": "matrix multiplications, one multiply-add = 2 FLOP"},
            "peak": self.ceiling.to_json(),
            "utilization": {**shares, "because": self.unknown or None},
        }


def timed_step(measured: StepTime, work: MatmulFlops, throughput: Throughput, ceiling: DensePeak) -> TimedStep:
    """The step with its shares of the peak. A share above 1 is refused; the error names the formats whose peak would explain it."""
    seconds = measured.times.whole.seconds
    shares = [_share(flops, seconds, ceiling) for flops in (work.model, work.hardware)]
    return TimedStep(measured, work, throughput, ceiling, *shares)


def _share(flops: int | None, seconds: Fraction, ceiling: DensePeak) -> WorkedCalculation | None:
    if not flops or ceiling.rate is None:
        return None
    return utilization(flops, seconds, ceiling.rate, ceiling.dtype, ceiling.device)


def work_of(derivation: Derivation) -> MatmulFlops:
    """The matmul FLOPs of a derived step."""
    of_training = ("backward.matmul", "backward.recompute", "optimizer.matmul") if trains(derivation.options) else ()
    names = ("forward.matmul", *of_training)
    flops = {name: derivation.quantities.get(f"flops.{name}") for name in names}
    for name, quantity in flops.items():
        if quantity is None or quantity.value is None:
            return MatmulFlops(None, None, f"flops.{name} is unknown" if quantity is None else quantity.unknown)
    values = {name: int(quantity.value) for name, quantity in flops.items() if quantity is not None and quantity.value is not None}
    recomputed, optimizer = values.pop("backward.recompute", 0), values.pop("optimizer.matmul", 0)
    executed = sum(values.values())
    return MatmulFlops(executed - recomputed, executed + optimizer)


def as_compiled(work: MatmulFlops) -> MatmulFlops:
    """The same through torch.compile: the model's FLOPs are unchanged, but the compiler's recomputation is unknown."""
    return MatmulFlops(work.model, None, work.because or "what torch.compile saves and recomputes is not traced")


def work_from(derive: Callable[[], Derivation]) -> MatmulFlops:
    """The matmul FLOPs of the derivation from ``derive()``; if the step is refused, unknown with the reason."""
    try:
        return work_of(derive())
    except NapkinError as error:
        return MatmulFlops(None, None, f"the step is not derived: {error}")


def throughput_of(sizes: Mapping[str, int], accumulation: int = 1) -> Throughput:
    """Tokens if a step has sequences of T, else samples; a step without a batch counts as one sample."""
    batch = sizes.get("B", 1) * accumulation
    return Throughput(batch * sizes["T"], "tokens") if "T" in sizes else Throughput(batch, "samples")


def ceiling_of(
    dtype: str,
    machine: Mapping[str, Any],
    *,
    gpu: str | None = None,
    peak: Fraction | None = None,
    measured_rates: Mapping[str, Fraction] | None = None,
) -> DensePeak:
    """The peak to compare with: the given one, else that of the named accelerator, else that of the machine by its driver's name, else the
    highest measured rate ``measured_rates`` in that format, if none is published for the machine."""
    if peak is not None:
        return DensePeak(dtype, peak, "as given")
    device = machine["device"]
    entry = accelerator(gpu) if gpu is not None else of_device(str(device["name"]))
    if entry is None and measured_rates and dtype in measured_rates:
        return DensePeak(dtype, measured_rates[dtype], "the highest rate of a product in the calibration")
    if entry is None:
        device_name = "this processor" if device["kind"] == "cpu" else f"a device that its driver calls {device['name']}"
        return DensePeak(dtype, None, because=f"no peak is published here for {device_name}: give its FLOP/s in {dtype} with --peak")
    try:
        return DensePeak(dtype, entry.peak(dtype), entry.source, entry)
    except BadInputError as error:
        return DensePeak(dtype, None, device=entry, because=str(error))
