"""Questions of sharding: state by the stage of ZeRO, traffic as the layouts' own account has it, the fewest ranks that fit."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from calc.capacity.questions import ask, layout_solver
from calc.capacity.sharding import Account, Layout, account, decoder, machine_of, state_of
from calc.capacity.sharding.request import shard
from calc.errors import BadInputError
from calc.hardware.accelerators import accelerator
from reports.cli import napkin

SIZES = {"L": 12, "d": 48, "h": 12, "g": 4, "k": 4, "f": 96, "V": 504, "T": 240}
EXPERTS = {**SIZES, "E": 8, "e": 3}


def refusal(question: str, **given: Any) -> str:
    with pytest.raises(BadInputError) as caught:
        ask(question, **given)
    return str(caught.value)


# -- state -----------------------------------------------------------------------------------------------------------------------------


def test_devices_are_data_ranks_times_tensor_ranks_times_stages() -> None:
    """64/(4·2) = 8 data ranks; (2 + 2 + 12)/8 bytes of each of 7e9/(4·2) parameters."""
    answer = ask("sharding", parameters="7e9", devices=64, tensor=4, pipeline=2, zero=3)
    assert ask("sharding", parameters="7e9", devices=64, tensor=4, pipeline=2, data=8, zero=3).value == answer.value

    assert (8, Fraction(16, 8) * Fraction(7 * 10**9, 8)) == (answer["n"], answer.value)


@pytest.mark.parametrize(("stage", "fewest"), [("3", 14), ("2", 108)])
def test_the_fewest_ranks_are_rounded_to_the_side_that_fits(stage: str, fewest: int) -> None:
    """16·10e9/n ≤ 11.5e9 from n = 14 on. In stage 2, 2·5e9 + 14·5e9/n ≤ 10.65e9 from n = 70/0.65 = 107.7 on."""
    parameters, memory = ("10e9", "11.5e9") if stage == "3" else ("5e9", "10.65e9")
    answer = ask("fewest-ranks", parameters=parameters, memory=memory, zero=stage)

    assert answer.value == fewest
    assert answer.bound is not None
    assert answer.bound.value <= answer.bound.limit < answer.bound.further_value


def test_where_no_number_of_ranks_is_enough_it_is_said() -> None:
    """Stage 1 leaves weights and gradients whole, 4·70e9 bytes; with stage 0 the number changes nothing."""
    whole = {"parameters": "70e9", "memory": "80e9"}

    assert refusal("fewest-ranks", **whole, zero=1) == (
        "no number of data-parallel ranks is enough: memory stays above 280 GB, and memory = 80 GB is given"
    )
    assert refusal("sharding", **whole, solve="data") == (
        "memory is 1.12 TB with any number of data-parallel ranks, and memory = 80 GB is given"
    )


@pytest.mark.parametrize(("question", "given", "said"), [
    ("sharding", {"parameters": "7e9", "devices": 10, "tensor": 4},
     "devices = 10 is not a multiple of 4 tensor ranks times 1 stages: give one that is"),
    ("sharding", {"parameters": "7e9", "devices": 64, "data": 8},
     "data 8 * tensor 1 * pipeline 1 is not devices = 64: the ranks multiply to the devices"),
    ("sharding", {"parameters": "7e9", "data": "1e10"}, "10e9 devices are more than all 7e9 parameters"),
    ("context-traffic", {"layers": 2, "kv_heads": 8, "head_width": 16, "sequence": 16, "context": 17},
     "17 context ranks are more than the 16 tokens of a sequence"),
    ("pipeline-bubble", {"pipeline": 1, "micro_batches": 4}, "one stage has no bubble: give two or more"),
    ("tensor-traffic", {"layers": 2, "width": 8, "sequence": 16, "tensor": 1}, "one tensor rank exchanges nothing: give two or more"),
    ("sharding", {"parameters": "7e9", "data": 8, "zero": 4}, "unknown zero '4': use one of 0, 1, 2, 3"),
    ("sharding", {"parameters": "7e9", "data": 0}, "data = 0 must be more than 0"),
    ("sharding", {"parameters": "7e9", "data": "1.5"}, "data = '1.5' is not an integer number of ranks"),
])  # fmt: skip
def test_what_cannot_be_divided_is_refused(question: str, given: dict[str, Any], said: str) -> None:
    assert refusal(question, **given) == said


def test_memory_that_is_asked_for_is_compared_with_the_device() -> None:
    """16·70e9/8 bytes are more than an H100 has; 16·7e9/8 fit."""
    large, small = (ask("sharding", parameters=n, data=8, zero=3, gpu="h100-sxm") for n in ("70e9", "7e9"))

    assert large.flags == ("it does not fit: 140 GB are needed, and NVIDIA H100 SXM5 80GB has 80 GB",)
    assert (small.flags, "it fits: NVIDIA H100 SXM5 80GB has 80 GB" in small.notes) == ((), True)


def test_a_document_may_ask(tmp_path: Path) -> None:
    """Memory in stage 3 of ZeRO, the bytes sent, which are no step to it, and the devices."""
    text = (
        "```napkin\nask sharding parameters=7.5e9 data=64 zero=3 as z\n```\n"
        "1.875 GB<!--= z.answer -->, 44.3 GB<!--= z.X -->, 64 devices<!--= z.G -->\n"
    )
    (tmp_path / "plan.md").write_text(text)
    right = CliRunner().invoke(napkin, ["verify", str(tmp_path / "plan.md")])
    (tmp_path / "plan.md").write_text(text.replace("44.3", "29.5"))
    wrong = CliRunner().invoke(napkin, ["verify", str(tmp_path / "plan.md")])

    assert (right.exit_code, wrong.exit_code) == (0, 1)
    assert "z.X = 44.3 GB, exactly 44,296,875,000 bytes, document says 29.5 GB" in wrong.output


# -- traffic: the questions and the account of layouts, which is checked against real ranks, say the same -----------------------------


def worked(sizes: dict[str, int], **layout: int | str) -> Account:
    return account(decoder(sizes), Layout(**layout), state_of())


def sent(sizes: dict[str, int], axis: str, **layout: int | str) -> Fraction:
    """What a layer more adds, times the layers: without what the ends send."""
    more, actual = ({**sizes, "L": layers} for layers in (2 * sizes["L"], sizes["L"]))
    amounts = [
        sum(
            (item.sent for item in worked(s, **layout).stages[0].traffic if item.collective.axis == axis and not item.collective.once),
            Fraction(0),
        )
        for s in (more, actual)
    ]
    return amounts[0] - amounts[1]


@pytest.mark.parametrize("sequence", ["off", "saved", "regather"])
def test_tensor_traffic_is_that_of_the_layers_of_a_layout(sequence: str) -> None:
    answer = ask("tensor-traffic", layers=12, width=48, sequence=240, batch=3, tensor=4, sequence_parallel=sequence)

    assert answer.value == sent(SIZES, "tensor", tensor=4, sequence=sequence, micro=3)
    because = next(line.because for line in answer.calculation.steps if line.symbol == "X")
    assert (": 2·(t − 1)/t of each all-reduce leaves a rank" in because) == (
        sequence == "off"
    )  # an all-reduce is a scattering and a gathering


@pytest.mark.parametrize("exchange", ["ring", "gather"])
def test_context_traffic_is_that_of_a_layout(exchange: str) -> None:
    answer = ask("context-traffic", layers=12, kv_heads=4, head_width=4, sequence=240, batch=3, context=5, exchange=exchange)

    assert answer.value == sent(SIZES, "context", context=5, exchange=exchange, micro=3)


def test_expert_traffic_is_that_of_a_layout() -> None:
    answer = ask("expert-traffic", layers=12, width=48, sequence=240, batch=3, expert=4, experts_per_token=3)

    assert answer.value == sent(EXPERTS, "expert", expert=4, micro=3)


def test_pipeline_traffic_is_that_of_a_stage_in_the_middle() -> None:
    """2 pieces a stage, 8 micro-batches of 3 sequences: 24 of a step."""
    answer = ask("pipeline-traffic", width=48, sequence=240, batch=24, interleave=2)
    traffic = worked(SIZES, pipeline=3, interleave=2, micro=3, batch=27).stages[1].traffic

    assert answer.value * Fraction(27, 24) == sum(item.sent for item in traffic if item.collective.axis == "pipeline")


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_traffic_of_data_ranks_is_that_of_so_many_parameters(zero: int) -> None:
    """1200 parameters divide by 8; 3 micro-batches, which change nothing in stages 0 and 1."""
    answer = ask("sharding", parameters=1200, data=8, zero=zero, **({"micro_batches": 3} if zero > 1 else {}))
    laid_out = shard(None, {"parameters": "1200", "data": "8", "zero": str(zero), "batch": "24"}, lambda _: None)

    assert answer["X"] == sum(item.sent for item in laid_out.stages[0].traffic)
    assert answer.value == laid_out.memory - 4  # the step counter of the one tensor


def test_the_bubble_is_that_of_a_layout() -> None:
    """(4 - 1)/(2·8); ten per cent of waiting over working need 70 micro-batches on 8 stages."""
    machine = machine_of(accelerator("h100-sxm"))
    step = account(decoder(SIZES), Layout(pipeline=4, interleave=3, batch=8), state_of(), machine).step
    assert step is not None

    assert ask("pipeline-bubble", pipeline=4, interleave=3, micro_batches=8).value == Fraction(3, 24) == step["beta"]
    assert ask("pipeline-bubble", pipeline=8, bubble="0.1", solve="micro-batches").value == 70
    most = ask("pipeline-bubble", micro_batches=4, waiting="45%", solve="pipeline")  # 3/7 of the step wait with 4 stages, 4/8 with 5
    assert most.bound is not None
    assert (most.value, most.bound.further_value, most.bound.keeps_below) == (4, Fraction(1, 2), True)


# -- a model ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_model_is_laid_out_as_napkin_shard_has_it() -> None:
    """Memory to the byte, with activations; even division of the state alone beside it."""
    answer = ask("sharding", model="gpt2", data=8, zero=3, T=256)
    laid_out = shard("gpt2", {"data": "8", "zero": "3", "T": "256"}, lambda _: None)

    assert answer.value == laid_out.memory == sum(row.value for row in answer.rows if row.because == "on each device")
    assert "includes activations of micro-batches of 1 (micro=… changes that) and the tensors that ZeRO gathers temporarily" in answer.notes
    four = ask("sharding", model="gpt2", data=8, zero=3, T=256, micro=4, micro_batches=2)
    assert four.value == shard("gpt2", {"data": "8", "zero": "3", "T": "256", "micro": "4", "batch": "64"}, lambda _: None).memory
    assert answer.rule_of_thumb is not None
    assert answer.rule_of_thumb.value == 16 * Fraction(124439808, 8)


@pytest.mark.slow
@pytest.mark.parametrize("words", [{"data": "8", "micro": "2", "batch": "64", "zero": "2"}, {"data": "4", "tensor": "2", "batch": "12"}])
def test_words_of_a_layout_mean_the_same_as_in_napkin_shard(words: dict[str, str]) -> None:
    """micro are the sequences of a micro-batch and batch those of a step: memory and bytes sent are the same integers."""
    answer = ask("sharding", model="gpt2", T=64, **words)
    laid_out = shard("gpt2", {**words, "T": "64"}, lambda _: None)

    assert answer.value == laid_out.memory
    assert {row.label: row.value for row in answer.also}["bytes that each device sends in a step"] == sum(
        (item.sent for item in laid_out.fullest.traffic), Fraction(0)
    )


@pytest.mark.slow
def test_data_ranks_of_a_given_batch_divide_it() -> None:
    """No 5 ranks have as many of 12 sequences each: the fewest are found among 1, 2, 3, 4, 6 and 12, with the next fewer."""
    of = {"model": "gpt2", "T": 64, "zero": 3, "batch": 12}
    memory = {n: int(ask("sharding", data=n, **of).value) for n in (1, 2, 3, 4, 6, 12)}
    answer = ask("sharding", memory=memory[6], solve="data", **of)

    assert answer.value == 6
    assert answer.bound is not None
    assert (answer.bound.value, answer.bound.further, answer.bound.further_value) == (memory[6], 4, memory[4])
    assert sorted(memory.values(), reverse=True) == list(memory.values())


@pytest.mark.slow
def test_what_a_number_leaves_out_is_not_said_of_a_model() -> None:
    """Step counters and what is gathered for a moment are in a model's own bytes."""
    number, model = ask("sharding", parameters="1e9", zero=3), ask("sharding", model="gpt2", zero=3, T=64)
    left_out = {
        "step counters of the optimizer, 4 bytes a tensor, are not counted",
        "one or two unsharded layers, and the gradients of one, come on top",
    }

    assert left_out <= set(number.notes)
    assert not left_out & set(model.notes)


