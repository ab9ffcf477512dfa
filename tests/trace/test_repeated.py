"""Several runs of one step have symbols in common, and what one of them worked out stands for the others."""

from __future__ import annotations

from dataclasses import replace

import pytest

import calc
from calc.basis import basis_of
from calc.exact import evaluate_text
from calc.graph import Record
from calc.options import Options
from calc.spec import Spec
from calc.trace.step import Traced, record_step
from calc.trace.symbols import SizeEnv, hints


def _run(spec: Spec, turns: int, like: Traced | None = None) -> Traced:
    basis = basis_of(spec.dimensions, {})
    repeats = None if like is None else like.repeats
    return record_step(spec, basis, hints(basis, spec.sizes()), {"L": turns}, Options(), like=repeats)


def _asked(run: Traced) -> set[tuple[str, bool]]:
    return {(c.expr, c.holds) for c in run.conditions}


def _at(record: Record, spec: Spec) -> Record:
    """The record with each storage's bytes as a number: texts may say the same polynomial in two ways."""
    sizes = hints(basis_of(spec.dimensions, {}), spec.sizes(), turn=2)
    return replace(record, storages=tuple(replace(s, nbytes=evaluate_text(str(s.nbytes), sizes)) for s in record.storages))


@pytest.mark.parametrize("name", ["gpt2", "mixtral", "vit-b"])
def test_what_an_earlier_run_worked_out_changes_nothing_of_a_record(name: str) -> None:
    """Operators, storages, lifetimes and every question asked about sizes."""
    spec = calc.load(name)
    alone, after = _run(spec, 4), _run(spec, 4, like=_run(spec, 3))

    assert _at(after.record, spec) == _at(alone.record, spec)
    assert _asked(after) == _asked(alone)
    assert after.answers == alone.answers


def test_a_question_that_is_not_asked_again_would_be_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = calc.load("mixtral")
    alone = _run(spec, 4)
    monkeypatch.setattr(SizeEnv, "ask", lambda self, questions: None)

    assert _asked(_run(spec, 4, like=_run(spec, 3))) < _asked(alone)


def test_runs_of_other_symbols_share_nothing() -> None:
    first = _run(calc.load("gpt2"), 3)
    other = _run(calc.load("vit-b"), 3, like=first)

    assert other.repeats is not first.repeats
    assert other.record == _run(calc.load("vit-b"), 3).record
