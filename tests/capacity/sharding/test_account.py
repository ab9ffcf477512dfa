"""Layouts worked out: what is divided adds up to the whole, one device changes nothing, and what cannot be is refused in one line."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc.capacity.sharding import GivenRates, Layout, ShardedModel, State, account, decoder, layout_of, machine_of, state_of
from calc.capacity.sharding.account import by_axis
from calc.capacity.sharding.request import read_model
from calc.capacity.sharding.search import parts_of_step
from calc.errors import BadInputError
from calc.hardware.accelerators import accelerator

SIZES = {"L": 12, "d": 46, "h": 12, "g": 4, "k": 8, "f": 204, "V": 503, "T": 240}
LLAMA = decoder(SIZES)
EXPERTS = decoder({**SIZES, "E": 6, "e": 2})
GPT = decoder({"L": 3, "d": 24, "h": 4, "V": 101, "T": 16, "C": 32}, gated=False, bias=True, tied=True, dropout=True, attention="math")
STATE = state_of("bf16-master", "adamw")
BARE = State(2, 2, 8, 4, "without counters")
H100 = machine_of(accelerator("h100-sxm"))

# A layer: (12*8 + 12*8)*46 of queries and output, 2*(4*8)*46 of keys and values, 3*46*204, 2*46 of norms.
OF_A_LAYER = 2 * 96 * 46 + 2 * 32 * 46 + 3 * 46 * 204 + 2 * 46
OUTSIDE = 2 * 503 * 46 + 46


def worked(model: ShardedModel, state: State = STATE, **words: int | str):
    return account(model, layout_of(words), state)


def shard_model(number: str) -> ShardedModel:
    """So many parameters, as the words of ``napkin shard`` give them."""
    return read_model(None, {"parameters": number}, 1, lambda _: None)[0]


def test_one_device_holds_all_parameters() -> None:
    """16 bytes each, and 4 a tensor of step counters: 9 tensors a layer and 3 outside."""
    kinds = worked(LLAMA).fullest.kinds

    number = 12 * OF_A_LAYER + OUTSIDE
    assert {name: kinds[name] for name in ("weights", "gradients", "optimizer", "master")} == {
        "weights": 2 * number,
        "gradients": 2 * number,
        "optimizer": 8 * number + 4 * (12 * 9 + 3),
        "master": 4 * number,
    }


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_every_stage_of_zero_on_one_device_is_no_division(zero: int) -> None:
    """Nothing is cut, gathered or sent."""
    alone, divided = worked(LLAMA), worked(LLAMA, zero=zero)

    assert alone.fullest.kinds == divided.fullest.kinds
    assert () == divided.stages[0].traffic


@given(
    data=st.integers(1, 9),
    tensor=st.sampled_from([1, 2, 4, 12]),
    pipeline=st.sampled_from([1, 2, 3, 7]),
    zero=st.integers(0, 3),
    sequence=st.sampled_from(["off", "saved", "regather"]),
    checkpointing=st.sampled_from(["none", "block"]),
)
def test_kinds_add_up_to_the_memory_of_every_stage(
    data: int, tensor: int, pipeline: int, zero: int, sequence: str, checkpointing: str
) -> None:
    """And the fullest stage is the layout's memory."""
    sequence = sequence if tensor > 1 else "off"
    account = worked(
        LLAMA, data=data, tensor=tensor, pipeline=pipeline, zero=zero, sequence=sequence, checkpointing=checkpointing, batch=6 * data
    )

    assert all(sum(stage.kinds.values()) == stage.total for stage in account.stages)
    assert max(stage.total for stage in account.stages) == account.memory


@given(data=st.integers(2, 23), zero=st.sampled_from([1, 2, 3]))
def test_optimizer_state_of_all_ranks_is_the_state_of_one_device(data: int, zero: int) -> None:
    """Whether rows divide or not: pieces without their filling are the whole, cut."""
    ranks = [worked(LLAMA, BARE, data=data, zero=zero, rank=rank).fullest.kinds["optimizer"] for rank in range(data)]

    assert worked(LLAMA, BARE).fullest.kinds["optimizer"] == sum(ranks)
    assert max(ranks) == ranks[0]


def test_stages_two_and_three_of_zero_hold_a_unit_whole() -> None:
    """2 bytes each of the gradients of what is outside the layers, which is more than a layer; stage 3 also gathers the weights of that and
    of 2 layers."""
    kinds = [worked(LLAMA, data=4, zero=zero).fullest.kinds for zero in range(4)]

    assert [0, 0, 2 * OUTSIDE, 2 * OUTSIDE] == [each.get("unreduced", 0) for each in kinds]
    assert [0, 0, 0, 2 * (OUTSIDE + 2 * OF_A_LAYER)] == [each.get("gathered", 0) for each in kinds]


