"""Assumptions of a traced step at other sizes: each is a true statement there."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import calc
from calc.graph.guards import Assumption
from calc.spec import Spec
from reports.typeset.wording import in_words


@pytest.mark.parametrize(
    ("expr", "sizes", "words"),
    [
        ("V <= 50283", {"V": 50281}, "V ≤ 50283"),
        ("V <= 50283", {"V": 50368}, "V > 50283"),
        ("Eq(Mod(h, 2), 1)", {"h": 8}, "Mod(h, 2) ≠ 1"),
        ("not (B == 7)", {"B": 7}, "B = 7"),
        ("the step is a polynomial in k", {"k": 3}, "the step is a polynomial in k"),
        ("k <= 256", {"d": 3}, "k ≤ 256"),
    ],
)
def test_an_assumption_that_fails_at_the_sizes_is_negated(expr: str, sizes: dict[str, int], words: str) -> None:
    """A sentence, and a guard on what is no size, stay as they are."""
    assert in_words(Assumption(expr, "a line").at(sizes).expr) == words


class Threshold(nn.Module):
    """Asks for its width, and computes the same on both sides."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(n.d, n.d)
        self.is_wide = bool(n.d > 90)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear(x)
        return y


def test_no_derivation_states_an_assumption_that_is_false_at_its_sizes() -> None:
    """Of a step traced on one side of a comparison, and derived on the other, where a certificate covers it."""
    spec = Spec("threshold", {"B": 5, "d": 11}, Threshold, lambda n: (torch.randn(n.B, n.d),), lambda module, x: module(x).sum())
    for width in (11, 101):
        statements = [in_words(a.expr) for a in calc.derive(spec, {"d": width}).assumptions]
        assert [("d > 90" if width > 90 else "d ≤ 90")] == [text for text in statements if "90" in text]