@pytest.mark.slow
@pytest.mark.parametrize(("key", "rest"), [("data", {"zero": 3}), ("tensor", {}), ("pipeline", {"tensor": 2})])
def test_the_fewest_ranks_of_a_model_are_the_first_that_fit(key: str, rest: dict[str, int]) -> None:
    """One fewer, of those that the model allows, does not; the memory asked for leads back to them."""
    memory = {"data": 8 * 10**8, "tensor": 12 * 10**8, "pipeline": 7 * 10**8}[key]
    answer = ask("sharding", model="gpt2", T=64, memory=memory, solve=key, **rest)
    number = int(answer.value)

    assert answer.bound is not None
    assert answer.bound.value <= memory < answer.bound.further_value
    assert ask("sharding", model="gpt2", T=64, **rest, **{key: number}).value == answer.bound.value
    assert ask("sharding", model="gpt2", T=64, **rest, **{key: answer.bound.further}).value == answer.bound.further_value


@pytest.mark.slow
@pytest.mark.parametrize(("given", "said"), [
    ({"data": 8, "parameters": "7e9"}, "parameters follows from model=gpt2: leave it out"),
    ({"tensor": 5}, "tensor = 5 does not divide the 12 heads: use a divisor of 12"),
    ({"devices": 9, "tensor": 2}, "devices = 9 is not a multiple of 2, tensor ranks times stages: give one that is"),
    ({"solve": "data"}, "sharding needs memory (memory that a device needs, or gpu=…)"),
    ({"memory": "1e9", "solve": "devices"}, "with a model, sharding can be solved for memory, data, tensor or pipeline"),
    ({"batch": 8, "micro_batches": 2}, "micro-batches follow from batch, the sequences of a step: leave one of them out"),
    ({"B": 8}, "B follows from the layout: micro is the number of sequences per rank and micro-batch, batch that of a whole step"),
    ({"data": 3, "batch": 8}, "batch = 8 "),
    ({"memory": "7e6", "zero": 3, "solve": "data", "T": 64}, "no number of data-parallel ranks is enough: with 16,777,216 a device needs "),
])  # fmt: skip
def test_what_a_model_cannot_have_is_refused(given: dict[str, Any], said: str) -> None:
    assert refusal("sharding", model="gpt2", **given).startswith(said)


@pytest.mark.slow
def test_a_planted_error_in_the_search_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """One rank too few: its memory is more than was given."""
    right = layout_solver.LayoutSolver._least
    monkeypatch.setattr(layout_solver.LayoutSolver, "_least", lambda self, *given: (right(self, *given)[0] - 1, right(self, *given)[1]))
    answer = ask("sharding", model="gpt2", T=64, memory=8 * 10**8, zero=3, solve="data")

    assert answer.bound is not None
    assert answer.bound.value > answer.bound.limit
