"""Every model of the zoo, derived once and run for real at two sets of sizes: what can be measured is equal, to the last integer."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

import calc
from calc.pipeline.check import Report
from calc.pipeline.verdict import EXACT, IN_PARTS, NOT_MEASURED, Verdict
from calc.spec import Spec
from tests.zoo import ZOO, Exhibit
from tests.zoo.exhibit import FIRST_PEAK

# `make test` takes this part of the zoo; models that take seconds wait for `make test-all`.
SHARE = 0.03
QUICK = frozenset(random.Random(0).sample([name for name, exhibit in ZOO.items() if not exhibit.slow], round(SHARE * len(ZOO))))

# Totals that hold attention's products, which no torch counter sees inside a fused kernel.
ATTENTION_TOTALS = frozenset(
    ("flops.forward.matmul", "flops.forward.total", "flops.backward.matmul", "flops.backward.total", "flops.step.total")
)
NO_INSTRUMENT = frozenset(("flops.forward.causal", "flops.backward.causal", "flops.backward.recompute"))


def _exhibits() -> Iterator[Any]:
    for name, exhibit in ZOO.items():
        yield pytest.param(exhibit, id=name, marks=[] if name in QUICK else [pytest.mark.slow])


@pytest.mark.parametrize("exhibit", list(_exhibits()))
def test_every_quantity_of_a_model_is_exact(exhibit: Exhibit) -> None:
    """Nothing fails; only products inside fused attention are measured one by one, and only what has no instrument is not measured."""
    spec, options = exhibit.kept(), exhibit.options
    derivation = calc.derive(spec, exhibit.sizes, **options.to_json())

    reports = [calc.check(derivation, **_free(spec, sizes)) for sizes in (exhibit.sizes, exhibit.other)]

    assert derivation.steps  # each is checked when it is made
    assert [] == [f"{r.sizes} {v}" for r in reports for v in r.verdicts if v.verdict != _expected(v, r, exhibit)]


def _free(spec: Spec, given: Any) -> dict[str, int]:
    """All sizes of the run but those that follow from others."""
    return {name: size for name, size in spec.sizes(given).items() if not spec.dimensions[name].tied}


def _expected(verdict: Verdict, report: Report, exhibit: Exhibit) -> str:
    runs_again = verdict.quantity == "flops.backward.recompute" and verdict.measured is not None
    alike = verdict.quantity in FIRST_PEAK and verdict.verdict == EXACT  # both steps happen to have the same counts
    if verdict.quantity in NO_INSTRUMENT | exhibit.unmeasured and not runs_again and not alike:
        return NOT_MEASURED
    return IN_PARTS if verdict.quantity in ATTENTION_TOTALS and _runs_fused_attention(report) else EXACT


def _runs_fused_attention(report: Report) -> bool:
    because = report["flops.forward.matmul"].because
    return any(fused in because for fused in ("flash_attention", "multi_head_attention", "encoder_layer_fwd"))


def test_sizes_differ_in_every_dimension() -> None:
    """Where a size were the same in both runs, a closed form could be wrong in it; equal sizes in one run would hide a swap."""
    for exhibit in ZOO.values():
        spec = exhibit.make()
        first, other = spec.sizes(exhibit.sizes), spec.sizes(exhibit.other)

        assert {} == {d: size for d, size in first.items() if other[d] == size}, exhibit.name
        assert len(first) == len(set(first.values())), exhibit.name
