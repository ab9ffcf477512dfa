"""Pages that tests of several writers read: the sample's, and one in which every name is hostile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from calc.derive.names import PeakPlace, SavedBefore, StepPlace, TensorName
from calc.derive.rules_of_thumb import compare
from calc.graph.step import Assumption
from calc.memory.peak_levers import PeakLever, StepChange
from reports.figures.roofline import figure
from reports.page.build import PageContent, build
from reports.page.equations import EquationRow, EquationTable, ModelSection
from reports.page.model import Command
from reports.page.report import Page
from reports.page.static_sizes import StaticSizeRow, StaticSizeTable
from tests.reports import drawings, live_bytes, sample

HOSTILE = '<script>alert(1)</script>"><img src=x onerror=alert(1)>|`**x**[l](javascript:1)$y$\x1b[31m\u202e\n# h ```\n'
COMMAND = Command("Make this report again:", "napkin report tiny-gpt -d B=2")


LEVERS = (
    PeakLever(StepChange(sizes={"B": 1}), 11_000, PeakPlace("backward", "mm", "lm_head"), 50_000),
    PeakLever(StepChange({"checkpointing": "block"}), 12_000, PeakPlace("backward", "mm", "lm_head"), 120_000),
    PeakLever(StepChange({"accumulation": "2"}, {"B": 1}), 13_000, PeakPlace("backward", "mm", "lm_head"), None),
)


def _equations(text: str) -> ModelSection:
    rows = (EquationRow(f"Y = x0 {text}", "(B, D)", "2·B·D²", False), EquationRow(f"∂ℒ/∂{text} = x0ᵀ ∂ℒ/∂Y", "(D, D)", "2·B·D²", True))
    why = text if text != "w1" else ""
    numbers = StaticSizeTable((StaticSizeRow("197", ((f"cat at {text}", "(B, 1, d), (B, 196, d) → (B, 197, d)"),)),))
    return ModelSection((EquationTable("Forward", text, "", rows),), (f"∂ℒ/∂{text} is not computed.",), why, numbers)


def _more(levers: tuple[PeakLever, ...], text: str) -> dict[str, Any]:
    return {"levers": levers, "equations": _equations(text), "with_design": True}


def page() -> Page:
    """The sample with checks and comparisons."""
    derivation = sample.derivation()
    commands, sizes = (COMMAND,), {"B": 2}
    live, roof = live_bytes.timeline(), drawings.roof()
    more = _more(LEVERS, "w1")
    return build(PageContent(derivation, sample.checks(), compare(derivation), commands, sizes, timeline=live, roof=roof, **more))


def hostile() -> Page:
    """The sample with a planted name wherever a model, a spec or a tool brings text of its own."""
    full, name = sample.derivation(), TensorName(HOSTILE, HOSTILE, HOSTILE, HOSTILE)
    quantities = {
        key: replace(q, terms=tuple(replace(t, module_path=HOSTILE, because=HOSTILE) for t in q.terms), meaning=HOSTILE)
        for key, q in full.quantities.items()
    }
    derivation = replace(
        full,
        model=HOSTILE,
        source=HOSTILE,
        dims=tuple(replace(d, meaning=HOSTILE) for d in full.dims),
        options={"optimizer": HOSTILE},
        assumptions=(*full.assumptions, Assumption(HOSTILE, HOSTILE)),
        quantities=quantities,
        steps=tuple(replace(s, place=StepPlace(HOSTILE, HOSTILE), because=HOSTILE, rule=HOSTILE) for s in full.steps),
        coverage=tuple(replace(row, operator=HOSTILE, because=HOSTILE) for row in full.coverage),
        provenance={HOSTILE: HOSTILE},
        notes=(HOSTILE,),
        saved=tuple(
            replace(s, tensor=name, module_path=HOSTILE, dtype=HOSTILE, operator=HOSTILE, node=HOSTILE, because=HOSTILE, same_as=same_as)
            for s in full.saved
            for same_as in (None, SavedBefore(name, HOSTILE))
        ),
    )
    actual = live_bytes.timeline()
    actual = replace(
        actual,
        peak=replace(actual.peak, operator=HOSTILE, module_path=HOSTILE),
        alive=tuple(replace(a, role=HOSTILE, name=name) for a in actual.alive),
        landmarks=tuple((HOSTILE, replace(i, operator=HOSTILE, module_path=HOSTILE)) for _, i in actual.landmarks),
    )
    if actual.without_largest is not None:
        highest = replace(actual.without_largest.highest, operator=HOSTILE, module_path=HOSTILE)
        actual = replace(actual, without_largest=replace(actual.without_largest, highest=highest))
    levers = (PeakLever(StepChange({HOSTILE: HOSTILE}), 1, PeakPlace("backward", HOSTILE, HOSTILE), 1),)
    verdict = sample.Verdict(HOSTILE, 1, 2, HOSTILE, "failed", because=HOSTILE)
    roof = figure(drawings.rooflines((HOSTILE, *drawings.MODULE_PATHS[1:])))
    commands = (Command(HOSTILE, HOSTILE),)
    more = _more(levers, HOSTILE)
    return build(PageContent(derivation, sample.checks(verdict), compare(derivation), commands, timeline=actual, roof=roof, **more))
