"""The peak in a paragraph, and the changes that lower it."""

from __future__ import annotations

from dataclasses import replace

import pytest

import calc
from calc.derive.live_bytes import Alive
from calc.derive.result import Candidate, Derivation
from calc.errors import BadInputError
from calc.hardware.accelerators import accelerator
from calc.memory.peak_levers import PeakLever, StepChange, ZeroStage, changes, peak_levers, zero_stages
from calc.options import Options
from calc.pipeline import pipeline
from reports.page.model import PeakStory
from reports.page.operator_words import in_words
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

    assert story.parts.startswith("Its largest parts: the output of the matmul (`mm`) at `lm_head` (1.20\u00a0kB, ")
    assert "2\u00a0× the output of the GELU (`gelu`) at `h.*.mlp` (600\u00a0bytes, " in story.parts
    assert "at the start of the backward, after the matmul (`mm`) at `lm_head`." in story.when


@pytest.mark.parametrize(
    ("operator", "at", "words"),
    [
        ("_log_softmax_backward_data", "(loss)", "the backward of the loss's log-softmax (`_log_softmax_backward_data`)"),
        ("nll_loss_forward", "(loss)", "the loss's negative log-likelihood (`nll_loss_forward`)"),
        ("threshold_backward", "0.act", "the backward of the ReLU (`threshold_backward`) at `0.act`"),
        ("lerp_", "(optimizer)", "the optimizer's update of a moment (`lerp_`)"),
        ("my_kernel", "a`b", "`my_kernel` at `a'b`"),
    ],
)
def test_operators_of_the_paragraph_are_in_plain_words(operator: str, at: str, words: str) -> None:
    """The name of the operator stands beside them; one without words is named alone."""
    assert words == in_words(operator, at)


def test_a_backtick_in_a_name_begins_no_code() -> None:
    """Neither in a parameter's name nor in a candidate's place."""
    line = live_bytes.timeline()
    named = replace(line, alive=(Alive("parameter", "a`b", 1_200, 1),))
    story = peak_story(sample.derivation(), named)

    assert story is not None
    assert "a'b" in story.parts


def test_zero_divides_its_roles_in_every_candidate() -> None:
    """Of 1,000 bytes with 800 of state, 900 with 80 and 32 of gradients: over 8 ranks, stage 1 leaves 200 + 100 and 820 + 10, stage 2
    also 28 of gradients less. The second candidate is then the peak."""
    full = sample.derivation()
    peak = replace(
        full["memory.peak"],
        value=1000,
        candidates=(
            Candidate("0", "optimizer", 1000, {}, {"optimizer state": 800, "activation": 200}),
            Candidate("0", "backward", 900, {}, {"optimizer state": 80, "gradient": 32, "activation": 788}),
        ),
    )
    derivation = sample.derivation(quantities={**full.quantities, "memory.peak": peak})

    assert (ZeroStage(1, 8, 830, "backward"), ZeroStage(2, 8, 802, "backward")) == zero_stages(derivation)
    assert () == zero_stages(replace(derivation, options={**derivation.options, "mode": "infer"}))


def test_changes_of_which_only_a_bound_is_known_say_at_least() -> None:
    """Those of ZeRO; a cross-entropy in chunks only where its log-softmax is the largest tensor."""
    rows = [row.change for row in _story().levers if "at least" in row.change]
    line = live_bytes.timeline()
    logits = replace(line, alive=(Alive("temporary", "log_softmax at (loss)", 1_200, 1), *line.alive[1:]))
    story = peak_story(sample.derivation(), logits)

    assert ["ZeRO-1 on 8 devices, at least"] == rows[:1]
    assert story is not None
    assert "cross-entropy in chunks of tokens, at least" == story.levers[0].change
    assert "1,050" == story.levers[0].peak.exact


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
