"""Compares derived moments with sampled ones: inside the sample's interval, or as close as their assumptions allow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from calc.graph.step import TOP
from calc.mathematics.initialization import Initial, ModuleVariance
from calc.mathematics.initialization.state import OFF

INSIDE, WITHIN, FAILED, NOT_DERIVED, NOT_SAMPLED = "inside", "within", "failed", "not derived", "not sampled"
# Half-width of a 99.9 % interval in standard errors of the mean.
SPREAD = 3.29


class Sample(Protocol):
    """A sample of a module's result: mean square over the draws, its standard error, and calls in one forward."""

    @property
    def second(self) -> float: ...
    @property
    def error(self) -> float: ...
    @property
    def calls(self) -> int: ...


@dataclass(frozen=True, slots=True)
class SampleComparison:
    """``low`` … ``high`` is the sample's interval; ``allowed`` is the part of its ends by which a moment outside may miss them."""

    part: ModuleVariance
    low: float | None
    sampled: float | None
    high: float | None
    verdict: str
    because: str = ""
    allowed: float = 0.0


def compare(initial: Initial, samples: Mapping[str, Sample]) -> list[SampleComparison]:
    """One comparison per module that was derived or sampled, in the order of the forward."""
    return [_compared(part, samples.get("" if part.module_path == TOP else part.module_path)) for part in initial.parts]


def _compared(part: ModuleVariance, sample: Sample | None) -> SampleComparison:
    if sample is None:
        return SampleComparison(part, None, None, None, NOT_SAMPLED, "the module returns no tensor of floats, or is never called itself")
    low, high = sample.second - SPREAD * sample.error, sample.second + SPREAD * sample.error
    if part.second is None:
        return SampleComparison(part, low, sample.second, high, NOT_DERIVED, part.unknown)
    if sample.calls > 1:
        return SampleComparison(part, low, sample.second, high, NOT_DERIVED, "the module runs several times in a forward")
    if low <= part.second <= high:
        return SampleComparison(part, low, sample.second, high, INSIDE)
    off = sum(OFF[assumption] for assumption in part.rests)
    near = (1 - off) * low <= part.second <= (1 + off) * high
    because = "; ".join(part.rests) or "follows from the distributions alone"
    return SampleComparison(part, low, sample.second, high, WITHIN if near else FAILED, because, off)


def percent(allowed: float) -> str:
    """An allowance as a percentage: ``4 %``."""
    return f"{100 * allowed:.3g} %"
