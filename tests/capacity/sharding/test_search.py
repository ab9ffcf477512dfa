"""The search over layouts: it misses none, its numbers are the exact ones, its winner is the best, and nothing fits says why."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calc.capacity.sharding import Account, account, arrays, decoder, layout_of, machine_of, state_of
from calc.capacity.sharding.layout import conditions
from calc.capacity.sharding.search import search
from calc.capacity.sharding.table import Limits, SearchProblem, table
from calc.errors import BadInputError, NapkinError
from calc.hardware.accelerators import accelerator
from calc.symbolic.expression import FunctionCall

SMALL = decoder({"L": 6, "d": 46, "h": 4, "g": 2, "k": 8, "f": 204, "V": 503, "T": 240})
EXPERTS = decoder({"L": 2, "d": 46, "h": 4, "g": 2, "k": 8, "f": 204, "V": 503, "T": 240, "E": 4, "e": 2})
LLAMA_405B = decoder({"L": 126, "d": 16384, "h": 128, "g": 8, "f": 53248, "V": 128256, "T": 8192})
STATE = state_of()
H100 = machine_of(accelerator("h100-sxm"))
RANKS = ("data", "tensor", "pipeline", "context", "expert")


def one_by_one(model, devices: int, batch: int, micros: tuple[int, ...]) -> dict[str, Account]:
    """Every layout that ``account`` does not refuse, with none of the search's code."""
    actual = {}
    counts = [n for n in range(1, devices + 1) if devices % n == 0]
    for ranks in product(counts, repeat=5):
        if np.prod(ranks) != devices:
            continue
        for pieces, micro, zero, sequence, again, exchange in product(
            (1, 2, 3, 4, 6, 8), micros, range(4), ("off", "saved", "regather"), ("none", "block"), ("ring", "gather")
        ):
            numbers = dict(zip(RANKS, ranks, strict=True))
            alone = numbers["data"] * numbers["context"] * numbers["expert"] == 1
            if (zero and alone) or (exchange == "gather" and numbers["context"] == 1):
                continue  # the same as without
            words = {**numbers, "interleave": pieces, "micro": micro, "batch": batch, "zero": zero, "sequence": sequence}
            layout = layout_of({**words, "checkpointing": again, "exchange": exchange})
            try:
                actual[layout.words] = account(model, layout, STATE, H100)
            except BadInputError:
                continue
    return actual


def assert_complete(model, devices: int, batch: int) -> None:
    expected = one_by_one(model, devices, batch, (1, 2, 4))
    actual = table(SearchProblem(model, Limits(devices, batch), STATE, H100))
    layouts = [actual.layout(row, batch) for row in range(len(actual))]

    assert sorted(expected) == sorted(layout.words for layout in layouts)
    for row, layout in enumerate(layouts):
        exact = expected[layout.words]
        assert exact.step is not None
        assert exact.memory == actual.memory[row]
        assert float(exact.step["step"]) == pytest.approx(actual.seconds[row], rel=1e-13)


def test_every_layout_is_there_with_its_exact_numbers() -> None:
    """2 devices, 4 sequences, 6 layers: as many as trying each one by one, integers of bytes equal."""
    assert_complete(SMALL, 2, 4)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "devices"), [(SMALL, 4), (SMALL, 8), (EXPERTS, 4)])
def test_every_layout_of_more_devices_is_there(model, devices: int) -> None:
    """The same for more kinds at once, with experts and without."""
    assert_complete(model, devices, 4)


def test_the_winner_is_the_fastest_that_fits() -> None:
    """Found by trying each one by one, of equal times with the least memory."""
    memory = 12_000_000
    tight = replace(H100, memory=memory)
    fitting = [one for one in one_by_one(SMALL, 2, 4, (1, 2, 4)).values() if one.memory <= memory]
    best = min(fitting, key=lambda one: (one.step["step"], one.memory) if one.step else ())

    actual = search(SearchProblem(SMALL, Limits(2, 4), STATE, tight))
    assert (len(fitting), best.memory) == (actual.fitting, actual.winner.memory)
    assert actual.winner.step is not None
    assert best.step is not None
    assert best.step["step"] == actual.winner.step["step"]