def test_a_price_that_is_given_replaces_the_published_one() -> None:
    machine = machine_of(accelerator("h100-sxm"), given=GivenRates(price=Fraction(7, 2)))

    assert (Fraction(7, 2), "as given") == (machine.price, machine.price_source)
    assert machine.price_source != H100.price_source != ""


def test_pieces_are_those_of_the_rows_not_of_the_elements() -> None:
    """503 rows in 4 are 126, 126, 126 and 125; 46 rows are 12, 12, 12 and 10; a quarter of the elements would be less for the first."""
    fullest = worked(LLAMA, BARE, data=4, zero=3).fullest

    of_a_layer = ceil(96 / 4) * 46 + 2 * ceil(32 / 4) * 46 + 12 * 96 + 2 * 51 * 46 + 12 * 204 + 2 * 12
    assert 12 * of_a_layer + 2 * 126 * 46 + 12 == fullest.calculation["S"]
    assert fullest.calculation["S"] > Fraction(fullest.calculation["N"], 4)


def test_tensor_ranks_that_outnumber_key_heads_keep_one_each() -> None:
    """12 ranks, 4 key/value heads: queries are divided by 12, keys and values by 4 only."""
    calculation = worked(LLAMA, BARE, tensor=12).fullest.calculation

    assert 2 * 8 * 46 + 2 * 8 * 46 + 3 * 46 * 17 + 2 * 46 == calculation["Nl"]
    assert 2 * ceil(503 / 12) * 46 + 46 == calculation["No"]


def test_experts_are_divided_among_their_ranks_and_the_rest_is_not() -> None:
    """6 experts on 3 ranks; the router is on each."""
    calculation = worked(EXPERTS, BARE, expert=3).fullest.calculation

    assert 2 * 3 * 46 * 204 == calculation["Ne"]
    assert OF_A_LAYER - 3 * 46 * 204 + 6 * 46 == calculation["Nl"]


def test_stages_of_a_pipeline_hold_all_layers_and_both_ends() -> None:
    """Of three stages with 4 layers each, the first has the table, the last the head and its norm."""
    first, inner, last = (stage.calculation for stage in worked(LLAMA, BARE, pipeline=3, batch=6).stages)

    assert (first["N"], inner["N"], last["N"]) == (4 * OF_A_LAYER + 503 * 46, 4 * OF_A_LAYER, 4 * OF_A_LAYER + 503 * 46 + 46)


def test_layers_that_do_not_divide_do_with_the_ends_in_the_place_of_a_layer() -> None:
    """12 + 2 in 7 are 2, so 1, five times 2, and 1."""
    first, inner, last = (stage.calculation for stage in worked(LLAMA, pipeline=7, batch=14).stages)

    assert (first["l"], inner["l"], last["l"]) == (1, 2, 1)
    assert 12 == first["l"] + 5 * inner["l"] + last["l"]


@pytest.mark.parametrize(("micros", "in_flight"), [(2, 2), (4, 4), (9, 4)])
def test_a_first_stage_holds_as_many_micro_batches_as_there_are_stages(micros: int, in_flight: int) -> None:
    """Of 4 stages with 3 layers: never more than 4, nor more than there are."""
    first, inner, last = (stage.calculation for stage in worked(LLAMA, pipeline=4, batch=micros).stages)

    assert (3 * in_flight, 3 * min(micros, 3), 3) == (first["i"], inner["i"], last["i"])


def test_interleaving_keeps_more_on_the_first_stage() -> None:
    """L (1 + (p - 1)/(p v)) layers: 12 (1 + 3/12) = 15 with 4 stages of 3 pieces (Korthikanti et al. 2022, section 4.2.3)."""
    first = worked(LLAMA, pipeline=4, interleave=3, batch=8).stages[0].calculation

    assert Fraction(12) * (1 + Fraction(3, 4 * 3)) == first["i"]


def test_the_bubble() -> None:
    """(p - 1)/m, and v times less with v pieces (Narayanan et al. 2021, section 2.2)."""
    plain = account(LLAMA, Layout(pipeline=4, batch=8), STATE, H100)
    pieces = account(LLAMA, Layout(pipeline=4, interleave=3, batch=8), STATE, H100)

    assert plain.step is not None
    assert pieces.step is not None
    assert (Fraction(3, 8), Fraction(3, 24)) == (plain.step["beta"], pieces.step["beta"])


