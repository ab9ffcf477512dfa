"""Pages that tests of several writers read: the sample's, and one in which every name is hostile."""

from __future__ import annotations

from dataclasses import replace

from calc.derive.rules_of_thumb import compare
from calc.graph.step import Assumption
from reports.figures.roofline import figure
from reports.page.build import build
from reports.page.model import Command, Page
from tests.reports import drawings, live_bytes, sample

HOSTILE = '<script>alert(1)</script>"><img src=x onerror=alert(1)>|`**x**[l](javascript:1)$y$\x1b[31m\u202e\n# h ```\n'
COMMAND = Command("Make this report again:", "napkin report tiny-gpt -d B=2")


def page() -> Page:
    """The sample with checks and comparisons."""
    derivation = sample.derivation()
    commands, sizes = (COMMAND,), {"B": 2}
    return build(derivation, sample.checks(), compare(derivation), commands, sizes, timeline=live_bytes.timeline(), roof=drawings.roof())


def hostile() -> Page:
    """The sample with a planted name wherever a model, a spec or a tool brings text of its own."""
    full = sample.derivation()
    quantities = {
        name: replace(q, terms=tuple(replace(t, module_path=HOSTILE, because=HOSTILE) for t in q.terms), meaning=HOSTILE)
        for name, q in full.quantities.items()
    }
    derivation = replace(
        full,
        model=HOSTILE,
        source=HOSTILE,
        dims=tuple(replace(d, meaning=HOSTILE) for d in full.dims),
        options={"optimizer": HOSTILE},
        assumptions=(*full.assumptions, Assumption(HOSTILE, HOSTILE)),
        quantities=quantities,
        steps=tuple(replace(s, title=HOSTILE, because=HOSTILE, rule=HOSTILE) for s in full.steps),
        coverage=tuple(replace(row, operator=HOSTILE, because=HOSTILE) for row in full.coverage),
        provenance={HOSTILE: HOSTILE},
        notes=(HOSTILE,),
        saved=tuple(
            replace(s, tensor=HOSTILE, module_path=HOSTILE, dtype=HOSTILE, operator=HOSTILE, node=HOSTILE, because=HOSTILE, same_as=same_as)
            for s in full.saved
            for same_as in ("", HOSTILE)
        ),
    )
    found = live_bytes.timeline()
    found = replace(
        found,
        peak=replace(found.peak, operator=HOSTILE, module_path=HOSTILE),
        alive=tuple(replace(a, role=HOSTILE, name=HOSTILE) for a in found.alive),
        landmarks=tuple((HOSTILE, replace(i, operator=HOSTILE, module_path=HOSTILE)) for _, i in found.landmarks),
    )
    verdict = sample.Verdict(HOSTILE, 1, 2, HOSTILE, "failed", because=HOSTILE)
    roof = figure(drawings.found((HOSTILE, *drawings.SITES[1:])))
    return build(derivation, sample.checks(verdict), compare(derivation), (Command(HOSTILE, HOSTILE),), timeline=found, roof=roof)
