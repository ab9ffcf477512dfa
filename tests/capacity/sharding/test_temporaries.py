"""What is there for a moment is in a layout's memory: no derived peak is above it, and what is not known is not said to fit."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

import calc
from calc.capacity.sharding import Account, Layout, ShardedModel, account, decoder, machine_of, state_of
from calc.capacity.sharding.derived import model_of
from calc.capacity.sharding.module_tensors import own_tensors
from calc.derive.result import Derivation
from calc.hardware.accelerators import accelerator

DECODER_SIZES = {"L": 4, "d": 64, "h": 4, "g": 2, "k": 16, "f": 128, "V": 500, "T": 128}
DECODER = decoder(DECODER_SIZES)
H100 = machine_of(accelerator("h100-sxm"))
SIZES = {
    "llama3-8b": {"T": 16, "d": 44, "h": 6, "g": 3, "k": 8, "f": 211, "L": 3, "V": 503},
    "mixtral": {"T": 16, "d": 48, "h": 6, "g": 3, "k": 8, "f": 88, "L": 3, "V": 503, "E": 5, "e": 2},
    "gpt2": {"T": 16, "d": 42, "h": 6, "f": 170, "L": 3, "V": 503, "C": 31},
    "vit-b": {},
}


@cache
def read(name: str, optimizer: str, precision: str, batch: int = 2) -> tuple[Derivation, ShardedModel]:
    spec = calc.load(name)
    derivation = calc.derive(spec, {**SIZES[name], "B": batch}, precision=precision, optimizer=optimizer)
    return derivation, model_of(derivation, own_tensors(spec, derivation.sizes))


def temporaries(model: ShardedModel, **layout: int | str) -> int:
    return account(model, Layout(**layout), state_of()).fullest.kinds["temporaries"]


# -- by sizes -------------------------------------------------------------------------------------------------------------------


def test_the_loss_has_two_gradients_of_the_logits_in_fp32() -> None:
    """Of log-probabilities and of logits: 2*4*B*T*V bytes, of which each of two tensor ranks has half of the vocabulary."""
    assert 8 * 3 * 128 * 500 == temporaries(DECODER, micro=3)
    assert 8 * 3 * 128 * 250 == temporaries(DECODER, micro=3, tensor=2)


def test_a_stage_without_a_loss_has_the_gradients_of_one_layer() -> None:
    """Of the gated product, gate and up, and of the stream: (6 f + 2 d) B T."""
    first, last = (stage.kinds["temporaries"] for stage in account(DECODER, Layout(pipeline=2, batch=4), state_of()).stages)

    assert ((6 * 128 + 2 * 64) * 128, 8 * 128 * 500) == (first, last)


def test_where_little_is_kept_the_optimizer_has_the_most() -> None:
    """One token: gradients are cast to fp32, 2 bytes more each; 2*4 bytes of each element of the largest tensor; ids and targets."""
    fullest = account(decoder({**DECODER_SIZES, "T": 1}), Layout(), state_of()).fullest

    assert 2 * int(fullest.calculation["N"]) + 8 * 500 * 64 + 16 - fullest.kinds["activations"] == fullest.kinds["temporaries"]


@pytest.mark.parametrize(
    "words", [{"data": 2, "zero": 3}, {"tensor": 2, "sequence": "regather"}, {"context": 2}, {"pipeline": 2, "batch": 4}]
)
def test_no_layout_has_more_temporaries_than_one_device(words: dict[str, int | str]) -> None:
    """Whatever is divided."""
    assert temporaries(DECODER, **words) <= temporaries(DECODER)


def test_key_heads_that_are_fewer_than_ranks_are_kept_by_each() -> None:
    """2 key heads on 4 ranks: each keeps keys and values of one, 4*T*k bytes, and no half of them."""
    two, four = (account(DECODER, Layout(tensor=t), state_of()).fullest.calculation for t in (2, 4))
    divided = {"queries and result": 2 * 2 * 128 * 4 * 16, "sums": 4 * 128 * 4, "hidden": 8 * 128 * 128}

    assert sum(divided.values()) // 4 == two["Al"] - four["Al"]


def fit(model: ShardedModel, memory: int) -> Account:
    return account(model, Layout(), state_of(), replace(H100, memory=memory))


def test_whether_it_fits_is_said_only_where_it_is_known() -> None:
    """The sum is a bound from above; state, what is kept and the loss's gradients are there at once, without those of the weights."""
    one = account(DECODER, Layout(), state_of()).fullest
    certain = one.total - one.kinds["gradients"]

    assert [fit(DECODER, size).fit for size in (one.total, one.total - 1, certain, certain - 1)] == [
        "fits", "may not fit", "may not fit", "does not fit",
    ]  # fmt: skip


def test_a_layer_that_runs_again_is_not_there_with_the_loss() -> None:
    """What is certain is the arguments of all layers and what the loss has: without the one layer that is whole while it is recomputed."""
    one = account(DECODER, Layout(checkpointing="block"), state_of()).fullest

    assert one.total - one.kinds["gradients"] - one.calculation["Al"] == one.at_once


def test_without_temporaries_nothing_is_said_to_fit() -> None:
    """What is kept fits, and that is what is said."""
    unknown = fit(replace(DECODER, temporaries=()), 10**12)

    assert "temporaries" not in unknown.fullest.kinds
    assert unknown.fit == "state and saved activations fit; temporaries are not counted"
    assert fit(unknown.model, unknown.memory - 1).fit == (
        "may not fit: state, saved activations and all gradients together do not; temporaries are not counted"
    )
    assert fit(unknown.model, unknown.fullest.at_once - 1).fit == "does not fit"


# -- derived --------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize(("optimizer", "precision", "batch"), [("adamw", "bf16-master", 2), ("sgd", "fp32", 1), ("adamw", "bf16", 1)])
def test_one_device_has_no_less_than_the_derived_peak(name: str, optimizer: str, precision: str, batch: int) -> None:
    """Which the same sum without temporaries is below; buffers, which a note names, apart."""
    derivation, model = read(name, optimizer, precision, batch)
    peak = derivation["memory.peak"].value
    buffers = max(c.part_values.get("buffer", 0) for c in derivation["memory.peak"].candidates)
    with_them, without = (
        account(m, Layout(micro=batch), state_of(precision, optimizer)).memory for m in (model, replace(model, temporaries=()))
    )

    assert peak is not None
    assert without < with_them
    assert peak - buffers <= with_them


@pytest.mark.slow
def test_gpt2_exceeds_its_derived_peak_by_the_gradients_alone() -> None:
    """The peak is at the loss, where none of the 2*124,439,808 bytes of gradients is there yet: 21,410,109,524 bytes at B = 32."""
    spec = calc.load("gpt2")
    derivation = calc.derive(spec, {"B": 32}, precision="bf16-master")
    model = model_of(derivation, own_tensors(spec, derivation.sizes))
    layout_account = account(model, Layout(micro=32), state_of(), replace(H100, memory=16 * 10**9))

    assert derivation["memory.peak"].value == 21_410_109_524
    assert layout_account.memory == 21_410_109_524 + 2 * 124_439_808
    assert layout_account.fullest.kinds["temporaries"] == 4 * 32 * 1024 * 50257 + 2
    assert layout_account.fit == "does not fit"
    assert layout_account.fullest.at_once == derivation["memory.peak"].value