def test_a_405b_model_on_16384_devices() -> None:
    """Every valid layout at once; the winner fits, and none of the front is better in both."""
    actual = search(SearchProblem(LLAMA_405B, Limits(16384, 2048), STATE, H100))

    assert actual.counted > 500_000
    assert actual.winner.memory <= H100.memory
    assert 16384 == actual.winner.layout.devices
    times = [one.step["step"] for one in actual.front if one.step is not None]
    assert times == sorted(times)
    assert [one.memory for one in actual.front] == sorted((one.memory for one in actual.front), reverse=True)
    assert actual.front[0].layout == actual.winner.layout


def test_the_same_search_twice_is_the_same() -> None:
    """Equal layouts stand in a fixed order."""
    first, second = (search(SearchProblem(SMALL, Limits(8, 8), STATE, H100)) for _ in range(2))

    assert first == second


def test_a_loser_says_what_it_spends_its_time_on() -> None:
    """Each runner-up is another division into ranks, and slower or larger."""
    actual = search(SearchProblem(LLAMA_405B, Limits(1024, 256), STATE, replace(H100, memory=200 * 10**9)))

    assert actual.runners
    for loser in actual.runners:
        assert [getattr(loser.account.layout, name) for name in RANKS] != [getattr(actual.winner.layout, name) for name in RANKS]
        assert "slower: " in loser.because or loser.because.startswith("as fast; ") or loser.because == "equal"


def test_words_of_a_layout_hold_the_search_to_them() -> None:
    """Four tensor ranks, stage 1 of ZeRO, and nothing else."""
    actual = table(SearchProblem(SMALL, Limits(8, 8, zero=(1,), fixed=(("t", 4),)), STATE, H100))

    assert {4.0} == set(actual.numbers["t"])
    assert {1} == {actual.layout(row, 8).zero for row in range(len(actual))}


def test_fewer_devices_are_tried_where_they_may_be() -> None:
    """2 of 2, or 1 of them."""
    actual = table(SearchProblem(SMALL, Limits(2, 4, fewer=True), STATE, H100))

    assert {1.0, 2.0} == set(actual.devices)


def test_nothing_fits_names_what_is_largest_and_what_would_fit() -> None:
    """405 billion parameters on 64 devices: state alone is 6.5 TB."""
    with pytest.raises(BadInputError) as error:
        search(SearchProblem(LLAMA_405B, Limits(64, 64), STATE, H100))

    assert str(error.value) == (
        "none of 55,010 layouts fits 80 GB: the smallest (tensor=8 pipeline=8 batch=64 sequence=saved checkpointing=block) needs up to"
        " 116.5 GB, of which optimizer state 51.01 GB; memory=117GB, more devices or a shorter sequence would fit"
    )


def test_no_layout_at_all_names_the_condition() -> None:
    """7 devices divide neither 6 layers, nor 6 + 2, nor 4 heads, nor 4 sequences, nor 240 tokens."""
    with pytest.raises(BadInputError) as error:
        search(SearchProblem(SMALL, Limits(7, 4), STATE, H100))

    assert str(error.value).startswith("no layout of 7 devices and batch = 4 is possible: most fail because ")


def refused(limits: Limits) -> str:
    with pytest.raises(BadInputError) as error:
        search(SearchProblem(SMALL, limits, STATE, H100))
    return str(error.value)


def test_ranks_that_do_not_multiply_to_the_devices_are_what_is_blamed() -> None:
    """7 divides no 64: nothing is tried, so that no condition can be at fault."""
    assert refused(Limits(64, 8, fixed=(("t", 7), ("n", 2)))) == (
        "the given ranks (tensor = 7, data = 2) do not multiply to 64 devices with any other ranks: leave one out, or change devices"
    )


