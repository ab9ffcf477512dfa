"""A special case that is traced by a second process is the one that this process would trace."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import calc
from calc.derive.result import Derivation
from calc.pipeline import ahead
from calc.spec import Spec
from tests.derive.test_other_sizes import alone
from tests.models.configs import LLAMA, spec_of

SYMBOLIC = "tracing the step with symbolic sizes"


@pytest.fixture(autouse=True)
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of this process are allowed."""
    monkeypatch.delenv("NAPKIN_PROCESSES", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    monkeypatch.setattr(ahead, "_LEAST_SECONDS", 0)
    monkeypatch.setattr(ahead, "_PATIENCE", 10_000)
    (tmp_path / "copies").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "copies"))


def _of_the_library(folder: Path) -> Spec:
    return spec_of(folder, LLAMA)


def _by_hand(_: Path) -> Spec:
    return Spec(
        name="linear",
        dims={"B": 3, "d": 7},
        build=lambda n: nn.Linear(n.d, n.d),
        inputs=lambda n: (torch.randn(n.B, n.d),),
        loss=lambda module, x: alone(module(x)).sum(),
    )


class _OverPositions(nn.Module):
    """A layer that meets one position of (B, T, d) after another."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.layer = nn.Linear(d, d)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x[:, 0]
        for position in range(x.shape[1]):
            y = y + self.layer(x[:, position])
        return y


def _of_a_loop(_: Path) -> Spec:
    return Spec(
        name="positions",
        dims={"B": 3, "T": 7, "d": 11},
        build=lambda n: _OverPositions(n.d),
        inputs=lambda n: (torch.randn(n.B, n.T, n.d),),
        loss=lambda module, x: alone(module(x)).sum(),
    )


# Models with a special case at a batch of one; and the traces with symbolic sizes of this process, with and without another.
MODELS = [(_by_hand, (1, 2)), (_of_a_loop, (5, 7)), pytest.param(_of_the_library, (1, 2), marks=pytest.mark.slow)]


def _derived(spec: Spec) -> tuple[Derivation, list[str]]:
    lines: list[str] = []
    sizes = {name: size for name, size in (("B", 1), ("T", 7)) if name in spec.dims}
    return calc.derive(spec, sizes, cache=False, optimizer="sgd", progress=lines.append), lines


def _alone(spec: Spec, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[str]]:
    with monkeypatch.context() as patch:
        patch.setenv("NAPKIN_PROCESSES", "1")
        derivation, lines = _derived(spec)
        return derivation.to_json(), lines


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no process can be copied here")
@pytest.mark.parametrize(("model", "traces"), MODELS)
def test_a_second_process_changes_no_result_and_traces_the_special_case(
    model: Callable[[Path], Spec], traces: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = model(tmp_path)
    derivation, lines = _derived(spec)
    alone, of_one_process = _alone(spec, monkeypatch)

    assert alone == derivation.to_json()
    assert derivation.assumptions
    assert traces == tuple(sum(line.startswith(SYMBOLIC) for line in each) for each in (lines, of_one_process))
    assert [] == [*(tmp_path / "copies").glob("napkin-*")]


def _fails(plan: object) -> Iterator[Any]:
    raise OSError("the second process is killed")


def _sleeps(plan: object) -> Iterator[Any]:
    time.sleep(600)
    yield plan


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no process can be copied here")
@pytest.mark.parametrize("work", [_fails, _sleeps])
def test_where_the_second_process_gives_nothing_this_one_traces(work: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = _of_the_library(tmp_path)
    alone, of_one_process = _alone(spec, monkeypatch)
    monkeypatch.setattr(sys.modules["calc.trace"], "case_with_certificates", work)
    monkeypatch.setattr(ahead, "_PATIENCE", 0)
    derivation, lines = _derived(spec)

    assert of_one_process == lines
    assert alone == derivation.to_json()
