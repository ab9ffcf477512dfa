"""A sequence that is made when it is first read, and once."""

from __future__ import annotations

from typing import Any

import pytest

import calc
from calc.derive.rules_of_thumb import ranges
from calc.derive.steps import StepMaker
from calc.platform.on_demand import OnDemand
from reports.jobs import job
from reports.views import answers


def test_the_entries_are_made_at_the_first_read_and_once() -> None:
    calls: list[int] = []

    def make() -> tuple[int, ...]:
        calls.append(1)
        return 5, 7

    entries = OnDemand(make)
    assert calls == []
    assert ([5, 7], 2, 7, (7,)) == ([*entries], len(entries), entries[-1], entries[1:])
    assert calls == [1]


def test_it_equals_any_sequence_of_equal_entries() -> None:
    assert (5, 7) == OnDemand(lambda: (5, 7))
    assert OnDemand(lambda: (5,)) != (5, 7)
    assert hash((5, 7)) == hash(OnDemand(lambda: (5, 7)))


def test_a_screen_of_answers_makes_no_steps_and_no_ranges_of_rules_of_thumb(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: Any, **__: Any) -> None:
        raise AssertionError("made, though no answer shows it")

    derivation = calc.derive(calc.load("mlp"))
    monkeypatch.setattr(StepMaker, "made", refuses)
    monkeypatch.setattr(ranges, "_runs", refuses)
    screen = answers.of_derivation(derivation, job.comparisons(derivation))

    assert screen.lines
    with pytest.raises(AssertionError, match="no answer shows it"):
        len(derivation.steps)
