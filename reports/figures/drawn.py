"""All figures of a report from what it was derived to be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace

from calc.derive.result import Derivation
from calc.derive.rules_of_thumb import Comparison
from calc.derive.scaling import by_power
from calc.derive.sensitivity import Doubling
from calc.hardware.accelerators import Accelerator
from reports.figures.flops import flops
from reports.figures.memory import memory
from reports.figures.rules_of_thumb import thumbs
from reports.figures.sensitivity import growth
from reports.figures.shapes import ROOFLINE, Figure, Figures

UNNAMED = Figure(ROOFLINE, "Roofline", absent="no device is named: --gpu ID names one, and napkin list hardware shows them")

UNDRAWN = Figures(*(replace(UNNAMED, absent="not asked for") for _ in fields(Figures)))


def figures(
    derivation: Derivation,
    twice: Mapping[str, tuple[Doubling, ...]],
    comparisons: Sequence[Comparison] = (),
    device: Accelerator | None = None,
    roof: Figure = UNNAMED,
) -> Figures:
    """``twice`` is what doubling each size does to each answer, ``device`` what memory is held against, ``roof`` the step under its rates,
    which takes the operators of the step."""
    return Figures(
        memory=memory(derivation, device),
        flops=flops(by_power(derivation)),
        roofline=roof,
        sensitivity=growth(derivation, twice),
        rules_of_thumb=thumbs(comparisons),
    )
