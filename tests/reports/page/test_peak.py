"""The peak in words, and the changes that lower it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import calc
from calc.derive.live_bytes import Alive
from calc.derive.names import PeakPlace, TensorName
from calc.derive.result import Candidate, Derivation, PartAddend, QuantityPart
from calc.errors import BadInputError
from calc.hardware.accelerators import accelerator
from calc.memory.peak_levers import PeakLever, StepChange, ZeroStage, changes, peak_levers, zero_stages
from calc.options import Options
from calc.pipeline import pipeline
from calc.spec import Spec
from reports.page.conventions import options_in_words
from reports.page.operator_words import in_words, place_in_words
from reports.page.peak import PeakStory, caption_of, caution, peak_story
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

    assert ("1.20\u00a0kB", "the output of the matmul (`mm`) at `lm_head`") == (story.parts[0].size, story.parts[0].words)
    assert ("600\u00a0bytes", "2\u00a0× the output of the GELU (`gelu`) at `h.*.mlp`") == (story.parts[1].size, story.parts[1].words)
    assert "at the start of the backward, after the matmul (`mm`) at `lm_head`" in story.when


_BACKWARD = PeakPlace("backward", "mm", "lm_head")


def _output(operator: str, module_path: str, part: str = "") -> TensorName:
    return TensorName(part, operator=operator, module_path=module_path)


def _parts(*alive: Alive, derivation: Derivation | None = None) -> list[str]:
    """The parts of a peak at which ``alive`` are live, without their shares."""
    story = peak_story(derivation or sample.derivation(), replace(live_bytes.timeline(), alive=alive))
    assert story is not None
    return [part.words for part in story.parts]


def _with_weights(**parts: tuple[str, ...]) -> Derivation:
    """The sample, whose parameters belong to these parts of the model."""
    full = sample.derivation()
    of_model = tuple(
        QuantityPart(part.replace("_", "-"), "0", 0, tuple(PartAddend(name, "elements", "0") for name in names))
        for part, names in parts.items()
    )
    return sample.derivation(quantities={**full.quantities, "parameters": replace(full["parameters"], parts=of_model)})


def test_weights_of_one_role_and_one_part_of_the_model_are_one_part() -> None:
    """Of 3 · 2 gradients of 7 bytes and 2 of 11 the first are the larger part. What weights are for follows from the model's parts, never
    from names: those called ``mlp`` here are experts, and those of an attention are no part with a name."""
    experts = [Alive("gradient", TensorName("gradient", f"h.*.mlp.{name}.weight"), 7, 2) for name in ("gate", "up", "down")]
    state = [Alive("optimizer state", TensorName(name, "x.*.attn.own.weight"), 11, 1) for name in ("exp_avg", "exp_avg_sq")]
    derivation = _with_weights(experts=tuple(f"h.*.mlp.{name}.weight" for name in ("gate", "up", "down")), own=("x.*.attn.own.weight",))

    assert [
        "the gradients of the expert weights (`h.*.mlp`, 6 tensors)",
        "the optimizer state of the weights (`x.*.attn`, 2 tensors)",
    ] == _parts(*state, *experts, derivation=derivation)


def test_weights_of_one_part_in_several_blocks_are_one_part() -> None:
    """Layers of two stacks, 2 · 7 bytes each, are together the feed-forward; a block's other weights are not."""
    names = [TensorName("gradient", f"{stack}.*.mlp.{name}.weight") for stack in "ab" for name in ("up", "norm")]
    alive = [Alive("gradient", name, 7, 2) for name in names]
    derivation = _with_weights(feed_forward=("a.*.mlp.up.weight", "b.*.mlp.up.weight"), norms=("a.*.mlp.norm.weight",))

    assert [
        "the gradients of the feed-forward weights (`{a,b}.*.mlp`, 4 tensors)",
        "the gradients of the weights (`b.*.mlp`, 2 tensors)",
        "the gradients of the norm weights (`a.*.mlp`, 2 tensors)",
    ] == _parts(*alive, derivation=derivation)


def test_one_weight_alone_is_named() -> None:
    """With all state of one parameter together."""
    assert ["the optimizer state of `w`"] == _parts(
        Alive("optimizer state", TensorName("exp_avg", "w"), 7, 1), Alive("optimizer state", TensorName("step", "w"), 4, 1)
    )
    assert ["the gradient of `head.weight`"] == _parts(Alive("gradient", TensorName("gradient", "head.weight"), 7, 1))


