"""Trial runs of a class at small sizes: what they need, and what they are not given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calc.models import hf
from calc.models.hf import reduced, trials
from calc.models.hf.trials import Trials
from calc.models.load import load
from tests.models.configs import DINOV2, written

_TWO = {"B": 2}


@pytest.fixture
def of_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trials:
    """The trials of a small class of pictures."""
    made: list[Trials] = []
    related = hf.related
    monkeypatch.setattr(hf, "related", lambda each: made.append(related(each)) or made[-1])
    load(f"hf:{written(tmp_path, DINOV2)}")
    return made[-1]


def _ending_in(outcome: Callable[[Any], object], of_pictures: Trials) -> Trials:
    return replace(of_pictures, task=replace(of_pictures.task, outcome=outcome))


def test_a_run_of_large_inputs_has_no_memory(of_pictures: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    """A forward of a picture of five million pixels takes minutes: whether sizes fit shows without values."""
    devices: list[str] = []
    seeing = _ending_in(lambda outputs: devices.append(outputs[0].device.type), of_pictures)

    for most in (10**9, 0):
        monkeypatch.setattr(trials, "_MOST_ELEMENTS", most)
        assert seeing.runs(_TWO)
    assert ["cpu", "meta"] == devices


def test_a_class_that_reads_data_runs_where_there_are_none(of_pictures: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch refuses to read a tensor without memory; any other error says that the sizes do not fit."""
    monkeypatch.setattr(trials, "_MOST_ELEMENTS", 0)

    assert _ending_in(lambda outputs: outputs[0].sum().item(), of_pictures).runs(_TWO)
    assert not _ending_in(lambda outputs: outputs[0].view(-1, 10**9), of_pictures).runs(_TWO)


def test_a_run_whose_tables_do_not_fit_in_memory_is_none(of_pictures: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    assert of_pictures.runs(_TWO)

    monkeypatch.setattr(trials, "_MOST_BYTES", 1000)
    assert not of_pictures.runs(_TWO)


def test_a_model_whose_pictures_take_minutes_at_full_width_is_checked_narrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """100,000 parameters may see ten thousand pixels where a model of a thousand times as many may not."""
    wide = written(tmp_path, DINOV2 | {"hidden_size": 96})
    assert {"B": 2} == load(f"hf:{wide}").check_at

    monkeypatch.setattr(reduced, "_RUN_AT_FULL_WIDTH", 10**6)
    narrow = load(f"hf:{wide}")
    assert 64 == narrow.sizes(narrow.check_at)["d"]
    assert "parameters and inputs of 4,704 elements would take minutes: a small model of the same kind is checked" in narrow.reduced
