"""Figures that tests draw: of the sample, and of steps on devices as a roofline has them, without deriving anything."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, cast

from calc.derive.result import Derivation
from calc.hardware.accelerators import accelerator
from calc.performance.roofline import COMPUTE, LAUNCH, MEMORY, Roofline, RooflineCeiling, RooflineRow
from reports.figures.roofline import figure
from reports.figures.roofline_bounds import RooflinePair
from reports.figures.shapes import Figure

MODULE_PATHS = ("lm_head", "h.*.mlp.c_fc", "h.*.mlp.c_proj", "h.*.attn", "h.*.attn.c_attn", "h.*.ln_1", "wte", "(loss)")


def rooflines(module_paths: tuple[str, ...] = MODULE_PATHS, dtypes: tuple[str, ...] = ("fp32",)) -> RooflinePair:
    """Products on the roof, elementwise work under the bandwidth, an optimizer that waits for launches, and a copy without arithmetic."""
    device = accelerator("a100-sxm-80")
    ceiling = RooflineCeiling(device, override=dtypes[0])
    peak, bandwidth = device.peak(dtypes[0]), device.bandwidth
    rows = [
        RooflineRow("forward", module_path, "aten.mm.default", 12, 10**11 * (9 - i), 10**8, 1, COMPUTE, Fraction(10**11 * (9 - i)) / peak)
        if i < 5
        else RooflineRow("forward", module_path, "aten.add.Tensor", 3, 10**8 * i, 10**9, 1, MEMORY, Fraction(10**9, bandwidth))
        for i, module_path in enumerate(module_paths)
    ]
    rows.append(RooflineRow("optimizer", "w", "aten.addcdiv_.default", 40, 10**5, 10**6, 1, LAUNCH, Fraction(5, 10**6)))
    rows.append(RooflineRow("forward", "h.*", "aten.copy_.default", 1, 0, 10**8, 1, MEMORY, Fraction(10**8, bandwidth)))
    works = cast(Any, [SimpleNamespace(matmul=1, operator=None)])
    both = Roofline(ceiling, tuple(rows), False), Roofline(ceiling, tuple(rows), True)
    return RooflinePair("tiny-gpt", {}, {}, cast(Any, None), works, *both)


def roof() -> Figure:
    """Its figure."""
    return figure(rooflines())


def of_peak(derivation: Derivation, scale: int) -> Derivation:
    """``derivation`` with a peak that is ``scale`` times as large."""
    peak = derivation["memory.peak"]
    candidates = tuple(
        replace(c, value=c.value * scale, part_values={role: v * scale for role, v in c.part_values.items()}) for c in peak.candidates
    )
    larger = replace(peak, value=(peak.value or 0) * scale, candidates=candidates)
    return replace(derivation, quantities={**derivation.quantities, "memory.peak": larger})