def test_a_choice_that_goes_with_no_ranks_is_what_is_blamed() -> None:
    """One device has no tensor ranks, among which a stream could be divided."""
    assert refused(Limits(1, 8, sequence=("saved",))) == (
        "no layout of 1 device matches the given zero, sequence, checkpointing and exchange: zero needs ranks that share weights,"
        " sequence needs tensor ranks that divide the tokens, checkpointing=attention needs attention=math; leave one out"
    )


@pytest.mark.parametrize(("words", "said"), [
    ({"batch": "1e30"}, "batch = 1000000000000000000000000000000 is not a number of sequences of a step, all devices together: give an"
                        " integer from 1 to 10**9"),
    ({"devices": "1e12"}, "devices = 1000000000000 is not a number of devices: give an integer from 1 to 10**9"),
    ({"L": "1e12"}, "L = 1000000000000 is too deep for a search: give 1 to 10**9 layers"),
    ({"fewer": "maybe"}, "fewer = 'maybe' is neither yes nor no"),
])  # fmt: skip
def test_what_no_search_can_walk_is_refused_before_it_begins(words: dict[str, str], said: str) -> None:
    """The divisors of 10^30 alone would take years."""
    from calc.capacity.sharding.request import best

    started: list[str] = []
    usual = {"L": "6", "d": "64", "h": "4", "f": "256", "V": "503", "T": "240", "gpu": "h100-sxm", "batch": "16", "devices": "8"}
    with pytest.raises(BadInputError) as refusal:
        best(None, {**usual, **words}, started.append)
    assert str(refusal.value) == said
    assert not started or "L" in words  # of a model that is named, the layers are known when it is derived


HUNDREDS = decoder({"L": 720720, "d": 720720, "h": 720720, "g": 720720, "k": 2, "f": 720720, "V": 503, "T": 720720})


@pytest.mark.parametrize(("devices", "batch", "tried"), [(720_720, 720_720, 387_072_000), (10**9, 10**9, 87_120_000)])
def test_devices_with_hundreds_of_divisors_are_searched(devices: int, batch: int, tried: int) -> None:
    """89,600 divisions of 720,720 devices into ranks, 240 micro-batches and 18 numbers of pieces: few of them are ever made."""
    grid, refused, count = sys.modules["calc.capacity.sharding.table"]._grid(LLAMA_405B, Limits(devices, batch))

    assert tried == count == len(grid["n"]) + sum(refused.values())
    assert all(grid["n"] * grid["t"] * grid["p"] * grid["c"] * grid["x"] == devices)


@pytest.mark.parametrize(("model", "limits", "free"), [
    (LLAMA_405B, Limits(735_134_400, 1000), "tensor or pipeline or context or interleave or micro, e.g. tensor=8"),
    (EXPERTS, Limits(735_134_400, 1000, fixed=(("t", 8), ("b", 1))), "pipeline or context or expert or interleave"),
    (HUNDREDS, Limits(720_720, 720_720), "tensor or pipeline or context or interleave or micro, e.g. tensor=8"),
], ids=["divisions", "with some fixed", "valid ones"])  # fmt: skip
def test_a_search_without_end_is_refused_with_what_to_fix(model, limits: Limits, free: str) -> None:
    """Keys that are given already are not named."""
    with pytest.raises(BadInputError) as refusal:
        table(SearchProblem(model, limits, STATE, H100))

    assert str(refusal.value) == (
        f"{limits.devices} devices and batch = {limits.batch} have more layouts than are searched (1,000,000 combinations of ranks,"
        f" 250,000 valid ones with chunks and micro-batches): give {free}"
    )


