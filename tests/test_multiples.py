"""Sizes that must be multiples, where a model says nothing of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import calc
from calc import Spec
from calc.derivation import Derivation
from calc.errors import SizesError


class Heads(nn.Module):
    """Splits its width among heads, which nobody declared to divide it."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.h, self.mix = n.h, nn.Linear(n.d, n.d)

    def forward(self, x: Tensor) -> Tensor:
        batch, width = x.shape
        y: Tensor = self.mix(x).view(batch, self.h, width // self.h).softmax(-1)
        return y


def _spec(build: Any, **dims: int) -> Spec:
    return Spec("split", dims, build, lambda n: (torch.randn(n.B, n.d),), lambda module, x: module(x).sum())


def test_a_multiple_that_the_sizes_allow_is_taken_and_stated() -> None:
    """12 columns among 3 heads; the closed forms hold for any d that h divides."""
    derivation = calc.derive(_spec(Heads, B=2, d=12, h=3), cache=False, optimizer="sgd")

    [said] = [a.because for a in derivation.assumptions if a.expr == "Eq(Mod(d, h), 0)"]
    assert said.startswith("found by recording: without it raised RuntimeError at test_multiples.py:")
    assert not derivation.held
    assert [] == [v.quantity for v in calc.check(derivation, B=5, d=14, h=7).verdicts if v.verdict == "failed"]


def test_a_model_that_runs_at_no_size_keeps_its_own_error() -> None:
    """Nothing is taken for a multiple to no avail."""

    class Broken(Heads):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).view(-1, 1000003)

    with pytest.raises(SizesError, match=r"^split raised RuntimeError at test_multiples\.py:"):
        calc.derive(_spec(Broken, B=2, d=12, h=3), cache=False, optimizer="sgd")


def test_a_multiple_that_was_found_at_other_sizes_does_not_bind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """32 columns are a multiple of 16, which the model's own message names; 24 are not, and need not be: 8 is enough."""
    monkeypatch.setenv("NAPKIN_CACHE", str(tmp_path))

    class Eighths(nn.Module):
        def __init__(self, n: Any) -> None:
            super().__init__()
            self.mix = nn.Linear(n.d, n.d)

        def forward(self, x: Tensor) -> Tensor:
            if x.shape[1] % 8 != 0:
                raise ValueError("as many as 16 columns are fine")
            y: Tensor = self.mix(x)
            return y

    def at(d: int) -> Derivation:
        s = Spec("split", {"B": 2, "d": 32}, Eighths, lambda n: (torch.randn(n.B, n.d),), lambda module, x: module(x).sum(), key="split")
        return calc.derive(s, {"d": d})

    assert [at(32)["parameters"].value, at(24)["parameters"].value] == [32 * 33, 24 * 25]
    assert at(32)["parameters"].text == at(24)["parameters"].text == "d**2 + d"
