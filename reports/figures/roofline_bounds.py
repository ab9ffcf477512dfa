"""The roofline of a step, eager and fused, and its text: rates, dominant bound, and what the numbers leave out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from calc.derive.operators import Operators, Work
from calc.performance.roofline import LAUNCH, LAUNCH_SECONDS, LAUNCH_SOURCE, MEMORY, Roofline, Sums
from reports.typeset.numbers import duration, percent, rate, significant

FUSED = (
    "fused is a lower bound on traffic: all operators between two matmuls are one kernel, which reads each of its inputs once and"
    " writes each result that is used later once; a compiler may need more"
)
LOOP = "the optimizer updates one parameter at a time here; torch's default on CUDA is --implementation foreach"
NOTE = "times are lower bounds at the published dense rates; no operator reaches them"


@dataclass(frozen=True, slots=True)
class RooflinePair:
    """The rooflines of a step on one device, eager and fused."""

    model: str
    sizes: Mapping[str, int]
    options: Mapping[str, str]
    operators: Operators
    works: tuple[Work, ...]
    eager: Roofline
    fused: Roofline

    @property
    def formats(self) -> tuple[str, ...]:
        """The number formats of the step's matmuls."""
        return tuple(dict.fromkeys(self.eager.ceiling.format_of(w.operator) for w in self.works if w.matmul))


def ceilings(rooflines: RooflinePair) -> tuple[str, ...]:
    """The device's rates as text: matmuls by format and memory; then the time of a launch."""
    at = rooflines.eager.ceiling
    rates = (f"{rate(at.device.peak(d), 'FLOP')} dense {d} (ridge {significant(at.ridge(d))} FLOP per byte)" for d in rooflines.formats)
    launch = LAUNCH_SOURCE if at.launch == LAUNCH_SECONDS else f"{float(at.launch):g} s from one kernel to the next, as given"
    return f"matmuls at {', '.join(rates) or 'no rate: there are none'}; memory at {rate(Fraction(at.device.bandwidth), 'B')}", launch


def notes(rooflines: RooflinePair) -> tuple[str, ...]:
    """What the numbers leave out, as notes."""
    loop = "optimizer" in rooflines.eager.phases and rooflines.options.get("implementation", "loop") == "loop"
    return NOTE, FUSED, *((LOOP,) if loop else ())


def finding(rooflines: RooflinePair) -> str:
    """The least time and its dominant bound, as a sentence."""
    total, fused = rooflines.eager.total, rooflines.fused.total
    if not total.seconds:
        return "At these rates the step takes no time."
    share = total.bounds[total.dominant] / total.seconds
    bound = {MEMORY: "memory traffic", LAUNCH: "launches"}.get(total.dominant, "compute")
    module_path, sums = rooflines.eager.by_module()[0]
    least = f"At least {duration(total.seconds)} eager and {duration(fused.seconds)} fused"
    share_of_step = percent(sums.seconds / total.seconds)
    return f"{least}; {percent(share)} of the eager time is bound by {bound}, and {module_path} takes {share_of_step}."


def bounds(sums: Sums) -> str:
    """Each bound with its share of the time, largest first; shares below 0.1 % are left out."""
    shares = sorted(((bound, seconds / sums.seconds) for bound, seconds in sums.bounds.items() if seconds), key=lambda pair: -pair[1])
    return ", ".join(f"{bound} {percent(share)}" for bound, share in shares if share >= Fraction(1, 1000))
