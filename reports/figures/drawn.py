"""All figures of a report, from its derivation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from calc.derive.result import Derivation
from calc.derive.rules_of_thumb import RuleComparison
from calc.derive.scaling import flops_by_degree
from calc.derive.sensitivity import Doubling
from calc.hardware.accelerators import Accelerator
from reports.figures.flops import flops
from reports.figures.memory import memory
from reports.figures.rules_of_thumb import thumbs
from reports.figures.sensitivity import growth
from reports.figures.shapes import ROOFLINE, Figure, Figures

UNNAMED = Figure(ROOFLINE, "Roofline", absent="no device is named; name one with --gpu ID (napkin list hardware shows the ids)")


def figures(
    derivation: Derivation,
    twice: Mapping[str, tuple[Doubling, ...]],
    comparisons: Sequence[RuleComparison] = (),
    device: Accelerator | None = None,
    roof: Figure = UNNAMED,
) -> Figures:
    """The figures of a derivation.

    ``twice``: answer → factors when one size doubles. ``device``: what the peak is compared with. ``roof``: the roofline, which needs the
    operators of the step.
    """
    return Figures(
        memory=memory(derivation, device),
        flops=flops(flops_by_degree(derivation)),
        roofline=roof,
        sensitivity=growth(derivation, twice),
        rules_of_thumb=thumbs(comparisons),
    )
