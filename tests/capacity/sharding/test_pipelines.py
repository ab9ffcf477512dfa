"""Micro-batches in flight on each stage are those of the schedules that torch runs."""

from __future__ import annotations

import pytest

from calc.capacity.sharding import Layout, account, decoder, state_of
from calc.capacity.sharding.account import choice_of
from calc.capacity.sharding.parts import at_the_end, micro_batches_in_flight, stages_of
from calc.symbolic.exact import evaluate_text
from tests.capacity.sharding.schedules import in_flight

SHAPES = [(p, v, m) for p in (2, 3, 4, 5) for v in (1, 2, 3) for m in (p, 2 * p, 4 * p) if v * m > 1] + [(4, 1, 7), (3, 1, 5)]


@pytest.mark.parametrize(("p", "v", "m"), SHAPES)
def test_in_flight_is_what_torch_s_schedule_holds(p: int, v: int, m: int) -> None:
    """All pieces of the first, second and last rank; and at such a moment the piece with the embedding, or with the head."""
    ranks = in_flight(p, v, m)
    at = {"p": p, "v": v, "m": m}

    for stage, rank in zip(stages_of(p), (0, 1, p - 1) if p > 2 else (0, 1), strict=True):
        choice = choice_of(Layout(pipeline=p, interleave=v, batch=m), p * v)
        assert evaluate_text(micro_batches_in_flight(choice, stage), at) == ranks[rank].together
        if stage != "inner":
            end = [pieces_at[0 if stage == "first" else -1] for pieces_at in ranks[rank].fullest]
            (number,) = at_the_end(choice, stage)
            assert evaluate_text(number, at) == max(end)
            shorter = choice_of(Layout(pipeline=p, interleave=v, batch=m), 2 * p * v - 2)
            assert {evaluate_text(number, at) for number in at_the_end(shorter, stage)} == set(end)


@pytest.mark.parametrize(("p", "v", "m"), [(4, 1, 8), (4, 3, 8), (3, 2, 9), (2, 2, 8)])
def test_activations_where_the_first_and_the_last_piece_have_a_layer_less(p: int, v: int, m: int) -> None:
    """Pieces of 2 layers, the first and the last of 1: moment by moment off the schedule, the fullest counts."""
    model = decoder({"L": 2 * p * v - 2, "d": 8, "h": 2, "f": 16, "V": 32, "T": 4})
    stages = account(model, Layout(pipeline=p, interleave=v, batch=m), state_of()).stages

    for stage, rank, end in ((stages[0], 0, 0), (stages[-1], -1, -1)):
        lines = stage.calculation
        moments = in_flight(p, v, m)[rank].moments
        assert lines["A"] == max(sum(2 * live for live in held) * lines["Al"] + held[end] * (lines["Ao"] - lines["Al"]) for held in moments)