def test_the_numbers_searched_are_those_of_a_walk() -> None:
    """In its order, and with each condition blamed for as many."""
    limits = Limits(36, 36, fewer=True)
    walked = []
    pieces, micros = (1, 2, 3, 4, 6, 8), [n for n in range(1, 37) if 36 % n == 0]
    for used in micros:
        for t, p, c in product(micros, repeat=3):
            if used % (t * p * c) == 0:
                walked += [(used // (t * p * c), t, p, c, 1, v, b) for v in pieces for b in micros]
    refused: dict[str, int] = {}
    for condition in conditions(SMALL, sequence=False):
        values = [{**SMALL.values, **dict(zip("ntpcxvb", numbers, strict=True)), "B": 36} for numbers in walked]
        there = [condition.holds(at) for at in values]
        refused[condition.because] = there.count(False)
        walked = [numbers for numbers, holds in zip(walked, there, strict=True) if holds]
    grid, counted, _ = sys.modules["calc.capacity.sharding.table"]._grid(SMALL, limits)

    assert counted == refused
    assert walked == list(zip(*(grid[letter].astype(int).tolist() for letter in "ntpcxvb"), strict=True))


def test_a_planted_error_in_the_arrays_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows cut down instead of up: the exact numbers of the winner are not those of the arrays."""
    right = arrays.Doubles.call

    def cut_down(self: arrays.Doubles, node: FunctionCall) -> Any:
        return right(self, FunctionCall("floor", node.arguments) if node.function == "ceiling" else node)

    monkeypatch.setattr(arrays.Doubles, "call", cut_down)

    with pytest.raises(NapkinError) as error:
        search(SearchProblem(SMALL, Limits(8, 8), STATE, H100))

    assert str(error.value).startswith("internal error: the arrays give ")


def test_devices_of_one_node_need_no_network() -> None:
    """An RTX 4090 has links to its neighbors only: eight of them are laid out, sixteen wait for a network's rate."""
    from calc.capacity.sharding.request import best

    words = {"L": "6", "d": "64", "h": "4", "f": "256", "V": "503", "T": "240", "gpu": "rtx4090", "batch": "16"}

    assert best(None, {**words, "devices": "8"}, print).winner.layout.devices == 8
    with pytest.raises(BadInputError) as refusal:
        best(None, {**words, "devices": "16"}, print)
    assert str(refusal.value) == ("NVIDIA GeForce RTX 4090 24GB has no typical network in the table: give network=…, e.g. network=50GB/s")


@pytest.mark.parametrize(("word", "said"), [
    ("memory=80", "memory = 80 is 80 bytes, less than one layer of a model needs: write 80GB or 80GiB"),
    ("network=50", "network = 50 is 50 bytes/s, less than any link carries: write 50GB/s or 400Gbit/s"),
    ("link=900GB", "link = '900GB' is an amount of memory: link is in bytes/s, write 900GB/s"),
])  # fmt: skip
def test_rates_without_their_unit_are_refused(word: str, said: str) -> None:
    """80 bytes and 50 bytes a second are no device's."""
    from calc.capacity.sharding.request import shard

    key, _, value = word.partition("=")
    with pytest.raises(BadInputError) as refusal:
        shard(None, {"parameters": "7e9", "gpu": "h100-sxm", key: value}, print)
    assert str(refusal.value) == said


def test_a_machine_of_a_users_file_is_laid_out_on(tmp_path: Path) -> None:
    """10^12 FLOP/s: 6 FLOP for each weight and token of the products take as long as that."""
    from calc.capacity.sharding.request import shard

    entry = (
        "[mine]\nname = 'Mine'\nvendor = 'me'\narchitecture = 'one'\nyear = 2026\nmemory = 96000000000\nbandwidth = 2000000000000\n"
        "link = { name = 'wire', per_direction = 100000000000 }\nsource = 'my own'\npeak.bf16 = { dense = 1, engine = 'matrix' }\n"
    )
    (tmp_path / "mine.toml").write_text(entry)
    words = {"L": "6", "d": "64", "h": "4", "f": "256", "V": "503", "T": "240", "gpu": "mine", "hardware": str(tmp_path / "mine.toml")}
    account = shard(None, words, print)

    assert account.machine is not None
    assert (account.machine.name, account.machine.peak, account.machine.link) == ("Mine", 10**12, 10**11)
    assert account.step is not None
    assert account.step["step"] == account.stages[0].calculation["F"] / 10**12
