"""Bytes of rings, gatherings, all-to-alls and pipelines, between real processes, equal the expressions: integers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

import pytest

from calc.capacity.sharding import Account, Layout, ShardedModel, account, communication, decoder, state_of
from tests.capacity.sharding import jobs
from tests.capacity.sharding.ranks import Held, on_processes

FP32 = state_of("fp32", "adamw")
pytestmark = pytest.mark.slow


def by_sizes(sizes: Mapping[str, int]) -> ShardedModel:
    """A decoder in fp32, by its sizes alone."""
    return replace(decoder({name: size for name, size in sizes.items() if name != "B"}), element=4)


def payload(actual: Account, stage: int = 0) -> dict[str, int]:
    """Bytes that the collectives of a step are of, by kind."""
    sums: dict[str, int] = {}
    for item in actual.stages[stage].traffic:
        sums[item.collective.kind] = sums.get(item.collective.kind, 0) + int(item.payload)
    return sums


def in_context(ranks: int, exchange: str, model: ShardedModel | None = None) -> Account:
    whole = {**jobs.PART, "T": 8 * ranks}
    return account(model or by_sizes(whole), Layout(context=ranks, exchange=exchange, micro=2), FP32)


# -- what is measured is what it says -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("exchange", "ranks"), [("ring", 2), ("ring", 3), ("gather", 3)])
def test_attention_across_ranks_is_attention(exchange: str, ranks: int) -> None:
    """Its results and all gradients are those of one rank, to the rounding of fp32 sums."""
    assert max(on_processes(jobs.AttentionAgrees(exchange), ranks)) < 1e-5


def test_experts_across_ranks_are_experts() -> None:
    """With rows routed freely, so that ranks send each other different numbers of rows."""
    assert max(on_processes(jobs.ExpertsAgree(), 2)) < 1e-5


# -- bytes ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("exchange", "ranks"), [("ring", 2), ("ring", 3), ("gather", 2), ("gather", 3)])
def test_context_ranks_exchange_keys_and_values(exchange: str, ranks: int) -> None:
    """c - 1 hops forward, c - 1 backward, c of the gradients; or two gatherings and a scattering. Gradients of weights are summed."""
    account = in_context(ranks, exchange)
    measured = on_processes(jobs.CONTEXT[exchange], ranks)

    assert ranks == len(measured)
    for held in measured:
        assert payload(account) == dict(held.payload)
        assert account.fullest.kinds["weights"] == held.parameters


def test_gradients_go_round_a_ring_in_fp32() -> None:
    """In bf16 keys and values are 2 bytes an element, and their gradients 4: torch's template adds them up so."""
    whole = {name: size for name, size in {**jobs.PART, "T": 16}.items() if name != "B"}
    account = in_context(2, "ring", decoder(whole))

    first, second = on_processes(jobs.CONTEXT_IN_BF16, 2)

    assert payload(account)["point to point"] == first.payload["point to point"] == second.payload["point to point"]


def test_expert_ranks_exchange_rows() -> None:
    """Rows go to the experts and come back, forward and backward. Each rank also says how many rows it sends, 8 bytes for each expert and
    layer, which the expression leaves out. By its sizes a decoder has 3 matrices of 2 experts in each layer where
    the module has 2 of all: 4 step counters more."""
    layout_account = account(by_sizes(jobs.EXPERTS), Layout(expert=2, micro=2), FP32)
    counts = 3 * 4 * 8

    measured = on_processes(jobs.EXPERT, 2)
    assert 2 == len(measured)
    for held in measured:
        assert {**payload(layout_account), "all-to-all": payload(layout_account)["all-to-all"] + counts} == dict(held.payload)
        kinds = layout_account.fullest.kinds
        assert (kinds["weights"], kinds["gradients"], kinds["optimizer"] - 3 * 4 * 4) == (held.parameters, held.gradients, held.optimizer)


@pytest.mark.parametrize(("job", "ranks", "pieces"), [(jobs.PIPELINE, 2, 1), (jobs.PIPELINE, 3, 1), (jobs.INTERLEAVED, 2, 2)])
def test_stages_send_results_on_and_gradients_back(job: jobs.Pipelined, ranks: int, pieces: int) -> None:
    """4 micro-batches of 2 sequences: the first stage sends results only, the last gradients only, one in the middle both."""
    layout = Layout(pipeline=ranks, interleave=pieces, micro=2, batch=8)
    stages = account(by_sizes({**jobs.LLAMA, "L": ranks * pieces}), layout, FP32)

    assert [payload(stages, stage) for stage in range(ranks)] == list(on_processes(job, ranks))


# -- planted errors -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def measured() -> tuple[Held, ...]:
    """A ring and an all-to-all."""
    return on_processes(jobs.CONTEXT["ring"], 2)[0], on_processes(jobs.EXPERT, 2)[0]


@pytest.mark.parametrize("planted", [("*(c - 1)", "*c"), ("4*c", "4*(c - 1)"), ("4*l", "2*l")])
def test_a_planted_error_is_noticed(monkeypatch: pytest.MonkeyPatch, measured: tuple[Held, ...], planted: tuple[str, str]) -> None:
    """A hop too many, gradients that do not come home, rows that do not come back."""
    right = communication.product
    monkeypatch.setattr(communication, "product", lambda *factors: right(*(factor.replace(*planted) for factor in factors)))
    ring, rows = payload(in_context(2, "ring")), payload(account(by_sizes(jobs.EXPERTS), Layout(expert=2, micro=2), FP32))

    counts = prod((3, 4, 8))
    right_ring = ring["point to point"] == measured[0].payload["point to point"]
    assert not (right_ring and rows["all-to-all"] + counts == measured[1].payload["all-to-all"])
