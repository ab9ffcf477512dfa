"""The share of a peak that timed work reached, for what has a device at hand: the question ``mfu`` in Python's own values. Torch-free."""

from __future__ import annotations

from fractions import Fraction

from calc.capacity.questions import answered
from calc.capacity.questions.devices import Device
from calc.capacity.questions.registry import question
from calc.hardware.accelerators import Accelerator
from calc.symbolic.worked import Reckoning


def utilization(
    flops: int | Fraction, seconds: float | Fraction, peak: int | Fraction, dtype: str, device: Accelerator | None = None
) -> Reckoning:
    """FLOP/s achieved over the dense peak of that format, of ``device`` where it is known. More than 1 is refused, with what it means."""
    of = None if device is None else Device(device, dtype, said=True, sparse=False)
    return answered(question("mfu"), {"flops": flops, "seconds": seconds, "peak": Fraction(peak), "dtype": dtype}, device=of).reckoning
