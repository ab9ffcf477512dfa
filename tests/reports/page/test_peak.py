"""The peak in a paragraph, and the changes that lower it."""

from __future__ import annotations

from dataclasses import replace

import calc
from calc.derive.result import Derivation
from calc.errors import BadInputError
from calc.hardware.accelerators import accelerator
from calc.memory.peak_levers import PeakLever, StepChange, changes, peak_levers
from calc.options import Options
from calc.pipeline import pipeline
from reports.page.model import PeakStory
from reports.page.peak import peak_story
from reports.writers import html
from tests.reports import live_bytes, pages, sample


def _story(levers: tuple[PeakLever, ...] = pages.LEVERS, gpu: str = "") -> PeakStory:
    story = peak_story(sample.derivation(), live_bytes.timeline(), levers, accelerator(gpu) if gpu else None)
    assert story is not None
    return story


def test_the_largest_parts_have_their_shares_of_the_peak() -> None:
    """The derivation has a peak of its own; the timeline's storages have 1,200, 2 · 300 and 25 bytes."""
    peak = sample.derivation()["memory.peak"].value
    assert peak is not None
    story = _story()

    assert story.parts.startswith("Its largest parts: mm at lm_head (1.20\u00a0kB, ")
    assert "2\u00a0× gelu at h.*.mlp (600\u00a0bytes, " in story.parts
    assert "at the start of the backward, after mm at lm_head." in story.when


def test_the_best_change_keeps_the_work_of_the_step() -> None:
    """Half the batch has the lowest peak here, but does half the work."""
    best = _story().best

    assert best.startswith("What lowers it most at this batch: activation checkpointing of every block, to 12.0\u00a0kB (")


def test_a_change_that_raises_the_peak_is_no_lever() -> None:
    """The table still has it."""
    story = _story((PeakLever(StepChange({"implementation": "foreach"}), 10**6, "optimizer", 1),))

    assert "At this batch, none of the changes below lowers it." == story.best
    assert "implementation foreach" == story.levers[0].change


def test_the_fit_is_that_of_the_named_device_or_of_80_gb() -> None:
    """A device of 80 GB = 80 · 10⁹ bytes where none is named."""
    assert "It fits a device of 80\u00a0GB (NVIDIA H100 SXM5 80GB)" in _story().fit
    assert "NVIDIA B300" in _story(gpu="b300").fit


def test_matmul_flops_that_are_unknown_are_called_so() -> None:
    """Never 0 and never blank."""
    assert "unknown" == _story().levers[2].matmul


def test_a_page_without_a_peak_tells_none() -> None:
    """Its tile says why."""
    derivation = sample.derivation()
    unknown = replace(derivation["memory.peak"], text=None, value=None, unknown="not derived")
    assert peak_story(replace(derivation, quantities={**derivation.quantities, "memory.peak": unknown}), None) is None


def test_the_tile_of_the_peak_leads_to_the_paragraph() -> None:
    """And the paragraph to the derivation."""
    text = html.write(pages.page())

    assert '<h2><a href="#peak">How much memory at the peak?</a></h2>' in text
    assert '<h2 id="peak">' in text


def test_changes_suit_the_step() -> None:
    """An odd batch is not halved; what a step does already is no change."""
    options = Options(precision="bf16", checkpointing="block", implementation="fused").to_json()

    assert [] == [*changes(options, {"B": 3})]
    assert [StepChange(sizes={"B": 2}), StepChange({"accumulation": "2"}, {"B": 2})] == [*changes(options, {"B": 4})]


def _derive(options: Options, sizes: dict[str, int]) -> Derivation:
    if options.precision != "fp32":
        raise BadInputError("refused here")
    return calc.derive(calc.load("mlp"), {**sizes}, **options.to_json())


def test_every_lever_has_the_peak_of_its_own_derivation() -> None:
    """A change that is refused is left out."""
    derivation = calc.derive(calc.load("mlp"))
    levers = peak_levers(derivation, _derive)

    assert levers
    assert not any("precision" in lever.change.options for lever in levers)
    for lever in levers:
        own = calc.derive(calc.load("mlp"), dict(lever.change.sizes), **{**derivation.options, **lever.change.options})
        assert (own["memory.peak"].value, lever.peak) == (lever.peak, own["memory.peak"].value)
    assert sorted(levers, key=lambda lever: lever.peak) == [*levers]


def test_the_bound_is_the_highest_instant_without_the_largest_tensors() -> None:
    """It is below the peak by no more than what those tensors hold there, and the same bytes of parameters remain."""
    live = pipeline.timeline(calc.derive(calc.load("mlp")))
    bound = live.without_largest

    assert bound is not None
    held = sum(a.total for a in live.alive if a.each == bound.each and a.role in ("activation", "temporary"))
    assert live.peak.total - held <= bound.highest.total < live.peak.total
    assert live.peak.live["parameter"] == bound.highest.live["parameter"]
