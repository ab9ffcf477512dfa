"""A length that a step walks iteration by iteration: the number of iterations is a trip count, and the length itself stays a symbol."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import calc
from calc.derive.result import Derivation
from calc.graph import trip_counts
from calc.spec import Spec
from tests.checks import failures
from tests.quick import few
from tests.trace.modules import spec

DIMS = {"B": 3, "T": 5, "d": 7}


class Walk(nn.Module):
    """One cell at each of the places that ``places`` gives of a length."""

    def __init__(self, n: Any, places: Callable[[Any], Any]) -> None:
        super().__init__()
        self.cell, self.places = nn.Linear(n.d, n.d, bias=False), places

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros_like(x[:, 0])
        for t in self.places(x.shape[1]):
            state = torch.tanh(self.cell(x[:, t] + state))
        return state


def walk(places: Callable[[Any], Any], **changes: Any) -> Spec:
    return spec(lambda n: Walk(n, places), **{"dims": DIMS, "inputs": lambda n: (torch.randn(n.B, n.T, n.d),), **changes})


def specializable(places: Callable[[Any], Any]) -> Spec:
    """The same, of a spec whose length may be specialized."""
    return walk(places, may_specialize=(("T",),), may_unroll=("T",))


def derived(s: Spec, **sizes: int) -> Derivation:
    return calc.derive(s, sizes, cache=False, optimizer="sgd")


def every(length: Any) -> Any:
    return range(length)


def backwards(length: Any) -> Any:
    return range(length - 1, -1, -1)


def every_fourth(length: Any) -> Any:
    return range(0, length, 4)


def chunks(length: Any) -> Any:
    return range((length + 15) // 16)


def longer_than_eight(length: Any) -> Any:
    return [0, *range(length)] if length > 8 else range(length)


def products(result: Derivation, **sizes: int) -> int:
    """Cells run, by the products of the forward: 2 B d² each."""
    known = {**DIMS, **sizes}
    return result["flops.forward.matmul"].at(**sizes) // (2 * known["B"] * known["d"] ** 2)


@pytest.mark.slow
def test_a_batch_of_one_leaves_the_length_a_symbol() -> None:
    """A guard on B·T and T has another outcome by the batch, whatever the length: the cases of one and of more have the same loop."""

    class Joined(Walk):
        def forward(self, x: Tensor) -> Tensor:
            state = super().forward(x)
            return state if x.shape[0] * x.shape[1] == x.shape[1] else 2 * self.cell(state)

    one = specializable(every)
    result = derived(replace(one, dims={**one.dims, "B": 1, "T": 400}, build=lambda n: Joined(n, every)))

    assert {"B"} == result.specialized.keys()
    assert (400, 401, 31) == (products(result, B=1, T=400), products(result, B=3, T=400), products(result, B=2, T=30))


@pytest.mark.parametrize("places", few([every, backwards], 1))
def test_every_iteration_is_counted_at_any_length(places: Callable[[Any], Any]) -> None:
    """T cells, each once, up and down."""
    result = derived(walk(places))

    assert [products(result, T=T) for T in (6, 8, 11, 1000)] == [6, 8, 11, 1000]


@pytest.mark.slow
def test_a_length_that_may_be_a_number_is_a_loop_count_where_it_can_be() -> None:
    """Nothing is specialized, and a thousand iterations need no trace of a thousand iterations."""
    result = derived(specializable(every))

    assert dict(result.specialized) == {}
    assert products(result, T=1000) == 1000


@functools.cache
def branching(yields: bool) -> Derivation:
    return derived((specializable if yields else walk)(longer_than_eight))


@pytest.mark.slow
def test_a_branch_on_the_length_beyond_the_traced_iterations_is_no_guess() -> None:
    """Longer sequences take one cell more: they are traced at that length, which is a number then, also if it was declared a trip count."""
    assert products(branching(True), T=7) == 7
    for of in (specializable, walk, functools.partial(walk, trip_counts=("T",))):
        long = derived(of(longer_than_eight), T=11)
        assert products(long) == 11 + 1
        assert long.specialized == {"T": 11}
        assert [] == failures(calc.check(long))


@pytest.mark.parametrize("of", [specializable, pytest.param(walk, marks=pytest.mark.slow)])
@pytest.mark.parametrize("places", [every_fourth, chunks])
def test_a_number_of_chunks_is_no_polynomial_in_the_length(places: Callable[[Any], Any], of: Callable[[Any], Spec]) -> None:
    """All lengths up to a chunk's have one: that says nothing of longer ones. The length stays a number."""
    at = derived(of(places), T=37)

    assert at.specialized == {"T": 37}
    assert products(at) == len(places(37))


