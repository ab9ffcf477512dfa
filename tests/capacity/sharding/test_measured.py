"""Sizes and traffic of torch's own sharding, on ranks of a fake process group and on real processes, equal the expressions: integers."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import pytest

import calc
from calc.capacity.sharding import Account, Layout, ShardedModel, account, communication, decoder, parts, state_of
from calc.capacity.sharding.derived import model_of
from calc.capacity.sharding.module_tensors import own_tensors
from tests.capacity.sharding import jobs
from tests.capacity.sharding.ranks import Held, Job, on_fake_ranks, on_processes

FP32 = state_of("fp32", "adamw")


def by_sizes(sizes: Mapping[str, int]) -> ShardedModel:
    """A Llama in fp32, by its sizes alone."""
    return replace(decoder({name: size for name, size in sizes.items() if name != "B"}), element=4)


def payload(actual: Account) -> dict[str, int]:
    """Bytes that the collectives of a step are of, by kind."""
    sums: Counter[str] = Counter()
    for item in actual.stages[0].traffic:
        sums[item.collective.kind] += int(item.payload)
    return dict(sums)


def worked(model: ShardedModel, **layout: int | str) -> Account:
    return account(model, Layout(**{"micro": 2, **layout}), FP32)


def assert_equal(held: Held, actual: Account) -> None:
    """State of a rank and its traffic; tensors saved for backward are compared where they are derived."""
    kinds = actual.fullest.kinds
    assert (kinds["weights"], kinds["gradients"], kinds["optimizer"]) == (held.parameters, held.gradients, held.optimizer)
    assert payload(actual) == dict(held.payload)


@cache
def measured(job: Job, rank: int, world: int) -> Held:
    """One rank of a fake process group."""
    (held,) = on_fake_ranks(job, [rank], world)
    return held


@pytest.fixture(autouse=True)
def quiet() -> None:
    warnings.simplefilter("ignore")


@pytest.mark.parametrize("rank", [0, pytest.param(3, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)])
def test_fully_shard_on_each_rank_of_five(rank: int) -> None:
    """46 rows in 5 are pieces of 10, the last one of 6: every rank allocates 10, and keeps optimizer state for its own."""
    measurement = measured(jobs.ZERO_3, rank, 5)

    assert_equal(measurement, worked(by_sizes(jobs.LLAMA), data=5, zero=3, rank=rank))
    assert measurement.rows["model.norm.weight"] == ((10,) if rank < 4 else (6,))


@pytest.mark.slow
def test_fully_shard_that_keeps_what_it_gathered_gathers_once() -> None:
    """``reshard_after_forward=False``: gradients and state are divided, weights are gathered once a step, as in stage 2 of ZeRO."""
    measurement = measured(jobs.ZERO_2, 0, 4)

    account = worked(by_sizes(jobs.LLAMA), data=4, zero=2)
    kinds = account.fullest.kinds
    assert payload(account) == dict(measurement.payload)
    assert (kinds["gradients"], kinds["optimizer"]) == (measurement.gradients, measurement.optimizer)


@pytest.mark.slow
@pytest.mark.parametrize(("job", "zero"), [(jobs.REPLICATED, 0), (jobs.ZERO_2, 2), (jobs.ZERO_3, 3)])
def test_micro_batches_of_a_step_exchange_as_often_as_the_stage_has_it(job: Job, zero: int) -> None:
    """Three of them: gradients summed once, scattered three times, or scattered and weights gathered six times; in stage 2 weights once.

    FSDP2 gathers weights in stage 2 with every micro-batch too, unless it is told to keep them after a backward: here it is. DDP's reducer
    wants ranks that answer.
    """
    job = replace(job, micro_batches=3)
    held = on_processes(job, 2)[0] if zero == 0 else on_fake_ranks(job, [0], 2)[0]

    assert payload(worked(by_sizes(jobs.LLAMA), data=2, zero=zero, batch=3 * 2 * 2)) == dict(held.payload)


@pytest.mark.slow
def test_a_module_with_one_matrix_for_queries_keys_and_values_is_cut_by_its_own_rows() -> None:
    """GPT-2: 126 rows in 4 are pieces of 32, where three matrices of 42 rows would be 3 pieces of 11."""
    measurement = measured(jobs.GPT2_ZERO_3, 0, 4)

    sizes = {**jobs.GPT2, "k": 7}
    whole = decoder({name: size for name, size in sizes.items() if name != "B"}, gated=False, bias=True, tied=True)
    account = worked(replace(whole, element=4, own=own_tensors(calc.load("gpt2"), sizes)), data=4, zero=3)
    assert measurement.rows["transformer.h.0.attn.c_attn.weight"] == (32, 42)
    assert_equal(measurement, account)


def test_tensor_parallel_state_and_all_reduces() -> None:
    """2 all-reduces a layer forward and 2 backward, one at each end, and 3 numbers a token for the loss.

    DTensor has the gradient of the embedding whole on each rank, which is the other rank's rows more; the optimizer takes its own.
    """
    measurement = measured(jobs.TENSOR, 0, 2)

    account = worked(by_sizes(jobs.DIVISIBLE), tensor=2)
    kinds = account.fullest.kinds
    rest = 504 // 2 * 46 * 4
    assert kinds["weights"] == measurement.parameters
    assert kinds["gradients"] == measurement.gradients - rest
    assert kinds["optimizer"] == measurement.optimizer
    assert payload(account) == dict(measurement.payload)
    assert measurement.calls == {"all-reduce": 3 * 4 + 2 + 3}


@pytest.mark.slow
def test_sequence_parallel_gathers_and_scatters() -> None:
    """As many gatherings as scatterings. Gradients of the norms are summed once here; torch's optimizer sums them in 3 of its operators."""
    measurement = measured(jobs.SEQUENCE, 0, 2)

    actual = payload(worked(by_sizes(jobs.DIVISIBLE), tensor=2, sequence="saved"))
    norms = 7 * 46 * 4
    assert actual == {**measurement.payload, "all-reduce": measurement.payload["all-reduce"] - 2 * norms}


