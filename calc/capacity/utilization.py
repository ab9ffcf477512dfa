"""The share of a peak that timed work reached, as a Python function: the question ``mfu`` for a given device. Torch-free."""

from __future__ import annotations

from fractions import Fraction

from calc.capacity.questions import answered
from calc.capacity.questions.devices import Device
from calc.capacity.questions.registry import question
from calc.hardware.accelerators import Accelerator
from calc.symbolic.worked import WorkedCalculation


def utilization(
    flops: int | Fraction, seconds: float | Fraction, peak: int | Fraction, dtype: str, device: Accelerator | None = None
) -> WorkedCalculation:
    """Achieved FLOP/s over the dense peak of the dtype, for ``device`` if known. A share above 1 is refused with an explanation."""
    of = None if device is None else Device(device, dtype, dtype_given=True, sparse=False)
    return answered(question("mfu"), {"flops": flops, "seconds": seconds, "peak": Fraction(peak), "dtype": dtype}, device=of).calculation
