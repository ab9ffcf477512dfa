"""All figures of a report from what it was derived to be."""

from __future__ import annotations

from collections.abc import Sequence

from calc.by_power import by_power
from calc.derivation import Derivation
from calc.hardware import Accelerator
from calc.textbook import Comparison
from reports.figures.flops import flops
from reports.figures.memory import memory
from reports.figures.sensitivity import growth
from reports.figures.shapes import ROOFLINE, Figure, Figures
from reports.figures.thumbs import thumbs

UNNAMED = Figure(ROOFLINE, "Roofline", absent="no device is named: --gpu ID names one, and napkin list hardware shows them")


def figures(
    derivation: Derivation,
    comparisons: Sequence[Comparison] = (),
    device: Accelerator | None = None,
    roof: Figure = UNNAMED,
) -> Figures:
    """``device`` is what memory is held against; ``roof`` is the step under its rates, which takes the operators of the step."""
    return Figures(
        memory=memory(derivation, device),
        flops=flops(by_power(derivation)),
        roofline=roof,
        sensitivity=growth(derivation),
        thumbs=thumbs(comparisons),
    )