# -- what the backward keeps, derived -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def llama() -> ShardedModel:
    return model_of(calc.derive(calc.load("llama3-8b"), jobs.DIVISIBLE, precision="fp32"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("job", "layout", "world"),
    [
        (jobs.TENSOR, {"tensor": 2}, 2),
        (jobs.SEQUENCE, {"tensor": 2, "sequence": "saved"}, 2),
        (jobs.ZERO_3_DIVISIBLE, {"data": 3, "zero": 3}, 3),
    ],
)
def test_bytes_saved_for_backward_on_a_rank(llama: ShardedModel, job: Job, layout: dict[str, int | str], world: int) -> None:
    """Tensor by tensor off the derived step: what has heads, a feed-forward width or the vocabulary is divided, the stream in sequence."""
    measurement = measured(job, 0, world)

    assert measurement.saved == worked(llama, **layout).fullest.kinds["activations"]


# -- real processes -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_processes_of_ddp() -> None:
    """All gradients once a step, in buckets of which they are parts."""
    account = worked(by_sizes(jobs.LLAMA), data=2)

    for held in on_processes(jobs.REPLICATED, 2):
        assert_equal(held, account)


@pytest.mark.slow
def test_three_processes_of_fully_shard() -> None:
    """Each rank by its own number: 503 rows in 3 are 168, 168 and 167."""
    measured = on_processes(jobs.ZERO_3, 3)

    assert [0, 1, 2] == [held.rank for held in measured]
    for held in measured:
        assert_equal(held, worked(by_sizes(jobs.LLAMA), data=3, zero=3, rank=held.rank))
        assert held.rows["lm_head.weight"] == ((168, 167)[held.rank == 2], 46)


@pytest.mark.slow
def test_four_processes_of_fully_shard_across_tensor_ranks() -> None:
    """2 by 2: FSDP2 cuts the rows of what a tensor rank has; weights are gathered among 2, the stream among the other 2.

    Here the gradients of the norms are summed once: FSDP2 scatters them before the optimizer sees them.
    """
    measured = on_processes(jobs.BOTH, 4)

    assert [0, 1, 2, 3] == [held.rank for held in measured]
    for held in measured:
        assert_equal(held, worked(by_sizes(jobs.DIVISIBLE), data=2, tensor=2, sequence="saved", zero=3, rank=held.rank // 2))


@pytest.mark.slow
def test_two_processes_of_tensor_and_sequence_parallelism() -> None:
    """Real ranks hold and send what those of the fake group do."""
    for job in (jobs.TENSOR, jobs.SEQUENCE):
        fake = on_fake_ranks(job, [0, 1], 2)

        assert fake == on_processes(job, 2)


@pytest.mark.slow
def test_a_rank_that_fails_says_why() -> None:
    """And the others are not waited for in vain."""
    with pytest.raises(calc.NapkinError) as refusal:
        on_processes(Job(jobs.broken, jobs.REPLICATED.divide, jobs.adamw), 1)

    assert str(refusal.value) == "a rank failed: ValueError: no model today"


# -- planted errors -----------------------------------------------------------------------------------------------------------


def test_a_planted_error_in_the_pieces_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows cut down instead of up, as an average would have them."""
    measurement = measured(jobs.ZERO_3, 0, 5)
    right = parts._elements
    monkeypatch.setattr(parts, "_elements", lambda *given: right(*given).replace("ceiling", "floor"))

    with pytest.raises(AssertionError):
        assert_equal(measurement, worked(by_sizes(jobs.LLAMA), data=5, zero=3))


@pytest.mark.parametrize("planted", [("4*l", "2*l"), ("2*l*", "l*"), ("+ 2", "+ 0"), ("3*4*b", "2*4*b")])
def test_a_planted_error_in_the_traffic_is_noticed(monkeypatch: pytest.MonkeyPatch, planted: tuple[str, str]) -> None:
    """No all-reduce backward, weights gathered once, the ends forgotten, the loss with one number less."""
    held = {**measured(jobs.TENSOR, 0, 2).payload}, {**measured(jobs.ZERO_3, 0, 5).payload}
    right = communication.product
    monkeypatch.setattr(communication, "product", lambda *factors: right(*(factor.replace(*planted) for factor in factors)))

    actual = payload(worked(by_sizes(jobs.DIVISIBLE), tensor=2)), payload(worked(by_sizes(jobs.LLAMA), data=5, zero=3))
    assert actual != held