def test_a_step_is_the_sum_of_its_parts() -> None:
    """Work, traffic that is waited for, the bubble, and data traffic beyond them."""
    for words in ({"data": 64, "zero": 3}, {"tensor": 4, "pipeline": 3, "context": 2, "sequence": "regather", "batch": 6}):
        layout_account = account(LLAMA, layout_of(words), STATE, H100)

        assert layout_account.step is not None
        assert layout_account.step["step"] == sum(parts_of_step(layout_account).values())


def test_groups_that_fit_a_node_use_its_links() -> None:
    """8 devices to a node: 4 tensor ranks stay in one, 4*4 with context do not."""
    calculation = account(LLAMA, Layout(tensor=4, context=4, batch=1), STATE, H100).stages[0].calculation

    assert (H100.link, H100.network) == (calculation["Bt"], calculation["Bk"])


def test_traffic_of_every_kind_is_there() -> None:
    """Each kind of parallelism sends something of its own."""
    account = worked(EXPERTS, data=2, tensor=2, pipeline=2, context=2, expert=2, zero=1, sequence="regather", batch=8)

    assert {"data", "tensor", "pipeline", "context", "expert"} == set(by_axis(account.stages[0].traffic))


def test_an_all_to_all_and_a_ring_by_hand() -> None:
    """m = 2 micro-batches of 240/2 tokens; Y = 2*120*46 bytes. To experts and back, twice, 2 each, half stays: 2*12*2*Y*4/2.
    Keys and values of 4 heads, 2*120*32 elements: one hop of 2 bytes forward, one backward, and two hops of their gradients in fp32."""
    account = worked(EXPERTS, expert=2, context=2, batch=4)

    sent = {item.collective.symbol: item.sent for item in account.stages[0].traffic}
    assert Fraction(2 * 12 * 2 * (2 * 120 * 46) * 4, 2) == sent["Cx"]
    assert 2 * 12 * (2 * 1 + 2 * 1 + 4 * 2) * (2 * 120 * 32) == sent["Ck"]


def test_a_number_of_parameters_is_gathered_twice() -> None:
    """ZeRO-3 counts 3 P sent, as nothing says what of them stays between forward and backward: (2 + 2*2)*3/4 bytes each on 4 ranks."""
    model = shard_model("1000")
    actual = account(model, Layout(data=4, zero=3), STATE).stages[0]

    assert (2 + 2 * 2) * 1000 * Fraction(3, 4) == sum(item.sent for item in actual.traffic)


def test_checkpointing_a_block_keeps_its_argument() -> None:
    """2 T d bytes a layer, and one layer whole while it is recomputed."""
    none, block = worked(LLAMA).fullest.calculation, worked(LLAMA, checkpointing="block").fullest.calculation

    assert none["A"] - block["A"] == 12 * none["Al"] - 12 * 2 * 240 * 46 - none["Al"]


def test_checkpointing_attention_drops_the_scores() -> None:
    """(2 + 1 + 2) bytes of T*T*h a layer."""
    none, again = worked(GPT).fullest.calculation, worked(GPT, checkpointing="attention").fullest.calculation

    assert 5 * 16 * 16 * 4 == none["Al"] - again["Al"]