class Packed(nn.Module):
    """Two layers that run over a packed sequence, whose gradient each place makes as a whole."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.rnn = nn.LSTM(n.d, n.d, num_layers=2)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0])[0]


@pytest.mark.slow
def test_a_length_of_which_a_packed_sequence_is_made_stays_a_symbol() -> None:
    """Its closed forms are quadratic, and its peak is at a place that fewer than five do not determine."""

    def inputs(n: Any) -> tuple[Tensor, ...]:
        return torch.randn(n.B, n.T, n.d), torch.full((n.B,), n.T)

    at = derived(Spec("packed", DIMS, Packed, inputs, lambda module, *x: module(*x).sum()), T=13)

    assert {} == at.specialized


def test_a_degree_that_is_too_low_is_met_at_higher_counts_too() -> None:
    """Three counts from five on: a quadratic whose peak fewer places do not determine."""
    attempts = [0]
    while (later := trip_counts.next_attempt(attempts[-1], ["T"], degree=False)) is not None:
        attempts.append(later)

    assert (5, 6, 7) in [trip_counts.traced_counts(attempt, ["T"])["T"] for attempt in attempts]


@pytest.mark.parametrize("loops", [["T"], ["L", "T"]])
def test_four_iterations_at_each_end_may_differ_from_those_between(loops: list[str]) -> None:
    """A chunk whose state is decayed ends its backward with that many: nine trip counts leave one iteration between."""
    attempts = [0]
    while (later := trip_counts.next_attempt(attempts[-1], loops, degree=False)) is not None:
        attempts.append(later)

    assert (9, 10, 11) in [trip_counts.traced_counts(attempt, loops)["T"] for attempt in attempts]


@pytest.mark.parametrize("loops", [["L"], ["L", "T"], ["L", "T", "E"]])
def test_certificates_have_other_counts_than_traces(loops: list[str]) -> None:
    """In every loop, at every attempt; two certificates differ in all of them."""
    attempt: int | None = 0
    while attempt is not None:
        first, second = trip_counts.certified_counts(attempt, loops)
        assert loops == list(trip_counts.traced_counts(attempt, loops))
        for name, counts in trip_counts.traced_counts(attempt, loops).items():
            assert {first[name], second[name]}.isdisjoint(counts)
            assert first[name] != second[name]
        attempt = trip_counts.next_attempt(attempt, loops, degree=False)


def test_a_degree_that_is_too_low_is_met_with_more_counts_not_with_larger_ones() -> None:
    """Of two loops the inner one first."""
    later = trip_counts.next_attempt(0, ["L", "T"], degree=True)

    assert later is not None
    assert trip_counts.traced_counts(later, ["L", "T"]) == {"L": (3, 4), "T": (6, 7, 8)}


@pytest.mark.parametrize(("before", "after"), [((3, 4), (3, 4, 5)), ((5, 6), (5, 6, 7)), ((7, 8), (9, 10, 11))])
def test_a_higher_degree_is_tried_with_as_many_iterations_as_were_needed_before(before: tuple[int, ...], after: tuple[int, ...]) -> None:
    """Fewer of them did not tell which one needs most memory."""
    attempt = trip_counts.attempt_of(["L"], [{"L": count} for count in before])
    later = trip_counts.next_attempt(attempt, ["L"], degree=True)

    assert later is not None
    assert trip_counts.traced_counts(later, ["L"]) == {"L": after}


@pytest.mark.parametrize(("apart", "counts"), [(0, (3, 4)), (1, (3, 4)), (3, (5, 6)), (6, (7, 8)), (9, (3, 4))])
def test_layers_after_dense_ones_are_traced_at_higher_trip_counts(apart: int, counts: tuple[int, ...]) -> None:
    """With fewer, nothing tells which of them needs most memory; where none of the counts to try is more, the usual ones come first."""
    assert trip_counts.traced_counts(trip_counts.first_attempt(apart), ["L"]) == {"L": counts}


@pytest.mark.parametrize("loops", [["L"], ["L", "T"]])
@pytest.mark.parametrize("attempt", range(7))
def test_a_special_case_starts_with_the_trip_counts_that_the_step_needed(loops: list[str], attempt: int) -> None:
    """They follow from the traces; without a loop, there is only one."""
    counts = trip_counts.traced_counts(attempt, loops)
    traces = [dict(zip(counts, at, strict=True)) for at in itertools.product(*counts.values())]

    assert trip_counts.attempt_of(loops, traces) == attempt
    assert trip_counts.attempt_of([], [{"B": 3}]) == 0
