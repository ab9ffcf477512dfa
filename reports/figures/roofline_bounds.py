"""A step under the ceilings of a device, eager and fused, and what is said of it: the rates, what dominates, what the numbers leave out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from calc.derive.operators import Operators, Work
from calc.performance.roofline import LAUNCH, LAUNCH_SECONDS, LAUNCH_SOURCE, MEMORY, Roofline, Sums
from reports.typeset.numbers import duration, percent, rate, significant

FUSED = (
    "fused is a lower model: operators between two products run as one kernel, which reads each tensor made before it once and writes each"
    " tensor that is read after it once; a compiler may leave more"
)
LOOP = "the optimizer runs parameter by parameter here; on CUDA torch runs it over lists of them: --implementation foreach"
NOTE = "times are bounds from below, at dense published rates; no operator reaches them"


@dataclass(frozen=True, slots=True)
class RooflinePair:
    """A step under a ceiling, eager and fused."""

    model: str
    sizes: Mapping[str, int]
    options: Mapping[str, str]
    operators: Operators
    works: tuple[Work, ...]
    eager: Roofline
    fused: Roofline

    @property
    def formats(self) -> tuple[str, ...]:
        """The rates at which products run."""
        return tuple(dict.fromkeys(self.eager.ceiling.format_of(w.operator) for w in self.works if w.matmul))


def ceilings(rooflines: RooflinePair) -> tuple[str, ...]:
    """The rates in words: of the products by format, of the memory, of the launches."""
    at = rooflines.eager.ceiling
    rates = (f"{rate(at.device.peak(d), 'FLOP')} dense {d} (ridge {significant(at.ridge(d))} FLOP per byte)" for d in rooflines.formats)
    launch = LAUNCH_SOURCE if at.launch == LAUNCH_SECONDS else f"{float(at.launch):g} s from one kernel to the next, as asked"
    return f"products at {', '.join(rates) or 'no rate: there are none'}; memory at {rate(Fraction(at.device.bandwidth), 'B')}", launch


def notes(rooflines: RooflinePair) -> tuple[str, ...]:
    """What must be known of the numbers."""
    loop = "optimizer" in rooflines.eager.phases and rooflines.options.get("implementation", "loop") == "loop"
    return NOTE, FUSED, *((LOOP,) if loop else ())


def finding(rooflines: RooflinePair) -> str:
    """What dominates, in a sentence."""
    total, fused = rooflines.eager.total, rooflines.fused.total
    if not total.seconds:
        return "The step takes no time at these ceilings."
    share = total.bounds[total.dominant] / total.seconds
    bound = {MEMORY: "memory traffic", LAUNCH: "launches"}.get(total.dominant, "compute")
    site, sums = rooflines.eager.by_site()[0]
    least = f"At least {duration(total.seconds)} eager and {duration(fused.seconds)} fused"
    taken = percent(sums.seconds / total.seconds)
    return f"{least}; {percent(share)} of the eager time is bound by {bound}, and {site} takes {taken}."


def bounds(sums: Sums) -> str:
    """The shares of the bounds, the largest first; below a thousandth they are left out."""
    shares = sorted(((bound, seconds / sums.seconds) for bound, seconds in sums.bounds.items() if seconds), key=lambda pair: -pair[1])
    return ", ".join(f"{bound} {percent(share)}" for bound, share in shares if share >= Fraction(1, 1000))