def test_a_table_of_both_ends_is_on_both_stages() -> None:
    """Once where there is one stage; with two, its gradients go between them."""
    alone, two = worked(GPT, BARE), worked(GPT, BARE, pipeline=3, batch=3)

    assert 101 * 24 + 32 * 24 + 2 * 24 == alone.fullest.calculation["No"]
    assert 101 * 24 + 2 * 24 == two.stages[2].calculation["No"]
    assert {item.collective.symbol: item.sent for item in two.stages[0].traffic}["Ce"] == 2 * 101 * 24


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        ({"tensor": 5}, "tensor = 5 does not divide the 12 heads: use a divisor of 12"),
        ({"tensor": 3, "batch": 3}, "tensor = 3 neither divides the 4 key/value heads nor is a multiple of them: use one that does"),
        (
            {"pipeline": 5},
            "pipeline*interleave = 5*1 divides neither the 12 layers nor 12 + 2, with embedding and head counted as a layer each:"
            " use a divisor of one of them",
        ),
        ({"interleave": 2}, "interleave = 2 needs a pipeline: give pipeline=2 or more"),
        (
            {"pipeline": 2, "interleave": 2, "batch": 3},
            "interleave = 2 needs a multiple of the 2 stages as the number of micro-batches, which 3/(1*1*1) is not",
        ),
        ({"context": 7}, "context = 7 does not divide the 240 tokens of a sequence: use a divisor of it"),
        ({"expert": 2}, "expert = 2 needs a model with experts: decoder has none"),
        ({"data": 4, "batch": 6},
         "batch = 6 sequences cannot be split into micro-batches of 1 on each of 4*1 data and expert ranks: give a multiple of 4*1*1"),
        ({"sequence": "saved"}, "sequence = saved divides the stream among tensor ranks, of which there is one: give tensor=2 or more"),
        ({"checkpointing": "attention"},
         "checkpointing=attention recomputes the scores, which fused attention never saves: use none or block"),
        ({"tensor": 0}, "tensor = 0 is not a number of tensor-parallel ranks: give an integer from 1 to 10**9"),
        ({"tensor": True}, "tensor = True is not a number of tensor-parallel ranks: give an integer from 1 to 10**9"),
        ({"tensor": 10**5000}, "tensor (of 16,610 bits) is not a number of tensor-parallel ranks: give an integer from 1 to 10**9"),
        ({"tensor": []}, "tensor (of type list) is not a number of tensor-parallel ranks: give an integer from 1 to 10**9"),
        ({"zero": 4}, "zero = 4 is unknown: use one of 0, 1, 2, 3"),
        ({"zero": {}}, "zero (of type dict) is unknown: use one of 0, 1, 2, 3"),
        ({"rank": -(10**5000)}, "rank (of 16,610 bits) is not among the 1 that share weights: they are 0 to 0"),
        ({"data": 2, "rank": 2}, "rank = 2 is not among the 2 that share weights: they are 0 to 1"),
        ({"tensors": 2}, "a layout has no 'tensors': it has data, tensor, pipeline, context, expert, interleave, micro, batch, zero,"
                         " sequence, checkpointing, exchange, rank"),
    ],
)  # fmt: skip
def test_a_layout_that_cannot_be_is_refused(words: dict[str, Any], refusal: str) -> None:
    """In one line that says what to do."""
    with pytest.raises(BadInputError) as error:
        worked(LLAMA, **words)

    assert refusal == str(error.value)


def test_context_parallelism_with_written_out_attention_is_refused() -> None:
    """A ring never has a whole row of scores to keep."""
    with pytest.raises(BadInputError) as error:
        worked(GPT, context=2)

    assert str(error.value) == "context parallelism never has all scores at once, but attention=math saves them: use attention=fused"


@pytest.mark.parametrize(
    ("sizes", "refusal"),
    [
        ({"L": 2}, "a decoder by its sizes needs d (width), h (heads), V (vocabulary), T (length) and f (feed-forward width, or"
         " gated=no for f = 4*d): give them, e.g. d=4096 h=32 V=128256 T=8192 f=14336, or name a model"),
        ({name: SIZES[name] for name in "LhdVT"}, "a decoder by its sizes needs f (feed-forward width, or gated=no for f = 4*d): give it,"
         " e.g. f=14336, or name a model"),
        ({**SIZES, "E": 4}, "a decoder by its sizes needs e (experts of each token): give it, e.g. e=2, or name a model"),
        ({**SIZES, "g": 5}, "g = 5 key/value heads do not divide the 12 heads"),
        ({**SIZES, "E": 4, "e": 5}, "e = 5 experts per token are more than all 4"),
        ({name: SIZES[name] for name in "LhdVTf"}, "h = 12 heads do not divide the width d = 46: give the head width k"),
    ],
)
def test_a_decoder_that_cannot_be_is_refused(sizes: dict[str, int], refusal: str) -> None:
    """Before anything is divided."""
    with pytest.raises(BadInputError) as error:
        decoder(sizes)

    assert refusal == str(error.value)


def test_state_of_rows_and_columns_is_refused() -> None:
    """Adafactor's is no number of bytes a parameter."""
    with pytest.raises(BadInputError) as error:
        state_of("fp32", "adafactor")

    assert str(error.value) == (
        "adafactor keeps rows and columns of a matrix, not bytes per parameter: use adamw, sgd, momentum or the like"
    )


def test_a_planted_error_breaks_an_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """A heads' matrix that is not divided: the ranks then hold more than the model."""
    whole = replace(LLAMA, tensors=tuple(replace(t, divided="") if t.label == "queries" else t for t in LLAMA.tensors))
    right, wrong = (worked(model, BARE, tensor=2).fullest.calculation["Nl"] for model in (LLAMA, whole))

    assert 96 * 46 // 2 == wrong - right