def test_where_no_part_is_large_results_of_one_operator_are_one() -> None:
    """Of convolutions in eleven modules each has a small part; together they have most."""
    peak = sample.derivation()["memory.peak"].value
    assert peak is not None
    alive = [Alive("activation", _output("convolution", f"layer{i}"), peak // 20 + i, 1) for i in range(11)]

    assert ["11 outputs of the convolution (`convolution`)", "the output of the ReLU (`relu`) at `last`"] == _parts(
        *alive, Alive("temporary", _output("relu", "last"), 5, 1)
    )


def test_results_of_equal_size_in_one_module_are_one_part() -> None:
    """Those of the loss make most of many peaks; a second output is named by its letter."""
    assert [
        "2 tensors of 70.0\u00a0kB each: the outputs of the loss's log-softmax (`log_softmax`) and `y` of the loss's ReLU (`relu`)"
    ] == _parts(
        Alive("activation", _output("log_softmax", "(loss)"), 70_000, 1), Alive("temporary", _output("relu", "(loss)", "y"), 70_000, 1)
    )


def test_outputs_of_one_operator_are_told_apart_by_their_roles() -> None:
    """The output of a forward's matmul and the gradient that another computes have one name."""
    assert ["2 tensors of 70.0\u00a0kB each: an activation and a temporary, outputs of the model's matmul (`mm`)"] == _parts(
        Alive("activation", _output("mm", "(model)"), 70_000, 1), Alive("temporary", _output("mm", "(model)"), 70_000, 1)
    )


@pytest.mark.parametrize(
    ("operator", "at", "words"),
    [
        ("_log_softmax_backward_data", "(loss)", "the backward of the loss's log-softmax (`_log_softmax_backward_data`)"),
        ("nll_loss_forward", "(loss)", "the loss's negative log-likelihood (`nll_loss_forward`)"),
        ("threshold_backward", "0.act", "the backward of the ReLU (`threshold_backward`) at `0.act`"),
        ("lerp_", "(optimizer)", "the optimizer's update of a moment (`lerp_`)"),
        ("embedding_dense_backward", "wte", "the backward of the embedding lookup (`embedding_dense_backward`) at `wte`"),
        ("empty_like", "wte", "the allocation of a tensor (`empty_like`) at `wte`"),
        ("bernoulli_", "drop", "the draw of random numbers (`bernoulli_`) at `drop`"),
        ("arange", "wpe", "the list of positions (`arange`) at `wpe`"),
        ("my_kernel", "a`b", "the operator `my_kernel` at `a'b`"),
        ("my_kernel_backward", "(model)", "the model's backward of `my_kernel` (`my_kernel_backward`)"),
    ],
)
def test_operators_of_the_paragraph_are_in_plain_words(operator: str, at: str, words: str) -> None:
    """The name of the operator stands beside them; one without words is named by its kind."""
    assert words == in_words(operator, at)


@pytest.mark.parametrize(
    ("at", "words"),
    [
        (
            PeakPlace("backward", "mm", "h.*.mlp", ", last iteration, call 2"),
            "backward, after the matmul (`mm`) at `h.*.mlp`, last iteration, call 2",
        ),
        (PeakPlace("forward", "add", "a`b, at"), "forward, after the sum (`add`) at `a'b, at`"),
    ],
)
def test_the_place_of_a_candidate_is_in_plain_words(at: PeakPlace, words: str) -> None:
    """Its iteration and its call follow; a comma in a name begins neither, and a backtick ends no name."""
    assert words == place_in_words(at)


def test_a_backtick_in_a_name_begins_no_code() -> None:
    """Neither in a parameter's name nor in a candidate's place."""
    line = live_bytes.timeline()
    named = replace(line, alive=(Alive("parameter", TensorName(owner="a`b"), 1_200, 1),))
    story = peak_story(sample.derivation(), named)

    assert story is not None
    assert "the parameter `a'b`" == story.parts[0].words


def test_zero_divides_its_roles_in_every_candidate() -> None:
    """Of 1,000 bytes with 800 of state, 900 with 80 and 32 of gradients: over 8 ranks, stage 1 leaves 200 + 100 and 820 + 10, stage 2
    also 28 of gradients less. The second candidate is then the peak."""
    full = sample.derivation()
    peak = replace(
        full["memory.peak"],
        value=1000,
        candidates=(
            Candidate("0", PeakPlace("optimizer", "add_", "w"), 1000, {}, {"optimizer state": 800, "activation": 200}),
            Candidate("0", _BACKWARD, 900, {}, {"optimizer state": 80, "gradient": 32, "activation": 788}),
        ),
    )
    derivation = sample.derivation(quantities={**full.quantities, "memory.peak": peak})

    assert (ZeroStage(1, 8, 830, _BACKWARD), ZeroStage(2, 8, 802, _BACKWARD)) == zero_stages(derivation)
    assert () == zero_stages(replace(derivation, options={**derivation.options, "mode": "infer"}))


def test_a_rank_updates_its_own_share_of_the_parameters() -> None:
    """Of 2,000 bytes in the optimizer step, 800 of state and 1,200 that the update allocates meanwhile are divided over 8 ranks; 900 in the
    backward keep the 100 bytes that it allocates."""
    full = sample.derivation()
    update = {"optimizer state": 800, "temporary": 1200}
    backward = {"optimizer state": 80, "temporary": 100, "activation": 720}
    peak = replace(
        full["memory.peak"],
        value=2000,
        candidates=(
            Candidate("0", PeakPlace("optimizer", "div", "w"), 2000, {}, update),
            Candidate("0", _BACKWARD, 900, {}, backward),
        ),
    )

    assert (ZeroStage(1, 8, 830, _BACKWARD),) == zero_stages(sample.derivation(quantities={**full.quantities, "memory.peak": peak}))


def test_changes_of_which_only_a_bound_is_known_say_at_least() -> None:
    """Those of ZeRO; a cross-entropy in chunks only where its log-softmax is the largest tensor."""
    rows = [row.title for row in _story().levers if row.derived is None]
    line = live_bytes.timeline()
    logits = replace(line, alive=(Alive("temporary", _output("log_softmax", "(loss)"), 1_200, 1), *line.alive[1:]))
    story = peak_story(sample.derivation(), logits)

    assert ["ZeRO-1 on 8 devices, at least"] == rows[:1]
    assert story is not None
    assert "cross-entropy in chunks of tokens, at least" == story.levers[0].title
    assert "1,050" == story.levers[0].peak.exact


def test_the_best_change_keeps_the_work_of_the_step() -> None:
    """Half the batch has the lowest peak here, but does half the work."""
    best = _story().best

    assert best.startswith("Activation checkpointing of every block, to 12.0\u00a0kB (")


def test_a_bound_below_the_best_change_is_mentioned_as_one() -> None:
    """Of ZeRO's stages only the lowest, of which the sample has 32,000 bytes; at 12,000 bytes of another change it is none."""
    fused = StepChange({"implementation": "fused"})
    best = _story((PeakLever(fused, 50_000, _BACKWARD, 1),)).best

    assert best.endswith("). ZeRO-3 on 8 devices (not below 32.0\u00a0kB) may lower it more.")
    assert "Perhaps" not in _story().best


def test_bf16_weights_come_with_what_they_do_to_the_training() -> None:
    """The bound is that of every bf16 number from 1 to 2: just below it an update is lost at all of them, at it not at 1."""
    lever = PeakLever(StepChange({"precision": "bf16"}), 50_000, _BACKWARD, 1)
    best = _story((lever,)).best
    weights = torch.arange(1, 2, 2**-7, dtype=torch.float64)
    lost = weights * 2**-9 * 0.999
    assert torch.equal(weights, weights.bfloat16().double())

    assert best.startswith("bf16 for everything, to ")
    assert "in bf16 an update below 2⁻⁹ of its weight is rounded away. ZeRO-" in best
    assert all(torch.equal((weights + sign * lost).bfloat16().double(), weights) for sign in (1, -1))
    assert not torch.equal((weights - weights * 2**-9 * 1.001).bfloat16().double(), weights)
    assert not caution(lever.change, replace(sample.derivation(), options={"mode": "infer"}))
    assert not caution(StepChange({"precision": "bf16-autocast"}), sample.derivation())


def test_micro_batches_come_with_what_they_do_to_batch_norm() -> None:
    """Two halves of a batch have other means than the whole, so a real batch norm returns other numbers; a layer norm does not."""
    x = torch.arange(8.0).reshape(4, 2) ** 2
    halves = StepChange({"accumulation": "2"}, {"B": 2})
    row = replace(sample.derivation().coverage[0], operator="aten.native_batch_norm.default")
    normalized = replace(sample.derivation(), coverage=(row,))

    assert not torch.allclose(nn.BatchNorm1d(2)(x), torch.cat([nn.BatchNorm1d(2)(half) for half in x.chunk(2)]))
    assert torch.allclose(nn.LayerNorm(2)(x), torch.cat([nn.LayerNorm(2)(half) for half in x.chunk(2)]))
    assert "It also changes the training: batch norm then normalizes by the mean and variance of 2 examples." == caution(halves, normalized)
    assert "" == caution(halves, sample.derivation())


def test_a_change_that_raises_the_peak_is_no_lever() -> None:
    """The table still has it."""
    story = _story((PeakLever(StepChange({"implementation": "foreach"}), 10**6, _BACKWARD, 1),))

    assert story.best.startswith("None of the changes below whose peak is derived exactly. ZeRO-3")
    assert "implementation foreach" == story.levers[0].change


def test_the_fit_is_that_of_the_named_device_or_of_80_gb() -> None:
    """A device of 80 GB = 80 · 10⁹ bytes where none is named."""
    assert _story().fit.startswith("Yes: one NVIDIA H100 SXM5 80GB has 80.0\u00a0GB left")
    assert "NVIDIA B300" in _story(gpu="b300").fit


def test_a_peak_by_the_kernels_of_a_cpu_says_so_where_an_nvidia_gpu_is_meant() -> None:
    """Which may run others; of the devices of other vendors nothing is derived."""
    on_cuda = replace(sample.derivation(), options={**sample.derivation().options, "kernels": "cuda"})
    story = peak_story(on_cuda, live_bytes.timeline())

    assert _story().kernels.endswith("This is the peak with CPU kernels; --kernels cuda derives the peak with GPU kernels.")
    assert story is not None
    assert story.kernels == _story(gpu="mi300x").kernels == ""


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


@pytest.mark.parametrize(
    ("precision", "mode", "lower"),
    [
        ("fp32", "train", ["bf16-autocast", "bf16"]),
        ("bf16-autocast", "train", ["bf16"]),
        ("fp32", "infer", ["bf16"]),
        ("bf16", "train", []),
    ],
)
def test_a_lower_precision_is_a_change_where_there_is_one(precision: str, mode: str, lower: list[str]) -> None:
    options = Options(precision=precision, mode=mode).to_json()

    assert lower == [change.options["precision"] for change in changes(options, {"B": 3}) if "precision" in change.options]


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


def test_a_caption_explains_bounds_where_there_are_any() -> None:
    """An inference has none: no cross-entropy, and nothing to divide among devices."""
    derived = [row for row in _story().levers if row.derived is not None]
    bounded = replace(derived[0], derived=None)

    assert derived
    assert caption_of(derived) == "Changes of this step and the peak that each leads to"
    assert ". “At least” marks a lower bound: " in caption_of([*derived, bounded])


def test_the_bound_is_the_highest_instant_without_the_largest_tensors() -> None:
    """It is below the peak by no more than what those tensors hold there, and the same bytes of parameters remain."""
    live = pipeline.timeline(calc.derive(calc.load("mlp")))
    bound = live.without_largest

    assert bound is not None
    held = sum(a.total for a in live.alive if a.each == bound.each and a.role in ("activation", "temporary"))
    assert live.peak.total - held <= bound.highest.total < live.peak.total
    assert live.peak.live["parameter"] == bound.highest.live["parameter"]


@pytest.mark.parametrize(
    ("attend", "kernel"),
    [
        (lambda x: torch.nn.functional.scaled_dot_product_attention(*[x.unsqueeze(1)] * 3), True),
        (lambda x: (x @ x.transpose(1, 2)).softmax(-1) @ x, False),
    ],
)
def test_attention_without_a_kernel_is_not_called_fused(attend: Callable[[torch.Tensor], torch.Tensor], kernel: bool) -> None:
    """T5 multiplies query keyᵀ itself: the kernel that an option chooses runs nowhere in it."""
    spec = calc.Spec(
        name="attention",
        dims={"B": 2, "T": 4, "d": 8},
        build=lambda n: torch.nn.ModuleList([torch.nn.Linear(n.d, n.d)]),
        inputs=lambda n: (torch.randn(n.B, n.T, n.d),),
        loss=lambda model, x: attend(model[0](x)).square().mean(),
    )

    assert kernel == ("attention fused" in options_in_words(calc.derive(spec)))


def test_the_largest_term_of_a_peak_in_a_rounded_quotient_has_its_share() -> None:
    """A width that is halved and rounded down is a factor of the closed form as it stands."""

    def build(n: Any) -> nn.Module:
        return nn.Sequential(nn.Linear(n.f, n.f // 2), nn.Linear(n.f // 2, n.f))

    s = Spec("halved", {"B": 3, "f": 7}, build, lambda n: (torch.randn(n.B, n.f),), lambda module, x: module(x).sum())
    derivation = calc.derive(s, cache=False, optimizer="sgd")
    story = peak_story(derivation, None)

    assert "floor" in str(derivation["memory.peak"].text)
    assert story is not None
    assert story.term is not None
    assert "%" in story.term_share
